"""Several searches for one graph, of which the likeliest is kept.

A search ends in an order of the attributes, and which one it finds depends on the form of the acyclicity term, on how
fast that grows, and on the first weights. Each search has a refit and a threshold of its own; which to keep is said by
the likelihood of the rows that were trained on; where likelihoods themselves differ, that of rows kept apart. No true
graph is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from veracausa.arrays import Array
from veracausa.discovery.engines.centralized import CentralizedVFedCD, Fit
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.events import ProgressCallback


def likelier(kept: Fit | None, found: Fit, each: Sequence[Settings]) -> Fit:
    """Of two searches the one that makes the data likelier, for each replicate on its own; in doubt the earlier.

    `each` has the settings of all searches: two of one likelihood are compared on the rows that were trained on, two of
    different ones on rows kept apart.
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
        notes.append(f"likelihood {each[kept].likelihood}: rows kept apart are likelier under it")
    return notes


class Searches:
    """The searches that settings ask for, one after the other; each is a model of its own, with weights drawn anew."""

    def __init__(self, settings: Settings, make: Callable[[Settings], CentralizedVFedCD]) -> None:
        self.settings, self.make, self.each = settings, make, settings.each
        self.number = 0
        """The search that is being trained."""
        self.model = make(self.each[0])
        self.kept: Fit | None = None
        self.history: list[dict[str, float]] = []
        """Of the searches before."""

    def fit(
        self,
        train: Array,
        held_out: Array,
        progress: ProgressCallback = lambda share: None,
        time_is_up: Callable[[], bool] = lambda: False,
        after_epoch: Callable[[], None] = lambda: None,
    ) -> Fit:
        """Learn from rows (R, n, d), as a model does."""
        total = sum(one.epochs + one.refit_epochs for one in self.each)
        while True:
            one, before = self.each[self.number], len(self.history)
            own = one.epochs + one.refit_epochs

            def within(share: float, before: int = before, own: int = own) -> None:
                progress((before + own * share) / total)

            found = self.model.fit(train, held_out, within, time_is_up, after_epoch)
            found.search[:] = self.number
            records = [{**record, "epoch": record["epoch"] + before} for record in found.history]
            self.history = found.history = self.history + records
            ended = len(records) == own
            # A search that was cut off has cycles, which make data likely: it only counts where there is no other.
            if ended or self.kept is None:
                self.kept = likelier(self.kept, found, self.each)
            if not ended or time_is_up() or self.number + 1 == len(self.each):
                self.kept.history = self.history
                return self.kept
            self.number += 1
            self.model = self.make(self.each[self.number])

    def state(self) -> dict[str, Any]:
        """All that the next epoch depends on, as arrays and plain values."""
        kept = {} if self.kept is None else self.kept.arrays
        return {"number": self.number, "kept": kept, "history": self.history, "model": self.model.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Let the next `fit`, on the same rows, go on after the last epoch that the state knows."""
        self.number, self.history = state["number"], list(state["history"])
        if self.number:
            self.model = self.make(self.each[self.number])
            self.kept = Fit(**state["kept"])
        self.model.load_state(state["model"])
