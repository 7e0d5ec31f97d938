"""From a few numbers of a row back to the row: several readers learn from auxiliary pairs, and the best one reads.

A network, a ridge with an own slope for every class, a ridge on random Fourier features, and the mean of the nearest
auxiliary rows. All are told the label and what the attacker itself holds of the row. A tenth of the pairs chooses
among the readers and their mixture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindAttack, BlindView
from veracausa.attacks.decoding import LabelCode, LabelledDecoder
from veracausa.attacks.fitting import FitOptions, fit_decoder
from veracausa.errors import InputError
from veracausa.metrics.images import squared_distances
from veracausa.metrics.leakage import PENALTIES
from veracausa.models.decoders import table_decoder
from veracausa.seeding import drawing_from

NEIGHBOURS = (1, 4, 16, 64, 256)
_BANDWIDTHS = (0.5, 1.0, 2.0)
_MOST_SLOPES = 1500
"""Inputs of the ridge that has its own slopes for every class."""
_MOST_RIDGE = 2000
_ROWS_AT_ONCE = 512
_STRONGER = (*PENALTIES, 100.0, 1000.0)
Reader = Callable[[Tensor, Tensor], Tensor]
"""Numbers (n, k) and what is known beside them (n, w) in, flat rows (n, d) out."""


class ReaderOptions(FitOptions):
    """How strong the readers are."""

    QUICK: ClassVar[Mapping[str, Any]] = {"epochs": 4, "width": 64, "blocks": 1, "fourier": 64}

    batch_size: int = Field(128, ge=2)
    epochs: int = Field(10, ge=0)
    """Of the network; 0: no network."""
    width: int = Field(256, ge=1)
    blocks: int = Field(2, ge=0)
    channels: int = Field(128, ge=1)
    """On a GPU the network of pictures is the convolutional decoder of split audits, this wide."""
    fourier: int = Field(512, ge=0)
    """Random Fourier features; 0: none."""


@dataclass(frozen=True)
class RowReader:
    """A fitted mixture of readers: what it makes of a row's numbers, and how well it did on held-out pairs."""

    base: Callable[[Tensor], Tensor]
    """Rows from what is known alone; readers add what it leaves over."""
    readers: Mapping[str, Reader]
    shares: Mapping[str, float]
    mean: Tensor
    scale: Tensor
    whitened: Tensor
    errors: Mapping[str, float]
    """Held-out mean squared error by reader, and of what was chosen."""
    pixels: bool
    row_shape: tuple[int, ...]

    def __call__(self, numbers: Tensor, known: Tensor) -> Tensor:
        """(n, *row_shape) rows."""
        x = _whitened(numbers, self.mean, self.scale, self.whitened)
        total = self.base(known)
        for name, share in self.shares.items():
            total = total + share * self.readers[name](x, known)
        rows = total.view(len(numbers), *self.row_shape).float()
        return rows.clamp(0, 1) if self.pixels else rows


class RowReadingAttack(BlindAttack):
    """An attack that ends with numbers of each row, and reads the row from them."""

    needs = Grant.AUXILIARY | Grant.WEIGHTS
    uses = Grant.LABELS | Grant.LABELLED_AUXILIARY
    quick = ReaderOptions.QUICK
    options: ReaderOptions

    def __init__(self, options: ReaderOptions) -> None:
        super().__init__(options)
        self.reader: RowReader | None = None
        self.said: dict[str, float] = {}

    def notes(self) -> Mapping[str, float]:
        found = dict(self.said)
        if self.reader is not None:
            found |= {f"held_out_mse_{name}": error for name, error in self.reader.errors.items()}
            found |= {f"share_{name}": share for name, share in self.reader.shares.items()}
        return found


