"""A passive party's recording of the gradients it received: bounded in memory, on disk a part at a time.

A gradient with more values than `width` is kept as its length and a count sketch (Charikar et al. 2002): signed sums of
random groups of values, which keep angles nearly as they were. A feature map of 32,768 values takes 2 KiB a row so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from veracausa import seeding
from veracausa.atomic import atomic_write
from veracausa.data.files import reading
from veracausa.defenses.base import Context, Defense
from veracausa.errors import InputError

WIDTH = 512
MEMORY = 64 * 2**20
_PATTERN = "gradients-*.safetensors"


@dataclass(frozen=True)
class Received:
    """The gradients of some rows, in the order they came."""

    step: Tensor
    """(m,) int64, the training step of each row's exchange."""
    ids: Tensor
    """(m,) int64, positions in the training split."""
    norm: Tensor
    """(m,) the gradient's Euclidean length."""
    direction: Tensor
    """(m, d) the gradient, or its sketch."""


class GradientRecorder:
    """Takes what comes back, exchange by exchange, and writes a part whenever `memory` bytes are full."""

    def __init__(self, folder: Path, width: int = WIDTH, memory: int = MEMORY, resume: bool = False) -> None:
        self.folder, self.width, self.memory = folder, width, memory
        folder.mkdir(parents=True, exist_ok=True)
        if not resume and next(folder.glob(_PATTERN), None) is not None:
            raise InputError(f"{folder}: holds a recording already; choose another folder or remove it")
        self._kept: list[Received] = []
        self._bytes = 0
        self.parts = 0
        """How many are on disk."""
        self._sketch: _Sketch | None = None

    def add(self, step: int, ids: Tensor, gradient: Tensor) -> None:
        """Keep the gradients (n, …) that came back at this step for the rows at these positions."""
        if len(ids) != len(gradient):
            raise InputError(f"step {step}: {len(ids)} ids for the gradients of {len(gradient)} rows; give one each")
        flat = gradient.detach().flatten(1).float()
        if self._sketch is None and flat.shape[1] > self.width:
            self._sketch = _Sketch(flat.shape[1], self.width, flat.device)
        norm = flat.norm(dim=1).cpu()
        # A copy: what the party goes on to do with its gradient must not change the record.
        direction = (self._sketch(flat) if self._sketch is not None else flat).to("cpu", copy=True)
        steps = torch.full((len(ids),), step, dtype=torch.int64)
        self._kept.append(Received(steps, ids.detach().to("cpu", torch.int64, copy=True), norm, direction))
        self._bytes += direction.numel() * direction.element_size() + 20 * len(ids)
        if self._bytes >= self.memory:
            self.flush()

    def flush(self) -> None:
        """Write what is in memory."""
        if not self._kept:
            return
        names = ("step", "ids", "norm", "direction")
        tensors = {name: torch.cat([getattr(part, name) for part in self._kept]) for name in names}
        atomic_write(self.folder / f"gradients-{self.parts:06d}.safetensors", save(tensors))
        self.parts += 1
        self._kept, self._bytes = [], 0

    def cut_back(self, parts: int) -> None:
        """Forget all but the first so many parts, and go on from there."""
        self._kept, self._bytes, self.parts = [], 0, parts
        for path in sorted(self.folder.glob(_PATTERN))[parts:]:
            path.unlink()

    def finish(self) -> GradientRecord:
        """Everything recorded so far, to be read."""
        self.flush()
        return GradientRecord(self.folder)


class GradientRecord:
    """A recording, read a part at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = sorted(folder.glob(_PATTERN))
        if not self.paths:
            raise InputError(f"{folder}: holds no recorded gradients; record a training first")

    def __iter__(self) -> Iterator[Received]:
        for path in self.paths:
            yield _part(path)

    def passes(self) -> int:
        """How often the row that was seen most often was seen."""
        counts = torch.zeros(0, dtype=torch.int64)
        for part in self:
            counts, _ = _numbered(counts, part.ids)
        return int(counts.max()) if len(counts) else 0

    def by_pass(self) -> Iterator[tuple[Tensor, Received]]:
        """Every part with (m,) how often each row had been seen before: 0 in the first epoch, 1 in the second."""
        counts = torch.zeros(0, dtype=torch.int64)
        for part in self:
            counts, before = _numbered(counts, part.ids)
            yield before, part


@contextmanager
def recording(defense: Defense, recorder: GradientRecorder) -> Iterator[GradientRecorder]:
    """While the block runs, what the defense's `backward` is given is recorded; the training is not touched."""
    inner: Callable[..., None] = defense.backward

    def backward(context: Context, grad: Tensor, local_steps: int = 1) -> None:
        recorder.add(context.step, context.ids, grad)
        inner(context, grad, local_steps)

    defense.backward = backward  # type: ignore[method-assign]
    try:
        yield recorder
    finally:
        del defense.backward
        recorder.flush()


class _Sketch:
    """The same signed groups for the whole recording, whoever makes it."""

    def __init__(self, values: int, width: int, device: torch.device) -> None:
        rng = seeding.generator(0, "gradient sketch", values, width)
        self.width = width
        self.group = torch.randint(width, (values,), generator=rng).to(device)
        self.sign = (torch.randint(2, (values,), generator=rng) * 2 - 1).float().to(device)

    def __call__(self, flat: Tensor) -> Tensor:
        empty = torch.zeros(len(flat), self.width, device=flat.device)
        return empty.index_add_(1, self.group, flat * self.sign)


def _numbered(counts: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The counts with these ids added, and how often each of them had been counted before."""
    if len(ids) and int(ids.max()) >= len(counts):
        counts = torch.cat([counts, counts.new_zeros(int(ids.max()) + 1 - len(counts))])
    order = ids.argsort(stable=True)
    ordered = ids[order]
    at = torch.arange(len(ids))
    first = torch.ones(len(ids), dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    within = at - torch.where(first, at, 0).cummax(0).values if len(ids) else at
    before = torch.empty_like(ids)
    before[order] = counts[ordered] + within
    return counts + torch.bincount(ids, minlength=len(counts)), before


def _part(path: Path) -> Received:
    with reading(path):
        content = path.read_bytes()
    try:
        tensors = load(content)
        part = Received(tensors["step"], tensors["ids"], tensors["norm"], tensors["direction"])
    except (SafetensorError, KeyError) as error:
        raise InputError(f"{path}: not a whole part of a recording ({error}); record the training again") from None
    if len({len(part.step), len(part.ids), len(part.norm), len(part.direction)}) != 1 or part.direction.ndim != 2:
        raise InputError(f"{path}: its ids and gradients do not belong together; record the training again")
    if len(part.ids) and int(part.ids.min()) < 0:
        raise InputError(f"{path}: a position below 0 is no row; record the training again")
    if not (part.norm.isfinite().all() and part.direction.isfinite().all()):
        raise InputError(f"{path}: some gradients are not finite; record a training that does not diverge")
    return part


def spread_passes(there: int, wanted: int) -> list[int]:
    """At most `wanted` of the passes 0 … there − 1, evenly, the first and the last among them."""
    if there < 1:
        return []
    return sorted({round(float(at)) for at in torch.linspace(0, there - 1, min(there, wanted))})
