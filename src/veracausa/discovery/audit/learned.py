"""What each party learns, in sentences with the measured numbers in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BLINDLY = "best own attribute"


def headline(found: Sequence[Mapping[str, Any]]) -> str:
    """The audit in one sentence."""
    case = found[0]
    reached = {name: entry for name, entry in case["attacks"].items() if entry}
    alone = {name: entry for name, entry in reached.items() if name in ALONE}
    known = max((reached[name]["mean"] for name in WITH_ROWS if name in reached), default=None)
    guess = case["blind"][BLINDLY]["mean"]
    sentences = []
    if alone:
        strongest = max(alone, key=lambda name: alone[name]["mean"])
        share = max(entry["read"] for entry in alone.values())
        sentences.append(
            f"A party that only does its part reads the others' columns with a mean |correlation| of "
            f"{alone[strongest]['mean']:.2f} at best ({strongest}; its own columns alone: {guess:.2f})"
            + (f", and up to {100 * share:.0f} % of them exactly" if share else "")
        )
    if known is not None:
        sentences.append(
            f"with a few of their rows it reads all with {known:.2f}" if sentences else f"Known rows: {known:.2f}"
        )
    return "; ".join(sentences) + "." if sentences else "No attack was run."


ALONE = ("unsplit", "ica", "norm-aware", "single-parent", "candidate-differencing", "guessed-start")
"""Attacks that are granted nothing."""
WITH_ROWS = ("known-rows", "averaging", "stacking")


def learned(found: Sequence[Mapping[str, Any]], known_rows: int) -> dict[str, str]:
    """Who learns what in the job as it is, one sentence each."""
    case = found[0]
    r2 = case["linear_r2"]
    parts = "each other party's part" if case["parts_opened"] else "the sum over all other parties"
    target = (
        f"A target opens its features, {parts} of X·W, for every row in every epoch: its own columns and these determine a "
        f"foreign attribute with R² = {r2['and all epochs']:.4f} (its own alone: {r2['own columns']:.4f})."
    )
    if entry := case["attacks"].get("stacking"):
        target += (
            f" Whoever knows {known_rows} rows of the others reads all their rows with a mean |correlation| of "
            f"{entry['mean']:.4f}."
        )
    if entry := case["attacks"].get("candidate-differencing"):
        target += (
            f" On the held-out rows it needs no help: the candidate graphs open {100 * entry['read']:.0f} % of the foreign "
            "attributes as exact copies."
        )
    elif "candidate-differencing" in case["attacks"]:
        target += " No candidate graphs were opened."
    sources = (
        "A source opens uniform numbers and nothing else; it is told the factors of the blocks out of its attributes, and in "
        "the refit these give their strengths exactly."
    )
    if case["validator"] == "M1":
        entry = case["attacks"].get("party-and-validator")
        validator = "The validator is sent all weights; nothing of a row."
        if entry:
            validator += f" Together with one target it reads all columns (mean |correlation| {entry['mean']:.4f})."
    else:
        validator = (
            "The validator learns the strength of every edge at every look, and sums of losses; nothing of a row. It gives a "
            "target in league with it nothing that the target's own factors do not give it."
        )
    sentences = {"a target": target, "a source": sources, "the validator": validator}
    together = next((each for each in found if "all_but_one" in each), None)
    if together is not None:
        reached = together["all_but_one"]["attacks"]
        best = max((name for name in reached if reached[name]), key=lambda name: reached[name]["mean"], default=None)
        if best is not None:
            sentences["all parties but one"] = (
                "They take each other's parts off a sum and each knows the weights between any two of them; of the last one they read "
                f"{reached[best]['mean']:.2f} at best ({best}; a best own attribute: "
                f"{together['all_but_one']['blind'][BLINDLY]['mean']:.2f})."
            )
    return sentences
