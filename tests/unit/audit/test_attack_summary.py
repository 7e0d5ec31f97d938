"""An attack's entry is made of all that it read: of every party, at every snapshot."""

from __future__ import annotations

from typing import Any

import torch

from veracausa.audit.evaluation import AttackOutcome
from veracausa.audit.measure import Measured
from veracausa.audit.record import attack_summary


def outcome(party: str, moment: float, step: int | None, leaked: float, **more: Any) -> AttackOutcome:
    scores = {"leakage": leaked, "mse": 1 - leaked, "blind_mse": 1.0}
    told = {"advantage": {"share": leaked, "error": 0.01, "rows": 3}}
    measured = Measured(scores, "class mean", {}, {}, told)
    return AttackOutcome(
        party, moment, {"train": torch.arange(3)}, 9, {"train": measured}, None, 1.0, 1, {}, step, **more
    )


def test_what_leaked_at_the_first_exchange_is_the_headline_though_the_last_model_leaks_nothing() -> None:
    found = attack_summary(
        [
            outcome("bank", 0.001, 1, 0.5),
            outcome("bank", 1.0, None, 0.59),
            outcome("shop", 0.001, 1, 0.82),
            outcome("shop", 0.5, 785, 0.03),
            outcome("shop", 1.0, None, 0.0),
        ]
    )
    assert (found["leakage"], found["party"], found["at"]) == (0.82, "shop", "at the first exchange")
    assert found["end"] == {"leakage": 0.59, "party": "bank"}
    assert found["coverage"] == "whole training"
    assert found["seconds"] == 5
    shop = found["parties"]["shop"]
    assert shop["train"]["leakage"] == 0.0
    assert shop["shown_moment"] == 0.001
    assert found["parties"]["bank"]["shown_moment"] == 1.0
    assert [(told["moment"], told["train"]) for told in shop["moments"]] == [(0.001, 0.82), (0.5, 0.03), (1.0, 0.0)]
    assert shop["moments"][0]["scores"]["train"]["advantage"]["share"] == 0.82


def test_a_last_model_alone_has_no_moments() -> None:
    found = attack_summary([outcome("bank", 1.0, None, 0.4)])
    assert (found["coverage"], found["snapshots"]) == ("last model", 1)
    assert "moments" not in found["parties"]["bank"]
