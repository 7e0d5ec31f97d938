"""What an audit means, in sentences: of a trained model beside its undefended baseline, and of a discovery.

An attack that does not even work without a defense cannot judge one: its failure is not protection. Its success is a
leak all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from veracausa.attacks import column_attacks
from veracausa.audit.settings import STRONG
from veracausa.audit.snapshots import LAST, SOME, WHOLE, Snapshot, headline_of, snapshots, widest, worst
from veracausa.metrics.advantage import lower_bound

WORKS_FROM = 0.01
"""Below this leakage an attack cannot judge a defense, however sure it is: there is nothing left to hold back."""
HEADLINE = ("mse", "psnr", "ssim", "lpips", "leakage", "moment", "at", "end", "coverage")


def works(undefended: Mapping[str, Any] | None) -> bool | None:
    """Whether an attack beats the blind guess where there is no defense, of any party; None where nobody tried."""
    if undefended is None:
        return None
    by_party = works_by_party(undefended)
    return any(by_party.values()) if by_party else float(undefended["leakage"]) >= WORKS_FROM


def works_by_party(undefended: Mapping[str, Any]) -> dict[str, bool]:
    """Of which parties it beats the blind guess, at some snapshot, by a margin that is outside its own spread.

    The attack and the blind guess are compared on the same training rows: the error it avoids must be above 0 with a
    confidence of 99 %, one-sided, shared among all parties and snapshots that it had a chance at, and be worth 1 %.
    """
    found = snapshots(undefended.get("parties", {}))
    passed = {snapshot.party: False for snapshot in found}
    for snapshot in found:
        passed[snapshot.party] |= _passes(snapshot, len(found))
    return passed


def _passes(snapshot: Snapshot, chances: int) -> bool:
    if snapshot.leakage < WORKS_FROM:
        return False
    told = snapshot.scores.get("advantage")
    if told is not None:
        return lower_bound(told["share"], told["error"], told["rows"], chances) > 0
    # Records of before have no spread over rows, only means.
    error, blind = snapshot.scores.get("mse"), snapshot.scores.get("blind_mse")
    return error is None or blind is None or error < blind


def gated(found: Mapping[str, Mapping[str, Any]], undefended: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Every attack's entry with `works`, and with its headline scores against the undefended baseline."""
    entries: dict[str, Any] = {}
    for name, entry in found.items():
        baseline = undefended.get(name)
        entries[name] = {**_headlined(entry), "works": works(baseline)}
        if baseline is not None:
            whole = _headlined(baseline)
            entries[name]["undefended"] = {score: whole[score] for score in HEADLINE if score in whole}
            entries[name]["undefended"]["parties"] = {party: _most(baseline, party) for party in baseline["parties"]}
            entries[name]["undefended"]["works"] = works_by_party(baseline)
    return entries


