"""What a discovery finds: of one training, and of a whole run with all its parties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.discovery.graphs import chosen_graph
from veracausa.discovery.methods.vfedcd.diagnostics import FIGURES
from veracausa.events import Event

if TYPE_CHECKING:
    from veracausa.discovery.methods.vfedcd.settings import Settings


@dataclass
class Fit:
    """What a training left, each with a leading axis of replicates."""

    strengths: Array
    """(R, d, d)."""
    allowed: Mask
    """The edges that the order leaves, or all that were not forbidden where there was no refit."""
    thresholds: Array
    held_out_loss: Array
    """(R,): mean over the held-out rows, of the chosen graph; nan where there are none."""
    score: Array
    """(R,): the loss of the last epochs, by which searches are compared. Every order leaves as many edges, so that rows
    that were trained on can judge it, and there are more of these than of held-out rows."""
    search: NDArray[np.int_]
    """(R,): which search it was."""
    apart: Array
    """(R,): the loss of held-out rows with all edges that the order leaves; nan where there are none. Likelihoods are
    compared by it: the one that can say more always makes the rows that it was trained on likelier."""
    history: list[dict[str, float]] = field(default_factory=list)
    figures: Array = field(default_factory=lambda: np.full((1, 0, len(FIGURES)), np.nan))
    """(R, d, 4): of each attribute on held-out rows, see `diagnostics`; a validator has none."""

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that is there for each replicate."""
        left = {"history"} if self.figures.size else {"history", "figures"}
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in left}


@dataclass
class DiscoveryResult:
    """What any engine leaves. Attributes are as `names` orders them."""

    names: tuple[str, ...] = ()
    strengths: Array = field(default_factory=lambda: np.zeros((0, 0)))
    allowed: Mask = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))
    """The edges that the order leaves, or all that were not forbidden where there was no refit."""
    threshold: float = math.nan
    held_out_loss: float = math.nan
    history: list[dict[str, float]] = field(default_factory=list)
    sent: dict[str, dict[str, int]] = field(default_factory=dict)
    """Bytes and messages of every party, the validator among them, and how many of them in the offline phase."""
    sent_to: dict[str, Array] = field(default_factory=dict)
    """(d, d) by party: the strengths of the edges that it was sent. 0: no edge. nan: it was sent nothing."""
    noise: dict[str, object] | None = None
    """What was added, and what that guarantees or not. None: no noise."""
    search: int = 0
    """Which of the searches was kept."""
    figures: Array | None = None
    """(d, 4): what held-out rows say of each attribute, see `diagnostics`. None: nobody could say."""
    notes: tuple[str, ...] = ()
    """What was chosen, in words, as far as the engine says it itself."""
    own_figures: dict[str, Array] = field(default_factory=dict)
    """By party and search, as the parties report them."""

    @classmethod
    def of(cls, names: Sequence[str], fit: Fit) -> DiscoveryResult:
        """The first replicate of a training."""
        return cls(tuple(names)).take(fit)

    def take(self, fit: Fit) -> DiscoveryResult:
        """Fill in what a training found."""
        self.strengths, self.allowed = fit.strengths[0], fit.allowed[0]
        self.threshold, self.held_out_loss = float(fit.thresholds[0]), float(fit.held_out_loss[0])
        self.history, self.search = fit.history, int(fit.search[0])
        return self

    def hear(self, event: Event) -> bool:
        """Note what a party's program reports. False: the event is about something else."""
        match event["event"]:
            case "result":
                arrays = {name: np.array(array) for name, array in event["found"].items()}
                self.take(Fit(**arrays, history=list(event["history"])))
            case "graph":
                self.sent_to[event["party"]] = np.array(event["graph"])
                self.own_figures[event["party"]] = np.array(event["figures"])
            case "finished":
                self.sent[event["party"]] = event["sent"]
            case _:
                return False
        return True

    def graph(self, required: Mask) -> Mask:
        """The DAG that the result stands for."""
        return chosen_graph(self.strengths, self.allowed, self.threshold, required)

    def ordered(self, order: Sequence[int]) -> DiscoveryResult:
        """The same with attributes in another order; what was sent to parties stays as it was."""
        square = np.ix_(order, order)
        return replace(
            self,
            names=tuple(self.names[at] for at in order),
            strengths=self.strengths[square],
            allowed=self.allowed[square],
            figures=None if self.figures is None else self.figures[list(order)],
        )


def likelier(kept: Fit | None, found: Fit, each: Sequence[Settings]) -> Fit:
    """Of two searches the one that makes the data likelier, for each replicate on its own; in doubt the earlier.

    `each` has the settings of all searches: two of one likelihood are compared on the rows that were trained on, two of
    different ones on held-out rows.
    """
    if kept is None:
        return found
    likelihood = np.array([one.likelihood for one in each])
    alike = likelihood[kept.search] == likelihood[found.search]
    better = np.where(alike, found.score < kept.score, found.apart < kept.apart)
    arrays = {
        name: np.where(better.reshape(-1, *[1] * (array.ndim - 1)), getattr(found, name), array)
        for name, array in kept.arrays.items()
    }
    return Fit(**arrays, history=found.history)


def choice_in_words(settings: Settings, kept: int) -> list[str]:
    """Notes on which search was kept, and of which likelihood, where there was a choice."""
    each = settings.each
    notes = [f"of {len(each)} searches the one numbered {kept + 1} was kept"] if len(each) > 1 else []
    if settings.likelihood == "auto":
        notes.append(f"likelihood {each[kept].likelihood}: held-out rows are likelier under it")
    return notes
