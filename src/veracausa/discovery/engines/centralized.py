"""The engine in one place: the model that the federation learns, in floating point and without shares.

A search ends in an order of the attributes. Which one it finds depends on the acyclicity term, on how fast that grows,
and on the first weights. So several searches are made, each with a refit and a threshold of its own, and the one that
makes the data likeliest is kept. No true graph is looked at.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.atomic import atomic_write
from veracausa.data.causal.columns import PreparedTable
from veracausa.discovery.graphs import chosen_graph, greedy_cut
from veracausa.discovery.methods.vfedcd import structure as rules
from veracausa.discovery.methods.vfedcd.decoders import decoders_for
from veracausa.discovery.methods.vfedcd.diagnostics import figures
from veracausa.discovery.methods.vfedcd.residuals import density_losses
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.methods.vfedcd.structure import Structure
from veracausa.discovery.result import DiscoveryResult, Fit, choice_in_words, likelier
from veracausa.errors import InputError, RunError
from veracausa.events import ProgressCallback
from veracausa.runs.store import deserialize_state, serialize_state

if TYPE_CHECKING:
    from veracausa.discovery.engines.staged import StagedSearch


class CentralizedVFedCD:
    """Encoder and decoders of all attributes; `fit` is one search: train, order, refit, find the threshold."""

    def __init__(
        self,
        settings: Settings,
        d: int,
        rng: np.random.Generator,
        *,
        binary: Mask | None = None,
        required: Mask | None = None,
        forbidden: Mask | None = None,
        replicates: int = 1,
        start: Mask | None = None,
    ) -> None:
        self.settings, self.rng, self.d = settings, rng, d
        self.refit_noisy_rate: float | Array = settings.refit_noisy_rate
        """For all replicates, or (R, 1, 1, 1)."""
        binary = np.zeros(d, dtype=bool) if binary is None or not settings.bernoulli else binary
        self.required = np.zeros((d, d), dtype=bool) if required is None else required
        allowed = ~np.eye(d, dtype=bool)
        if forbidden is not None:
            allowed &= ~forbidden
        self.structure = Structure(settings, np.repeat(allowed[None], replicates, 0), self.required)
        self.structure.start = start
        h = settings.width
        self.weights = rng.uniform(-1, 1, (replicates, d, d, h)) / (d * np.sqrt(h)) * allowed[None, :, :, None]
        self.decoders = decoders_for(settings.likelihood)(
            replicates, d, h, settings.depth, settings.activation, binary, settings.likelihood, rng
        )
        self.history: list[dict[str, float]] = []
        self.losses: list[Array] = []
        """(R,) of every epoch."""
        self.sets: NDArray[np.int_] | None = None
        """Which rows make each batch."""
        self.resumed = False

    def keep_narrow(self, widths: NDArray[np.int_]) -> None:
        """End the hidden units of each replicate beyond its width."""
        self.weights *= np.arange(self.settings.width) < widths[:, None, None, None]
        self.decoders.keep_narrow(widths)

    @property
    def strengths(self) -> Array:
        return np.asarray(np.sqrt(np.square(self.weights).sum(3)))

    def features(self, x: Array, weights: Array | None = None) -> Array:
        """(R, d, n, h) of rows (R, n, d)."""
        weights = self.weights if weights is None else weights
        replicates, d, _, h = weights.shape
        z: Array = (x @ weights.reshape(replicates, d, d * h)).reshape(replicates, -1, d, h).swapaxes(1, 2)
        return z

    def fit(
        self,
        train: Array,
        held_out: Array,
        progress: ProgressCallback = lambda share: None,
        time_is_up: Callable[[], bool] = lambda: False,
        after_epoch: Callable[[], None] = lambda: None,
    ) -> Fit:
        """Learn from rows (R, n, d); `held_out` rows choose the threshold and are not trained on."""
        settings = self.settings
        n = min(settings.batch, train.shape[1])
        steps = train.shape[1] // n
        # Batches are fixed sets of rows; only their order changes.
        if not self.resumed or self.sets is None:
            self.history, self.losses = [], []
            self.sets = self.rng.permutation(train.shape[1])[: steps * n].reshape(steps, n)
        self.resumed = False
        batches = [np.ascontiguousarray(train[:, rows]) for rows in self.sets]
        self.decoders.observe(train)
        for epoch in range(len(self.history), settings.epochs + settings.refit_epochs):
            if epoch == settings.epochs:
                self.structure.settle(self.strengths)
                self._scale(self.structure.allowed.astype(float))
            self.decoders.noisy_rate = self.refit_noisy_rate if epoch >= settings.epochs else settings.noisy_rate
            losses = self._epoch(batches)
            if not np.isfinite(losses).all():
                raise RunError(f"the fit diverged in epoch {epoch + 1}; lower its rate ({settings.learning_rate})")
            self.losses.append(losses)
            self.structure.end_epoch(self.strengths, epoch)
            weight = self.structure.weight.mean() if self.structure.searching else 0.0
            figures = {"loss": losses.mean(), "acyclicity": self.structure.value.mean(), "weight": weight}
            self.history.append({"epoch": epoch + 1.0, **{name: float(value) for name, value in figures.items()}})
            after_epoch()
            progress((epoch + 1) / (settings.epochs + settings.refit_epochs))
            if time_is_up():
                break
        score = np.mean(self.losses[-settings.compared :], axis=0)
        search = np.zeros(len(self.weights), dtype=int)
        apart = self.held_out_loss(held_out) if held_out.shape[1] else np.full(len(self.weights), np.nan)
        found = self._threshold(held_out)
        known = self.strengths, self.structure.allowed, *found, score, search, apart, self.history
        return Fit(*known, self._figures(held_out, train.shape[1]))

    def state(self) -> dict[str, Any]:
        """All that the next epoch depends on, as arrays and plain values."""
        structure = self.structure
        return {
            "weights": self.weights,
            "decoders": self.decoders.values,
            "allowed": structure.allowed,
            "weight": structure.weight,
            "value": structure.value,
            "searching": structure.searching,
            "penalty": structure.penalty.state(),
            "sets": self.sets,
            "history": self.history,
            "losses": np.array(self.losses),
            "rng": self.rng.bit_generator.state,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Let the next `fit`, on the same rows, go on after the last epoch that the state knows."""
        structure = self.structure
        self.weights, self.decoders.values = state["weights"], dict(state["decoders"])
        structure.allowed, structure.weight, structure.value = state["allowed"], state["weight"], state["value"]
        structure.searching = state["searching"]
        structure.penalty.load_state(dict(state["penalty"]))
        self.sets, self.history, self.losses = state["sets"], list(state["history"]), list(state["losses"])
        self.rng.bit_generator.state = state["rng"]
        self.resumed = True

    def _epoch(self, batches: list[Array]) -> Array:
        settings = self.settings
        every = len(batches) if settings.structure_every == "epoch" else min(settings.structure_every, len(batches))
        total = np.zeros(len(self.weights))
        for number, at in enumerate(self.rng.permutation(len(batches)), start=1):
            total += self._step(batches[at])
            if number % every == 0:
                self._scale(self.structure.factors(self.strengths, every))
        return total / len(batches)

    def _step(self, x: Array) -> Array:
        settings = self.settings
        replicates, n, _ = x.shape
        step = self.decoders.step(self.features(x), x.swapaxes(1, 2), settings.learning_rate, self._decay)
        gradient = x.swapaxes(1, 2) @ step.features.swapaxes(1, 2).reshape(replicates, n, -1)
        self.weights -= (
            settings.learning_rate * self.structure.allowed[..., None] * gradient.reshape(self.weights.shape)
        )
        if settings.sparsity == "l1":
            small = settings.learning_rate * settings.sparsity_weight
            self.weights = np.sign(self.weights) * np.maximum(np.abs(self.weights) - small, 0.0)
        losses: Array = step.losses.sum(1)
        return losses

    @property
    def _decay(self) -> float:
        """The L2 penalty is on all weights, those of the decoders too."""
        return 2 * self.settings.sparsity_weight if self.settings.sparsity == "l2" else 0.0

    def _scale(self, factors: Array) -> None:
        self.weights *= factors[..., None]

    def held_out_loss(self, rows: Array, graphs: Mask | None = None) -> Array:
        """(R,): the loss of rows (R, n, d), summed over attributes, with only the edges of `graphs`."""
        weights = self.weights if graphs is None else self.weights * graphs[..., None]
        losses: Array = self.decoders.losses(self.features(rows, weights), rows.swapaxes(1, 2)).sum(1)
        return losses

    def _threshold(self, rows: Array) -> tuple[Array, Array]:
        settings, strengths, allowed = self.settings, self.strengths, self.structure.allowed
        kept = rows.shape[1] > 0
        found = np.zeros(len(strengths))
        if settings.threshold == "mixture":
            found[:] = [rules.mixture_threshold(b, a) for b, a in zip(strengths, allowed, strict=True)]
        elif settings.threshold in rules.BY_LIKELIHOOD and kept:
            sets = [
                rules.candidates(b, a, self.required, settings.candidates)
                for b, a in zip(strengths, allowed, strict=True)
            ]
            empty = self.decoders.losses_without_causes(rows.swapaxes(1, 2)).sum(1)
            for replicate, (thresholds, graphs) in enumerate(sets):
                losses = np.array([self._one(replicate, rows, graph) for graph in graphs])
                chosen = rules.most_worthy(
                    losses, graphs.sum((1, 2)), float(empty[replicate]), self.d, settings.min_edge_gain
                )
                found[replicate] = thresholds[chosen]
        elif isinstance(settings.threshold, float):
            found[:] = settings.threshold
        return found, self.held_out_loss(rows, self.graphs(found)) if kept else np.full(len(strengths), np.nan)

    def graphs(self, thresholds: Array) -> Mask:
        """(R, d, d): the DAG that each threshold leaves."""
        each = zip(self.structure.allowed, self.strengths, thresholds, strict=True)
        return np.stack([greedy_cut(np.where(a, b, 0.0), tau, self.required, ~a) for a, b, tau in each])

    def residuals(self, rows: Array, graphs: Mask) -> tuple[Array, Array]:
        """(R, d, n) each: what these graphs leave of rows (R, n, d) in deviations of the noise, and the deviations."""
        features = self.features(rows, self.weights * graphs[..., None])
        return self.decoders.standardised_residuals(features, rows.swapaxes(1, 2))

    def loss_of_any_noise(self, train: Array, rows: Array, graphs: Mask) -> Array:
        """(R, n): the loss of rows (R, n, d) under a density of the noise, of any form, that training rows tell."""
        known, (left, deviation) = self.residuals(train, graphs)[0], self.residuals(rows, graphs)
        losses = density_losses(known, left) + np.log(deviation)
        if self.decoders.binary.any():
            chance = self.decoders.predict(self.features(rows, self.weights * graphs[..., None]))
            likely = np.where(rows.swapaxes(1, 2) > 0.5, chance, 1 - chance)
            losses = np.where(self.decoders.binary[:, None], -np.log(np.maximum(likely, 1e-12)), losses)
        return np.asarray(losses.sum(1))

    def _figures(self, held_out: Array, trained: int) -> Array:
        """(R, d, 4) on held-out rows, with all edges that the order leaves."""
        predictions = self.decoders.predict(self.features(held_out)).swapaxes(1, 2)
        each = zip(predictions, held_out, self.structure.allowed, strict=True)
        more = self.decoders.binary, trained
        return np.stack([figures(y, x, [x[:, causes] for causes in allowed.T], *more) for y, x, allowed in each])

    def _one(self, replicate: int, rows: Array, graph: Mask) -> float:
        mask = np.ones_like(self.structure.allowed)
        mask[replicate] = graph
        return float(self.held_out_loss(rows, mask)[replicate])


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

    def notes(self) -> list[str]:
        """Which search was kept, and of which likelihood, where there was a choice."""
        return [] if self.kept is None else choice_in_words(self.settings, int(self.kept.search[0]))

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


