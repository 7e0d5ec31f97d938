"""Several searches in one place whose orders, and then whose settings, held-out rows choose.

The searches come first, each without a refit. All their orders are then refitted side by side, as replicates of one
model. The first one, that of a graph to start from if there is one, is kept unless another one makes held-out rows
likelier by more than chance. Where that graph is of straight lines it is kept whatever they say. Last come the refits
that the settings list, side by side in that order. So a rate, a penalty and a width are chosen for a table, and a
search costs no refit of its own. Between parties each of them would open features of the same rows once more: there is
nothing of this there.

Noise may depend on the causes. A test of squared residuals says where that is worth a try: it finds uneven noise, and
what networks fit badly as well. The second likelihood stays where held-out rows are likelier under it by more than
chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.discovery.engines.centralized import CentralizedVFedCD
from veracausa.discovery.methods.vfedcd.residuals import MOST, uneven_effects
from veracausa.discovery.methods.vfedcd.settings import Refit, Settings
from veracausa.discovery.result import Fit
from veracausa.events import ProgressCallback

Make = Callable[..., CentralizedVFedCD]
"""Makes a model of settings, and of so many copies of all replicates."""


class StagedSearch:
    """The searches, orders and refits that settings ask for; `fit` goes through them as a model does."""

    def __init__(
        self, settings: Settings, make: Make, start: Mask | None = None, start_stands: Mask | None = None
    ) -> None:
        self.settings, self.make, self.start = settings, make, start
        """The graph to start from is (d, d), or (R, d, d): that of each replicate."""
        self.start_stands = start_stands if start is not None and start_stands is not None else np.zeros(1, dtype=bool)
        """(R,) or (1,): whether its order is kept, whatever held-out rows say."""
        self.likelihoods = ("gaussian", "heteroscedastic") if settings.likelihood == "tested" else (None,)
        self.stage = 0
        """Of all likelihoods' stages: those of a likelihood are its searches, its orders, its refits."""
        self.orders: list[Mask] = []
        """(R, d, d) of every search that is over, those of the graph to start from first."""
        self.order: Mask | None = None
        """(R, d, d): the one that was kept."""
        self.kept: Fit | None = None
        self.loss: Array = np.zeros((0, 0))
        """(R, n): of each held-out row, by whose mean `kept` was kept."""
        self.refit: Array = np.zeros(0)
        """(R,): which of the refits was kept; -1: the one with the settings as they are."""
        self.even: Fit | None = None
        """What the first of two likelihoods found."""
        self.even_loss: Array = np.zeros((0, 0))
        self.even_refit: Array = np.zeros(0)
        """As `loss` and `refit`, of `even`."""
        self.uneven: Mask = np.zeros(0, dtype=bool)
        """(R,): whether noise may depend on the causes; at the end, whether the fit of such noise was kept."""
        self.counted: NDArray[np.int_] = np.zeros((0, 2), dtype=int)
        """(R, 2): effects whose squared residuals follow from their causes, says a test, and all effects."""
        self.history: list[dict[str, float]] = []
        self.model = self._model()

    @property
    def _place(self) -> tuple[int, int]:
        return divmod(self.stage, len(self.settings.each) + 2)

    def _base(self) -> Settings:
        likelihood = self.likelihoods[self._place[0]] or self.settings.likelihood
        return self.settings.model_copy(update={"searches": (), "refits": (), "likelihood": likelihood})

    def _model(self) -> CentralizedVFedCD:
        searches, at, base = self.settings.each, self._place[1], self._base()
        if at < len(searches):
            own = {"refit_epochs": 0, "threshold": "mixture", "likelihood": base.likelihood}
            return self.make(searches[at].model_copy(update=own))
        if at == len(searches):
            model = self.make(base.model_copy(update={"epochs": 0}), len(self.orders))
            _restrict(model, np.concatenate(self.orders))
            return model
        assert self.order is not None
        count = len(self.order)
        tried = [_whole(refit, base) for refit in self.settings.refits]
        model = self.make(base.model_copy(update={"epochs": 0, "width": max(one.width for one in tried)}), len(tried))

        def each(value: Callable[[Settings], float]) -> Array:
            return np.repeat([value(one) for one in tried], count)

        model.structure.sparsity_weight = each(lambda one: one.sparsity_weight)[:, None, None]
        model.refit_noisy_rate = each(lambda one: one.refit_noisy_rate)[:, None, None, None]
        model.keep_narrow(each(lambda one: one.width).astype(int))
        _restrict(model, np.tile(self.order, (len(tried), 1, 1)))
        return model

    @property
    def total_epochs(self) -> int:
        """Of all stages of one likelihood."""
        return sum(one.epochs for one in self.settings.each) + 2 * self.settings.refit_epochs

    def fit(
        self,
        train: Array,
        held_out: Array,
        progress: ProgressCallback = lambda share: None,
        time_is_up: Callable[[], bool] = lambda: False,
        after_epoch: Callable[[], None] = lambda: None,
    ) -> Fit:
        """Learn from rows (R, n, d), as a model does."""
        while True:
            model, before = self.model, len(self.history)
            own = model.settings.epochs + model.settings.refit_epochs

            def within(share: float, before: int = before, own: int = own) -> None:
                progress(min(1.0, (before + own * share) / self.total_epochs))

            copies = len(model.weights) // len(train)
            rows, apart = np.tile(train, (copies, 1, 1)), np.tile(held_out, (copies, 1, 1))
            found = model.fit(rows, apart, within, time_is_up, after_epoch)
            self.history += [{**record, "epoch": record["epoch"] + before} for record in found.history]
            if len(found.history) < own:  # cut off: what is there counts only where nothing better is
                return self._ended(self.even or self.kept or _picked(found, np.arange(len(train))))
            last = self._take(found, rows, apart, len(train))
            if last and self.kept is not None:
                return self._ended(self.kept)
            if time_is_up():
                return self._ended(self.even or self.kept or _picked(found, np.arange(len(train))))
            self.stage += 1
            self.model = self._model()

    def _take(self, found: Fit, rows: Array, apart: Array, count: int) -> bool:
        """Note what a stage found; whether it was the last one."""
        searches, (likelihood, at) = len(self.settings.each), self._place
        if at < searches:
            structure = self.model.structure
            if at == 0 and self.start is not None:
                self.orders.append(structure.orders(self.model.strengths, self.start))
            self.orders.append(structure.orders(self.model.strengths))
            return False
        graphs = self.model.graphs(found.thresholds)
        of_rows = self.model.loss_of_any_noise(rows, apart, graphs)
        each = of_rows.reshape(-1, count, of_rows.shape[1])
        best = each.mean(axis=2).argmin(axis=0)
        if at == searches:
            better = _surely_better(each[0], each[best, np.arange(count)])
            best = np.where(better & ~self.start_stands, best, 0)
        least, picked = each[best, np.arange(count)], _picked(found, best * count + np.arange(count))
        if at == searches:
            self.order = np.stack([self.orders[one][replicate] for replicate, one in enumerate(best)])
            picked.search[:] = best - (self.start is not None)
            self.kept, self.loss, self.refit = picked, least, np.full(count, -1)
            return False
        assert self.kept is not None
        better = least.mean(axis=1) < self.loss.mean(axis=1)
        picked.search[:] = self.kept.search
        self.kept = _chosen(better, picked, self.kept)
        self.loss = np.where(better[:, None], least, self.loss)
        self.refit = np.where(better, best, self.refit)
        if likelihood + 1 == len(self.likelihoods):
            if self.even is not None:
                self.uneven = self.uneven & _surely_better(self.even_loss, self.loss)
                self.kept = _chosen(self.uneven, self.kept, self.even)
                self.refit = np.where(self.uneven, self.refit, self.even_refit)
            return True
        self.uneven = self._tested(graphs, rows, apart, count)
        if not self.uneven.any():
            return True
        self.even, self.even_loss, self.even_refit = self.kept, self.loss, self.refit
        self.kept, self.orders = None, []
        return False

    def _tested(self, graphs: Mask, rows: Array, apart: Array, count: int) -> Mask:
        """(R,): whether the noise of most effects depends on their causes, by the likeliest refit of the list."""
        both, judged = np.concatenate([rows, apart], axis=1), ~self.model.decoders.binary
        residuals = self.model.residuals(both, graphs)[0]
        said, counted = np.zeros(count, dtype=bool), []
        for replicate in range(count):
            at = max(int(self.refit[replicate]), 0) * count + replicate
            effects = graphs[at].any(axis=0) & judged
            uneven = uneven_effects(residuals[at].T, both[at], graphs[at], judged)
            said[replicate] = effects.any() and uneven.sum() >= MOST * effects.sum()
            counted.append([uneven.sum(), effects.sum()])
        self.counted = np.array(counted, dtype=int)
        return said

    def _ended(self, fit: Fit) -> Fit:
        fit.history = self.history
        return fit

    def notes(self) -> list[str]:
        """What was chosen for the first replicate, in words."""
        if self.kept is None or not len(self.refit):
            return []
        number, refit = int(self.kept.search[0]), int(self.refit[0])
        order = "that of moments" if number < 0 else f"that of search {number + 1}"
        own = {} if refit < 0 else self.settings.refits[refit].model_dump(exclude_none=True)
        kept = ", ".join(f"{name} = {value}" for name, value in own.items()) or "the settings as they are"
        notes = [f"held-out rows chose the order ({order}) and the refit ({kept})"]
        if len(self.counted):
            found, effects = self.counted[0]
            told = f"in {found} of {effects} effects squared residuals follow from their causes, says a test"
            if self.even is not None:
                told += (
                    "; held-out rows are likelier under noise whose size depends on the causes"
                    if self.uneven[0]
                    else "; held-out rows do not bear uneven noise out, so noise is taken to be of one size"
                )
            notes.append(told)
        return notes

    def counts(self, replicate: int) -> dict[str, float]:
        """What a test said of a replicate's residuals, and what became of it, for tables of many fits."""
        if not len(self.counted):
            return {}
        found, effects = self.counted[replicate].tolist()
        return {"uneven_effects": found, "tested_effects": effects, "uneven_kept": float(self.uneven[replicate])}

    def state(self) -> dict[str, Any]:
        """All that the next epoch depends on, as arrays and plain values."""
        return {
            "stage": self.stage,
            "orders": np.array(self.orders),
            "order": np.zeros(0) if self.order is None else self.order,
            "kept": {} if self.kept is None else self.kept.arrays,
            "even": {} if self.even is None else self.even.arrays,
            "chosen": {
                "loss": self.loss,
                "even_loss": self.even_loss,
                "even_refit": self.even_refit,
                "refit": self.refit,
                "uneven": self.uneven,
                "counted": self.counted,
            },
            "history": self.history,
            "model": self.model.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Let the next `fit`, on the same rows, go on after the last epoch that the state knows."""
        self.stage, self.history = state["stage"], list(state["history"])
        self.orders = [order.astype(bool) for order in state["orders"]] if len(state["orders"]) else []
        self.order = state["order"].astype(bool) if state["order"].size else None
        self.kept, self.even = (Fit(**state[name]) if state[name] else None for name in ("kept", "even"))
        chosen = state["chosen"]
        self.loss, self.refit, self.uneven = chosen["loss"], chosen["refit"], chosen["uneven"].astype(bool)
        self.counted = chosen["counted"].astype(int)
        self.even_loss, self.even_refit = chosen["even_loss"], chosen["even_refit"]
        self.model = self._model()
        self.model.load_state(state["model"])


def _surely_better(known: Array, other: Array) -> Mask:
    """(R,): whether the other losses (R, n) are below the known ones by more than the standard error."""
    gain = known - other
    return np.asarray(gain.mean(axis=1) > gain.std(axis=1) / np.sqrt(gain.shape[1]))


def _restrict(model: CentralizedVFedCD, orders: Mask) -> None:
    model.structure.allowed = model.structure.allowed & orders
    model.weights *= model.structure.allowed[..., None]


def _whole(refit: Refit, base: Settings) -> Settings:
    return base.model_copy(update=refit.model_dump(exclude_none=True))


def _picked(fit: Fit, at: NDArray[np.int_]) -> Fit:
    return Fit(**{name: array[at] for name, array in fit.arrays.items()}, history=fit.history)


def _chosen(first: Mask, one: Fit, other: Fit) -> Fit:
    """For each replicate the one fit or the other."""
    others = other.arrays
    arrays = {
        name: np.where(first.reshape(-1, *[1] * (array.ndim - 1)), array, others[name])
        for name, array in one.arrays.items()
    }
    return Fit(**arrays, history=one.history)
