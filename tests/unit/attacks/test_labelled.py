"""The oracle is told the labels that the blind guess knows: what a noisy payload adds to them is read, too."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from veracausa.attacks.base import AdversaryView, Grant
from veracausa.attacks.decoding import LabelCode, LabelledDecoder
from veracausa.attacks.fitting import LinearReader
from veracausa.attacks.methods.features.inverse import InverseNetwork, InverseOptions
from veracausa.metrics.leakage import blind_guesses, blind_mse

KNOWN = 250


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def options(**settings) -> InverseOptions:
    return InverseOptions(name="inverse", **{"epochs": 3, "channels": 8, "blocks": 1, "batch_size": 32, **settings})


def pictures(count: int = 500) -> tuple[Tensor, Tensor]:
    """1×8×4 pictures that mostly follow their class, of four."""
    labels = torch.randint(4, (count,), generator=rng(1))
    means = torch.rand(4, 1, 8, 4, generator=rng(2))
    waves = torch.randn(3, 1, 8, 4, generator=rng(3))
    own = torch.einsum("nk,kchw->nchw", torch.randn(count, 3, generator=rng(4)), waves)
    return (0.6 * means[labels] + 0.2 + 0.05 * own).clamp(0, 1), labels


def advantage(network: InverseNetwork, payloads: Tensor, rows: Tensor, labels: Tensor) -> float:
    """Leakage, not clipped, against the class mean among others."""
    network.told(labels[KNOWN:])
    guess = network.reconstruct(payloads[KNOWN:])
    known = {"auxiliary_labels": labels[:KNOWN], "labels": labels[KNOWN:]}
    blind, name = blind_mse(blind_guesses(rows[:KNOWN], len(rows) - KNOWN, **known), rows[KNOWN:])
    assert name == "class mean"
    return 1 - float((guess - rows[KNOWN:]).square().mean()) / blind


def fitted(payloads: Tensor, rows: Tensor, labels: Tensor | None) -> InverseNetwork:
    return InverseNetwork(options()).fit(payloads[:KNOWN], rows[:KNOWN], rng(), labels=labels, classes=4)


def test_a_noisy_payload_is_read_only_with_the_labels_that_the_blind_guess_has() -> None:
    rows, labels = pictures()
    mixed = rows.flatten(1) @ torch.randn(32, 64, generator=rng(5))
    payloads = mixed + 2.5 * torch.randn(mixed.shape, generator=rng(6))
    payloads = payloads.view(-1, 8, 4, 2)
    without = advantage(fitted(payloads, rows, None), payloads, rows, labels)
    told = advantage(fitted(payloads, rows, labels[:KNOWN]), payloads, rows, labels)
    assert without < 0.01  # no better than the class mean, so the payload seems to say nothing
    assert told > 0.05


def test_labels_do_no_harm_where_the_payload_says_all_or_nothing() -> None:
    rows, labels = pictures()
    clear = (rows.flatten(1) @ torch.randn(32, 64, generator=rng(5))).view(-1, 8, 4, 2)
    without, told = (advantage(fitted(clear, rows, own), clear, rows, labels) for own in (None, labels[:KNOWN]))
    assert told > without - 0.02
    assert told > 0.8
    noise = torch.randn(clear.shape, generator=rng(7))
    assert abs(advantage(fitted(noise, rows, labels[:KNOWN]), noise, rows, labels)) < 0.05


def test_the_target_of_a_regression_is_told_too() -> None:
    target = 3 + 5 * torch.randn(500, generator=rng(1))
    slopes = torch.randn(1, 6, generator=rng(2))
    rows = (target.unsqueeze(1) - 3) / 5 @ slopes + 0.3 * torch.randn(500, 6, generator=rng(3))
    payloads = torch.randn(500, 8, generator=rng(4))
    found = {}
    for own in (None, target[:KNOWN]):
        network = InverseNetwork(options()).fit(payloads[:KNOWN], rows[:KNOWN], rng(), pixels=False, labels=own)
        network.told(target[KNOWN:])
        found[own is None] = float((network.reconstruct(payloads[KNOWN:]) - rows[KNOWN:]).square().mean())
    assert found[False] < 0.15 < 0.5 < found[True]


def test_a_label_that_nobody_knows_is_none_in_particular() -> None:
    labels = torch.tensor([0, 0, 1, 2])
    code = LabelCode.of(labels, 3)
    assert code(torch.tensor([2, -1])).tolist() == [[0, 0, 1], [0.5, 0.25, 0.25]]
    assert code.nothing(2).tolist() == [[0.5, 0.25, 0.25]] * 2
    target = LabelCode.of(torch.tensor([1.0, 3.0]), 0)
    assert target(torch.tensor([1.0, float("nan")])).tolist() == [[-1], [0]]
    assert LabelCode.of(torch.ones(3), 0)(torch.ones(1)).isfinite().all()


def view(**changed) -> AdversaryView:
    rows, labels = pictures()
    mixed = rows.flatten(1) @ torch.randn(32, 64, generator=rng(5))
    given = {"auxiliary": rows[:KNOWN], "auxiliary_labels": labels[:KNOWN], "labels": labels[KNOWN:], "classes": 4}
    settings = {"payload_shape": (64,), "row_shape": (1, 8, 4), "pixels": True, "rng": rng(), "victim": "bank"}
    settings |= {"grants": ~Grant.NONE, "device": torch.device("cpu"), "oracle": lambda: mixed[:KNOWN]}
    settings |= {"transmit": torch.clone, "defense": torch.clone}
    return AdversaryView(**{**settings, **given, **changed})


def test_labels_are_told_by_default_and_by_id_where_nobody_says_more() -> None:
    attack = InverseNetwork(options(epochs=1))
    attack.begin(view())
    assert attack.notes()["labels_told"] == 1
    codes = attack._known(3, torch.tensor([0, 1, -1]))
    assert codes is not None
    assert codes[:2].argmax(1).tolist() == pictures()[1][KNOWN : KNOWN + 2].tolist()
    assert torch.equal(codes[2], attack.code.unknown)


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"labels": False}, {}),
        ({}, {"auxiliary_labels": None}),
        ({}, {"grants": Grant.AUXILIARY | Grant.WEIGHTS | Grant.DEFENSE}),
    ],
)
def test_it_does_without_labels_where_it_is_told_or_given_none(settings: dict, changed: dict) -> None:
    attack = InverseNetwork(options(epochs=1, **settings))
    attack.begin(view(**changed))
    assert attack.notes()["labels_told"] == 0
    attack.told(torch.zeros(4))
    assert attack.reconstruct(torch.randn(4, 64)).shape == (4, 1, 8, 4)


@pytest.mark.parametrize(
    ("payload", "row"), [((6,), (4,)), ((3, 4, 2), (1, 8, 4)), ((6,), (1, 8, 4)), ((3, 2, 2), (5,))]
)
def test_the_decoder_takes_every_shape(payload: tuple[int, ...], row: tuple[int, ...]) -> None:
    decoder = LabelledDecoder(payload, row, 3, 1, 8)
    assert decoder(torch.randn(5, *payload), torch.randn(5, 3)).shape == (5, *row)


def test_where_payloads_are_too_wide_the_linear_reader_has_the_labels_alone() -> None:
    rows, labels = pictures(40)
    code = LabelCode.of(labels, 4)(labels)
    reader = LinearReader.fit(None, code, rows, (None, code, rows))
    read = reader(torch.randn(40, 9), code)
    assert torch.allclose(read[labels == 1], rows[labels == 1].mean(0).expand_as(read[labels == 1]), atol=1e-2)