GRAPH_STATE, RESAMPLES_STATE = "graph.safetensors", "resamples.safetensors"
"""The checkpoints of a graph and of its resamples."""
EVERY = 10.0
"""Seconds between two checkpoints: a short fit has none, a long one loses little."""


class Checkpoint:
    """One file, written over again and again; it knows the rows and the settings that it was made with."""

    def __init__(self, path: Path, model: Searches | StagedSearch, *rows: Array) -> None:
        self.path, self.model = path, model
        digest = hashlib.sha256(model.settings.recorded_json())
        for table in rows:
            digest.update(f"{table.shape}".encode())
            digest.update(np.ascontiguousarray(table).tobytes())
        self.fit = digest.hexdigest()
        self._written = time.monotonic()

    def restore(self) -> None:
        """Put the model where the file left it; nothing is done without a file."""
        try:
            kept = deserialize_state(self.path.read_bytes())
        except (FileNotFoundError, RunError):  # there is none, or not a whole one: begin anew
            return
        if kept["fit"] != self.fit:
            raise InputError(f"{self.path}: was begun with other rows or settings; use a new --out")
        self.model.load_state(_arrays(kept["model"]))

    def keep(self) -> None:
        """Write the model's state if the last writing was long ago."""
        if time.monotonic() - self._written < EVERY:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self.path, serialize_state({"fit": self.fit, "model": _tensors(self.model.state())}))
        self._written = time.monotonic()