class KnownBeside:
    """What the attacker knows of a row beside its numbers: the label's code, and its own columns."""

    def __init__(self, view: BlindView, labelled: bool) -> None:
        self.labelled = labelled and hasattr(view, "auxiliary_labels") and hasattr(view, "labels")
        self.code = LabelCode.of(view.auxiliary_labels, view.classes) if self.labelled else None
        self.has_own = hasattr(view, "own") and hasattr(view, "own_auxiliary")
        if self.has_own:
            own = view.own_auxiliary.flatten(1).float()
            spread = own.std(0, correction=0)
            self.mean, self.scale = own.mean(0), torch.where(spread > 1e-6, spread, 1.0)

    def of_auxiliary(self, view: BlindView) -> Tensor:
        return self._joined(
            len(view.auxiliary),
            view.auxiliary_labels if self.labelled else None,
            view.own_auxiliary if self.has_own else None,
        )

    def of_targets(self, view: BlindView, count: int) -> Tensor:
        return self._joined(count, view.labels if self.labelled else None, view.own if self.has_own else None)

    def _joined(self, count: int, labels: Tensor | None, own: Tensor | None) -> Tensor:
        parts = [torch.zeros(count, 0)]
        if self.code is not None and labels is not None:
            parts.append(self.code(labels).float())
        if own is not None:
            parts.append((own.flatten(1).float() - self.mean) / self.scale)
        return torch.cat(parts, 1)


def read_rows(
    view: BlindView, numbers: Tensor, auxiliary_numbers: Tensor, options: ReaderOptions
) -> tuple[Tensor, RowReader]:
    """The targets' rows behind (n, k) numbers, by readers that learnt from (m, k) numbers of the auxiliary rows."""
    if len(view.auxiliary) < 10:
        raise InputError(
            f"{options.name}: needs at least 10 auxiliary rows to learn from, there are {len(view.auxiliary)}"
        )
    beside = KnownBeside(view, labelled=True)
    known = beside.of_auxiliary(view)
    classes = view.classes if beside.labelled else 0
    reader = fit_reader(auxiliary_numbers, known, classes, view, options)
    return reader(numbers, beside.of_targets(view, len(numbers))), reader


