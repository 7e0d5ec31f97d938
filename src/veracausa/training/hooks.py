"""Somebody who sits with the active party while it trains: a recorder of what crosses, or an attacker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from veracausa.errors import InputError

Predict = Callable[[Mapping[str, Tensor], Tensor | None], Tensor]
"""From every passive party's payload, and the active party's own rows where it holds any, to the top's outputs."""


@dataclass(frozen=True)
class FederationInfo:
    """What a watcher is told once, when the parties have met."""

    predict: Predict
    """The top model as it stands at each call, in eval mode: differentiable in the payloads, itself untouched."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of each passive party's payload."""
    present: Mapping[str, Tensor]
    """For each passive party, which training ids it really holds."""
    steps: int


class ActivePartyHook:
    """The one that changes nothing, and the base of the others.

    In every exchange: `on_payloads`, then `on_gradient` for each passive party, then `on_step_end` when all gradients
    are on their way.
    """

    def begin(self, meeting: FederationInfo) -> None:
        """The parties have met; no exchange has taken place, or those before a resume."""

    def on_payloads(self, step: int, ids: Tensor, payloads: Mapping[str, Tensor], labels: Tensor) -> None:
        """What arrived in exchange number `step`, from 1; the tensors are the party's own and must stay as they are."""

    def on_gradient(self, peer: str, gradient: Tensor) -> Tensor:
        """The gradient that `peer` is sent."""
        return gradient

    def on_step_end(self) -> None:
        """The parties have their gradients and work on; now is the time for work of one's own."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""

    def close(self) -> None:
        """The training is over."""


class Watchers(ActivePartyHook):
    """Several in one: each sees every exchange, and each may change the answer that the one before it gave."""

    def __init__(self, watchers: Sequence[ActivePartyHook]) -> None:
        self.watchers = tuple(watchers)

    def begin(self, meeting: FederationInfo) -> None:
        for watcher in self.watchers:
            watcher.begin(meeting)

    def on_payloads(self, step: int, ids: Tensor, payloads: Mapping[str, Tensor], labels: Tensor) -> None:
        for watcher in self.watchers:
            watcher.on_payloads(step, ids, payloads, labels)

    def on_gradient(self, peer: str, gradient: Tensor) -> Tensor:
        for watcher in self.watchers:
            gradient = watcher.on_gradient(peer, gradient)
        return gradient

    def on_step_end(self) -> None:
        for watcher in self.watchers:
            watcher.on_step_end()

    def state(self) -> dict[str, Any]:
        return {"watchers": [watcher.state() for watcher in self.watchers]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        kept = state.get("watchers", ())
        if len(kept) != len(self.watchers):
            raise InputError(
                f"the run was begun with {len(kept)} watchers at the active party and is resumed with "
                f"{len(self.watchers)}; resume it as it was begun (the same --attacks, with or without --no-labels)"
            )
        for watcher, one in zip(self.watchers, kept, strict=True):
            watcher.load_state(one)

    def close(self) -> None:
        for watcher in self.watchers:
            watcher.close()
