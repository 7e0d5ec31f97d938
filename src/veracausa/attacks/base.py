"""What an attacker is given, and what every attack can be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.registry import Options

if TYPE_CHECKING:
    from veracausa.attacks.transcript import Transcript
    from veracausa.defenses.base import Defense


class Grant(Flag):
    """What an attacker is given beyond what it receives; declared by the attack, checked, printed."""

    NONE = 0
    ARCHITECTURE = auto()
    LABELS = auto()
    AUXILIARY = auto()
    LABELLED_AUXILIARY = auto()
    DEFENSE = auto()
    WEIGHTS = auto()
    QUERIES = auto()
    TAMPER = auto()

    @property
    def words(self) -> tuple[str, ...]:
        """The grants by name, for a report."""
        return tuple((grant.name or "").lower().replace("_", " ") for grant in self)


@dataclass(frozen=True)
class AdversaryView:
    """All that an attack may look at; it never holds a party."""

    grants: Grant
    victim: str
    payload_shape: tuple[int, ...]
    row_shape: tuple[int, ...]
    pixels: bool
    """Whether the rows are pictures in [0, 1]; else standardised columns of a table."""
    rng: torch.Generator
    device: torch.device
    auxiliary: Tensor | None = None
    """Rows like the victim's, none of them a victim's. With AUXILIARY."""
    auxiliary_labels: Tensor | None = None
    """Their classes or targets. With LABELLED_AUXILIARY."""
    labels: Tensor | None = None
    """Classes or targets by position in the training split. With LABELS."""
    classes: int = 0
    """How many classes there are; 0 in a regression."""
    bottom: Callable[[torch.Generator], nn.Module] | None = None
    """A fresh bottom model of the victim's architecture, on the device. With ARCHITECTURE."""
    defense: Callable[[nn.Module, torch.optim.Optimizer, torch.Generator], Defense] | None = None
    """The victim's defense with its settings, bound to a model of the attacker's own. With DEFENSE."""
    epochs: int = 1
    """How often each training row has crossed when the attack reads; the agreed job says it."""
    batch_size: int = 0
    """How many rows cross together in training, as agreed; 0 where it is not known."""
    transmit: Callable[[Tensor], Tensor] | None = None
    """The victim's map from rows to payloads, differentiable, without its noise. With WEIGHTS. Where a payload depends
    on those it is sent with, the map of one batch of the victim's own."""
    transcript: Transcript | None = None
    """What crossed while the victim trained, where somebody kept it."""
    oracle: Callable[[], Tensor] | None = None
    """The payloads the victim's own trained model and defense give for the auxiliary rows, drawn anew at each call.
    With WEIGHTS and DEFENSE."""
    fresh: bool = False
    """Whether the defense is random, so that two payloads of one row differ."""
    redrawn: bool = False
    """Whether two calls of `oracle` differ: for noise that belongs to a row, too, since nobody knows the victims'."""
    progress: ProgressCallback = field(default=lambda share: None)
    oracle_at: Mapping[str, Callable[[], Tensor]] | None = None
    """As `oracle`, at moments of the training, by their names in the transcript, in order. With WEIGHTS and DEFENSE."""


@dataclass(frozen=True)
class Exchange:
    """What the active party knows of one training exchange with the victim."""

    step: int
    ids: Tensor
    payload: Tensor
    """The victim's, detached."""
    labels: Tensor | None
    others: Mapping[str, Tensor] = field(default_factory=dict)
    """The other passive parties' payloads for the same ids."""


class Attack:
    """The base of all attacks. One attack object reads one victim's payloads."""

    needs: ClassVar[Grant] = Grant.NONE
    uses: ClassVar[Grant] = Grant.NONE
    """What it makes use of where it is granted, and can do without."""
    live: ClassVar[bool] = False
    """Whether it must be there while the victim trains; else it comes afterwards, to a run or a transcript."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def begin(self, view: AdversaryView) -> None:
        """Get ready; refuses a view that lacks what this attack needs. Subclasses extend it."""
        if missing := self.needs & ~view.grants:
            raise InputError(f"attack {self.options.name!r} needs {', '.join(missing.words)}, which it is not granted")

    def observe(self, exchange: Exchange) -> None:
        """See one exchange of the training; a live attack learns from it."""

    def tamper(self, gradient: Tensor, exchange: Exchange) -> Tensor:
        """The gradient that the victim gets in place of the honest one. With TAMPER."""
        return gradient

    def told(self, labels: Tensor | None) -> None:
        """The labels of the rows that are to be reconstructed next, where the attacker knows them. With LABELS."""

    def reconstruct(self, payload: Tensor, ids: Tensor) -> Tensor:
        """The victim's rows behind these payloads, in the rows' own range."""
        raise NotImplementedError

    def notes(self) -> Mapping[str, float]:
        """A few numbers that say how the attack itself went, for the record."""
        return {}

    def state(self) -> dict[str, Any]:
        """What a live attack needs to go on after a resume."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""
