"""What an attacker has beside the exchanges while it sits with the active party, and when it may work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from veracausa.attacks.base import AdversaryView, Attack


class Predict(Protocol):
    """The top model as it stands at the call."""

    def __call__(self, payloads: Mapping[str, Tensor], numbers: Tensor | None = None) -> Tensor:
        """Its outputs for every passive party's payloads, in eval mode; differentiable in them, itself untouched.

        `numbers` says which auxiliary rows they are of, which matters where the active party holds features itself.
        """


@dataclass(frozen=True)
class LiveView(AdversaryView):
    """The view of an active party that trains."""

    predict: Predict | None = None
    victim_rate: float | None = None
    """The learning rate of the victim's Adam, which the agreed job says; None where its optimiser is another."""
    others: Mapping[str, Tensor] = field(default_factory=dict)
    """Auxiliary rows of the other passive parties, of the same people as `auxiliary`."""
    other_bottoms: Mapping[str, Callable[[torch.Generator], nn.Module]] = field(default_factory=dict)
    """Fresh bottom models of their architecture."""


class LiveAttack(Attack):
    """An attack that watches a training. `begin` only builds; what it learns must come back from `state`.

    In every exchange comes first `tamper`, with the grant for it, then `observe`.
    """

    live: ClassVar[bool] = True

    def pretrain(self) -> None:
        """Long work before the first exchange; the parties have not met yet, so nobody waits."""

    def conclude(self) -> None:
        """Long work after the last exchange."""