def _headlined(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return entry if "coverage" in entry else {**entry, **headline_of(entry["parties"])}


def _most(entry: Mapping[str, Any], party: str) -> dict[str, float]:
    """The most that was read of this party at any snapshot, by split."""
    own = {party: entry["parties"][party]}
    return {split: worst(found).leakage for split in ("train", "test") if (found := snapshots(own, split))}


def strongest_of(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """The attack that reads most; of attacks that read the same, one that works."""
    return max(entries, key=lambda name: (entries[name]["leakage"], bool(entries[name].get("works"))))


def verdict(
    entries: Mapping[str, Mapping[str, Any]],
    defenses: str,
    accuracy: float | None = None,
    undefended_accuracy: float | None = None,
    left_out: Sequence[str] = (),
) -> str:
    """The audit in one sentence. `defenses` names what was on, empty for an undefended run."""
    strongest = strongest_of(entries)
    entry = entries[strongest]
    leaked = float(entry["leakage"])
    coverage = widest(other.get("coverage", LAST) for other in entries.values())
    reads = f"reads {percent(leaked)} of what a blind guess misses in the rows of {entry['party']}"
    reads += f" {_when(entry, coverage)}"
    others = [f"{' and '.join(left_out)} not attacked"] if left_out else []
    if not defenses:
        if not any(other.get("works") for other in entries.values()):
            return (
                f"No attack reads more than a blind guess {_looked_at(coverage)}, though nothing is defended: these "
                f"attacks do not work here, and say nothing about what others could read{_aside(*others)}."
            )
        return f"Nothing is defended, and the strongest attack, {strongest}, {reads}{_aside(*_end(entry), *others)}."
    tried = [name for name, other in entries.items() if other.get("works") is not None]
    working = [name for name in tried if entries[name]["works"]]
    cost = _cost(accuracy, undefended_accuracy)
    if leaked < WORKS_FROM:
        if not tried:
            return (
                f"Against {defenses} no attack reads more than a blind guess {_looked_at(coverage)}; whether they work "
                f"here at all, only the same attacks without a defense can show{_aside(*others)}."
            )
        if not working:
            return (
                f"No attack works here even without {defenses}, so this audit cannot say what {defenses} protects "
                f"from{cost}{_aside(*others)}."
            )
        many = "the attack that works" if len(working) == 1 else f"none of the {len(working)} attacks that work"
        reads = "reads no more than" if len(working) == 1 else "reads more than"
        return (
            f"Against {defenses} {many} here {reads} a blind guess {_looked_at(coverage)}{cost}; other attacks are not "
            f"ruled out{_aside(*others)}."
        )
    without = max((float(entries[name]["undefended"]["leakage"]) for name in tried), default=None)
    beside = [f"{percent(without)} without a defense"] if without is not None else []
    aside = _aside(*_end(entry), *beside, *others)
    return f"Behind {defenses} the strongest attack, {strongest}, {reads}{aside}{cost}."


def _when(entry: Mapping[str, Any], coverage: str) -> str:
    """Where in the training the attack read that much."""
    own = entry.get("coverage", LAST)
    if own == WHOLE:
        return f"{entry['at']}, the most over the whole training"
    if own == SOME:
        return f"{entry['at']}, the most of the snapshots attacked, which the first exchange is not among"
    return "from the last model only" if coverage == LAST else "from the last model, the only one it was tried on"


def _looked_at(coverage: str) -> str:
    return {WHOLE: "over the whole training", SOME: "at the snapshots attacked"}.get(
        coverage, "from the last model only"
    )


def _end(entry: Mapping[str, Any]) -> list[str]:
    """What the last model alone would have said, where that is less."""
    if entry.get("coverage", LAST) == LAST or entry["moment"] >= 1:
        return []
    return [f"last model: {percent(float(entry['end']['leakage']))}"]


def _aside(*parts: str) -> str:
    return f" ({'; '.join(parts)})" if parts else ""


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


BLINDLY = "best own attribute"


def headline(found: Sequence[Mapping[str, Any]]) -> str:
    """The audit in one sentence."""
    case = found[0]
    reached = {name: entry for name, entry in case["attacks"].items() if entry}
    alone = {name: entry for name, entry in reached.items() if not _granted(name)}
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
    if known := [entry["mean"] for name, entry in reached.items() if _granted(name) == ("known rows",)]:
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
    strong = next((each for each in found if each["validator"] in (STRONG, "dealer")), None)
    if strong is not None:
        dealt = strong["validator"] == "dealer"  # as audits of before have it
        best = max((entry["mean"] for entry in strong["attacks"].values() if entry), default=0.0)
        sentences["a target in the strong mode"] = (
            "It opens one sum of squared residuals a batch and attribute, and nothing of a row: the same attacks reach "
            f"{best:.2f} (random guess: {strong['blind']['random guess']['mean']:.2f}). "
            f"{'Who is in league with the dealer has' if dealt else 'Any two of the three that compute together have'} "
            "everything."
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
    reached = {
        name: entry["mean"] for name, entry in case["all_but_one"]["attacks"].items() if entry and not _granted(name)
    }
    if not reached:
        return ""
    best = max(reached, key=lambda name: reached[name])
    guess = case["all_but_one"]["blind"][BLINDLY]["mean"]
    return (
        "They know the weights between any two of them and take their own parts off a sum. Of the last one they read "
        f"{reached[best]:.2f} ({best}; by their own columns {guess:.2f})."
    )


def _granted(name: str) -> tuple[str, ...]:
    return column_attacks.get(name).needs.words
