"""What each party learns, in sentences with the measured numbers in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from veracausa.audit.discovery.cases import STRONG

BLINDLY = "best own attribute"
ALONE = ("unsplit", "ica", "norm_aware", "norm_averaging", "single_parent", "candidate_differencing", "guessed_start")
"""Attacks that are granted nothing."""
WITH_ROWS = ("known_rows", "averaging", "stacking")


def headline(found: Sequence[Mapping[str, Any]]) -> str:
    """The audit in one sentence."""
    case = found[0]
    reached = {name: entry for name, entry in case["attacks"].items() if entry}
    alone = {name: entry for name, entry in reached.items() if name in ALONE}
    sentences = []
    if alone:
        strongest = max(alone, key=lambda name: alone[name]["mean"])
        share = max(entry["read"] for entry in alone.values())
        guess = case["blind"][BLINDLY]["mean"]
        sentences.append(
            f"A party that keeps to the protocol reads the others' columns with a mean |correlation| of "
            f"{alone[strongest]['mean']:.2f} ({strongest}; by its own columns {guess:.2f})"
            + (f" and {100 * share:.0f} % of them exactly" if share else "")
        )
    if known := [reached[name]["mean"] for name in WITH_ROWS if name in reached]:
        sentences.append(f"{'w' if sentences else 'W'}ith a few of their rows it reaches {max(known):.2f}")
    return "; ".join(sentences) + "." if sentences else "No attack was run."


def learned(found: Sequence[Mapping[str, Any]], known_rows: int) -> dict[str, str]:
    """Who learns what in the first case, one entry each."""
    case = found[0]
    sentences = {
        "a target": _target(case, known_rows),
        "a source": "It opens uniform numbers and nothing else. It is told the factors of the blocks out of its "
        "attributes, and in the refit these give their strengths exactly.",
        "the validator": _validator(case),
    }
    together = next((each for each in found if "all_but_one" in each), None)
    if together is not None and (said := _together(together)):
        sentences["all parties but one"] = said
    strong = next((each for each in found if each["name"] == STRONG), None)
    if strong is not None:
        best = max((entry["mean"] for entry in strong["attacks"].values() if entry), default=0.0)
        sentences["a target in the strong mode"] = (
            "It opens one sum of squared residuals a batch and attribute, and nothing of a row: the same attacks reach "
            f"{best:.2f} (random guess: {strong['blind']['random guess']['mean']:.2f}). Who is in league with the "
            "dealer has everything."
        )
    return sentences


def _target(case: Mapping[str, Any], known_rows: int) -> str:
    r2 = case["linear_r2"]
    parts = "each source's part" if case["parts_opened"] else "the sum over all sources"
    said = (
        f"It opens its features, {parts}, for every row in every epoch. With its own columns these determine a foreign "
        f"attribute with R² = {r2['and all epochs']:.4f} (its own columns alone: {r2['own columns']:.4f})."
    )
    if entry := case["attacks"].get("stacking"):
        said += (
            f" Knowing {known_rows} rows of the others it reads all with a mean |correlation| of {entry['mean']:.4f}."
        )
    if entry := case["attacks"].get("candidate_differencing"):
        said += (
            f" Of the rows kept apart {100 * entry['read']:.0f} % of the foreign attributes follow as copies from the "
            "graphs under which they were opened."
        )
    elif "candidate_differencing" in case["attacks"]:
        said += " No rows were kept apart."
    return said


def _validator(case: Mapping[str, Any]) -> str:
    if case["validator"] == "M2":
        return (
            "It learns the strength of every edge at every look, and sums of losses; nothing of a row. To a target in "
            "league with it it adds strengths during the search and of edges between others; those of the target's own "
            "edges in the refit follow from its factors anyway, and are what norm-aware attacks use."
        )
    said = "It is sent all weights; nothing of a row."
    if entry := case["attacks"].get("party_and_validator"):
        said += f" Together with one target it reads the columns with a mean |correlation| of {entry['mean']:.4f}."
    return said


def _together(case: Mapping[str, Any]) -> str:
    reached = {name: entry["mean"] for name, entry in case["all_but_one"]["attacks"].items() if entry and name in ALONE}
    if not reached:
        return ""
    best = max(reached, key=lambda name: reached[name])
    guess = case["all_but_one"]["blind"][BLINDLY]["mean"]
    return (
        "They know the weights between any two of them and take their own parts off a sum. Of the last one they read "
        f"{reached[best]:.2f} ({best}; by their own columns {guess:.2f})."
    )
