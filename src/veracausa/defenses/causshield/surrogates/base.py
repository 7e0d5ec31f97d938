"""What makes surrogates: the interface of every kind, what several kinds share, and how good a surrogate is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from veracausa.data.colour import rgb_to_lab
from veracausa.defenses.protocols import no_progress
from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.metrics.images import ssim
from veracausa.models.units import shape_text
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
        self, rows: Tensor, rng: torch.Generator, progress: ProgressCallback = no_progress, groups: Groups | None = None
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

    def quality_checks(self, x: Tensor, surrogate: Tensor) -> dict[str, float | bool]:
        """How far surrogates are from their rows, in what should be kept and in what should change.

        `surrogate` as `unclipped` gives it: what was clipped cannot be seen in a surrogate any more.
        """

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


def as_printed(shape: Sequence[int]) -> dict[str, Any]:
    """The settings of the paper's own surrogates: Eqs. 8-10 to the letter for colours, the nearest form for grey.

    Tables have no part in the paper: they get what `auto` gives them.
    """
    if len(shape) != 3:
        return {"name": choose(shape)}
    if shape[0] == 3:
        return {"name": "lab", "l_source": "predicted", "ab_target": "hard", "rebalance": False}
    return {"name": "intensity", "target": "hard", "rebalance": False}


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


STRUCTURE_LOST = 0.5
"""A similarity of luminance below this: the surrogate differs in what matters."""
COLOUR_KEPT = 10.0
"""A change of ab below this: the surrogate hardly differs in anything (natural chroma is 17.5 on average)."""


def distances(x: Tensor, surrogate: Tensor) -> dict[str, float | bool]:
    """The distances that suit the rows: of luminance and colour, of intensity, or of a table's columns."""
    if x.ndim == 2:
        return of_tables(x, surrogate)
    return of_colour(x, surrogate) if x.shape[1] == 3 else of_intensity(x, surrogate)


def of_colour(x: Tensor, surrogate: Tensor) -> dict[str, float | bool]:
    """SSIM of the luminance, and the mean distance in the ab plane."""
    ours, theirs = rgb_to_lab(x), rgb_to_lab(surrogate)
    luminance = ssim(theirs[:, :1] / 100, ours[:, :1] / 100).mean().item()
    moved = (ours[:, 1:] - theirs[:, 1:]).norm(dim=1).mean().item()
    return {
        "l_ssim": luminance,
        "ab_distance": moved,
        "structure_lost": luminance < STRUCTURE_LOST,
        "colour_kept": moved < COLOUR_KEPT,
    }


def of_intensity(x: Tensor, surrogate: Tensor) -> dict[str, float | bool]:
    """SSIM and mean absolute change of the intensity."""
    similarity = ssim(surrogate.mean(1, keepdim=True), x.mean(1, keepdim=True)).mean().item()
    return {
        "intensity_ssim": similarity,
        "mean_absolute_change": (surrogate - x).abs().mean().item(),
        "structure_lost": similarity < STRUCTURE_LOST,
    }


def of_tables(x: Tensor, surrogate: Tensor) -> dict[str, float | bool]:
    """The share of values that changed, and the mean absolute change in standard deviations of the column."""
    spread = x.std(0, correction=0)
    varied = spread > 0
    change = (surrogate - x).abs()
    standardised = change[:, varied] / spread[varied]
    return {
        "changed_share": (change > 0).float().mean().item() if change.numel() else 0.0,
        "mean_standardised_change": standardised.mean().item() if standardised.numel() else 0.0,
    }


def clipped_share(unclipped: Tensor) -> float:
    """The share of pixels with a channel outside [0, 1] by more than half a step of eight bits."""
    margin = 0.5 / 255
    return ((unclipped < -margin) | (unclipped > 1 + margin)).any(1).float().mean().item()
