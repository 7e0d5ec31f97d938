"""What attacks mean beside the same attacks on the undefended twin."""

from __future__ import annotations

from typing import Any

import pytest

from veracausa.audit.baseline import undefended_leakage
from veracausa.audit.verdict import gated, percent, strongest_of, verdict, works


def entry(leakage: float) -> dict[str, Any]:
    return {"leakage": leakage, "mse": 0.05, "party": "bank", "parties": {"bank": {"train": {"leakage": leakage}}}}


def entries(found: dict[str, float], undefended: dict[str, float]) -> dict[str, Any]:
    return gated({name: entry(value) for name, value in found.items()}, {n: entry(v) for n, v in undefended.items()})


def test_an_attack_works_if_it_beats_the_blind_guess_without_a_defense() -> None:
    assert works(entry(0.4)) is True
    assert works(entry(0.0)) is False
    assert works(entry(0.004)) is False  # could be chance
    assert works(None) is None


def test_the_failure_of_an_attack_that_does_not_work_is_no_protection() -> None:
    found = entries({"unsplit": 0.0}, {"unsplit": 0.0})
    assert found["unsplit"]["works"] is False
    beside = found["unsplit"]["undefended"]
    assert {name: beside[name] for name in ("mse", "leakage", "parties", "works", "coverage")} == {
        "mse": 0.05,
        "leakage": 0.0,
        "parties": {"bank": {"train": 0.0}},
        "works": {"bank": False},
        "coverage": "last model",
    }
    assert "cannot say what causshield protects from" in verdict(found, "causshield")


def test_its_success_counts_all_the_same() -> None:
    found = entries({"unsplit": 0.3, "inverse": 0.1}, {"unsplit": 0.0, "inverse": 0.9})
    assert strongest_of(found) == "unsplit"
    said = verdict(found, "causshield", 0.90, 0.95)
    assert "the strongest attack, unsplit, reads 30 %" in said
    assert "(90 % without a defense), for 5.0 points less accuracy" in said


@pytest.mark.parametrize(
    ("found", "undefended", "defense", "words"),
    [
        ({"inverse": 0.0}, {"inverse": 0.9}, "noise", "the attack that works here reads no more than a blind guess"),
        ({"a": 0.0, "b": 0.0}, {"a": 0.9, "b": 0.2}, "noise", "none of the 2 attacks that work here reads more"),
        ({"a": 0.0, "b": 0.0}, {"a": 0.9, "b": 0.0}, "noise", "the attack that works here"),
        ({"inverse": 0.0}, {}, "noise", "only the same attacks without a defense can show"),
        (
            {"inverse": 0.95},
            {"inverse": 0.95},
            "",
            "defended, and the strongest attack, inverse, reads 95 %",
        ),
        ({"inverse": 0.0}, {"inverse": 0.0}, "", "these attacks do not work here"),
    ],
)
def test_the_verdict_is_one_sentence(
    found: dict[str, float], undefended: dict[str, float], defense: str, words: str
) -> None:
    said = verdict(entries(found, undefended), defense)
    assert words in said
    assert said.endswith(".")
    assert said.count(". ") == 0


def test_a_share_is_never_rounded_to_all_or_nothing() -> None:
    assert [percent(share) for share in (0.0, 0.001, 0.5, 0.999, 1.0)] == [
        "0 %",
        "under 1 %",
        "50 %",
        "over 99 %",
        "100 %",
    ]


def test_every_party_is_compared_with_itself() -> None:
    """The party that leaks most may be another one without the defense: its figure belongs in its own row."""

    def both(bank: float, shop: float) -> dict[str, Any]:
        by_party = {"bank": {"train": {"leakage": bank}}, "shop": {"train": {"leakage": shop}}}
        return {
            "leakage": max(bank, shop),
            "mse": 0.05,
            "party": "bank" if bank > shop else "shop",
            "parties": by_party,
        }

    found = gated({"inverse": both(0.6, 0.0)}, {"inverse": both(0.7, 0.9)})["inverse"]
    assert undefended_leakage(found, "bank", "train") == 0.7
    assert undefended_leakage(found, "shop", "train") == 0.9
    assert undefended_leakage(found, "bank", "test") is None
    assert undefended_leakage(entry(0.6), "bank", "train") is None
