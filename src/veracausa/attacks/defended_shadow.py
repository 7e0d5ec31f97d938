"""A model of the attacker's own behind its own run of the victim's defense: what would be sent for auxiliary rows."""

from __future__ import annotations

import copy
from functools import cached_property

import torch
from torch import Tensor, nn

from veracausa.attacks.base import AdversaryView
from veracausa.data.vertical import Part
from veracausa.errors import InputError

_LR = 1e-3


class DefendedShadow:
    """The same defense code with the same settings, prepared on auxiliary rows and bound to a copy of `model`."""

    def __init__(self, view: AdversaryView, model: nn.Module, batch: int) -> None:
        if view.defense is None or view.auxiliary is None:
            raise InputError("a shadow behind the victim's defense needs that defense and auxiliary rows")
        self.rows, self.rng, self.batch = (
            view.auxiliary.to(view.device),
            view.rng,
            max(2, min(batch, len(view.auxiliary))),
        )
        shadow = copy.deepcopy(model)
        optimizer = torch.optim.SGD(shadow.parameters(), lr=_LR)
        self.defense = view.defense(shadow, optimizer, view.rng)
        self.defense.prepare(Part(len(self.rows), self.rows))

    @cached_property
    def random(self) -> bool:
        """Whether two payloads of one row in the same batch differ."""
        some = torch.arange(self.batch)
        return not _alike(self._sent(some), self._sent(some))

    @cached_property
    def by_batch(self) -> bool:
        """Whether the payload of a row depends on the rows it is sent with; not told apart where it is random too."""
        half = self.batch // 2
        if self.random or len(self.rows) < 3 * half:
            return False
        first, second, third = (torch.arange(half) + place * half for place in range(3))
        together, apart = self._sent(torch.cat([first, second])), self._sent(torch.cat([first, third]))
        return not _alike(together[:half], apart[:half])

    def payloads(self) -> Tensor:
        """Of all auxiliary rows, in batches as in training, shuffled anew at each call.

        Where the batch matters they are standardised within it. The last batch is filled up: the statistics of a small
        one would be no statistics.
        """
        order = torch.randperm(len(self.rows), generator=self.rng)
        spare = min(-len(order) % self.batch, len(order))
        batches = torch.split(torch.cat([order, order[:spare]]), self.batch)
        sent = [self._sent(chosen) for chosen in batches]
        drawn = torch.cat([standardised(batch) for batch in sent] if self.by_batch else sent)[: len(order)]
        return drawn[order.argsort().to(drawn.device)]

    def _sent(self, chosen: Tensor) -> Tensor:
        with torch.no_grad(), self.defense.redrawing(self.rng):
            return self.defense.infer(self.rows[chosen.to(self.rows.device)], chosen).float()


def standardised(payloads: Tensor) -> Tensor:
    """Mean 0 and deviation 1 by channel of maps or feature of vectors; what is constant stays near 0."""
    over = (0, *range(2, payloads.ndim)) if payloads.ndim > 2 else (0,)
    deviation = payloads.std(over, correction=0, keepdim=True)
    scaled: Tensor = (payloads - payloads.mean(over, keepdim=True)) / (deviation + 1e-4 * deviation.max() + 1e-12)
    return scaled


def _alike(first: Tensor, second: Tensor) -> bool:
    return torch.allclose(first, second, rtol=1e-2, atol=1e-2 * float(first.abs().max()) + 1e-6)
