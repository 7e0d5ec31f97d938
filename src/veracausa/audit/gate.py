"""What attacks on a run mean beside the same attacks on its undefended twin.

An attack that does not even work without a defense cannot judge one: its failure is not protection. Its success is a
leak all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WORKS_FROM = 0.01
"""An attack works if it leaks at least this much of the undefended payloads: less could be chance."""
HEADLINE = ("mse", "psnr", "ssim", "lpips", "leakage")


def works(undefended: Mapping[str, Any] | None) -> bool | None:
    """Whether an attack beats the blind guess where there is no defense; None where nobody tried."""
    return None if undefended is None else float(undefended["leakage"]) >= WORKS_FROM


def gated(found: Mapping[str, Mapping[str, Any]], undefended: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Every attack's entry with `works`, and with its headline scores against the undefended twin."""
    entries: dict[str, Any] = {}
    for name, entry in found.items():
        twin = undefended.get(name)
        entries[name] = {**entry, "works": works(twin)}
        if twin is not None:
            entries[name]["undefended"] = {score: twin[score] for score in HEADLINE if score in twin}
            entries[name]["undefended"]["parties"] = {
                party: {split: own[split]["leakage"] for split in ("train", "test") if split in own}
                for party, own in twin["parties"].items()
            }
    return entries


def strongest_of(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """The attack that reads most; of attacks that read the same, one that works."""
    return max(entries, key=lambda name: (entries[name]["leakage"], bool(entries[name].get("works"))))


def verdict(
    entries: Mapping[str, Mapping[str, Any]],
    defenses: str,
    accuracy: float | None = None,
    undefended_accuracy: float | None = None,
) -> str:
    """The audit in one sentence. `defenses` names what was on, empty for an undefended run."""
    strongest = strongest_of(entries)
    entry = entries[strongest]
    leaked = float(entry["leakage"])
    whose = f"what can be read from the payloads of {entry['party']}"
    if not defenses:
        if leaked < WORKS_FROM:
            return (
                "No attack reads more than a blind guess, though nothing is defended: these attacks do not work here, "
                "and say nothing about what others could read."
            )
        return f"Nothing is defended, and the strongest attack, {strongest}, reads {percent(leaked)} of {whose}."
    tried = [name for name, other in entries.items() if other.get("works") is not None]
    working = [name for name in tried if entries[name]["works"]]
    cost = _cost(accuracy, undefended_accuracy)
    if leaked < WORKS_FROM:
        if not tried:
            return (
                f"Against {defenses} no attack reads more than a blind guess; whether they work here at all, only the "
                "same attacks without a defense can show."
            )
        if not working:
            return (
                f"No attack works here even without {defenses}, so this audit cannot say what {defenses} protects "
                f"from{cost}."
            )
        many = "the attack that works" if len(working) == 1 else f"none of the {len(working)} attacks that work"
        reads = "reads no more than" if len(working) == 1 else "reads more than"
        return f"Against {defenses} {many} here {reads} a blind guess{cost}; other attacks are not ruled out."
    without = max((float(entries[name]["undefended"]["leakage"]) for name in tried), default=None)
    beside = f" ({percent(without)} without a defense)" if without is not None else ""
    return f"Behind {defenses} the strongest attack, {strongest}, reads {percent(leaked)} of {whose}{beside}{cost}."


def percent(share: float) -> str:
    """A share as a reader wants it: whole, but never 100 % or 0 % of something that is not all or nothing."""
    if 0 < share < 0.005:
        return "under 1 %"
    if 0.995 <= share < 1:
        return "over 99 %"
    return f"{100 * share:.0f} %"


def _cost(accuracy: float | None, undefended: float | None) -> str:
    if accuracy is None or undefended is None:
        return ""
    points = 100 * (accuracy - undefended)
    if abs(points) < 0.05:
        return ", at no cost in accuracy"
    return f", for {abs(points):.1f} points {'less' if points < 0 else 'more'} accuracy"
