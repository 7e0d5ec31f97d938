"""One surrogate for each training row, made once and kept in a cache, and the base of defenses that need them."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veracausa import seeding
from veracausa.atomic import atomic_write
from veracausa.data.vertical import Part
from veracausa.defenses.base import Defense
from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.defenses.causshield.surrogates.base import (
    Groups,
    Paced,
    Surrogate,
    SurrogateOptions,
    as_float,
    as_printed,
    batches,
    choose,
)
from veracausa.defenses.protocols import Prepares, no_progress
from veracausa.errors import InputError, RunError
from veracausa.events import ProgressCallback
from veracausa.models.runner import device_of
from veracausa.registry import Options
from veracausa.runs.store import deserialize_state, serialize_state

# Of what is made and how it is kept: a change of either makes what lies in caches worthless.
FORMAT = 1
GATE_ROWS, GATE_PIXELS = 1000, 2**23
EXAMPLES = 8
_writing = threading.Lock()


@dataclass(frozen=True)
class SurrogateSet:
    """The surrogates of a party's training rows, and what makes more of them."""

    rows: Tensor
    """(n, *shape) in the type of the training rows, uint8 pixels or float32 values, and on their device."""
    maker: Surrogate
    """Fitted; makes surrogates of new rows."""
    quality: dict[str, float | bool]
    seconds: float
    """What fitting and making took, also where they were done by an earlier run."""
    cached: bool
    examples: Tensor | None = None
    """(8, 2, c, h, w) uint8 a few rows of images and their surrogates, for a report."""

    def take(self, rows: Tensor) -> Tensor:
        """The surrogates of these rows of the training features, float32; pixels come as [0, 1]."""
        return as_float(self.rows[rows.to(self.rows.device)])

    def state(self) -> dict[str, Any]:
        """Tensors and plain values; `from_state` makes the set of them again."""
        return {
            "rows": self.rows,
            "maker": self.maker.state(),
            "gates": dict(self.quality),
            "seconds": self.seconds,
            "examples": self.examples,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], options: Options, device: torch.device) -> SurrogateSet:
        rows = state["rows"].to(device)
        settings = resolve(options, rows.shape[1:])
        maker = surrogates.get(settings.name)(settings)
        maker.load_state(state["maker"])
        return cls(rows, maker, dict(state["gates"]), state["seconds"], True, state["examples"])


def resolve(options: Options, shape: tuple[int, ...]) -> SurrogateOptions:
    """The settings of a kind that makes surrogates.

    `auto` becomes the kind that suits rows of this shape, `printed` the one of Eqs. 8-10 without a repair.
    """
    given = options.model_dump()
    if options.name == "auto":
        given["name"] = choose(shape)
    elif options.name == "printed":
        given |= as_printed(shape)
    elif isinstance(options, SurrogateOptions):
        return options
    settings = surrogates.options(given["name"]).model_validate(given)
    assert isinstance(settings, SurrogateOptions)
    return settings


def collect(
    part: Part, options: Options, progress: ProgressCallback = no_progress, cache: Path | None = None
) -> SurrogateSet:
    """The surrogates of all rows that `part` holds: from the cache where they lie there, else made and kept.

    The cache is `cache`, else `$VERACAUSA_CACHE`, else the user's own. It holds what the training rows hold: only the
    user may read it. One that cannot be written is no error, the surrogates are then made each time.
    """
    if part.features is None:
        raise InputError("surrogates are made of features, and this party holds none; leave its defense out")
    rows = part.features
    settings = resolve(options, tuple(rows.shape[1:]))
    path = _path(cache, _fingerprint(rows, part.groups, settings))
    kept = _read(path, rows, settings)
    if kept is not None:
        progress(1.0)
        return kept
    made = _make(rows, part.groups, settings, progress)
    _keep(path, made)
    return made


