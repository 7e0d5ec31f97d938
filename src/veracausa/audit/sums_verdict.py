"""What an audit of a discovery from sums means, in one sentence a side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from veracausa.attacks import column_attacks
from veracausa.audit.sums_scores import ALONE


def sums_headline(found: Sequence[Mapping[str, Any]]) -> str:
    """The audit in one sentence: the case as the job ran."""
    case = found[0]
    who = _party(case)
    best = _strongest(case["attacks"], "party")
    if best is None:
        return "No attack was run."
    name, entry = best
    return f"{who[0].upper()}{who[1:]} reads a partner's rows {_reads(entry, case['blind'])} ({name})."


def sums_verdict(found: Sequence[Mapping[str, Any]]) -> str:
    """The same in words without a number to explain; empty where R² was not measured."""
    best = _strongest(found[0]["attacks"], "party") if found else None
    if best is None or "gain" not in best[1]:
        return ""
    gain = max(0.0, float(best[1]["gain"]))
    much = "most" if gain >= 0.5 else "part" if gain >= 0.1 else "little"
    who = _party(found[0])
    return (
        f"{who[0].upper()}{who[1:]} learns {much} of a partner's rows from the sums, beyond what it knows "
        f"anyway: {gain:.3f} in R²."
    )


def sums_learned(found: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Who learns what in the first case, one entry each."""
    case = found[0]
    said = {}
    if case["receiver"] == "validator":
        said["a party"] = "It sees ciphertexts, and the graph as far as it is told: nothing of a row."
        said["the validator"] = _validator(case)
    if best := _strongest(case["attacks"], "party"):
        said[_party(case)] = f"It reads a partner's rows {_reads(best[1], case['blind'])} ({best[0]}){_steps(case)}."
    inside = case.get("all_but_one")
    if inside and (best := _strongest(inside["attacks"], "party")):
        said["all parties but one, and who has the sums"] = (
            f"They read the last one's rows {_reads(best[1], inside['blind'], 'their')} ({best[0]})."
        )
    if case.get("networks"):
        said["who runs the networks too"] = (
            "They opened features of rows, at which this audit does not look: audit the job with method = 'vfedcd'."
        )
    if broken := _broken(case):
        said["who breaks the protocol"] = broken
    if member := _membership(case):
        said["who knows a row"] = member
    noisy = [each for each in found[1:] if each["epsilon"] is not None and case["epsilon"] is None]
    if noisy and (told := _noise(noisy)):
        said["with noise"] = told
    return said


def _party(case: Mapping[str, Any]) -> str:
    return "a party" if case["receiver"] == "all" else "a party in league with the validator"


def _strongest(attacks: Mapping[str, Any], seat: str) -> tuple[str, Mapping[str, Any]] | None:
    """Of the attackers in this seat who keep to the protocol, the one that reads most."""
    tried = {}
    for label, entry in attacks.items():
        attack = column_attacks.get(entry["attack"])
        if attack.seat == seat and not attack.breaks and ("gain" in entry or "cells_gain" in entry):
            tried[label] = entry
    if not tried:
        return None
    best = max(tried, key=lambda label: float(tried[label].get("gain", tried[label].get("cells_gain", 0.0))))
    return best, tried[best]


def _reads(entry: Mapping[str, Any], blind: Mapping[str, Any], whose: str = "its") -> str:
    parts = []
    if "mean" in entry:
        parts.append(
            f"with R² = {entry['mean']:.2f}; {whose} own columns and rows of other people give "
            f"{blind[ALONE]['mean']:.2f}, so the sums tell {max(0.0, float(entry['gain'])):.3f}"
        )
    if "cells" in entry:
        parts.append(
            f"{'and ' if parts else 'with '}{100 * entry['cells']:.0f} % of categories right "
            f"({100 * (entry['cells'] - entry['cells_gain']):.0f} % without the sums)"
        )
    return ", ".join(parts)


def _steps(case: Mapping[str, Any]) -> str:
    """What an attacker gains that does not know the partner's functions."""
    if entry := case["attacks"].get("sum_regression"):
        return f"; without knowing the partner's functions {max(0.0, float(entry.get('gain', 0.0))):.3f}"
    return ""


def _validator(case: Mapping[str, Any]) -> str:
    rows = case["rows"]
    noise = "exact sums" if case["epsilon"] is None else f"sums with noise (epsilon = {case['epsilon']:g})"
    said = f"It receives {noise} over {rows:,} rows and no row"
    alone = case["attacks"].get("null_space")
    if alone and "mean" in alone:
        said += f": its best guess is the column's mean (R² = {max(0.0, float(alone['mean'])):.2f})"
    left = case["attacks"].get("known_rows_left: all rows known but one")
    if left and "mean" in left and case["epsilon"] is None:
        said += f". Who knows all rows but one reads that one (R² = {left['mean']:.2f})"
    return f"{said}."


def _broken(case: Mapping[str, Any]) -> str:
    """The most that an attack reads which breaks the protocol or needs a second release."""
    tried = {
        label: entry
        for label, entry in case["attacks"].items()
        if column_attacks.get(entry["attack"]).breaks and "mean" in entry
    }
    if not tried:
        return ""
    parts = []
    for breaks in dict.fromkeys(column_attacks.get(entry["attack"]).breaks for entry in tried.values()):
        own = {label: e for label, e in tried.items() if column_attacks.get(e["attack"]).breaks == breaks}
        best = max(own, key=lambda label: float(own[label]["mean"]))
        parts.append(f"{breaks} reads R² = {max(0.0, float(own[best]['mean'])):.2f} ({best})")
    return f"It holds for parties that keep to the protocol: {'; '.join(parts)}."


def _membership(case: Mapping[str, Any]) -> str:
    told = [entry for entry in case["attacks"].values() if "auc" in entry]
    if not told:
        return ""
    bound = "" if told[0]["bound"] is None else f", at most {told[0]['bound']:.2f} by epsilon"
    return (
        f"Whether it is among those summed up is told with an AUC of {told[0]['auc']:.2f} (chance 0.5) and an "
        f"advantage of {told[0]['advantage']:.2f} (chance 0{bound})."
    )


def _noise(cases: Sequence[Mapping[str, Any]]) -> str:
    tried = [(case["epsilon"], best[1]) for case in cases if (best := _strongest(case["attacks"], "party"))]
    gains = [(epsilon, max(0.0, float(entry.get("gain", 0.0)))) for epsilon, entry in tried]
    parts = [f"at epsilon = {epsilon:g} they tell {gain:.3f}" for epsilon, gain in gains]
    return f"Of the sums {', '.join(parts)} (R² of a partner's rows, beyond own columns)." if parts else ""
