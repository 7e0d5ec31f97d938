"""What an attacker is given, and what every attack can be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import ClassVar

import torch
from torch import Tensor

from veracausa.errors import InputError
from veracausa.registry import Options

Progress = Callable[[float], None]


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
    oracle: Callable[[], Tensor] | None = None
    """The payloads the victim's own trained model and defense give for the auxiliary rows, drawn anew at each call.
    With WEIGHTS and DEFENSE."""
    fresh: bool = False
    """Whether the defense is random, so that two payloads of one row differ."""
    progress: Progress = field(default=lambda share: None)


class Attack:
    """The base of all attacks. One attack object reads one victim's payloads."""

    needs: ClassVar[Grant] = Grant.NONE

    def __init__(self, options: Options) -> None:
        self.options = options

    def begin(self, view: AdversaryView) -> None:
        """Get ready; refuses a view that lacks what this attack needs. Subclasses extend it."""
        if missing := self.needs & ~view.grants:
            raise InputError(f"attack {self.options.name!r} needs {', '.join(missing.words)}, which it is not granted")

    def reconstruct(self, payload: Tensor, ids: Tensor) -> Tensor:
        """The victim's rows behind these payloads, in the rows' own range."""
        raise NotImplementedError

    def notes(self) -> Mapping[str, float]:
        """A few numbers that say how the attack itself went, for the record."""
        return {}
