"""What an audit of a blind training means, in one sentence a side, with the bound beside what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from veracausa.audit.verdict import percent

WORTH_SAYING = 0.01


def strongest(situations: Sequence[Mapping[str, Any]], split: str) -> Mapping[str, Any] | None:
    """Of the situations as the job ran, the one that read most of the rows of a split."""
    found = [each for each in situations if each["as_run"] and each.get("split") == split and "leakage" in each]
    return max(found, key=lambda each: float(each["leakage"]), default=None)


def sentences(found: Mapping[str, Any]) -> dict[str, str]:
    """By side: what the active party could learn of a training row and of a predicted row, and the others of labels."""
    said = {"training rows": _training(found), "predicted rows": _predicted(found)}
    if labels := _labels(found):
        said["labels"] = labels
    if member := _membership(found):
        said["membership"] = member
    if broken := _broken(found):
        said["broken"] = broken
    return said


def verdict_of(said: Mapping[str, str]) -> str:
    """The sentences of the two sides: what stands first in every place."""
    return " ".join(said[name] for name in ("training rows", "predicted rows", "labels") if name in said)


def _training(found: Mapping[str, Any]) -> str:
    rows, epsilon = found["rows"], found["epsilon"]
    noise = "exact sums" if epsilon is None else f"sums with noise (epsilon = {epsilon:g}, delta = {found['delta']:g})"
    said = f"No training row was opened: the active party received {noise} over {rows:,} rows"
    best = strongest(found["situations"], "train")
    if best is None:
        return f"{said}."
    leaked = float(best["leakage"])
    if leaked < WORTH_SAYING:
        return f"{said}, from which {best['attack']} reads no more of a row than a blind guess."
    return f"{said}, from which {best['attack']} reads {percent(leaked)} of the rows of {best['victim']}."


def _predicted(found: Mapping[str, Any]) -> str:
    numbers, parties = found["numbers"], found["parties"]
    opened = f"{numbers} number{'s' if numbers != 1 else ''}"
    whose = f"the sum over {parties} parties" if parties > 1 else "one party's part alone"
    bits = min(found["bits"].values())
    said = f"Of a predicted row it opened {opened} ({whose}), {bits:.0f} bits at most"
    best = strongest(found["situations"], "test")
    if best is None:
        return f"{said}."
    off = [each for each in found["situations"] if each["off"] and each["attack"] == best["attack"]]
    beside = f"; the features themselves would give {percent(float(off[0]['leakage']))}" if off else ""
    return (
        f"{said}: with every party's feature map and all labels in its hands {best['attack']} reads "
        f"{percent(float(best['leakage']))} of what a blind guess misses in the rows of {best['victim']}{beside}."
    )


def _labels(found: Mapping[str, Any]) -> str:
    told = [each for each in found["situations"] if each["as_run"] and "accuracy" in each]
    if not told:
        return ""
    best = max(told, key=lambda each: float(each["accuracy"]) - float(each["rows_alone"]))
    right, alone = percent(float(best["accuracy"])), percent(max(float(best["rows_alone"]), float(best["prior"])))
    columns = f"a model of its own columns {alone}"
    if found["labels"] == "none":
        return (
            f"Passive parties saw ciphertexts and no label: {best['seat']}, given {best['known_labels']} labels "
            f"beforehand, tells {right} of the others ({columns} with all of them)."
        )
    if found["labels"] == "shared":
        return f"Passive parties were told the true labels of all training rows, as the job says ({columns})."
    return (
        f"Passive parties were told labels with epsilon = {best['epsilon']:g}: {best['seat']} tells {right} of them, "
        f"{percent(float(best['bound']))} at most by this epsilon ({columns})."
    )


def _membership(found: Mapping[str, Any]) -> str:
    tried = [each for each in found["situations"] if each["as_run"] and "statistic" in each]
    if not tried:
        return ""
    best = max(tried, key=lambda each: abs(float(each["auc"]) - 0.5))
    bound = best.get("bound")
    beside = f", {bound:.2f} at most by epsilon" if isinstance(bound, float) else ""
    return (
        f"Whether a known row was trained on is told with an advantage of {float(best['advantage']):.2f} (AUC "
        f"{float(best['auc']):.2f}; chance is 0 and 0.5{beside}; {best['situation']}, {best['statistic']})."
    )


def _broken(found: Mapping[str, Any]) -> str:
    """The most that an attack reads which breaks the protocol or needs a second consent."""
    what = [each for each in found["situations"] if not each["as_run"] and each.get("breaks") and "leakage" in each]
    if not what:
        return ""
    worst = max(what, key=lambda each: float(each["leakage"]))
    return (
        f"It holds for parties that keep to the protocol: {worst['attack']} ({worst['situation']}) reads "
        f"{percent(float(worst['leakage']))}, and needs {worst['breaks']}."
    )


def bits_text(bits: Mapping[str, float]) -> str:
    """Both bounds in words."""
    shown = {name: "no bound" if not math.isfinite(value) else f"{value:.0f} bits" for name, value in bits.items()}
    return f"at most {shown['range']} a row by the range of the scores, {shown['spread']} by their spread"
