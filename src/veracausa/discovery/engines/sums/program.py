"""A member of a discovery from sums as a program: in a thread, a process, or at an organisation's own site."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from veracausa.arrays import Array
from veracausa.discovery.base import clock
from veracausa.discovery.engines.sums.features import OwnFeatures, own_features
from veracausa.discovery.engines.sums.party import SumsMember
from veracausa.discovery.engines.sums.plan import SumsPlan
from veracausa.discovery.methods.moments.expansion import ColumnKind
from veracausa.discovery.methods.moments.search import Known
from veracausa.errors import RunError, VeracausaError
from veracausa.events import Observer, event_of
from veracausa.runs.store import Store
from veracausa.wire.link import Link


@dataclass
class SumsProgram:
    """One party or the validator, ready to be started. Only its own columns travel with it.

    It notifies `announced`, `notes`, `progress`, `found` where it knows the graph or a part of it, and `finished`.
    """

    plan: SumsPlan
    name: str
    values: Array | None
    """(rows, own columns), nan where a value is missing. None: the validator."""
    kinds: Sequence[ColumnKind] | None
    known: Known
    """Over all columns of the plan, the same for all."""
    seed: int | None
    """Of masks and noise in a simulation; None: they come from the system."""
    out: Path | None = None
    start: int | None = None
    """The step of the checkpoint to go on from."""
    earlier: Mapping[str, float] = field(default_factory=dict)
    """What this party's earlier releases of these rows have spent, by name, as `wire.ledger.releases` reads them."""
    time_limit: float | None = None
    enter: Callable[[str, float], None] | None = None
    """Writes the name of a release and what it spends down, before anything of it leaves."""

    def __call__(self, link: Link, notify: Observer) -> None:
        try:
            self._run(link, notify)
        except (VeracausaError, OSError):
            raise
        except Exception as error:  # the reader must know whose
            raise RunError(f"party {self.name!r} failed: {type(error).__name__}: {error}") from error

    def _run(self, link: Link, notify: Observer) -> None:
        store = None
        if self.out is not None:
            store = Store(self.out, self.name)
            store.start_step = self.start
            store.announce_to(link)
            link.ledger = store.ledger
        make_own = None if self.values is None else self._own_features
        up = clock(self.time_limit)
        member = SumsMember(self.plan, self.name, self.known, make_own, self.seed, notify, self.earlier, up, self.enter)
        member.run(link, store)
        link.ledger.flush()
        notify(event_of("found", {"party": self.name, **found_event(member)}))
        sent = {"bytes": link.ledger.bytes_sent, "messages": link.ledger.messages}
        notify({"event": "finished", "party": self.name, "sent": sent})

    def _own_features(self) -> OwnFeatures:
        assert self.values is not None
        return own_features(self.plan, self.name, self.values, self.kinds)


def found_event(member: SumsMember) -> dict[str, Any]:
    """What a member knows of the graph: matrices over the plan's columns, None where it knows nothing.

    `whole`: it knows all of the graph. `opened`: it saw the sums, and so the order and the scores of the search too.
    """
    spent = None if member.account is None else {**member.account.state(), "clip": member.clip}
    said: dict[str, Any] = {"account": spent, "opened": member.graph is not None}
    if member.graph is None:
        assert member.told is not None
        found = {name: _listed(part) if isinstance(part, np.ndarray) else part for name, part in member.told.items()}
        return said | {"whole": member.plan.settings.reveal == "all", "found": found}
    known = member.graph.found
    found = {name: _listed(part) for name, part in member.graph.matrices().items()}
    found |= {"explained": _listed(known.explained), "residual_variances": _listed(known.residual_variances)}
    found |= {"model": known.model, "order": list(known.order), "scores": dict(known.scores)}
    return said | {"whole": True, "found": found, "seconds": member.seconds}


def _listed(part: Array) -> list[Any]:
    """Nested lists, with None in place of what is not finite."""
    whole = np.asarray(part, dtype=object)
    whole[~np.isfinite(part)] = None
    return list(whole.tolist())