def fit_and_keep(
    model: Searches | StagedSearch,
    train: Array,
    held_out: Array,
    progress: Callable[[float], None],
    time_is_up: Callable[[], bool],
    file: Path | None = None,
    resume: bool = False,
) -> Fit:
    """The model's fit; with a file, one that may be killed and goes on with `resume`."""
    with np.errstate(over="ignore", invalid="ignore"):  # a fit that diverges says so itself
        if file is None:
            return model.fit(train, held_out, progress, time_is_up)
        checkpoint = Checkpoint(file, model, train, held_out)
        if resume:
            checkpoint.restore()
        else:
            file.unlink(missing_ok=True)
        return model.fit(train, held_out, progress, time_is_up, checkpoint.keep)


def _tensors(node: Any) -> Any:
    import torch

    if isinstance(node, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(node))
    return {key: _tensors(value) for key, value in node.items()} if isinstance(node, dict) else node


def _arrays(node: Any) -> Any:
    if hasattr(node, "numpy"):
        return node.numpy()
    return {key: _arrays(value) for key, value in node.items()} if isinstance(node, dict) else node


@dataclass(frozen=True)
class Centralized:
    """The engine `floating`: all columns in one place."""

    rng: np.random.Generator
    time_is_up: Callable[[], bool]

    def expected(self, settings: Settings, table: PreparedTable) -> None:
        """Its pace is known after the first seconds, and nothing is sent."""

    def learn(
        self,
        settings: Settings,
        table: PreparedTable,
        progress: ProgressCallback,
        out: Path | None = None,
        resume: bool = False,
    ) -> DiscoveryResult:
        model = searches_of(settings, table, self.rng)
        file = None if out is None else out / GRAPH_STATE
        fit = fit_and_keep(model, table.train[None], table.held_out[None], progress, self.time_is_up, file, resume)
        result = DiscoveryResult.of(table.names, fit)
        result.figures = fit.figures[0]
        result.notes = tuple(model.notes())
        return result


