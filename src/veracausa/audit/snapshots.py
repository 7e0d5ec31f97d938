"""Where in a training an attack reads most, and how much of the training an audit looked at: the headline, in words.

An attacker keeps what it receives, so a row is as safe as at the worst moment it was sent. What an audit of the last
model alone found is a figure of the last model alone, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from veracausa.runs.record import mapping, number

WHOLE, SOME, LAST = "whole training", "some snapshots", "last model"
_EARLY = 0.05
"""A share of the training that must be the first exchange, in records that do not name steps."""
SCORES = ("mse", "psnr", "ssim", "lpips")


@dataclass(frozen=True)
class Snapshot:
    """What one attack read of one party's rows, from its model as it stood at one moment of the training."""

    party: str
    moment: float
    first: bool
    leakage: float
    scores: Mapping[str, Any]
    """Of these rows: mse, blind_mse, advantage, …; of an earlier moment only what was recorded."""
    whole: bool = False
    """Whether it was read from what crossed at many moments together, not from one model's payloads."""

    @property
    def at(self) -> str:
        """When, in words."""
        if self.whole:
            return "from its whole training at once"
        if self.moment >= 1:
            return "at the end of the training"
        return "at the first exchange" if self.first else f"after {100 * self.moment:.0f} % of the training"

    @property
    def short(self) -> str:
        """When, for a column of a table."""
        if self.whole:
            return "all"
        return "end" if self.moment >= 1 else "first exchange" if self.first else f"{100 * self.moment:.0f} %"


def snapshots(parties: Mapping[str, Any], split: str = "train", rounds: int | None = None) -> list[Snapshot]:
    """All that an attack's entry (`attacks.NAME.parties`) says of one split, party by party, the end of each last."""
    found = []
    for party, own in parties.items():
        at_end = mapping(mapping(own).get(split))
        for told in mapping(own).get("moments", ()):
            moment, leaked = number(mapping(told).get("moment")), number(mapping(told).get(split))
            if moment is not None and leaked is not None and moment < 1:
                scores = mapping(mapping(mapping(told).get("scores")).get(split))
                found.append(Snapshot(party, moment, _is_first(mapping(told), moment, rounds), leaked, scores))
        if (leaked := number(at_end.get("leakage"))) is not None:
            found.append(Snapshot(party, 1.0, False, leaked, at_end, reads_all(own)))
    return found


def worst(found: Iterable[Snapshot]) -> Snapshot:
    """The snapshot that was read best; of equal ones the last model."""
    return max(found, key=lambda snapshot: (snapshot.leakage, snapshot.moment))


def coverage_of(parties: Mapping[str, Any], rounds: int | None = None) -> str:
    """Whether every party of an attack's entry was attacked from its first exchange to its end, or only in part."""
    if parties and all(reads_all(own) for own in parties.values()):
        return WHOLE
    by_party: dict[str, list[Snapshot]] = {}
    for snapshot in snapshots(parties, rounds=rounds):
        by_party.setdefault(snapshot.party, []).append(snapshot)
    if by_party and all(any(snapshot.first for snapshot in own) for own in by_party.values()):
        return WHOLE
    return SOME if any(snapshot.moment < 1 for own in by_party.values() for snapshot in own) else LAST


def headline_of(parties: Mapping[str, Any], rounds: int | None = None) -> dict[str, Any]:
    """An attack's headline: the highest leakage over all parties and snapshots, where it was, and the end beside it."""
    found = snapshots(parties, rounds=rounds)
    if not found:
        return {}
    most, end = worst(found), worst([snapshot for snapshot in found if snapshot.moment >= 1] or found)
    return {
        **{score: most.scores[score] for score in (*SCORES, "blind_mse") if score in most.scores},
        "leakage": most.leakage,
        "party": most.party,
        "moment": most.moment,
        "at": most.at,
        "end": {"leakage": end.leakage, "party": end.party},
        "coverage": coverage_of(parties, rounds),
        "snapshots": len({snapshot.moment for snapshot in found}),
    }


def works_on(entry: Mapping[str, Any], party: str) -> bool | None:
    """Whether this attack works on this party where nothing is defended; None where nobody tried."""
    by_party = mapping(mapping(entry.get("undefended")).get("works"))
    found = by_party.get(party, entry.get("works"))
    return found if isinstance(found, bool) else None


def columns_read(entry: Mapping[str, Any]) -> dict[str, list[tuple[str, float | None]]]:
    """Of each party's table the columns and how much of each was read, most first, at the snapshot read best."""
    found = {}
    for party, own in mapping(entry.get("parties")).items():
        told = snapshots({party: own}) or snapshots({party: own}, "test")
        columns = worst(told).scores.get("columns") if told else None
        if isinstance(columns, list):
            found[party] = [(str(mapping(one).get("column")), number(mapping(one).get("leakage"))) for one in columns]
    return found


def widest(coverages: Iterable[str]) -> str:
    """The coverage of an audit whose attacks have these: that of the one that looked at most."""
    return min(coverages, key=(WHOLE, SOME, LAST).index, default=LAST)


def coverage_sentence(coverage: str) -> str:
    """What a reader must know of what was not attacked; empty where the whole training was."""
    if coverage == LAST:
        return (
            "Last model only: what crossed earlier in the training was not attacked, and may tell more. "
            "Let the job keep snapshots (checkpoints.moments = [0, 0.1, 0.5]), or audit the job itself."
        )
    return "" if coverage == WHOLE else "Some snapshots only: the first exchange was not attacked, and may tell more."


def reads_all(own: Mapping[str, Any]) -> bool:
    """Whether a party's entry is of an attack that read the whole training at once."""
    return bool(number(mapping(own).get("whole_training")))


def _is_first(told: Mapping[str, Any], moment: float, rounds: int | None) -> bool:
    if (step := number(told.get("step"))) is not None:
        return step <= 1
    return moment * rounds < 1.5 if rounds else moment < _EARLY
