"""What every attack must keep to; and that the check notices those that do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from veracausa.attacks import attacks, blind_attacks, column_attacks, label_attacks
from veracausa.attacks.base import AdversaryView, Attack, Exchange, FeatureAttack, Grant, LiveAttack, NotGranted, View
from veracausa.attacks.blind import BlindAttack, BlindReading, BlindView
from veracausa.attacks.columns import ColumnAttack, ColumnGuess, ColumnView
from veracausa.attacks.labels import LabelAttack, LabelGuess, PassiveView
from veracausa.errors import InputError
from veracausa.registry import Options
from veracausa.testing import check_attack

SMALL: dict[str, Any] = {"epochs": 1, "channels": 4, "blocks": 0, "main": 2, "input_steps": 2, "clone_steps": 2}
SMALL |= {"iterations": 4, "reader_epochs": 1, "reader_blocks": 0, "reader_channels": 4, "batch": 8}
SMALL |= {"rounds": 2, "steps": 5, "restarts": 1, "turns": 2, "fourier": 8, "repeats": 2}
SMALL |= {"features": 2, "exchanges": 2}
TOYS = {"colour_prior": ("colour pictures",), "attributes": ("pictures", "colour pictures")}


def small(options: type[Options]) -> dict[str, Any]:
    return {name: value for name, value in SMALL.items() if name in options.model_fields}


@pytest.mark.parametrize("name", attacks.names())
def test_an_attack_on_rows_keeps_to_its_contract(name: str) -> None:
    check_attack(name, small(attacks.options(name)), TOYS.get(name, ("tables", "pictures")))


@pytest.mark.parametrize("name", label_attacks.names())
def test_an_attack_on_labels_keeps_to_its_contract(name: str) -> None:
    check_attack(label_attacks.get(name), small(label_attacks.options(name)))


@pytest.mark.parametrize("name", column_attacks.names())
def test_an_attack_on_columns_keeps_to_its_contract(name: str) -> None:
    check_attack(column_attacks.get(name), small(column_attacks.options(name)))


@pytest.mark.parametrize("name", blind_attacks.names())
def test_an_attack_on_blind_training_keeps_to_its_contract(name: str) -> None:
    check_attack(blind_attacks.get(name), small(blind_attacks.options(name)))


class Grey(FeatureAttack):
    """Guesses nothing."""

    needs = Grant.AUXILIARY

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        self.view = view

    def reconstruct(self, payload: Tensor, ids: Tensor) -> Tensor:
        return self.view.auxiliary.mean(0).expand(len(payload), *self.view.row_shape)


class Sitting(LiveAttack):
    """Counts exchanges."""

    needs = Grant.AUXILIARY

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        self.count = 0

    def observe(self, exchange: Exchange) -> None:
        self.count += 1

    def reconstruct(self, payload: Tensor, ids: Tensor) -> Tensor:
        return torch.zeros(len(payload), *self.view.row_shape) + min(1, self.count / 4)

    def state(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state(self, state: Any) -> None:
        self.count = state["count"]


class Common(LabelAttack):
    """Names one class."""

    def begin(self, view: PassiveView) -> None:
        super().begin(view)
        self.view = view

    def infer(self, ids: Tensor) -> LabelGuess:
        return LabelGuess(torch.zeros(len(ids), dtype=torch.int64))


class Own(ColumnAttack):
    """Guesses its own columns."""

    about = "takes its own columns for the others'"

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        return ColumnGuess(view.own.copy())


class Mean(BlindAttack):
    """Guesses the mean."""

    needs = Grant.AUXILIARY
    about = "takes the mean for every row"

    def guess(self, view: BlindView) -> BlindReading:
        return BlindReading(rows=view.auxiliary.mean(0).expand(len(view.scores), *view.row_shape).clone())


@pytest.mark.parametrize("attack", [Grey, Sitting, Common, Own, Mean])
def test_an_attack_may_be_as_small_as_this(attack: type[Attack[Any]]) -> None:
    check_attack(attack)


def broken(base: type[Attack[Any]], **changes: Any) -> type[Attack[Any]]:
    return type("Broken", (base,), {"__doc__": "Broken.", **changes})


def reads(name: str) -> Callable[..., None]:
    def begin(self: Any, view: View) -> None:
        super(type(self), self).begin(view)
        getattr(view, name)

    return begin


def spoils(self: Any, payload: Tensor, ids: Tensor) -> Tensor:
    payload.zero_()
    return Grey.reconstruct(self, payload, ids)


def restless(self: Any, payload: Tensor, ids: Tensor) -> Tensor:
    return torch.rand(len(payload), *self.view.row_shape)


calls = iter(range(1000))


def moody(self: Any, payload: Tensor, ids: Tensor) -> Tensor:
    return torch.full((len(payload), *self.view.row_shape), 1 / (1 + next(calls)))


def trusting(self: Any, view: AdversaryView) -> None:
    self.view = view


def guessed(values: Any, **about: Any) -> Callable[..., ColumnGuess]:
    return lambda self, view: ColumnGuess(values, **about)


BROKEN = {
    "it needs a docstring": broken(Grey, __doc__=""),
    "must be a FeatureAttack, a LabelAttack, a ColumnAttack or a BlindAttack": broken(Attack),
    "must define `reconstruct`": broken(FeatureAttack),
    "must define `infer`": broken(LabelAttack),
    "must define `guess`": broken(ColumnAttack),
    "can be granted first weights": broken(Grey, needs=Grant.FIRST_WEIGHTS),
    "`live` must say": broken(Grey, live=True),
    "need TAMPER just where": broken(Sitting, tamper=lambda self, gradient, exchange: gradient),
    "`until_converged` is 'epochs'": broken(Grey, until_converged="epochs"),
    "declare `reads_with`": broken(Sitting, read_with=lambda self, view: None),
    "`quick` names epochs": broken(Grey, quick={"epochs": 1}),
    "begins without auxiliary": broken(Grey, begin=trusting),
    "does not declare: the attack reads `labels`": broken(Grey, begin=reads("labels")),
    "draws from PyTorch's own generator": broken(Grey, reconstruct=restless),
    "changes what it is given": broken(Grey, reconstruct=spoils),
    "give other rows": broken(Grey, reconstruct=moody),
    "rows of shape": broken(Grey, reconstruct=lambda self, payload, ids: payload.flatten(1)[:, :1]),
    "rows that are not finite": broken(
        Grey, reconstruct=lambda self, payload, ids: Grey.reconstruct(self, payload, ids) / 0
    ),
    "pixels outside": broken(Grey, reconstruct=lambda self, payload, ids: 2 + Grey.reconstruct(self, payload, ids)),
    "its note 'error' is nan": broken(Grey, notes=lambda self: {"error": float("nan")}),
    "does not bring back": broken(Sitting, load_state=lambda self, state: None),
    "a gradient of shape": broken(Sitting, needs=Grant.TAMPER, tamper=lambda self, gradient, exchange: gradient[:1]),
    "a gradient that is not finite": broken(
        Sitting, needs=Grant.TAMPER, tamper=lambda self, gradient, exchange: gradient / 0
    ),
    "classes of shape": broken(Common, infer=lambda self, ids: LabelGuess(ids[:1])),
    "whole numbers from 0": broken(Common, infer=lambda self, ids: LabelGuess(torch.zeros(len(ids)))),
    "give other labels": broken(
        Common, infer=lambda self, ids: LabelGuess(torch.full((len(ids),), next(calls) % 2, dtype=torch.int64))
    ),
    "`about` must say": broken(Own, about=""),
    "values of shape": broken(Own, guess=guessed(np.zeros(3))),
    "one column an attribute": broken(Own, guess=guessed(np.zeros((24, 1)), ordered=True)),
    "no BlindAttack can be granted first weights": broken(Mean, needs=Grant.FIRST_WEIGHTS),
    "say in one sentence who does what": broken(Mean, about=""),
    "does not declare: the attack reads `features`": broken(
        Mean, guess=lambda self, view: BlindReading(rows=view.features)
    ),
    "an attack on rows must give rows": broken(Mean, guess=lambda self, view: BlindReading()),
    "must give a statistic": broken(Mean, surface="membership"),
    "must give classes": broken(Mean, surface="labels"),
    "it gives rows of shape": broken(Mean, guess=lambda self, view: BlindReading(rows=view.scores)),
    "give another reading": broken(
        Mean, guess=lambda self, view: BlindReading(rows=torch.full((24, *view.row_shape), 1 / (1 + next(calls))))
    ),
    "give other columns": broken(Own, guess=lambda self, view: ColumnGuess(np.full((24, 2), float(next(calls))))),
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_broken_attack_is_caught_by_its_own_sentence(sentence: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_attack(BROKEN[sentence])
    assert sentence in str(caught.value)


def test_a_field_without_its_grant_does_not_exist() -> None:
    about: dict[str, Any] = {"victim": "bank", "payload_shape": (2,), "row_shape": (2,), "pixels": False}
    about |= {"rng": torch.Generator(), "device": torch.device("cpu"), "labels": torch.zeros(1)}
    view = AdversaryView(grants=Grant.LABELS | Grant.WEIGHTS, **about)
    assert view.labels.tolist() == [0]
    for name, sentence in (("auxiliary", "auxiliary"), ("oracle", "defense and weights"), ("transcript", "recorded")):
        assert not hasattr(view, name)
        with pytest.raises(NotGranted, match=sentence):
            getattr(view, name)
    assert not hasattr(view.limited_to(Grant.WEIGHTS), "labels")
    assert not hasattr(AdversaryView(grants=Grant.NONE, **about), "labels")
    with pytest.raises(InputError, match="made without it"):
        view.check(Grant.WEIGHTS)
