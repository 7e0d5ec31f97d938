"""Noise that belongs to a row, and noise that is new each time."""

from __future__ import annotations

import pytest
import torch

from veracausa.defenses.draws import ByRow, Fresh

KEY = bytes(range(32))
ROWS = torch.rand(64, 3, 4, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("make", [lambda: ByRow(KEY, ROWS), lambda: Fresh(KEY, ROWS.device)], ids=["by row", "fresh"])
def test_the_laws_are_those_they_are_named_after(make):
    draws = make()
    normal, laplace = draws.normal(64, 500), draws.laplace(64, 500)
    for drawn, deviation, fourth in ((normal, 1.0, 3.0), (laplace, 2**0.5, 6.0)):  # kurtosis: 3 and 6
        # 32,000 draws: four standard errors of each moment.
        assert drawn.isfinite().all()
        assert float(drawn.mean()) == pytest.approx(0, abs=4 * deviation / 32000**0.5)
        assert float(drawn.std()) == pytest.approx(deviation, rel=0.03)
        assert float((drawn / drawn.std()).pow(4).mean()) == pytest.approx(fourth, rel=0.15)
    assert abs(float((normal * laplace).mean())) < 0.05, "two calls give the same numbers"
    assert float((normal[1:] * normal[:-1]).mean()) == pytest.approx(0, abs=0.03), "two rows share their noise"


def test_a_row_has_its_noise_whatever_is_beside_it():
    whole = ByRow(KEY, ROWS).normal(64, 5)
    assert torch.equal(ByRow(KEY, ROWS[10:12]).normal(2, 5), whole[10:12])
    assert torch.equal(ByRow(KEY, ROWS.contiguous(memory_format=torch.channels_last)).normal(64, 5), whole)
    assert torch.equal(ByRow(KEY, ROWS.flip(0)).normal(64, 5), whole.flip(0))


def test_another_row_or_seed_has_other_noise():
    noise = ByRow(KEY, ROWS).normal(64, 5)
    assert not (ByRow(bytes(31) + b"8", ROWS).normal(64, 5) == noise).any()
    nudged = ROWS.clone()
    nudged[0, 0, 0, 0] += 1e-6
    swapped = ROWS.clone()
    swapped[0, 0, 0, 0], swapped[0, 0, 0, 1] = ROWS[0, 0, 0, 1], ROWS[0, 0, 0, 0]
    for other in (nudged, swapped):
        changed = ByRow(KEY, other).normal(64, 5)
        assert not (changed[0] == noise[0]).any()
        assert torch.equal(changed[1:], noise[1:])
    zeros = torch.zeros(2, 5)
    assert torch.equal(ByRow(KEY, zeros).normal(2, 3), ByRow(KEY, -zeros).normal(2, 3)), "a zero has two noises"
