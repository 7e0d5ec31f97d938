"""What a passive party sees of a training, and what every attack on the labels can be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from veracausa.attacks.base import Grant
from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.registry import Options

if TYPE_CHECKING:
    from veracausa.attacks.labels.gradient_record import GradientRecord


@dataclass(frozen=True)
class PassiveView:
    """All that a passive party may look at when it wants the labels; it never holds the active party."""

    grants: Grant
    party: str
    """The attacker."""
    classes: int
    rng: torch.Generator
    device: torch.device
    gradients: GradientRecord | None = None
    """What came back to it while it trained."""
    payloads: Tensor | None = None
    """By position, its trained bottom model's output for its own training rows; no grant, the model is its own."""
    known_ids: Tensor | None = None
    """Positions of a few training rows whose labels it knows. With LABELLED_AUXILIARY."""
    known_labels: Tensor | None = None
    progress: ProgressCallback = field(default=lambda share: None)

    @property
    def known(self) -> tuple[Tensor, Tensor] | None:
        """The known positions and their labels, where there are some and it may use them."""
        if self.known_ids is None or self.known_labels is None or not len(self.known_ids):
            return None
        if len(self.known_ids) != len(self.known_labels):
            raise InputError(f"{len(self.known_ids)} known rows have {len(self.known_labels)} labels; give one each")
        if Grant.LABELLED_AUXILIARY not in self.grants:
            return None
        return self.known_ids.cpu(), self.known_labels.cpu()


@dataclass(frozen=True)
class LabelGuess:
    """An attack's classes for some rows."""

    classes: Tensor
    """(n,) int64."""
    up_to_permutation: bool = False
    """Whether it knows only which rows belong together, not which class each group is."""
    score: Tensor | None = None
    """(n,) the higher, the likelier class 1; where the attack ranks rows of a binary task."""


class LabelAttack:
    """The base of all attacks on the labels. One attack object works for one passive party."""

    needs: ClassVar[Grant] = Grant.NONE
    learns_from_rows: ClassVar[bool] = False
    """Whether it also works on the party's bare rows: what it gets from them, no federation gave it."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def begin(self, view: PassiveView) -> None:
        """Get ready; refuses a view that lacks what this attack needs. Subclasses extend it."""
        if missing := self.needs & ~view.grants:
            name = self.options.name
            raise InputError(f"label attack {name!r} needs {', '.join(missing.words)}, which it is not granted")
        if view.classes < 2:
            raise InputError(f"label attack {self.options.name!r} needs a task with at least 2 classes")

    def infer(self, ids: Tensor) -> LabelGuess:
        """The classes of the training rows at these positions."""
        raise NotImplementedError

    def notes(self) -> Mapping[str, float]:
        """A few numbers that say how the attack itself went, for the record."""
        return {}
