"""The network with cubic units, σ(u) = u − u³/8: products are all that a dealer's shares can do."""

from __future__ import annotations

import numpy as np

from veracausa.crypto.fixed_point import VALUE_BITS
from veracausa.crypto.ring64.arithmetic import CubicArithmetic, Masked
from veracausa.crypto.ring64.fixed64 import Words, word
from veracausa.discovery.engines.mpc.network import (
    BACK_BITS,
    GRADIENT_BITS,
    RATE_BITS,
    RESIDUAL_BITS,
    WEIGHT_BITS,
    Pass,
    SharedNetwork,
    scaled_up,
    transposed,
)

UNIT_BITS = 12
"""Of what goes into and comes out of hidden units."""
CUBIC_BITS = 3
"""σ(u) = u − u³ / 2³."""

_SLOPE_BITS = 2 * UNIT_BITS + CUBIC_BITS


class CubicNetwork(SharedNetwork):
    """What goes into units and comes out of them is rounded, and masked for products."""

    arithmetic: CubicArithmetic

    def forward(self, x: Masked, encoder: Words | None = None, learning: bool = True) -> Pass:
        secret, shares = self.arithmetic, self.shares
        encoder = shares["encoder"] if encoder is None else encoder
        d, _, h = encoder.shape
        layers = [shares[f"weight_{layer}"] for layer in range(self.depth)]
        first, *weights = secret.mask(encoder.reshape(d, d * h), *layers, shares["readout"])
        z = secret.product(np.matmul, x, first).reshape(-1, d, h).swapaxes(0, 1) + scaled_up(shares["bias"], VALUE_BITS)
        cut = VALUE_BITS + WEIGHT_BITS - UNIT_BITS
        inputs, outputs = [], []
        for layer in range(self.depth):
            inputs += secret.truncate_and_mask((z, cut))
            outputs += secret.truncate_and_mask((self._activation(inputs[-1]), _SLOPE_BITS))
            z = secret.product(np.matmul, outputs[-1], weights[layer]) + scaled_up(shares[f"bias_{layer}"], UNIT_BITS)
            cut = WEIGHT_BITS
        inputs += secret.truncate_and_mask((z, cut))
        last, back = (self._activation(inputs[-1]), _SLOPE_BITS), None
        if learning:
            slope = self._times_slope(weights[-1].view(transposed), inputs[-1])
            output, back = secret.truncate_and_mask(last, (slope, WEIGHT_BITS + _SLOPE_BITS - BACK_BITS))
        else:
            (output,) = secret.truncate_and_mask(last)
        outputs.append(output)
        mean = secret.product(np.matmul, output, weights[-1]) + scaled_up(shares["offset"], UNIT_BITS)
        values = scaled_up(secret.share(x).T[..., None], UNIT_BITS + WEIGHT_BITS - VALUE_BITS)
        (residuals,) = secret.truncate_and_mask((mean - values, UNIT_BITS + WEIGHT_BITS - RESIDUAL_BITS))
        return Pass(x, weights, inputs, outputs, back, residuals)

    def backward(self, there: Pass, rates: Masked) -> None:
        assert there.back is not None, "this pass was not made for learning"
        secret, increments = self.arithmetic, dict[str, tuple[Words, int]]()
        weighed = secret.product(np.multiply, there.residuals, rates)
        (error,) = secret.truncate_and_mask((weighed, RESIDUAL_BITS + RATE_BITS - GRADIENT_BITS))
        self._shift("offset", error)
        increments["readout"] = secret.product(np.matmul, there.outputs[-1].view(transposed), error), UNIT_BITS
        (masked,) = secret.truncate_and_mask((secret.product(np.multiply, error, there.back), BACK_BITS))
        for layer in reversed(range(self.depth)):
            self._shift(f"bias_{layer}", masked)
            product = secret.product(np.matmul, there.outputs[layer].view(transposed), masked)
            increments[f"weight_{layer}"] = product, UNIT_BITS
            before = secret.product(np.matmul, masked, there.weights[layer].view(transposed))
            (before_units,) = secret.truncate_and_mask((before, WEIGHT_BITS))
            slope = self._times_slope(before_units, there.inputs[layer])
            (masked,) = secret.truncate_and_mask((slope, _SLOPE_BITS))
        self._shift("bias", masked)
        self._learn_encoder(there.x, masked, increments)

    def _activation(self, u: Masked) -> Words:
        return scaled_up(self.arithmetic.share(u), _SLOPE_BITS) - self.arithmetic.cube(u)

    def _times_slope(self, a: Masked, u: Masked) -> Words:
        """a·σ'(u)."""
        return scaled_up(self.arithmetic.share(a), _SLOPE_BITS) - word(3) * self.arithmetic.times_square(a, u)
