"""What an attacker makes of the many payloads of one id that crossed while the victim trained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from veracausa.attacks.base import Exchange
from veracausa.errors import InputError

_ENOUGH_ROWS = 16
_NEVER = torch.iinfo(torch.int64).max


def averaged(payloads: Tensor, known: Tensor) -> Tensor:
    """The mean over the second axis of (n, k, *shape), of those that are known (n, k)."""
    weight = known.float() / known.sum(1, keepdim=True).clamp(min=1)
    return torch.einsum("nk,nk...->n...", weight, payloads.float())


def nearest_payloads(exchanges: Iterable[Exchange], ids: Tensor, steps: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(n, k, *shape): of each id the payload that crossed nearest to each of k exchanges; and which ids crossed, (n,).

    One pass over the transcript. An id crosses once an epoch, so "nearest" may be half an epoch away.
    """
    wanted = ids.to("cpu", torch.int64)
    ranked, order = wanted.sort()
    targets = torch.tensor(list(steps))
    distance = torch.full((len(ids), len(steps)), _NEVER)
    found: Tensor | None = None
    for exchange in exchanges:
        if found is None:
            found = torch.zeros(len(ids), len(steps), *exchange.payload.shape[1:])
        known = exchange.ids.cpu()
        # Every place where an id is asked for: it may be asked for twice.
        first, last = torch.searchsorted(ranked, known), torch.searchsorted(ranked, known, right=True)
        rows = torch.arange(len(known)).repeat_interleave(last - first)
        if not len(rows):
            continue
        within = torch.arange(len(rows)) - ((last - first).cumsum(0) - (last - first))[rows]
        place = order[first[rows] + within]
        away = (targets - exchange.step).abs()
        payload = exchange.payload.cpu().float()
        for number in range(len(steps)):
            nearer = distance[place, number] > away[number]
            found[place[nearer], number] = payload[rows[nearer]]
            distance[place[nearer], number] = away[number]
    if found is None:
        raise InputError("the transcript is empty: nothing crossed that an attack could remember")
    return found, (distance < _NEVER).all(1)


def aligned(payloads: Tensor, like: Tensor) -> Tensor:
    """The payloads with the mean and deviation of others, by channel of maps or feature of vectors.

    What crossed in training came from batch statistics and from weights of other epochs; its scale is not the final
    model's. Of a few rows no scale can be told, and they stay as they are.
    """
    if len(payloads) < _ENOUGH_ROWS or len(like) < _ENOUGH_ROWS:
        return payloads
    over = (0, *range(2, payloads.ndim)) if payloads.ndim > 2 else (0,)
    have, want = (values.std(over, correction=0, keepdim=True) for values in (payloads, like))
    scale = torch.where(have > 1e-6 * want.max() + 1e-12, want / have.clamp(min=1e-12), 0.0)
    moved: Tensor = (payloads - payloads.mean(over, keepdim=True)) * scale + like.mean(over, keepdim=True)
    return moved
