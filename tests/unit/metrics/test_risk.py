"""The risk meter on maps whose answer is known, and on a small network."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from veracausa.metrics import risk
from veracausa.metrics.jacobian import RowJacobian
from veracausa.metrics.risk import RiskUnavailable, Spectrum, inv_re, risk_of


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def orthogonal(size: int, seed: int = 0) -> Tensor:
    return torch.linalg.qr(torch.randn(size, size, generator=rng(seed))).Q


@pytest.mark.parametrize("outputs", [12, 30])
def test_an_invertible_linear_map_keeps_everything(outputs: int) -> None:
    matrix = torch.randn(outputs, 12, generator=rng(1)) + 2 * torch.eye(outputs, 12)
    x = torch.rand(5, 3, 2, 2, generator=rng(2))
    found = risk_of(lambda rows: rows.flatten(1) @ matrix.T, x, x.mean(0))
    spread = torch.linalg.svdvals(matrix)
    assert found["k"] == int((spread >= 0.05 * spread[0]).sum())
    if found["k"] == 12:
        assert found["invre"] == pytest.approx(1, abs=1e-4)
    assert found["exact"] == 1
    assert found["samples"] == 5


def test_the_identity_keeps_everything_and_its_area_is_half() -> None:
    x = torch.rand(3, 10, generator=rng())
    found = risk_of(lambda rows: 2 * rows, x, torch.zeros(10))
    assert found["invre"] == pytest.approx(1, abs=1e-5)
    assert found["k"] == 10


@pytest.mark.parametrize("small_payload", [False, True])
def test_a_projector_loses_its_tail(small_payload: bool) -> None:
    basis = orthogonal(8)[:, :3]
    x = torch.randn(6, 8, generator=rng(3))
    mean = torch.randn(8, generator=rng(4))
    projector = basis.T if small_payload else basis @ basis.T
    found = risk_of(lambda rows: rows @ projector.T, x, mean)
    kept = ((x - mean) @ basis).square().sum(1) / (x - mean).square().sum(1)
    assert found["invre"] == pytest.approx(kept.mean().item(), abs=1e-4)
    assert found["k"] == 3
    assert found["invre_50"] == pytest.approx(kept.mean().item(), abs=1e-4)  # k = 4: a direction not sent stays unread


@given(st.integers(0, 1000))
def test_without_noise_it_grows_with_k_and_stays_in_0_1(seed: int) -> None:
    power = torch.rand(4, 7, generator=rng(seed), dtype=torch.float64)
    sigma = torch.rand(4, 7, generator=rng(seed + 1), dtype=torch.float64).sort(descending=True).values
    spectrum = Spectrum(sigma, power, torch.zeros_like(power), power.sum(1) + 0.1, 9)
    curve = torch.stack([inv_re(spectrum, k) for k in range(8)])
    assert (curve.diff(dim=0) >= -1e-12).all()
    assert (curve >= 0).all()
    assert (curve <= 1).all()


@pytest.mark.parametrize("outputs", [40, 15])
def test_all_directions_are_the_same_with_the_whole_jacobian_and_in_pieces(outputs: int, monkeypatch) -> None:
    left, right = torch.randn(outputs, 4, generator=rng(1)), torch.randn(4, 60, generator=rng(2))
    x = torch.rand(3, 60, generator=rng(3))

    def transmit(rows: Tensor) -> Tensor:
        return rows @ right.T @ left.T

    whole = risk_of(transmit, x, x.mean(0))
    assert whole["k"] <= 4
    monkeypatch.setattr(risk, "WHOLE", 100)
    assert risk_of(transmit, x, x.mean(0)) == pytest.approx(whole, abs=1e-3)


def test_no_direction_is_left_out_however_many_there_are() -> None:
    """What a tenth of the directions called 0.1 and "safe"."""
    x, turn = torch.rand(2, 200, generator=rng()), orthogonal(200)
    found = risk_of(lambda rows: rows @ turn, x, x.mean(0))
    assert found["k"] == 200
    assert found["invre"] == pytest.approx(1, abs=1e-4)
    assert found["invre_10"] < 0.3
    assert found["exact"] == 1


def test_more_directions_than_can_be_found_are_refused(monkeypatch) -> None:
    x = torch.rand(2, 20, generator=rng())
    monkeypatch.setattr(risk, "MOST", 19)
    with pytest.raises(RiskUnavailable, match="20 directions are more than the 19 that can be found"):
        risk_of(lambda rows: rows, x, x.mean(0))
    assert risk_of(lambda rows: rows[:, :5], x, x.mean(0))["k"] == 5, "a small payload has few directions"


def small_bottom() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    return model.eval()


def test_a_small_network_and_the_same_again() -> None:
    bottom, x = small_bottom(), torch.rand(5, 1, 6, 4, generator=rng(5))
    exact, *again = [risk_of(bottom, x, x.mean(0), chunk=chunk) for chunk in (64, 64, 1)]
    assert exact == again[0]
    assert exact == pytest.approx(again[1], abs=1e-4)
    assert 0 < exact["invre_5"] < exact["invre_25"] < exact["invre_50"] <= 1
    jacobian = torch.func.jacrev(lambda row: bottom(row[None])[0].flatten())(x[0]).flatten(1)
    one = RowJacobian(bottom, x, 64)
    ours = one.gram(torch.eye(24).unsqueeze(1).expand(-1, 5, -1).contiguous())[:, 0]
    assert torch.allclose(ours, jacobian.T @ jacobian, atol=1e-4)


def test_noise_lowers_the_risk_in_any_form_it_is_told() -> None:
    x = torch.rand(3, 6, generator=rng())
    scale = torch.linspace(0.5, 2, 6)
    plain = risk_of(lambda rows: rows * scale, x, torch.zeros(6))["invre"]
    told = [torch.full((6,), 0.01), torch.full((3, 6), 0.01), 0.1 * torch.eye(6).expand(3, 6, 6)]
    noisy = [risk_of(lambda rows: rows * scale, x, torch.zeros(6), noise=n)["invre"] for n in told]
    expected = (0.01 / scale.square()).sum() / x.square().sum(1)
    assert noisy == pytest.approx([1 - expected.mean().item()] * 3, abs=1e-4)
    assert noisy[0] < plain


class _Hidden(torch.autograd.Function):
    """Differentiable, but it knows no forward mode and cannot be vmapped."""

    @staticmethod
    def forward(ctx, values: Tensor) -> Tensor:
        ctx.save_for_backward(values)
        return values.square()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (values,) = ctx.saved_tensors
        return 2 * values * grad


class _NoBatching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x if float(x.detach().sum()) > -1e9 else x  # data-dependent control flow


def test_a_model_that_cannot_be_batched_is_run_column_by_column() -> None:
    x = torch.rand(3, 5, generator=rng()) + 0.5
    found = risk_of(_NoBatching(), x, torch.zeros(5))
    assert found["invre"] == pytest.approx(1, abs=1e-3)


def test_what_cannot_be_differentiated_is_said() -> None:
    x = torch.rand(3, 5)
    with pytest.raises(RiskUnavailable, match="gradients"):
        risk_of(lambda rows: rows.detach() * 2, x, torch.zeros(5))
    with pytest.raises(RiskUnavailable):
        risk_of(_Hidden.apply, x, torch.zeros(5))
    with pytest.raises(RiskUnavailable, match="other rows"):
        risk_of(lambda rows: rows - rows.mean(0), x, torch.zeros(5))
    with pytest.raises(RiskUnavailable, match="no row"):
        risk_of(lambda rows: rows, x[:0], torch.zeros(5))