def searches_of(
    settings: Settings, table: PreparedTable, rng: np.random.Generator, replicates: int = 1
) -> Searches | StagedSearch:
    """All that the settings ask for, with weights drawn anew for each model."""
    from veracausa.discovery.engines.staged import StagedSearch

    known = {"binary": table.binary, "required": table.required, "forbidden": table.forbidden}

    def make(one: Settings, copies: int = 1, start: Mask | None = None) -> CentralizedVFedCD:
        return CentralizedVFedCD(one, len(table.names), rng, replicates=copies * replicates, start=start, **known)

    if settings.refits:
        return StagedSearch(settings, make, table.start, np.full(replicates, table.start_stands))
    return Searches(settings, lambda one: make(one, start=table.start))


def bootstrap_graphs(
    settings: Settings,
    table: PreparedTable,
    resamples: int,
    rng: np.random.Generator,
    progress: Callable[[float], None] = lambda share: None,
    time_is_up: Callable[[], bool] = lambda: False,
    file: Path | None = None,
    resume: bool = False,
) -> Mask:
    """(resamples, d, d): a graph a resample; all are trained side by side, as replicates of one model."""
    drawn = [table.resampled(rng) for _ in range(resamples)]
    model = searches_of(settings, table, rng, resamples)
    train, held_out = np.stack([one.train for one in drawn]), np.stack([one.held_out for one in drawn])
    fit = fit_and_keep(model, train, held_out, progress, time_is_up, file, resume)
    fitted = zip(fit.strengths, fit.allowed, fit.thresholds, strict=True)
    return np.stack([chosen_graph(*one, table.required) for one in fitted])
