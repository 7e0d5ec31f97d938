"""Where a defense's noise comes from: anew at each exchange, or once for each row, and always from a secret key.

Words come from ChaCha20 on the CPU, whatever device the payload is on: who sees noise, and even knows much of it, can
not go on to the rest of it. What is made of the words is floating point of 32 bits. Its lowest bits are not those of
an ideal normal number (Mironov, 2012), which matters to a guarantee of differential privacy. None is claimed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from veracausa.crypto.randomness import Keystream, subkey
from veracausa.defenses.base import Defense
from veracausa.defenses.sensitivity import jacobian_of


class NoiseSource(Protocol):
    """Noise for a batch; `shape` begins with the rows."""

    def normal(self, *shape: int) -> Tensor: ...

    def laplace(self, *shape: int) -> Tensor:
        """Laplace(0, 1): standard deviation √2."""


class FreshNoise:
    """New noise at each call, from one key."""

    def __init__(self, key: bytes, device: torch.device) -> None:
        self.device = device
        self._stream = Keystream(key)

    def normal(self, *shape: int) -> Tensor:
        count = math.prod(shape)
        return _normal(self._stream.words(_even(count))[None], self.device)[:, :count].reshape(shape)

    def laplace(self, *shape: int) -> Tensor:
        return _laplace(self._stream.words(math.prod(shape)), self.device).reshape(shape)


class PerRowNoise:
    """The same noise whenever the same row comes, whatever rows are beside it: a function of the key and the row."""

    def __init__(self, key: bytes, x: Tensor) -> None:
        self.device = x.device
        values = (x.detach().flatten(1).float() + 0.0).cpu().contiguous().numpy()  # + 0: one kind of zero
        self._streams = [Keystream(subkey(key, memoryview(row).cast("B"))) for row in values]

    def normal(self, *shape: int) -> Tensor:
        size = math.prod(shape[1:])
        return _normal(self._words(shape[0], _even(size)), self.device)[:, :size].reshape(shape)

    def laplace(self, *shape: int) -> Tensor:
        return _laplace(self._words(shape[0], math.prod(shape[1:])), self.device).reshape(shape)

    def _words(self, rows: int, size: int) -> NDArray[np.uint32]:
        assert rows == len(self._streams)
        return np.stack([stream.words(size) for stream in self._streams])


def _even(count: int) -> int:
    return count + count % 2


def _normal(words: NDArray[np.uint32], device: torch.device) -> Tensor:
    """Along the last dimension, by Box and Muller: two words give two numbers, and none is beyond 6.8."""
    # Small words are exact in 32-bit floating point, and large ones become 1 at most: there is no logarithm of 0.
    first, second = torch.from_numpy(words.astype(np.float32)).to(device).chunk(2, -1)
    radius = first.add(0.5).mul_(2.0**-32).log_().mul_(-2).clamp_min_(0).sqrt_()
    angle = second * (2 * math.pi * 2.0**-32)
    return torch.cat([radius * angle.cos(), radius * angle.sin_()], -1)


def _laplace(words: NDArray[np.uint32], device: torch.device) -> Tensor:
    """An exponential number of 31 bits of a word, with the last bit as its sign; none is beyond 22.2."""
    magnitude = (words >> 1).astype(np.float32) + np.float32(0.5)
    signed = torch.from_numpy(np.where(words & 1, magnitude, -magnitude)).to(device)
    return signed.abs().mul_(2.0**-31).log_() * signed.sign()


class NoiseCovariance(Protocol):
    """Noise ε with mean 0 for n rows of m values."""

    def draw(self, draws: NoiseSource) -> Tensor:
        """(n, m) ε."""

    def power(self, u: Tensor) -> Tensor:
        """(c, n) E[(uᵀε)²] for c vectors u a row, (c, n, m)."""


class Diagonal:
    """Independent in every value, with these standard deviations (n, m)."""

    def __init__(self, deviations: Tensor) -> None:
        self.deviations = deviations

    def draw(self, draws: NoiseSource) -> Tensor:
        return self.deviations * draws.normal(*self.deviations.shape)

    def power(self, u: Tensor) -> Tensor:
        return (u * self.deviations.to(u.dtype)).square().sum(-1)


class FactoredCovariance:
    """Covariance F Fᵀ, F (n, m, k)."""

    def __init__(self, factors: Tensor) -> None:
        self.factors = factors

    def draw(self, draws: NoiseSource) -> Tensor:
        w = draws.normal(len(self.factors), self.factors.shape[2])
        return torch.einsum("nmk,nk->nm", self.factors, w)

    def power(self, u: Tensor) -> Tensor:
        return torch.einsum("cnm,nmk->cnk", u, self.factors.to(u.dtype)).square().sum(-1)


class ProductCovariance:
    """Covariance J Jᵀ, of a defense's bottom at the rows `x`, by one product with J or Jᵀ."""

    def __init__(self, defense: Defense, x: Tensor, r: Tensor) -> None:
        self.defense, self.x, self.r = defense, x, r

    def draw(self, draws: NoiseSource) -> Tensor:
        w = draws.normal(*self.x.shape).flatten(1).to(self.x.dtype)
        with jacobian_of(self.defense, self.x, self.r) as jacobian:
            return jacobian.jv(w.unsqueeze(0))[0].float()

    def power(self, u: Tensor) -> Tensor:
        with jacobian_of(self.defense, self.x, self.r) as jacobian:
            return jacobian.jtu(u.to(self.r.dtype)).to(u.dtype).square().sum(-1)


