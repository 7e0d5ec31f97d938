"""Whose row is it? A reconstruction beside many candidates: the share that is nearest to its own original.

A scale-free question: colours may be off and contrast lost, if the picture still points at the person it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from veracausa.metrics.lpips import LpipsNetwork, embedding

CANDIDATES = 1000
"""How many rows a figure is usually drawn among; with fewer it is easier to be found."""
TOP = (1, 5)
_FEATURES_AT_ONCE = 4096
_ROWS_AT_ONCE = 256
_TIE = 1e-9
Decode = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Identified:
    """How often the right candidate was among the k nearest, and how often chance alone would have it there."""

    candidates: int
    found: Mapping[int, Tensor]
    """By k, (n,) 1 where the sample's own row is among the k nearest, 0 where not, a share where several tie."""

    def rate(self, k: int = 1) -> float:
        """The share of samples found among the k nearest."""
        return float(self.found[k].mean())

    def chance(self, k: int = 1) -> float:
        """What guessing finds."""
        return min(1.0, k / self.candidates)


def reidentify(
    guess: Tensor,
    candidates: Tensor,
    own: Tensor | None = None,
    network: LpipsNetwork | None = None,
    top: Sequence[int] = TOP,
) -> Identified:
    """Rank the candidate rows by MSE to each guess, or by LPIPS where a network is given.

    `own` has the position of each guess's true row among the candidates; unset: guess i belongs to candidate i.
    """
    if network is not None:
        return identify(embedding(guess, network), embedding(candidates, network), own, top)
    return identify(guess.flatten(1), candidates.flatten(1), own, top)


def payload_linkability(
    payloads: Tensor, others: Tensor, decode: Decode | None = None, own: Tensor | None = None, top: Sequence[int] = TOP
) -> Identified:
    """Whether two payloads of one person are known to be that: each of `payloads` looks for its own among `others`.

    `decode` is an attacker's decoder; both sides go through it before they are compared. Without it the payloads
    themselves are compared.
    """
    if decode is not None:
        payloads, others = (
            torch.cat([decode(part) for part in torch.split(side, _ROWS_AT_ONCE)]) for side in (payloads, others)
        )
    return identify(payloads.flatten(1), others.flatten(1), own, top)


def identify(guess: Tensor, candidates: Tensor, own: Tensor | None = None, top: Sequence[int] = TOP) -> Identified:
    """Rank (c, d) candidates by their distance to each of (n, d) guesses; ties are broken by a fair die."""
    if own is None:
        if len(guess) > len(candidates):
            raise ValueError(f"{len(guess)} guesses have no own row among {len(candidates)} candidates")
        own = torch.arange(len(guess))
    if len(own) != len(guess) or (len(own) and not 0 <= int(own.min()) <= int(own.max()) < len(candidates)):
        raise ValueError("every guess needs the position of its own row among the candidates")
    own = own.to(guess.device)
    found: dict[int, list[Tensor]] = {k: [] for k in top}
    for some, at in zip(torch.split(guess, _ROWS_AT_ONCE), torch.split(own, _ROWS_AT_ONCE), strict=True):
        distances = squared_distances(some, candidates)
        true = distances.gather(1, at.unsqueeze(1))
        # Equal candidates (a blank half of a digit) must tie although their sums were rounded apart.
        slack = _TIE * (1 + distances.amax(1, keepdim=True))
        closer = (distances < true - slack).sum(1)
        tied = ((distances - true).abs() <= slack).sum(1)
        for k in top:
            found[k].append(((k - closer) / tied).clamp(0, 1))
    empty = guess.new_zeros(0)
    return Identified(len(candidates), {k: torch.cat(parts) if parts else empty for k, parts in found.items()})


def squared_distances(first: Tensor, second: Tensor) -> Tensor:
    """(n, c) squared Euclidean distances of (n, d) from (c, d), in float64, a block of features at a time."""
    total = torch.zeros(len(first), len(second), dtype=torch.float64, device=first.device)
    for start in range(0, first.shape[1], _FEATURES_AT_ONCE):
        a, b = (side[:, start : start + _FEATURES_AT_ONCE].to(first.device, torch.float64) for side in (first, second))
        total += a.square().sum(1, keepdim=True) + b.square().sum(1) - 2 * a @ b.T
    return total.clamp_min(0)
