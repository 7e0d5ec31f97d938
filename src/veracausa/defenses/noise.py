"""The base of defenses that add noise to what is sent, and where that noise comes from.

Noise is drawn anew at each exchange or once for each row, and always from a secret key. Its words come from ChaCha20 on
the CPU, whatever device the payload is on: whoever sees noise, and even knows much of it, cannot go on to the rest of
it. What is made of the words is floating point of 32 bits. Its lowest bits are not those of an ideal normal number
(Mironov, 2012). That matters to a guarantee of differential privacy, and none is claimed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from veracausa.crypto.randomness import KEY, Keystream, subkey
from veracausa.defenses.base import Context, Defense
from veracausa.defenses.protocols import Diagnoses, Stochastic
from veracausa.defenses.risk_map import Power, independent_noise
from veracausa.errors import InputError
from veracausa.models.runner import Runner
from veracausa.registry import Options


class NoiseOptions(Options):
    noise: Literal["fresh", "fixed"] = "fresh"
    """Drawn anew at every training exchange, which averages out over many, or once for each row, which cancels in
    differences while the bottom trains. At inference a row's noise is always the same: asking again gains nothing."""


class NoiseDefense(Defense, Stochastic, Diagnoses):
    """Sends `protect(r)` plus `noise`; the gradient goes straight through to `protect`.

    `backward` and `deterministic_payload` are those of the base: to them there is no noise.
    """

    options: NoiseOptions
    _asked: torch.Generator | None = None

    def bind(self, bottom: nn.Module, optimizer: Optimizer, rng: Generator, runner: Runner | None = None) -> None:
        super().bind(bottom, optimizer, rng, runner)
        key = self.key or _key(rng)
        self._fresh_key, self.row_key = subkey(key, "fresh"), subkey(key, "rows")
        self.drawn = 0
        """How often noise was drawn anew. Steps that are repeated after a restart repeat their noise too: a second
        draw for the same payload would be one more to average over."""

    @property
    def seed(self) -> int:
        """Of the random directions that something is estimated by: always the same ones."""
        return int.from_bytes(subkey(self.row_key, "directions")[:7], "big")

    def noise(self, r: Tensor, x: Tensor, draws: NoiseSource) -> Tensor:
        """What is added to the payloads `r` of rows `x`."""
        raise NotImplementedError

    def noise_std(self, r: Tensor, x: Tensor) -> Tensor | None:
        """The noise's standard deviation in every entry of payloads `r`, or what broadcasts to it; None: no noise."""
        return None

    def noise_power(self, r: Tensor, x: Tensor) -> Power | None:
        """By `noise_std`; override it for noise that is not independent in every entry."""
        deviation = self.noise_std(r, x)
        return None if deviation is None else independent_noise(deviation, r)

    def forward(self, x: Tensor, ids: Tensor, step: int) -> tuple[Tensor, Context]:
        payload, context = super().forward(x, ids, step)
        return self._noisy(payload, x, self._training_draws(x)), context

    def infer(self, x: Tensor, ids: Tensor) -> Tensor:
        return self._noisy(super().infer(x, ids), x, self._inference_draws(x))

    @property
    def is_stochastic(self) -> bool:
        return self.options.noise == "fresh"

    @contextmanager
    def resampling(self, rng: torch.Generator) -> Iterator[None]:
        before, self._asked = self._asked, rng
        try:
            yield
        finally:
            self._asked = before

    def diagnose(self, x: Tensor, ids: Tensor) -> dict[str, float]:
        """How strong the noise is beside what differs between these rows' payloads."""
        r = Defense.infer(self, x, ids).float()
        power = (self.infer(x, ids).float() - r).square().mean()
        signal = r.var(0, correction=0).mean()
        return {
            "signal_to_noise_db": float(10 * torch.log10(signal / power.clamp_min(1e-30))),
            "noise_deviation": float(power.sqrt()),
        }

    def state(self) -> dict[str, Any]:
        # Not what fresh noise follows from: who gets a trained part needs the rows' noise alone.
        return {"row_key": self.row_key.hex(), "drawn": self.drawn}

    def load_state(self, state: Mapping[str, Any]) -> None:
        if "row_key" not in state:
            raise InputError(
                f"defense {self.options.name!r}: what is to be loaded was made by an earlier version, whose noise came "
                "from another generator; train anew"
            )
        self.row_key, self.drawn = bytes.fromhex(state["row_key"]), state["drawn"]

    def _noisy(self, payload: Tensor, x: Tensor, draws: NoiseSource) -> Tensor:
        with torch.no_grad():
            return payload + self.noise(payload, x, draws).to(payload.dtype)

    def _training_draws(self, x: Tensor) -> NoiseSource:
        if not self.is_stochastic:
            return PerRowNoise(self.row_key, x)
        self.drawn += 1
        return FreshNoise(subkey(self._fresh_key, self.drawn), x.device)

    def _inference_draws(self, x: Tensor) -> NoiseSource:
        if self._asked is not None:
            return FreshNoise(_key(self._asked), x.device)
        return PerRowNoise(self.row_key, x)


def _key(rng: torch.Generator) -> bytes:
    """For who has nothing to hide: an audit, or a defense outside of a party."""
    return bytes(torch.randint(256, (KEY,), generator=rng, device=rng.device, dtype=torch.uint8).tolist())


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
