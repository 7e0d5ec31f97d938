"""The base of defenses that add noise to what is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from veracausa.crypto.randomness import KEY, subkey
from veracausa.defenses.base import Context, Defense
from veracausa.defenses.noise_sources import FreshNoise, NoiseSource, PerRowNoise
from veracausa.errors import InputError
from veracausa.registry import Options


class NoiseOptions(Options):
    noise: Literal["fresh", "fixed"] = "fresh"
    """Drawn anew at every training exchange, which averages out over many, or once for each row, which cancels in
    differences while the bottom trains. At inference a row's noise is always the same: asking again gains nothing."""


class NoiseDefense(Defense):
    """Sends `protect(r)` plus `noise`; the gradient goes straight through to `protect`.

    `backward` and `transmitted` are those of the base: to them there is no noise.
    """

    options: NoiseOptions
    _asked: torch.Generator | None = None

    def bind(
        self,
        bottom: nn.Module,
        optimizer: torch.optim.Optimizer,
        rng: torch.Generator,
        runner: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
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

    def forward(self, x: Tensor, ids: Tensor, step: int) -> tuple[Tensor, Context]:
        payload, context = super().forward(x, ids, step)
        return self._noisy(payload, x, self._training_draws(x)), context

    def infer(self, x: Tensor, ids: Tensor) -> Tensor:
        return self._noisy(super().infer(x, ids), x, self._inference_draws(x))

    @property
    def random(self) -> bool:
        return self.options.noise == "fresh"

    @contextmanager
    def redrawing(self, rng: torch.Generator) -> Iterator[None]:
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
        if not self.random:
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
