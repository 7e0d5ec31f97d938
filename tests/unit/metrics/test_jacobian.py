"""Row norms and singular directions of Jacobians, against a dense one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from veracausa.metrics.jacobian import EXTRA, RowJacobian, estimated_row_norms, exact_row_norms, truncated_svd
from veracausa.testing.synthetic import linear, small_conv, uniform_rows


def dense(bottom: nn.Module, x: Tensor) -> Tensor:
    """(n, m, d)."""
    return torch.stack(
        [torch.func.jacrev(lambda row: bottom(row[None])[0].flatten())(one).flatten(1) for one in x]
    ).detach()


def toy(kind: str) -> tuple[nn.Module, Tensor]:
    if kind == "wide":
        return nn.Sequential(linear(40, 12), nn.Tanh()), uniform_rows(3, 12)
    if kind == "narrow":
        return nn.Sequential(linear(7, 12), nn.Tanh()), uniform_rows(3, 12)
    return small_conv().eval(), uniform_rows(3, 1, 8, 4)


@pytest.mark.parametrize("kind", ["wide", "narrow", "maps"])
@pytest.mark.parametrize("chunk", [1, 1000])
def test_exact_norms_are_those_of_the_dense_jacobian(kind, chunk):
    bottom, x = toy(kind)
    for like in (None, bottom(x).detach()):
        found = exact_row_norms(RowJacobian(bottom, x, chunk, like))
        assert torch.allclose(found, dense(bottom, x).norm(dim=2), atol=1e-5)


def test_estimates_come_near_with_512_probes():
    bottom, x = toy("wide")
    probes = torch.randn(512, 12, generator=torch.Generator().manual_seed(0))
    exact = dense(bottom, x).norm(dim=2)
    error = (estimated_row_norms(RowJacobian(bottom, x, 64), probes) / exact - 1).abs()
    assert error.max() < 0.2
    assert error.mean() < 0.05
    few = (estimated_row_norms(RowJacobian(bottom, x, 64), probes[:8]) / exact - 1).abs()
    assert few.mean() > error.mean()


@pytest.mark.parametrize("kind", ["wide", "narrow", "maps"])
def test_all_directions_give_the_jacobian_back(kind):
    bottom, x = toy(kind)
    jacobian, k = RowJacobian(bottom, x, 64), 32
    start = torch.randn(jacobian.inputs, k + EXTRA, generator=torch.Generator().manual_seed(1))
    found = truncated_svd(jacobian, k, start)
    truth = dense(bottom, x)
    again = torch.einsum("nmk,nk,ndk->nmd", found.left, found.sigma, found.right)
    assert torch.allclose(again, truth, atol=2e-4 * float(truth.abs().max()))
    expected = torch.linalg.svdvals(truth)[:, : found.sigma.shape[1]]
    assert torch.allclose(found.sigma[:, : expected.shape[1]], expected, atol=1e-3 * float(expected.max()))


def test_the_strongest_directions_are_found_among_many():
    turned = torch.linalg.qr(torch.randn(60, 60, generator=torch.Generator().manual_seed(2))).Q
    sigma = 0.7 ** torch.arange(60)
    matrix = (turned * sigma) @ turned.T
    x = uniform_rows(2, 60)
    jacobian = RowJacobian(lambda values: values @ matrix.T, x, 64)
    found = truncated_svd(jacobian, 5, torch.randn(60, 5 + EXTRA, generator=torch.Generator().manual_seed(3)))
    assert torch.allclose(found.sigma, sigma[:5].expand(2, 5), rtol=1e-3)
    along = (found.left[0].T @ turned[:, :5]).abs()
    assert torch.allclose(along, torch.eye(5), atol=0.02)
    orthogonal = found.right[0].T @ found.right[0]
    assert torch.allclose(orthogonal, torch.eye(5), atol=1e-3)


def test_one_product_runs_the_map_once():
    calls = []

    def transmit(values: Tensor) -> Tensor:
        calls.append(1)
        return values * 2

    x = uniform_rows(4, 5)
    jacobian = RowJacobian(transmit, x, 64, like=x)
    assert torch.equal(jacobian.jv(x.unsqueeze(0))[0], 2 * x)
    assert len(calls) == 1
