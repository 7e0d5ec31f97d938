"""What makes surrogates: the interface of every kind, and what several kinds share."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from veracausa.defenses.base import unheard
from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.models.dry_pass import shape_text
from veracausa.registry import Options

Kind = Literal["colour images", "grey images", "images", "tables", "rows"]
Groups = Sequence[int]
"""For each feature the number of the table column it came from: what was one-hot encoded stays together."""


class SurrogateOptions(Options):
    """What every kind of surrogate takes."""

    seed: int = Field(0, ge=0)
    """Surrogates come from this seed and the data alone, not from the job's: runs that repeat a job share them."""


class Surrogate:
    """Makes, for each row, another that differs in what does not matter and agrees in what does.

    The identity, and the base of all kinds. Most override `fit` and `draw`. A surrogate never sees labels.
    """

    suits: ClassVar[Kind] = "rows"

    def __init__(self, options: Options) -> None:
        self.options = options

    def check(self, shape: Sequence[int]) -> None:
        """Raise `InputError` where this kind cannot serve rows of this shape."""
        fits = {
            "colour images": len(shape) == 3 and shape[0] == 3,
            "grey images": len(shape) == 3 and shape[0] == 1,
            "images": len(shape) == 3,
            "tables": len(shape) == 1,
            "rows": True,
        }
        if not fits[self.suits]:
            raise InputError(
                f"surrogate {self.options.name!r} is for {self.suits}, and the rows are of shape {shape_text(shape)}; "
                f"use 'auto', or {choose(shape)!r}, which suits them"
            )

    def fit(
        self, rows: Tensor, rng: torch.Generator, progress: ProgressCallback = unheard, groups: Groups | None = None
    ) -> None:
        """Learn from the party's own training rows, (n, *shape) uint8 pixels or float values."""
        self.check(rows.shape[1:])

    def draw(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """The surrogates of one batch, before pixels are clipped to what can be shown."""
        return x

    def unclipped(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """`draw` for any number of rows."""
        with torch.no_grad():
            drawn = [self.draw(x[batch], rng) for batch in batches(x)]
        return torch.cat(drawn) if drawn else x.clone()

    def make(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """A surrogate for each row, the trained rows or new ones; `rng` is a CPU generator wherever the rows are."""
        made = self.unclipped(x.detach(), rng)
        return made.clamp(0, 1) if x.ndim == 4 else made

    def gates(self, x: Tensor, surrogate: Tensor) -> dict[str, float | bool]:
        """How far surrogates are from their rows, in what should be kept and in what should change.

        `surrogate` as `unclipped` gives it: what was clipped cannot be seen in a surrogate any more.
        """
        from veracausa.defenses.causshield.surrogates.gates import clipped_share, distances

        if x.ndim != 4:
            return distances(x, surrogate)
        return distances(x, surrogate.clamp(0, 1)) | {"out_of_gamut": clipped_share(surrogate)}

    def state(self) -> dict[str, Any]:
        """All that `make` needs beside the options: tensors and plain values."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave, in place of `fit`."""


def choose(shape: Sequence[int]) -> str:
    """The kind that `auto` means for rows of this shape."""
    if len(shape) == 1:
        return "neighbours"
    return "lab" if len(shape) == 3 and shape[0] == 3 else "fourier"


def as_float(rows: Tensor) -> Tensor:
    """A batch as the models see it: pixels in [0, 1]."""
    return rows.to(torch.float32).div_(255) if rows.dtype == torch.uint8 else rows.to(torch.float32)


def batches(rows: Tensor) -> Iterator[slice]:
    """The rows in turn, as many at a time as keep memory small and signs of life frequent."""
    pixels = rows.shape[-1] * rows.shape[-2] if rows.ndim == 4 else 64
    size = max(1, pixels_at_once(rows.device) // pixels)
    for start in range(0, len(rows), size):
        yield slice(start, start + size)


def pixels_at_once(device: torch.device) -> int:
    """So many pixels go through a network together: a core needs about half a second for them."""
    return 2**18 if device.type == "cuda" else 2**13


def on_device(rng: torch.Generator, device: torch.device) -> torch.Generator:
    """A generator for draws on `device`; on a GPU a new one, seeded by a draw."""
    if device.type == "cpu":
        return rng
    return torch.Generator(device).manual_seed(int(torch.randint(2**62, (), generator=rng)))


def uniform(n: int, low: float, high: float, rng: torch.Generator, like: Tensor) -> Tensor:
    """(n, 1, 1, 1) one draw a row."""
    return (torch.rand(n, 1, 1, 1, generator=rng) * (high - low) + low).to(like)


def bank_of(rows: Tensor, size: int, rng: torch.Generator) -> Tensor:
    """At most `size` of the rows, drawn, to be kept."""
    return rows[torch.randperm(len(rows), generator=rng)[:size].to(rows.device)].clone()


def partners(x: Tensor, bank: Tensor, rng: torch.Generator) -> Tensor:
    """For each row a row of the bank, on their device, that is not the row itself, where there is another."""
    chosen = torch.randint(len(bank), (len(x),), generator=rng).to(x.device)
    itself = (as_float(bank[chosen]) == x).flatten(1).all(1)
    return as_float(bank[(chosen + itself) % len(bank)])


class Paced:
    """Passes a share of progress on at most four times a second, from one end of a span of the whole to the other."""

    def __init__(self, progress: ProgressCallback, start: float = 0.0, end: float = 1.0) -> None:
        self.progress, self.start, self.end = progress, start, end
        self._last = time.monotonic()

    def __call__(self, share: float) -> None:
        now = time.monotonic()
        if now - self._last >= 0.25 or share >= 1:
            self._last = now
            self.progress(self.start + (self.end - self.start) * share)
