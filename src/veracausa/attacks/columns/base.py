"""What an attacker on opened features is given, and what it hands back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.errors import InputError
from veracausa.registry import Options


class ColumnGrant(Flag):
    """What an attacker is given beyond what its party opens and is told; declared by the attack, checked, printed."""

    NONE = 0
    KNOWN_ROWS = auto()
    FIRST_WEIGHTS = auto()
    VALIDATOR = auto()
    OTHER_PARTIES = auto()

    @property
    def words(self) -> tuple[str, ...]:
        """The grants by name, for a report."""
        return tuple((grant.name or "").lower().replace("_", " ") for grant in self)


@dataclass(frozen=True)
class Opened:
    """One batch as the target lived it: what it opened, then by what it let the weights grow."""

    rows: NDArray[np.int64]
    """Places among the training rows."""
    features: Array
    """(rows, targets·h)."""
    steps: Array
    """(rows, targets·h): the weights grew by Xᵀ·steps."""
    factors: Array | None
    """(columns, targets): by what the validator had the blocks scaled afterwards, if it looked."""


@dataclass(frozen=True)
class Candidates:
    """The graphs under which the rows kept apart were opened, one or many, and the features under each."""

    graphs: Mask
    """(graphs, columns, targets)."""
    features: Array
    """(graphs, rows, targets, h)."""


@dataclass(frozen=True)
class View:
    """What one party, or several together, saw of one source's columns. An attack holds nothing else.

    Rows are the training rows that were used; features are what the source's columns add to those of the targets.
    """

    grants: ColumnGrant
    columns: int
    """How many attributes the source holds, which is public."""
    own: Array
    """(n, own): the attacker's own columns."""
    last: Array
    """(n, targets, h): every row as it was opened last."""
    mean: Array
    """(n, targets, h): the mean over all openings since the edges' order was settled."""
    history: Array
    """(moments, n, targets·h): some epochs of all, from the first to the last."""
    rng: np.random.Generator
    strengths: Array | None = None
    """(columns, targets): as they follow from the factors that every holder is told."""
    mean_strengths: Array | None = None
    """The same, averaged over the looks of the refit's second half."""
    candidates: Candidates | None = None
    known: tuple[NDArray[np.int64], Array] | None = None
    """Rows by place, and the source's values there. With KNOWN_ROWS."""
    first: tuple[Array, tuple[Opened, ...]] | None = None
    """The first weights (columns, targets·h), and the first epochs. With FIRST_WEIGHTS."""
    looked: tuple[Array, tuple[Opened, ...]] | None = None
    """The weights as the validator of mode M1 saw them first, and the batches after that. With VALIDATOR; in mode M2 it
    sees strengths only."""

    @property
    def rows(self) -> int:
        return len(self.last)


@dataclass(frozen=True)
class Guess:
    """The source's columns as the attacker reads them."""

    values: Array
    """(rows, guesses); a column of nan is no guess."""
    ordered: bool = False
    """Whether guess i is of attribute i; else they are matched to the truth as well as possible, in the attacker's
    favour."""
    rows: Literal["training", "held out"] = "training"


class FeatureAttack:
    """The base of all attacks on features: one object, any number of views."""

    needs: ClassVar[ColumnGrant] = ColumnGrant.NONE
    about: ClassVar[str] = ""
    """One sentence for the report."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def read(self, view: View) -> Guess | None:
        """The guess, or None where this view holds nothing that the attack works on."""
        if missing := self.needs & ~view.grants:
            raise InputError(f"attack {self.options.name!r} needs {', '.join(missing.words)}, which it is not granted")
        return self.guess(view)

    def guess(self, view: View) -> Guess | None:
        raise NotImplementedError
