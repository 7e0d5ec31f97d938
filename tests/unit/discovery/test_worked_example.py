"""The worked example of the VFedCD paper's appendix E.5: x^C = (x^A − 0.5)(x^B)², on the two samples that it prints.

A decoder that adds up what each party encoded by itself gives the two samples gradients that cancel at z^B. A decoder
that sees the sum before its first layer need not.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from veracausa.discovery.engines.centralized import CentralizedVFedCD
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.experiments.replicates import TwoLayerEncoders

ROWS = 240
SAMPLES = torch.tensor([[0.0, 1.0], [1.0, 1.0]])


def effect(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a - 0.5) * b**2


def of_b(decode, weight_a: float, weight_b: float) -> torch.Tensor:
    """∂L/∂φ_B of both samples and of their mean, L = (x̂ − x)²; `decode` takes φ_A x^A and φ_B x^B."""
    phi = torch.tensor(weight_b, requires_grad=True)
    found = []
    for a, b in SAMPLES:
        loss = (decode(weight_a * a, phi * b) - effect(a, b)) ** 2
        found.append(torch.autograd.grad(loss, phi)[0])
    return torch.stack([*found, torch.stack(found).mean()])


def test_the_samples_are_those_that_are_printed():
    assert effect(*SAMPLES.T).tolist() == [-0.5, 0.5]


def test_a_deep_encoder_and_a_shallow_decoder_get_gradients_that_cancel():
    """E.5.2: z = σ(W σ(φx)), x̂ = (z^A + z^B)/2, parameters near zero: +0.5 from one sample, −0.5 from the other."""
    z_b = torch.tensor(0.0, requires_grad=True)
    by_z = [torch.autograd.grad(((0.0 + z_b) / 2 - effect(a, b)) ** 2, z_b)[0].item() for a, b in SAMPLES]
    assert by_z == pytest.approx([0.5, -0.5])

    def encoded(part: torch.Tensor) -> torch.Tensor:
        return torch.tanh(0.1 * torch.tanh(part))

    low, high, mean = of_b(lambda a, b: (encoded(a) + encoded(b)) / 2, 0.01, 0.01)
    assert low > 0 > high
    assert abs(mean) < 0.02 * abs(low), "what is left is of the size of the first weights"


def test_a_shallow_encoder_and_a_deep_decoder_see_both_causes_together():
    """E.5.3: x̂ = σ(W σ(z^A + z^B)). Away from zero weights the two samples pull z^B by different amounts."""
    width = torch.tensor([0.8, -0.5, 0.9, -0.7])
    bias = torch.tensor([0.5, -0.6, -0.4, 0.3])
    out = torch.tensor([0.7, 0.6, -0.8, 0.5])

    def decode(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tanh((out * torch.tanh(width * (a + b) + bias)).sum())

    low, high, mean = of_b(decode, 1.0, 1.0)
    assert abs(mean) > 0.05 * max(abs(low), abs(high))


def test_near_zero_weights_the_deep_decoder_gets_gradients_that_cancel_too():
    """E.5.3 gives no gradients. At the start that E.5.2 assumes, both architectures are in the same place."""
    weight = torch.tensor(0.1)
    low, high, mean = of_b(lambda a, b: torch.tanh(weight * torch.tanh(a + b)), 0.01, 0.01)
    assert low > 0 > high
    assert abs(mean) < 0.02 * abs(low)


def rows() -> np.ndarray:
    """x^A in [0, 1], x^B in [0, 2], and their effect with a little noise, standardised."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, 1, ROWS), rng.uniform(0, 2, ROWS)
    c = (a - 0.5) * b**2
    table = np.column_stack([a, b, c + 0.1 * c.std() * rng.normal(size=ROWS)])
    return (table - table.mean(0)) / table.std(0)


CHOSEN = {"profile": "literal", "epochs": 300}
TURNED = np.array([[0, 0, 0], [0, 0, 0], [1, 1, 0]], dtype=bool)
"""C is no cause: which way the edges point is not what the example is about."""


def test_the_deep_decoder_finds_the_edge_from_b_and_sums_of_encoders_find_less_of_it():
    deep = CentralizedVFedCD(Settings(**CHOSEN), 3, np.random.default_rng(1), forbidden=TURNED)
    shallow = TwoLayerEncoders(Settings(**CHOSEN), np.array([[0, 1, 2]]), np.random.default_rng(1))
    shallow.structure.allowed &= ~TURNED
    shallow.weights *= shallow.structure.allowed[..., None]
    strengths = [model.fit(rows()[None], np.zeros((1, 0, 3))).strengths[0] for model in (deep, shallow)]
    for found in strengths:
        assert found[0, 2] > 0.4, "x^A has an effect of its own"
    # Of both models 0.1 is the threshold; with 400 rows they had .88 and .23.
    assert strengths[0][1, 2] > 0.5
    assert strengths[1][1, 2] < 0.6 * strengths[0][1, 2]
