"""Averaging, against noise drawn anew in every exchange: an attacker that keeps all payloads of an id takes their mean.

Meant against every defense that adds fresh noise, or masks or drops at random; a map that is the same in every exchange
gives it nothing beyond the inverse network. Granted what the inverse network is, and what crossed: a transcript, or
several payloads of each id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from pydantic import Field
from torch import Tensor

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, FeatureAttack
from veracausa.attacks.decoding import DecoderAttack, DecoderOptions
from veracausa.attacks.transcript import aligned, averaged
from veracausa.errors import InputError

_POOL_BYTES = 2**30
# What is read of a transcript at a time; every time it is read whole.
_IDS_BYTES = 2**31


class AveragingOptions(DecoderOptions):
    exchanges: int = Field(10, ge=1)
    """How many payloads of an id are averaged, the last ones; and as many of an auxiliary row."""
    average: int | None = Field(1, ge=1)
    """Payloads in one draw of the victim's model: this attack does the averaging itself."""


@attacks.register("averaging", AveragingOptions)
class Averaging(DecoderAttack):
    """Averages the payloads of one id over many exchanges and decodes the mean: against noise drawn anew each time."""

    uses_transcript = True
    options: AveragingOptions

    def begin(self, view: AdversaryView) -> None:
        FeatureAttack.begin(self, view)
        self.view = view
        source: Tensor | Callable[[], Tensor] = view.oracle if view.redrawn else view.oracle()
        if view.fresh:
            source = AveragingDraws(view, self.options.exchanges)
        self.learn(source, view)
        if hasattr(view, "transcript"):
            self.like = (source() if callable(source) else source).float().cpu()

    def reconstruct(self, payload: Tensor, ids: Tensor | None = None) -> Tensor:
        """From the mean of the last payloads of these ids.

        They come from the transcript, or are given, (n, k, *shape). An id below 0 took no part in the training: its row
        is read from the one payload given.
        """
        if payload.ndim == len(self.view.payload_shape) + 2:
            payload = payload.float().mean(1)
        elif hasattr(self.view, "transcript") and ids is not None:
            payload = self._remembered(payload.float().cpu(), ids.cpu())
        elif self.view.fresh:
            raise InputError(
                "attack 'averaging' needs several payloads of an id: record a transcript, or give (n, k, …)"
            )
        return super().reconstruct(payload, ids)

    def notes(self) -> Mapping[str, float]:
        return {**super().notes(), "exchanges": float(self.options.exchanges)}

    def _remembered(self, payload: Tensor, ids: Tensor) -> Tensor:
        payload = payload.clone()
        took_part = (ids >= 0).nonzero().squeeze(1)
        at_once = max(1, _IDS_BYTES // max(1, 4 * payload[:1].numel() * self.options.exchanges))
        seen = [took_part[:0]]
        for some in torch.split(took_part, at_once):
            found, steps = self.view.transcript.all_payloads(ids[some], self.options.exchanges)
            there = (steps >= 0).any(1)
            payload[some[there]] = averaged(found[there], steps[there] >= 0)
            seen.append(some[there])
        rows = torch.cat(seen)
        payload[rows] = aligned(payload[rows], self.like)
        return payload


class AveragingDraws:
    """The mean of several payloads of each auxiliary row, of other draws at each call; some draws are used again.

    Asking the victim's model ten times for every epoch of an attack would take longer than the attack.
    """

    def __init__(self, view: AdversaryView, count: int) -> None:
        self.draw, self.rng, self.count = view.oracle, view.rng, count
        first = view.oracle().clone()
        most = max(count, min(2 * count, _POOL_BYTES // max(1, first.nbytes)))
        self.kept = [first, *(view.oracle().clone() for _ in range(most - 1))]

    def __call__(self) -> Tensor:
        chosen = torch.randperm(len(self.kept), generator=self.rng)[: self.count].tolist()
        # One of them is new at each call: a decoder must not learn a fixed set of draws by heart.
        self.kept[chosen[0]].copy_(self.draw())
        total: Tensor = self.kept[chosen[0]].clone()
        for number in chosen[1:]:
            total += self.kept[number]
        total /= len(chosen)
        return total