class SignedCovariance(ProductCovariance):
    """The diagonal of J Jᵀ by one product: each value of J w is normal with its own variance, and a sign of its own
    takes the correlations away. Not independent, since all magnitudes come from one w; `deviations` are for `power`."""

    def __init__(self, defense: Defense, x: Tensor, r: Tensor, deviations: Callable[[], Tensor]) -> None:
        super().__init__(defense, x, r)
        self.deviations = deviations

    def draw(self, draws: NoiseSource) -> Tensor:
        along = super().draw(draws)
        return along * draws.normal(*along.shape).sign()

    def power(self, u: Tensor) -> Tensor:
        return Diagonal(self.deviations()).power(u)


def accounted_deviation(noise: float, exchanges: int) -> float:
    """√T·σ: the deviation of each of T payloads' noise, when all of them together may tell what one with σ would."""
    return math.sqrt(exchanges) * noise


class ExchangeBudget:
    """Counts how often each training row was asked for: `each` of `planned` times, evenly, it may have a new payload.

    Where that is every time, a row has a new payload `each` times and then no more.
    """

    def __init__(self, each: int, planned: int = 0) -> None:
        self.each, self.planned = each, max(each, planned)
        self.asked = torch.zeros(0, dtype=torch.int64)

    def spend(self, ids: Tensor) -> Tensor:
        """Which of these rows get a new payload, on the CPU; all are counted. An id may come several times."""
        ids = ids.cpu()
        if len(ids) and (missing := int(ids.max()) + 1 - len(self.asked)) > 0:
            self.asked = torch.cat([self.asked, torch.zeros(missing, dtype=torch.int64)])
        before = self.asked[ids] + _earlier(ids)
        self.asked.index_add_(0, ids, torch.ones_like(ids))
        return self._spent_after(before + 1) > self._spent_after(before)

    def spent(self) -> float:
        """The share of rows that get no new payload any more."""
        return float((self._spent_after(self.asked) == self.each).float().mean()) if len(self.asked) else 0.0

    def _spent_after(self, asked: Tensor) -> Tensor:
        """How many new payloads a row has had when it was asked for so often: ⌈each · asked / planned⌉."""
        return -(-self.each * asked.clamp(max=self.planned) // self.planned)


def _earlier(ids: Tensor) -> Tensor:
    """How often each id of a batch stands in it before."""
    ranked, order = ids.sort(stable=True)
    earlier = torch.empty_like(ids)
    earlier[order] = torch.arange(len(ids)) - torch.searchsorted(ranked, ranked)
    return earlier
