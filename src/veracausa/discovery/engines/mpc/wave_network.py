"""The same encoder and decoders with units that are bounded: tanh as a sum of three sines, see `crypto.ring64.waves`.

Nothing is rounded between a product and the curve, and the curve's value goes into the next product as it is.
"""

from __future__ import annotations

import numpy as np

from veracausa.crypto.fixed_point import VALUE_BITS
from veracausa.crypto.ring64.arithmetic import Masked, WaveArithmetic
from veracausa.crypto.ring64.fixed64 import Words
from veracausa.crypto.ring64.waves import WAVE_BITS
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

_PRODUCT_BITS = WAVE_BITS + WEIGHT_BITS


class WaveNetwork(SharedNetwork):
    """As `SharedNetwork`; `Pass.inputs` has the slopes of the units."""

    arithmetic: WaveArithmetic

    def forward(self, x: Masked, encoder: Words | None = None, learning: bool = True) -> Pass:
        secret, shares = self.arithmetic, self.shares
        encoder = shares["encoder"] if encoder is None else encoder
        d, _, h = encoder.shape
        layers = [shares[f"weight_{layer}"] for layer in range(self.depth)]
        first, *weights = secret.mask(encoder.reshape(d, d * h), *layers, shares["readout"])
        z = secret.product(np.matmul, x, first).reshape(-1, d, h).swapaxes(0, 1) + scaled_up(shares["bias"], VALUE_BITS)
        output, *slopes = secret.wave(z, VALUE_BITS + WEIGHT_BITS, learning)
        outputs = [output]
        for layer in range(self.depth):
            z = secret.product(np.matmul, outputs[-1], weights[layer]) + scaled_up(shares[f"bias_{layer}"], WAVE_BITS)
            output, *slope = secret.wave(z, _PRODUCT_BITS, learning)
            outputs.append(output)
            slopes += slope
        mean = secret.product(np.matmul, outputs[-1], weights[-1]) + scaled_up(shares["offset"], WAVE_BITS)
        values = scaled_up(secret.share(x).T[..., None], _PRODUCT_BITS - VALUE_BITS)
        residual = mean - values, _PRODUCT_BITS - RESIDUAL_BITS
        if not learning:
            return Pass(x, weights, slopes, outputs, None, *secret.truncate_and_mask(residual))
        back = secret.product(np.multiply, weights[-1].view(transposed), slopes[-1]), _PRODUCT_BITS - BACK_BITS
        residuals, backs = secret.truncate_and_mask(residual, back)
        return Pass(x, weights, slopes, outputs, backs, residuals)

    def backward(self, there: Pass, rates: Masked) -> None:
        assert there.back is not None, "this pass was not made for learning"
        secret, increments = self.arithmetic, dict[str, tuple[Words, int]]()
        weighed = secret.product(np.multiply, there.residuals, rates)
        (error,) = secret.truncate_and_mask((weighed, RESIDUAL_BITS + RATE_BITS - GRADIENT_BITS))
        self._shift("offset", error)
        increments["readout"] = secret.product(np.matmul, there.outputs[-1].view(transposed), error), WAVE_BITS
        (gradient,) = secret.truncate_and_mask((secret.product(np.multiply, error, there.back), BACK_BITS))
        for layer in reversed(range(self.depth)):
            self._shift(f"bias_{layer}", gradient)
            product = secret.product(np.matmul, there.outputs[layer].view(transposed), gradient)
            increments[f"weight_{layer}"] = product, WAVE_BITS
            before = secret.product(np.matmul, gradient, there.weights[layer].view(transposed))
            (units,) = secret.truncate_and_mask((before, WEIGHT_BITS))
            (gradient,) = secret.truncate_and_mask((secret.product(np.multiply, units, there.inputs[layer]), WAVE_BITS))
        self._shift("bias", gradient)
        self._learn_encoder(there.x, gradient, increments)
