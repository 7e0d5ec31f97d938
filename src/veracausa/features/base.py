"""The contract of a feature map: learnt from a party's own rows, applied to any rows, saved without pickle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.registry import Options

if TYPE_CHECKING:
    from veracausa.config import Runtime
    from veracausa.models import ModelOptions

ColumnKind = Literal["number", "category", "missing"]
"""What a feature of a table is: a standardised value, one of a word's 0/1 columns, or where a value was missing."""


@dataclass(frozen=True)
class RowColumn:
    """Which features of a row one column of the table became; `kind` says how."""

    name: str
    kind: ColumnKind
    at: tuple[int, ...]
    """Positions in the row."""


def row_columns(preprocessing: Mapping[str, Any] | None) -> tuple[RowColumn, ...]:
    """The columns behind the features of a table's rows, by its fitted preprocessing; empty for pictures."""
    found: list[RowColumn] = []
    start = 0
    for column in (preprocessing or {"columns": ()})["columns"]:
        if column["kind"] == "constant":
            continue
        kind: ColumnKind = "number" if column["kind"] == "numeric" else "category"
        # A word's missing value is one more word; a number's is a column beside it.
        width = 1 if kind == "number" else len(column["values"]) + bool(column["other"]) + bool(column["missing"])
        found.append(RowColumn(column["name"], kind, tuple(range(start, start + width))))
        start += width
        if kind == "number" and column["missing"]:
            found.append(RowColumn(column["name"], "missing", (start,)))
            start += 1
    return tuple(found)


@dataclass(frozen=True)
class OwnRows:
    """A party's own rows, all of them present, as a feature map sees them."""

    features: Tensor
    """(n, *shape): uint8 pixels, or float32 values of a table."""
    columns: tuple[RowColumn, ...] = ()
    """Of a table; empty for pictures."""

    def __len__(self) -> int:
        return len(self.features)

    @property
    def pixels(self) -> bool:
        """Whether the rows are pictures, (channels, height, width)."""
        return self.features.ndim == 4

    def blocks(self, rows: int) -> Iterator[Tensor]:
        """The rows in order, so many at a time, as float32; pixels in [0, 1]."""
        for block in torch.split(self.features, rows):
            yield block.to(torch.float32).div_(255) if block.dtype == torch.uint8 else block.to(torch.float32)


@dataclass(frozen=True)
class FitLabels:
    """Labels of the rows a map is fitted on, as far as the active party lets them out."""

    values: Tensor
    """(n,) int64 classes; of a regression, bins."""
    classes: int
    transition: Array | None = None
    """(classes, classes): the chance that a row of class i was told as j; None: these are the true ones."""


class FitStore(Protocol):
    """Where a long fit leaves off and goes on after a restart. What it keeps is the party's own."""

    def save(self, state: Mapping[str, Any]) -> None:
        """Keep this state in place of the one before: plain JSON values and tensors."""

    def load(self) -> Mapping[str, Any] | None:
        """What was kept last; None: nothing yet."""


class NoStore:
    """Keeps nothing."""

    def save(self, state: Mapping[str, Any]) -> None:
        """Forget it."""

    def load(self) -> None:
        return None


@dataclass(frozen=True)
class FitContext:
    """What a fit may use beside the rows."""

    rng: torch.Generator
    """All randomness of the fit, on the CPU."""
    device: torch.device = torch.device("cpu")  # noqa: RUF009
    runtime: Runtime | None = None
    """Precision, channels last, compilation: as the job says."""
    model: ModelOptions | None = None
    """The job's `[model]`: the network of a map that has one. It was checked by `require_allowed`."""
    labels: FitLabels | None = None
    progress: ProgressCallback = field(default=lambda share: None)
    """Hears the share that is done, at least once a second or so: it keeps the party's links alive."""
    store: FitStore = field(default_factory=NoStore)
    opens: bool = False
    """Whether this party opens the sums: then its features must not single out rows, also taken together."""
    singles_out: Callable[[Callable[[], Iterator[Array]], bool], bool] | None = None
    """Whether features, given block by block as often as they are asked for, single out more rows than can be left out;
    with True, also with labels beside them. None: this party's features may."""


class FeatureMap(ABC):
    """A party's own rows as numbers. `fit` learns it, `map` applies it, `state` and `load_state` carry it over.

    A map is fitted at home: nothing of it ever leaves the party. The same rows, options and generator give the same
    bits on a CPU, also after `fit` was killed and begun again with what its store kept.
    """

    pictures: ClassVar[bool] = False
    """Whether it takes pictures."""
    tables: ClassVar[bool] = False
    """Whether it takes tables."""
    labelled: ClassVar[bool] = False
    """Whether it can use labels. Without them it must still work, unless `needs_labels`."""
    needs_labels: ClassVar[bool] = False
    streams: ClassVar[bool] = False
    """Whether it can be fitted block by block, by `fit_blocks`, without all rows in memory."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @abstractmethod
    def fit(self, rows: OwnRows, context: FitContext) -> Array | None:
        """Learn the map. What it returns, if anything, are the features of these very rows, (n, width).

        A map that learnt from labels must return them, cross-fitted: the head is computed on these rows too, and
        features that have seen a row's own label would mislead it. None: `map` is as good for these rows.
        """

    @abstractmethod
    def map(self, rows: Tensor) -> Array:
        """(n, width) float64 features of float32 rows (pixels in [0, 1]): finite, and each of its own row alone."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many features a row has, once fitted."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What `load_state` needs: plain JSON values and tensors, no pickle."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Become the map that `state` was taken of; a state that does not fit is refused with an `InputError`."""

    def check(self, rows: OwnRows) -> None:
        """Refuse rows it cannot take, before anything is started."""
        if rows.pixels and not self.pictures:
            raise InputError(
                f"features.name: {self.options.name!r} takes tables, and these rows are pictures{self._fix()}"
            )
        if not rows.pixels and not self.tables:
            raise InputError(
                f"features.name: {self.options.name!r} takes pictures, and these rows are a table{self._fix()}"
            )

    def _fix(self) -> str:
        """What to write in place of a map that does not take such rows."""
        return "; leave it out for a map that suits them, or take another one (`veracausa list features`)"

    def fit_blocks(
        self, blocks: Callable[[], Iterator[Tensor]], columns: Sequence[RowColumn], rows: int, context: FitContext
    ) -> None:
        """Learn the map from rows that never lie in memory as a whole; `blocks` may be gone through several times."""
        raise InputError(f"features.name: {self.options.name!r} needs all rows in memory; take one that streams")