def _make(rows: Tensor, groups: Groups | None, settings: SurrogateOptions, progress: ProgressCallback) -> SurrogateSet:
    begun = time.monotonic()
    maker = surrogates.get(settings.name)(settings)
    maker.check(rows.shape[1:])
    maker.fit(rows, seeding.generator(settings.seed, "surrogate", "fit"), Paced(progress, 0, 0.9), groups)
    rng = seeding.generator(settings.seed, "surrogate", "make")
    made, heard = torch.empty(rows.shape, dtype=rows.dtype, device=rows.device), Paced(progress, 0.9, 1)
    measured = _evenly(len(rows), min(GATE_ROWS, max(1, GATE_PIXELS // max(1, rows[0].numel()))), rows.device)
    chosen = torch.zeros(len(rows), dtype=torch.bool, device=rows.device).index_fill_(0, measured, True)
    unclipped = []
    for batch in batches(rows):
        drawn = maker.unclipped(as_float(rows[batch]), rng)
        made[batch] = _pixels(drawn) if rows.dtype == torch.uint8 else drawn.clamp(0, 1) if rows.ndim == 4 else drawn
        unclipped.append(drawn[chosen[batch]])
        heard(min(batch.stop, len(rows)) / len(rows))
    quality = maker.quality_checks(as_float(rows[measured]), torch.cat(unclipped))
    examples = None
    if rows.ndim == 4:
        shown = _evenly(len(rows), EXAMPLES, rows.device)
        examples = _pixels(torch.stack((as_float(rows[shown]), as_float(made[shown])), dim=1)).cpu()
    return SurrogateSet(made, maker, quality, time.monotonic() - begun, False, examples)


def _evenly(length: int, count: int, device: torch.device) -> Tensor:
    """At most `count` of the row numbers, ascending."""
    return torch.linspace(0, length - 1, min(count, length), dtype=torch.float64).round().to(torch.int64).to(device)


def _pixels(x: Tensor) -> Tensor:
    return (x * 255).round().clamp(0, 255).to(torch.uint8)


def _fingerprint(rows: Tensor, groups: Groups | None, settings: SurrogateOptions) -> str:
    words = (FORMAT, tuple(rows.shape), str(rows.dtype), groups and tuple(groups), rows.device.type)
    summed = hashlib.sha256(f"{words}{settings.model_dump_json()}".encode())
    for start in range(0, len(rows), 4096):  # a strip is a view of whole images: never a copy of all at once
        summed.update(rows[start : start + 4096].contiguous().cpu().numpy().tobytes())
    return summed.hexdigest()[:32]


def _path(cache: Path | None, fingerprint: str) -> Path:
    named = cache or os.environ.get("VERACAUSA_CACHE")
    if not named:
        above = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        named = Path(above) / "veracausa"
    return Path(named) / "surrogates" / f"{fingerprint}.safetensors"


def _read(path: Path, rows: Tensor, settings: SurrogateOptions) -> SurrogateSet | None:
    try:
        kept = SurrogateSet.from_state(deserialize_state(path.read_bytes()), settings, rows.device)
    except (OSError, RunError, AttributeError, KeyError, TypeError, ValueError, RuntimeError):
        return None  # not there, torn, or of another make: it is made anew
    return kept if kept.rows.shape == rows.shape and kept.rows.dtype == rows.dtype else None


def _keep(path: Path, made: SurrogateSet) -> None:
    try:
        with _writing:  # two parties in threads may hold the same rows, and would write to one temporary file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.parent.chmod(0o700)
            atomic_write(path, serialize_state(made.state()))
            path.chmod(0o600)
    except OSError:
        return


class SurrogateDefense(Defense, Prepares):
    """A defense that compares rows with their surrogates: it makes one of every training row before it trains."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.surrogates: SurrogateSet | None = None
        self.index: Tensor | None = None

    @property
    def wanted_surrogate(self) -> Options | None:
        """The kind of surrogate and its settings; None where these settings of the defense need none."""
        raise NotImplementedError

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse surrogates that do not suit such rows."""
        if (wanted := self.wanted_surrogate) is not None:
            settings = resolve(wanted, shape)
            surrogates.get(settings.name)(settings).check(torch.Size(shape))

    def prepare(self, data: Part, progress: ProgressCallback = no_progress) -> None:
        """Make a surrogate of every training row."""
        if (wanted := self.wanted_surrogate) is not None:
            self.surrogates, self.index = collect(data, wanted, progress), data.index

    def prepared(self) -> dict[str, Any]:
        return {} if self.surrogates is None else {"surrogates": self.surrogates.state(), "index": self.index}

    def load_prepared(self, kept: Mapping[str, Any], data: Part | None = None) -> None:
        if kept and (wanted := self.wanted_surrogate) is not None:
            self.surrogates = SurrogateSet.from_state(kept["surrogates"], wanted, device_of(self.bottom))
            self.index = kept["index"]

    def quality_checks(self) -> dict[str, float | bool | str]:
        """How good the surrogates are, and what they took."""
        if self.surrogates is None:
            return {}
        return {**self.surrogates.quality, "seconds": self.surrogates.seconds, "cached": self.surrogates.cached}

    def stored_surrogates(self, ids: Tensor) -> Tensor:
        """The surrogates that `prepare` made of these training rows."""
        if self.surrogates is None:
            name = self.options.name
            raise InputError(f"{name}: no surrogates yet; call prepare with the training rows before the first batch")
        return self.surrogates.take(ids.cpu() if self.index is None else self.index[ids.cpu()])
