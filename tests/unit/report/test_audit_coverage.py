"""The headline of an attack is the most it reads of any party at any snapshot; a last model alone is called that."""

from __future__ import annotations

from typing import Any

import pytest

from veracausa.audit.snapshots import coverage_of, coverage_sentence, headline_of, snapshots, widest, worst
from veracausa.audit.verdict import gated, strongest_of, verdict, works, works_by_party


def party(end: float, *earlier: tuple[float, int, float]) -> dict[str, Any]:
    """An end, and (moment, step, leakage) of snapshots before it."""
    moments = [
        {"moment": moment, "step": step, "train": leaked, "scores": {"train": {"mse": 1 - leaked, "blind_mse": 1.0}}}
        for moment, step, leaked in earlier
    ]
    train = {"leakage": end, "mse": 1 - end, "blind_mse": 1.0}
    return {"train": train, **({"moments": [*moments, {"moment": 1.0, "train": end}]} if moments else {})}


NOPEEK = {
    "bank": party(0.59, (0.001, 1, 0.8), (0.1, 157, 0.7), (0.5, 785, 0.6)),
    "shop": party(0.0, (0.001, 1, 0.82), (0.1, 157, 0.71), (0.5, 785, 0.03)),
}


def test_a_party_that_leaked_at_the_first_exchange_is_not_said_to_leak_nothing() -> None:
    found = headline_of(NOPEEK)
    assert found["leakage"] == 0.82
    assert (found["party"], found["at"]) == ("shop", "at the first exchange")
    assert found["mse"] == pytest.approx(0.18)
    assert found["end"] == {"leakage": 0.59, "party": "bank"}
    assert (found["coverage"], found["snapshots"]) == ("whole training", 4)
    said = verdict(gated({"inverse": {"parties": NOPEEK}}, {"inverse": {"parties": NOPEEK}}), "nopeek")
    assert "reads 82 % of what a blind guess misses in the rows of shop at the first exchange" in said
    assert "the most over the whole training (last model: 59 %; 82 % without a defense)" in said


def test_a_last_model_alone_is_never_called_the_training() -> None:
    alone = {"parties": {"bank": party(0.4)}}
    found = gated({"inverse": alone}, {"inverse": alone})
    assert found["inverse"]["coverage"] == "last model"
    for defenses in ("", "noise"):
        said = verdict(found, defenses, left_out=["shop"])
        assert "from the last model only" in said
        assert "whole" not in said
        assert "shop not attacked)" in said
    assert coverage_sentence("last model").startswith("Last model only")
    assert coverage_sentence("whole training") == ""


def test_the_whole_training_takes_the_first_exchange_of_every_party() -> None:
    assert coverage_of({"bank": NOPEEK["bank"], "shop": party(0.1)}) == "some snapshots"
    assert coverage_of({"bank": party(0.1, (0.5, 785, 0.3))}) == "some snapshots"
    assert "first exchange is not among" in verdict(
        gated({"a": {"parties": {"b": party(0.1, (0.5, 9, 0.3))}}}, {}), "noise"
    )
    # Records that name no steps: by the number of rounds, else by how early it was.
    old = {"bank": {"train": {"leakage": 0.1}, "moments": [{"moment": 0.125, "train": 0.2}]}}
    assert coverage_of(old, rounds=8) == "whole training"
    assert coverage_of(old) == "some snapshots"
    assert widest(["last model", "whole training", "some snapshots"]) == "whole training"
    assert widest([]) == "last model"


def test_an_attack_tried_on_the_last_model_alone_says_so_beside_one_over_the_training() -> None:
    entries = gated({"unsplit": {"parties": {"bank": party(0.9)}}, "inverse": {"parties": NOPEEK}}, {})
    assert strongest_of(entries) == "unsplit"
    assert "from the last model, the only one it was tried on" in verdict(entries, "noise")


def test_of_snapshots_that_leak_the_same_the_last_is_named() -> None:
    assert worst(snapshots({"bank": party(0.5, (0.1, 2, 0.5))})).short == "end"


def with_advantage(share: float, error: float, rows: int = 250) -> dict[str, Any]:
    told = {"share": share, "error": error, "rows": rows}
    return {"train": {"leakage": max(0.0, share), "mse": 1 - share, "blind_mse": 1.0, "advantage": told}}


@pytest.mark.parametrize(
    ("share", "error", "expected"),
    [(0.4, 0.01, True), (0.04, 0.03, False), (-0.29, 0.01, False), (0.005, 0.0001, False), (0.02, 0.004, True)],
)
def test_an_attack_works_if_its_margin_is_outside_its_own_spread(share: float, error: float, expected: bool) -> None:
    assert works({"leakage": max(0.0, share), "parties": {"bank": with_advantage(share, error)}}) is expected


def test_an_attack_with_a_higher_error_than_the_blind_guess_does_not_work() -> None:
    clipped_by_column = {"train": {"leakage": 0.023, "mse": 1.157, "blind_mse": 0.895}}
    assert works({"leakage": 0.023, "parties": {"bank": clipped_by_column}}) is False


def test_many_chances_are_not_evidence_and_each_party_stands_alone() -> None:
    once = {"bank": with_advantage(0.03, 0.0125)}
    assert works_by_party({"parties": once}) == {"bank": True}
    many = {f"p{number}": with_advantage(0.03, 0.0125) for number in range(8)}
    assert not any(works_by_party({"parties": many}).values())
    both = {"bank": with_advantage(0.5, 0.01), "shop": with_advantage(-0.1, 0.01)}
    assert works_by_party({"parties": both}) == {"bank": True, "shop": False}
    assert works({"leakage": 0.5, "parties": both}) is True
