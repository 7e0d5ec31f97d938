"""What was attacked for the numbers of a table: which parties, and how much of their training. A footnote says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veracausa.audit.snapshots import LAST, SOME, WHOLE
from veracausa.experiments.plan import Cell


@dataclass(frozen=True)
class Attacked:
    """Of one cell."""

    coverage: str
    parties: tuple[str, ...]
    others: tuple[str, ...]
    """Passive parties that were not attacked."""
    snapshots: int
    """How many moments of the training, its end among them."""

    @classmethod
    def of(cls, cell: Cell, found: Mapping[str, Any]) -> Attacked:
        """From what a cell found; cells of before snapshots were attacked read the last model."""
        assert cell.reading is not None
        passive = tuple(cell.job.parties.passive)
        parties = cell.reading.parties or passive
        moments = [len(own.get("moments", ())) for own in found.get("parties", {}).values()]
        others = tuple(party for party in passive if party not in parties)
        return cls(found.get("coverage", LAST), parties, others, 1 + max(moments, default=0))


def sentence(name: str, attacked: Sequence[Attacked]) -> str:
    """What an attack's numbers are of; where they are not all of the same, the least that any of them is of."""
    coverage = max((one.coverage for one in attacked), key=(WHOLE, SOME, LAST).index)
    others = list(dict.fromkeys(party for one in attacked for party in one.others))
    parties = list(dict.fromkeys(party for one in attacked for party in one.parties if party not in others))
    whom = f"of {' and '.join(parties)}" if parties else "of one party"
    alone = f"; {' and '.join(others)} was not attacked" if others else ""
    if coverage == WHOLE:
        count = min(one.snapshots for one in attacked)
        how = (
            "the first exchange and the end" if count == 2 else f"{count} snapshots from the first exchange to the end"
        )
        return f"{name}: the most that is read over the whole training ({how}) {whom}{alone}."
    part = "last model only" if coverage == LAST else "some snapshots only, not the first exchange"
    some = "" if len({one.coverage for one in attacked}) == 1 else " in some cells"
    return f"{name}: {part}{some}, {whom}{alone}. What crossed earlier in the training may tell more."