def fit_reader(numbers: Tensor, known: Tensor, classes: int, view: BlindView, options: ReaderOptions) -> RowReader:
    """Fit all readers to the view's auxiliary rows; the first `classes` columns of `known` are the class."""
    rows = view.auxiliary.flatten(1).float()
    mean, scale, whitening = _scaling(numbers)
    x = _whitened(numbers, mean, scale, whitening)
    order = torch.randperm(len(rows), generator=view.rng)
    kept = max(2, len(rows) // 10)
    held, learnt = order[:kept], order[kept:]
    base = _base(known[learnt], rows[learnt], known[held], rows[held])
    left, left_held = rows[learnt] - base(known[learnt]), rows[held] - base(known[held])
    data = _Pairs(x[learnt], known[learnt], left, x[held], known[held], left_held, classes)
    readers: dict[str, Reader] = {"linear": _linear(data), "nearest": _nearest(data)}
    view.progress(0.1)
    if options.fourier:
        readers["fourier"] = _fourier(data, options.fourier, view.rng)
    view.progress(0.2)
    if options.epochs:
        readers["network"] = _network(data, view, options)
    view.progress(0.9)
    found = {name: reader(data.held_x, data.held_known) for name, reader in readers.items()}
    errors = {name: float((guess - left_held).square().mean()) for name, guess in found.items()}
    errors["known"] = float(left_held.square().mean())
    # The mixture has every reader alone among its shares, and none of them, where nothing was to be read.
    shares = _mixture(found, left_held)
    together = torch.zeros_like(left_held)
    for name, share in shares.items():
        together += share * found[name]
    errors["mixture"] = float((together - left_held).square().mean())
    view.progress(1.0)
    return RowReader(base, readers, shares, mean, scale, whitening, errors, view.pixels, view.row_shape)


@dataclass(frozen=True)
class _Pairs:
    x: Tensor
    known: Tensor
    rows: Tensor
    held_x: Tensor
    held_known: Tensor
    held_rows: Tensor
    classes: int


def _base(known: Tensor, rows: Tensor, held: Tensor, held_rows: Tensor) -> Callable[[Tensor], Tensor]:
    """Rows from the label and own columns; the mean where nothing is known."""
    if not known.shape[1]:
        mean = rows.mean(0)
        return lambda some: mean.expand(len(some), -1)
    return _ridge(known, rows, held, held_rows)[1]


def _scaling(numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, spread and a rotation that makes the numbers uncorrelated: small directions must count, too."""
    values = numbers.double()
    mean = values.mean(0)
    spread = values.std(0, correction=0)
    scale = torch.where(spread > 1e-12, spread, 1.0)
    unit = (values - mean) / scale
    level, directions = torch.linalg.eigh(unit.T @ unit / max(1, len(unit)))
    strong = level > 1e-9 * level.max().clamp_min(1e-30)
    whitening = directions[:, strong] / level[strong].sqrt()
    return mean, scale, whitening.flip(1)


def _whitened(numbers: Tensor, mean: Tensor, scale: Tensor, whitening: Tensor) -> Tensor:
    return (((numbers.double() - mean) / scale) @ whitening).float()


def _slopes(x: Tensor, known: Tensor, classes: int) -> Tensor:
    """Numbers and what is known; each class with slopes of its own where that is not too much."""
    own = classes and x.shape[1] * (classes + 1) <= _MOST_SLOPES
    parts = [x, known]
    if own:
        parts.append((known[:, :classes].unsqueeze(2) * x.unsqueeze(1)).flatten(1))
    return torch.cat(parts, 1)


def _linear(data: _Pairs) -> Reader:
    inputs = _slopes(data.x, data.known, data.classes)
    classes = data.classes if inputs.shape[1] <= min(_MOST_RIDGE, len(inputs)) else 0
    inputs, held = (_slopes(x, known, classes) for x, known in ((data.x, data.known), (data.held_x, data.held_known)))
    _, predict = _ridge(inputs, data.rows, held, data.held_rows)
    return lambda x, known: predict(_slopes(x, known, classes))


def _fourier(data: _Pairs, count: int, rng: torch.Generator) -> Reader:
    """Ridge on cosines of random directions, the bandwidth chosen on the held-out pairs."""
    inside = data.x.shape[1] + data.known.shape[1]
    draw = torch.randn(inside, count, generator=rng) / math.sqrt(inside)
    phase = 2 * math.pi * torch.rand(count, generator=rng)

    def features(x: Tensor, known: Tensor, bandwidth: float) -> Tensor:
        both = torch.cat([x, known], 1)
        return torch.cat([both, torch.cos(both @ draw * bandwidth + phase)], 1)

    best: tuple[float, float, Callable[[Tensor], Tensor]] | None = None
    for bandwidth in _BANDWIDTHS:
        inputs, held = features(data.x, data.known, bandwidth), features(data.held_x, data.held_known, bandwidth)
        error, predict = _ridge(inputs, data.rows, held, data.held_rows)
        if best is None or error < best[0]:
            best = (error, bandwidth, predict)
    assert best is not None
    _, width, chosen = best
    return lambda x, known: chosen(features(x, known, width))


def _ridge(inputs: Tensor, rows: Tensor, held: Tensor, held_rows: Tensor) -> tuple[float, Callable[[Tensor], Tensor]]:
    """The held-out error and the map of the ridge whose penalty does best there; one decomposition serves them all."""
    mean, offset = inputs.double().mean(0), rows.double().mean(0)
    spread = inputs.double().std(0, correction=0)
    scale = torch.where(spread > 1e-9, spread, 1.0)

    def standard(some: Tensor) -> Tensor:
        return (some.double() - mean) / scale

    x, y = standard(inputs), rows.double() - offset
    level, turned = torch.linalg.eigh(x.T @ x / len(x))
    cross = turned.T @ (x.T @ y / len(x))
    unseen, wanted = standard(held) @ turned, held_rows.double() - offset
    best, chosen = math.inf, 1.0
    for penalty in _STRONGER:
        error = float((unseen @ (cross / (level + penalty).unsqueeze(1)) - wanted).square().mean())
        if error < best:
            best, chosen = error, penalty
    weights = turned @ (cross / (level + chosen).unsqueeze(1))
    return best, lambda some: (standard(some) @ weights + offset).float()


def _nearest(data: _Pairs) -> Reader:
    """The mean of the nearest auxiliary rows, what is known counting as much as the numbers."""

    def guess(x: Tensor, known: Tensor, neighbours: int) -> Tensor:
        base = torch.cat([data.x, data.known * 2], 1)
        parts = []
        for first in range(0, len(x), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            distances = squared_distances(torch.cat([x[some], known[some] * 2], 1), base)
            at = distances.topk(neighbours, 1, largest=False).indices
            # Row by row, (rows, neighbours, d) may be gigabytes for pictures.
            parts.append(torch.stack([data.rows[one].mean(0) for one in at]))
        return torch.cat(parts)

    possible = [k for k in NEIGHBOURS if k <= len(data.x)]
    errors = {k: float((guess(data.held_x, data.held_known, k) - data.held_rows).square().mean()) for k in possible}
    best = min(errors, key=lambda k: errors[k])
    return lambda x, known: guess(x, known, best)


def _network(data: _Pairs, view: BlindView, options: ReaderOptions) -> Reader:
    """A residual network; on a GPU, for pictures, the convolutional decoder of the audits of split training."""
    device = view.device
    convolutional = device.type == "cuda" and view.pixels
    shape = view.row_shape if convolutional else (data.rows.shape[1],)
    inside = torch.cat([data.x, data.known], 1)
    with drawing_from(view.rng):
        decoder: torch.nn.Module
        if convolutional and data.known.shape[1]:
            decoder = LabelledDecoder(
                (data.x.shape[1],), shape, data.known.shape[1], max(1, options.blocks), options.channels
            )
        else:
            convolutional = False
            shape = (data.rows.shape[1],)
            decoder = table_decoder((inside.shape[1],), shape, options.blocks, options.width, levelled=True)
    decoder = decoder.to(device)
    # The network learns what the mean leaves over: a small end of the training must not be spent on the mean.
    offset = torch.zeros(data.rows.shape[1]) if convolutional else data.rows.mean(0)
    rows = (data.rows - offset).view(-1, *shape).to(device)
    told = data.known.to(device) if convolutional else None
    given = (data.x if convolutional else inside).to(device)

    def progress(share: float) -> None:
        view.progress(0.2 + 0.7 * share)

    fit_decoder(decoder, given, rows, options, view.rng, progress, known=told)

    def guess(x: Tensor, known: Tensor) -> Tensor:
        parts = []
        with torch.no_grad():
            for first in range(0, len(x), _ROWS_AT_ONCE):
                some = slice(first, first + _ROWS_AT_ONCE)
                if convolutional:
                    found = decoder(x[some].to(device), known[some].to(device))
                else:
                    found = decoder(torch.cat([x[some], known[some]], 1).to(device))
                parts.append(found.flatten(1).float().cpu())
        return torch.cat(parts) + offset

    return guess


def _mixture(found: Mapping[str, Tensor], rows: Tensor) -> dict[str, float]:
    """Shares, none below 0, that add the readers up best on the held-out pairs."""
    from scipy.optimize import nnls

    names = list(found)
    guesses = torch.stack([found[name].flatten() for name in names], 1).double()
    gram, cross = guesses.T @ guesses, guesses.T @ rows.flatten().double()
    jitter = 1e-9 * float(gram.diagonal().mean()) * torch.eye(len(names), dtype=torch.float64)
    root = torch.linalg.cholesky(gram + jitter)
    shares, _ = nnls(root.T.numpy(), torch.linalg.solve_triangular(root, cross.unsqueeze(1), upper=False)[:, 0].numpy())
    return {name: float(share) for name, share in zip(names, shares, strict=True) if share > 0}
