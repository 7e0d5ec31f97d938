"""Surrogates that are learnt: two networks, each predicting one half of an image from the other (Eqs. 8–10).

An image is taken apart into *structure* (what should be kept) and *values* (what may change). A1 predicts a
distribution of the values from the structure, A2 the structure from the values; the surrogate is put together from
what they say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from veracausa import seeding
from veracausa.defenses.base import unheard
from veracausa.defenses.causshield.surrogates import bins
from veracausa.defenses.causshield.surrogates.base import (
    Groups,
    Paced,
    Surrogate,
    SurrogateOptions,
    as_float,
    batches,
    on_device,
)
from veracausa.defenses.causshield.surrogates.training import UNet, predict, train
from veracausa.events import ProgressCallback

# A million pixels and more tell how common each bin is.
_COUNTED_ROWS = 4096


class CrossChannelOptions(SurrogateOptions):
    """What the learnt kinds take."""

    neighbours: int = Field(5, ge=1)
    """A soft target lies on so many bins."""
    rebalance: bool = True
    """Let rare bins count more; false is the paper's Eq. 8 to the letter, and tends to the commonest value."""
    decode: Literal["annealed_mean", "argmax", "sample_pixel", "sample_window"] = "annealed_mean"
    decode_temperature: float = Field(0.38, gt=0)
    """Of the annealed mean: 1 is the mean, towards 0 the mode."""
    window: int = Field(4, ge=1)
    """The side s of the windows of the variance term and of `sample_window`."""
    v_e: float = Field(0.02, ge=0)
    """The variance that the values should have in a window."""
    mu: float = Field(1000.0, ge=0)
    """The weight of the variance term."""
    epochs: int = Field(20, ge=0)
    batch_size: int = Field(256, ge=1)
    lr: float = Field(1e-3, gt=0)
    width: int = Field(64, ge=1)
    """Channels of the networks at full resolution."""


class CrossChannel(Surrogate):
    """A1 and A2; a kind says how an image is taken apart and put together, and over which bins values lie."""

    options: CrossChannelOptions
    centres: Tensor
    """(Q, d) of the bins."""
    scale: float
    """Values over this are what the networks see and the variance is taken of."""
    sigma: float
    """The width of a soft target; 0: all mass on the nearest bin."""
    structure_from_a2: float
    """The share of A2's prediction in the surrogate's structure; where it is 0, A2 is not trained."""

    def __init__(self, options: CrossChannelOptions) -> None:
        super().__init__(options)
        self.a1: UNet | None = None
        self.a2: UNet | None = None
        self.terms: dict[str, float] = {}

    def apart(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The structure (n, 1, H, W), in the networks' units, and the values (n, d, H, W)."""
        raise NotImplementedError

    def together(self, structure: Tensor, values: Tensor) -> Tensor:
        """The image of this structure and these values, not clipped."""
        raise NotImplementedError

    def fit(
        self, rows: Tensor, rng: torch.Generator, progress: ProgressCallback = unheard, groups: Groups | None = None
    ) -> None:
        self.check(rows.shape[1:])
        options, both = self.options, self.structure_from_a2 > 0
        self.a1, self.a2 = self._networks(both, rng)
        # On the device before a step is captured there: a graph cannot fetch them.
        self.centres = self.centres.to(rows.device)
        first, second = Paced(progress, 0, 0.5 if both else 1), Paced(progress, 0.5, 1)
        weights = self._weights(rows, first) if options.rebalance else None
        a1 = self._placed(self.a1, rows)
        schedule = (options.epochs, options.batch_size, options.lr)

        def a1_loss(x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            structure, values = self.apart(x)
            log_p = torch.log_softmax(predict(a1, structure), dim=1)
            entropy = bins.cross_entropy(log_p, self._target(values), weights)
            decoded = bins.expected_value(log_p.exp(), self.centres) / self.scale
            variance = (bins.window_variance(decoded, options.window) - options.v_e).square().mean() * options.mu
            return entropy + variance, {"a1_cross_entropy": entropy, "a1_window_variance": variance}

        self.terms = train(a1, a1_loss, rows, rng, *schedule, progress=first)
        if not both:
            return
        a2 = self._placed(self.a2, rows)

        def a2_loss(x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            structure, values = self.apart(x)
            error = (predict(a2, values / self.scale) - structure).square().mean()
            return error, {"a2_squared_error": error}

        self.terms |= train(a2, a2_loss, rows, rng, *schedule, progress=second)

    def draw(self, x: Tensor, rng: torch.Generator) -> Tensor:
        structure, values = self.apart(x)
        self.centres = self.centres.to(x.device)
        drawn = self._decoded(predict(self._placed(self.a1, x), structure), rng)
        if self.structure_from_a2:
            guess = predict(self._placed(self.a2, x), values / self.scale)
            structure = structure + self.structure_from_a2 * (guess - structure)
        return self.together(structure, drawn)

    def gates(self, x: Tensor, surrogate: Tensor) -> dict[str, float | bool]:
        return super().gates(x, surrogate) | self.terms

    def state(self) -> dict[str, Any]:
        named = {"a1": self.a1, "a2": self.a2}
        networks = {name: dict(network.state_dict()) for name, network in named.items() if network is not None}
        return {"networks": networks, "terms": dict(self.terms)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.a1, self.a2 = self._networks("a2" in state["networks"], torch.Generator())
        for network, weights in ((self.a1, state["networks"]["a1"]), (self.a2, state["networks"].get("a2"))):
            if network is not None:
                network.load_state_dict(weights)
        self.terms = dict(state["terms"])

    def _networks(self, both: bool, rng: torch.Generator) -> tuple[UNet, UNet | None]:
        bin_count, channels = self.centres.shape
        with seeding.drawing_from(rng):
            a1 = UNet(1, bin_count, self.options.width)
            a2 = UNet(channels, 1, self.options.width) if both else None
        return a1, a2

    @staticmethod
    def _placed(network: UNet | None, rows: Tensor) -> UNet:
        if network is None:
            raise RuntimeError("fit a surrogate before it makes any")
        return network.to(rows.device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    def _target(self, values: Tensor) -> bins.Target:
        if self.sigma == 0:
            return bins.hard_encode(values, self.centres)
        return bins.soft_encode(values, self.centres, self.options.neighbours, self.sigma)

    def _weights(self, rows: Tensor, heard: ProgressCallback) -> Tensor:
        """(Q,) from how often each bin occurs in at most a few thousand rows, evenly spaced."""
        some = rows[:: -(-len(rows) // _COUNTED_ROWS)]
        counts = torch.zeros(len(self.centres), dtype=torch.int64, device=rows.device)
        for batch in batches(some):
            nearest = bins.hard_encode(self.apart(as_float(some[batch]))[1], self.centres).indices
            counts += bins.bin_counts(nearest, len(self.centres))
            heard(0.0)
        return bins.rebalancing(counts)

    def _decoded(self, logits: Tensor, rng: torch.Generator) -> Tensor:
        options = self.options
        if options.decode == "annealed_mean":
            return bins.annealed_mean(logits, self.centres, options.decode_temperature)
        if options.decode == "argmax":
            return bins.argmax(logits, self.centres)
        own = on_device(rng, logits.device)
        if options.decode == "sample_pixel":
            return bins.sample_pixel(logits, self.centres, own)
        return bins.sample_window(logits, self.centres, options.window, own)
