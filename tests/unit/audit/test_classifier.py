"""The auditor's classifier: it sees classes in pictures, and its rate never stands without those of blind guesses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import toys
from torch import Tensor

from veracausa.audit.classifier import PictureClassifier
from veracausa.audit.sample import Sample
from veracausa.data.vertical import Part, PartyData

COUNT = 300


def bright(seed: int) -> tuple[Tensor, Tensor]:
    """Two classes, dark and bright."""
    labels = torch.arange(COUNT) % 2
    noise = 0.2 * torch.rand(COUNT, 1, 8, 4, generator=toys.rng(seed))
    return noise + 0.6 * labels.view(-1, 1, 1, 1), labels


def party(rows: Tensor, labels: Tensor) -> PartyData:
    part = Part(len(rows), rows, labels=labels)
    return PartyData("bank", tuple(rows.shape[1:]), part, part, part)


def victim(data: PartyData, task: str = "classification") -> Any:
    schema = SimpleNamespace(task=task, classes=("dark", "bright"))
    return SimpleNamespace(
        data=data,
        schema=schema,
        pixels=len(data.shape) == 3,
        name="bank",
        device=torch.device("cpu"),
        rows=lambda split, positions: data.part(split).take(positions),
    )


def sample(read: Tensor) -> Sample:
    return Sample(torch.arange(4), {"train": read, "test": torch.arange(4, 8)}, known=torch.arange(200, 220))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veracausa.audit.classifier._STEPS", 40)
    monkeypatch.setattr("veracausa.audit.classifier._WIDTH", 8)


def test_its_rate_stands_beside_those_of_guesses_without_a_payload(quick: None) -> None:
    rows, labels = bright(1)
    data, read = party(rows, labels), torch.arange(100)
    judge = PictureClassifier.of(victim(data), data, sample(read), 0)
    assert judge is not None
    truth, means = rows[read], torch.stack([rows[labels == each].mean(0) for each in (0, 1)])
    blind = {"mean": rows.mean(0).expand_as(truth), "class mean": means[labels[read]]}
    rates = judge.rates(1 - truth, truth, blind, data, "train", read)
    assert rates["attack"] < 0.1, "the reading has every class wrong"
    assert rates["originals"] > 0.9
    assert rates["no_payload"] > 0.9, "a class mean is seen as its class, so that a high rate alone says nothing"
    assert rates["grey"] == 0.5


def test_it_learns_from_nobody_who_is_a_victim_or_known(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = bright(1)
    data, seen = party(rows, labels), []

    def fitted(some: Tensor, *_: Any) -> None:
        seen.append(some)

    monkeypatch.setattr(PictureClassifier, "fitted", fitted)
    PictureClassifier.of(victim(data), data, sample(torch.arange(100)), 0)
    assert len(seen[0]) == COUNT - 100 - 20
    left = torch.cat([rows[100:200], rows[220:]])
    assert torch.equal(seen[0].flatten(1).sum(1).sort().values, left.flatten(1).sum(1).sort().values)


def test_where_there_are_no_classes_there_is_none() -> None:
    rows, labels = bright(1)
    data = party(rows, labels)
    assert PictureClassifier.of(victim(data, "regression"), data, sample(torch.arange(9)), 0) is None
    table = party(rows.flatten(1), labels)
    assert PictureClassifier.of(victim(table), table, sample(torch.arange(9)), 0) is None
