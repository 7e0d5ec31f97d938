"""A model of the attacker's own behind its own run of the victim's defense: what would be sent for auxiliary rows."""

from __future__ import annotations

import copy
import math
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa.attacks.base import AdversaryView
from veracausa.data.vertical import Part
from veracausa.defenses.protocols import Advances, Learns, Prepares, resampling
from veracausa.seeding import drawing_from

_HEAD_LR = 1e-3


class DefendedShadow:
    """The same defense code with the same settings, on a copy of `model` and on auxiliary rows, as the victim runs it.

    It stands where the victim's stands at that point of the training: it has prepared, its schedule is as far, and
    what exchanges teach it (a pruner) it has learnt from as many of them, of auxiliary rows and their labels.
    """

    def __init__(self, view: AdversaryView, model: nn.Module, batch: int) -> None:
        batch = view.batch_size or batch
        self.rows, self.rng, self.batch = (
            view.auxiliary.to(view.device),
            view.rng,
            max(2, min(batch, len(view.auxiliary))),
        )
        shadow = copy.deepcopy(model)
        # The model is what the attacker believes the victim's to be: only the defense learns, not the model.
        optimizer = torch.optim.SGD(shadow.parameters(), lr=0.0)
        self.defense = view.defense(shadow, optimizer, view.rng)
        if isinstance(self.defense, Prepares):
            self.defense.prepare(Part(len(self.rows), self.rows))
        if isinstance(self.defense, Learns) and self.defense.learns:
            self._rehearse(view, shadow)
        if isinstance(self.defense, Advances):
            self.defense.advance_to(view.epochs, self.batch)

    def _rehearse(self, view: AdversaryView, shadow: nn.Module) -> None:
        """As many exchanges as the victim had, with the gradient of a classifier of the attacker's own."""
        training = shadow.training
        people = len(view.labels) if hasattr(view, "labels") else len(self.rows)
        exchanges = view.epochs * -(-people // (view.batch_size or self.batch))
        targets = view.auxiliary_labels.to(self.rows.device) if hasattr(view, "auxiliary_labels") else None
        with drawing_from(self.rng):
            head = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(view.payload_shape), max(1, view.classes)))
        head = head.to(self.rows.device)
        learning = torch.optim.Adam(head.parameters(), lr=_HEAD_LR)
        shadow.train()
        for step in range(exchanges):
            chosen = torch.randint(len(self.rows), (self.batch,), generator=self.rng)
            payload, context = self.defense.forward(self.rows[chosen.to(self.rows.device)], chosen, step)
            sent = payload.detach().float().requires_grad_()
            with torch.enable_grad():
                loss = _task(head(sent), None if targets is None else targets[chosen.to(targets.device)], view.classes)
                weights = list(head.parameters())
                slope, *slopes = torch.autograd.grad(loss, [sent, *weights])
            for weight, own in zip(weights, slopes, strict=True):
                weight.grad = own
            learning.step()
            self.defense.backward(context, slope.to(payload.dtype))
            if step % 100 == 99:
                view.progress(0.5 * step / exchanges)
        shadow.train(training)

    @cached_property
    def random(self) -> bool:
        """Whether two payloads of one row in the same batch differ."""
        some = torch.arange(self.batch)
        return not alike(self._sent(some), self._sent(some))

    @cached_property
    def by_batch(self) -> bool:
        """Whether the payload of a row depends on the rows it is sent with; not told apart where it is random too."""
        half = self.batch // 2
        if self.random or len(self.rows) < 3 * half:
            return False
        first, second, third = (torch.arange(half) + place * half for place in range(3))
        together, apart = self._sent(torch.cat([first, second])), self._sent(torch.cat([first, third]))
        return not alike(together[:half], apart[:half])

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
        with torch.no_grad(), resampling(self.defense, self.rng):
            return self.defense.infer(self.rows[chosen.to(self.rows.device)], chosen).float()


def _task(output: Tensor, targets: Tensor | None, classes: int) -> Tensor:
    """What the victim's partners train for; without labels, nothing."""
    if targets is None:
        return 0 * output.sum()
    return F.cross_entropy(output, targets) if classes else F.mse_loss(output.flatten(), targets.float().flatten())


def standardised(payloads: Tensor) -> Tensor:
    """Mean 0 and deviation 1 by channel of maps or feature of vectors; what is constant stays near 0."""
    over = (0, *range(2, payloads.ndim)) if payloads.ndim > 2 else (0,)
    deviation = payloads.std(over, correction=0, keepdim=True)
    scaled: Tensor = (payloads - payloads.mean(over, keepdim=True)) / (deviation + 1e-4 * deviation.max() + 1e-12)
    return scaled


def alike(first: Tensor, second: Tensor) -> bool:
    """Equal but for rounding: kernels add up in other orders from call to call, and an inner loop amplifies that."""
    return torch.allclose(first, second, rtol=1e-2, atol=1e-2 * float(first.abs().max()) + 1e-6)
