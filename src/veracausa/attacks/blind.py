"""Attacks on blind training: what each side sees of it, and what an attack says it read.

The active party sees sums over all training rows, and a few numbers of each row it asks a prediction for. A passive
party sees ciphertexts, and labels as far as they were let out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from veracausa.arrays import Array
from veracausa.attacks.base import Attack, Grant, View, granted, recorded
from veracausa.attacks.labels import LabelGuess
from veracausa.events import ProgressCallback

Surface = Literal["predicted rows", "training rows", "membership", "labels"]
"""What an attack is after."""


@dataclass(frozen=True)
class Release:
    """One release of moments as the active party holds it: the Gram matrix of all parties' columns."""

    gram: Array
    """(p, p)."""
    rows: int
    own: slice
    """The attacker's columns, its presence column among them."""
    labels: slice
    """The columns of the classes, or of the target."""
    victim: slice
    """The victim's features, without its presence column."""
    noise: float = 0.0
    """The standard deviation of each entry; 0 without differential privacy."""

    def of_victim(self) -> Array:
        """The victim's own block, (width, width)."""
        return self.gram[self.victim, self.victim]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class BlindView(View):
    """All that one party of a blind training may look at. The *targets* are the rows that the attack is about.

    Numbers of a row are float64. `numbers` says how many are opened of one row in one answer. What belongs to one kind
    of situation is there in that situation only, whatever is granted.
    """

    seat: str
    """The attacker."""
    victim: str
    """Whose rows; the active party, where the labels are wanted."""
    row_shape: tuple[int, ...]
    pixels: bool
    """Whether the victim's rows are pictures in [0, 1]; else standardised columns of a table."""
    classes: int
    """0 in a regression."""
    numbers: int
    rng: torch.Generator
    device: torch.device = torch.device("cpu")  # noqa: RUF009
    progress: ProgressCallback = field(default=lambda share: None)

    labels: Tensor = granted(Grant.LABELS)
    """(n,) classes or targets of the targets."""
    own: Tensor = recorded("a column of the attacker's own")
    """(n, columns): what the attacker itself holds of the targets."""
    own_auxiliary: Tensor = recorded("a column of the attacker's own")
    """(m, columns): the same of the auxiliary rows' people."""
    auxiliary: Tensor = granted(Grant.AUXILIARY, Grant.LABELLED_AUXILIARY)
    """(m, *row_shape): rows like the victim's, none of them a target."""
    auxiliary_labels: Tensor = granted(Grant.LABELLED_AUXILIARY)
    auxiliary_features: Tensor = granted(Grant.WEIGHTS)
    """(m, width): the victim's own feature map of the auxiliary rows, scaled as in its answers."""
    features: Tensor = granted(Grant.KNOWN_ROWS | Grant.WEIGHTS, optional=True)
    """(n, width): the victim's features of the targets, where the attacker knows the rows and only asks whether they
    were trained on."""

    scores: Tensor = recorded("what was opened of the targets")
    """(n, numbers): one answer to each target, as opened."""
    auxiliary_scores: Tensor = granted(Grant.WEIGHTS, optional=True)
    """(m, numbers): what would have been opened of the auxiliary rows, by the victim's map and dither."""
    second_scores: Tensor = granted(Grant.SECOND_HEAD, optional=True)
    """(n, numbers): the answers under a second head."""
    auxiliary_second_scores: Tensor = granted(Grant.SECOND_HEAD | Grant.WEIGHTS, optional=True)
    ask: Callable[[Tensor], Tensor] = granted(Grant.TAMPER, optional=True)
    """(width, numbers) weights of the attacker's making in, (n, numbers) answers to the targets out, as opened. Each
    call is one head: how many there may be is the victim's to say, and one too many is an `InputError`."""
    ask_auxiliary: Callable[[Tensor], Tensor] = granted(Grant.TAMPER | Grant.WEIGHTS, optional=True)
    """The same of the auxiliary rows; no limit, the attacker computes it."""
    repeat: Callable[[], Tensor] = granted(Grant.QUERIES, optional=True)
    """(n, numbers): the same question asked once more."""

    release: Release = recorded("a release of moments")
    releases: Callable[[int], tuple[Release, Release]] = granted(Grant.SECOND_RELEASE, optional=True)
    """Of target i: the moments with it, and those of all other rows."""
    own_moments: Tensor = recorded("the attacker's own columns in the moments")
    """(n, columns): the attacker's part of each target's row in the moments: `Release.own`, then `Release.labels`."""
    own_auxiliary_moments: Tensor = recorded("the attacker's own columns in the moments")
    """(m, columns): the same of the auxiliary rows' people."""
    cross_moments: Callable[[Tensor], Tensor] = granted(Grant.TAMPER, optional=True)
    """(training rows, columns) of the attacker's making in, their (columns, width) cross moments out; an `InputError`
    where a check refuses a column."""
    small: Tensor = recorded("a class of few rows")
    """(n,): which column of `Release.labels` each target is in."""
    positions: Tensor = recorded("the targets' places among the training rows")
    """(n,)."""
    training_rows: int = 0
    smallest: int = 1
    """A column must be supported by so many rows."""

    told: Tensor = recorded("a label that was let out")
    """(n,) the labels of the targets as a passive party was told them."""
    transition: Array = recorded("how labels were randomised")
    """(classes, classes): the chance that class i was told as j, which all parties know."""
    own_chances: Tensor = granted(Grant.LABELLED_AUXILIARY, optional=True)
    """(n, classes): what a model of the party's own columns says of each target, fitted on true labels of others."""
    known_targets: Tensor = granted(Grant.LABELLED_AUXILIARY, optional=True)
    """(c,) which targets' true labels the party knows anyway."""
    known_labels: Tensor = granted(Grant.LABELLED_AUXILIARY, optional=True)


@dataclass(frozen=True)
class BlindReading:
    """What an attack says of the targets; one of these, by its `surface`."""

    rows: Tensor | None = None
    """(n, *row_shape), in the rows' own range."""
    membership: Mapping[str, Tensor] | None = None
    """By statistic, (n,): the higher, the likelier the target was trained on."""
    labels: LabelGuess | None = None


class BlindAttack(Attack[BlindView]):
    """The base of all attacks on blind training: one object, any number of views."""

    kind = "attack on blind training"
    surface: ClassVar[Surface] = "predicted rows"
    about: ClassVar[str] = ""
    """One sentence for the report: who does what."""
    breaks: ClassVar[str] = ""
    """What must be broken or consented to for it; empty: the attacker keeps to the protocol."""
    order: ClassVar[int] = 99
    """Its place in a table."""
    situations: ClassVar[tuple[str, ...]] = ()
    """In which of the audit's situations it is tried; none: in those that every attack on its surface is tried in."""

    def read(self, view: BlindView) -> BlindReading:
        """What it read of the targets."""
        self.begin(view)
        return self.guess(view.limited_to(self.needs | self.uses))

    def guess(self, view: BlindView) -> BlindReading:
        raise NotImplementedError
