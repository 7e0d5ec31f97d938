"""Pads, the bottleneck and noise on rows: what each must keep."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.crypto import ring
from veracausa.crypto.randomness import SecureDraws
from veracausa.discovery.privacy import countermeasures as bottleneck
from veracausa.discovery.privacy import countermeasures as row_noise
from veracausa.discovery.privacy import countermeasures as zero_sum


def test_pads_leave_the_sum_and_hide_every_part() -> None:
    draws, sources = SecureDraws(), (0, 1, 3)
    secrets: dict[int, dict[int, bytes]] = {source: {} for source in sources}
    for a in sources:
        for b in sources:
            if a < b:
                secrets[a][b] = secrets[b][a] = zero_sum.secret(draws)
    answers = {source: draws.uniform(40, 25) for source in sources}
    sent = {
        source: zero_sum.padded(answer, source, 2, 7, {**secrets[source], 2: b"the target's own"})
        for source, answer in answers.items()
    }
    assert (ring.reduce(sum(sent.values())) == ring.reduce(sum(answers.values()))).all()
    differences = np.concatenate([ring.subtract(sent[source], answers[source]).ravel() for source in sources])
    assert len(np.unique(differences)) == len(differences)
    assert np.histogram(differences, 8, (0, ring.P))[0] == pytest.approx(np.full(8, 375), rel=0.25)


def test_no_pad_serves_twice() -> None:
    shared = zero_sum.secret(SecureDraws())
    drawn = [zero_sum.pad(shared, target, exchange, (3, 4)) for target in (0, 1) for exchange in (5, 6)]
    assert len(np.unique(np.stack(drawn))) == 48
    assert (zero_sum.pad(shared, 0, 5, (3, 4)) == drawn[0]).all()


def test_a_bottlenecks_gradient_is_that_of_what_was_opened() -> None:
    rng = np.random.default_rng(0)
    mixed = bottleneck.mixing(3, 10)
    assert mixed @ mixed.T == pytest.approx(np.eye(3), abs=1e-12)
    opened, gradient = rng.standard_normal((5, 2 * 3)), rng.standard_normal((5, 2 * 10))
    inside = (bottleneck.spread(opened, mixed) * gradient).sum()
    assert inside == pytest.approx((opened * bottleneck.gathered(gradient, mixed)).sum())
    assert [bottleneck.widest(5, 10), bottleneck.widest(5, 5), bottleneck.widest(2, 4)] == [1, 0, 1]


def test_noise_has_its_deviation_and_the_parts_add_up_to_it() -> None:
    draws = SecureDraws()
    parts = [row_noise.drawn(draws, row_noise.part(3.0, 4), 20, 4000) for _ in range(4)]
    whole = ring.centred(ring.reduce(sum(parts))) / 2.0**20
    assert whole.std() == pytest.approx(3.0, rel=0.1)
    assert abs(whole.mean()) < 0.3


def test_every_opening_is_accounted_for() -> None:
    once, often = row_noise.accounted(1.0, 1, 0.5), row_noise.accounted(1.0, 400, 0.5)
    assert often.mu == pytest.approx(20 * once.mu)
    assert often.epsilon > once.epsilon > 0
    assert row_noise.accounted(20.0, 400, 0.5).epsilon == pytest.approx(once.epsilon)
    strengths = np.array([[0, 3.0, 4.0], [0, 0, 1.0], [0, 0, 0]])
    assert row_noise.most_exposed(strengths, own=[1, 2], foreign=[0]) == pytest.approx(5.0)
