"""The theory's numbers of maps whose answer is known."""

from __future__ import annotations

import pytest
import torch

from veracausa.metrics.causal_parts import causal_parts
from veracausa.metrics.jacobian import RiskUnavailable


def linear(matrix: torch.Tensor):
    return lambda rows: rows @ matrix.T


def diagonal(*values: float) -> torch.Tensor:
    return torch.diag(torch.tensor(values))


X = torch.tensor([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]])
MEAN = torch.zeros(4)


def test_parts_in_spaces_of_their_own_are_told_apart():
    """r^s sees the first two columns faintly, r^u the last two strongly: the paper's own picture."""
    found = causal_parts(linear(diagonal(0.1, 0.1, 0, 0)), linear(diagonal(0.1, 0.1, 5, 5)), X, MEAN)
    assert found.k.tolist() == [2, 2]  # 0.1 is below a twentieth of 5
    torch.testing.assert_close(found.ratio, torch.full((2,), 50.0).double(), rtol=1e-5, atol=0)
    assert found.dominated.tolist() == [1, 1]
    torch.testing.assert_close(found.overlap, torch.zeros(2).double(), atol=1e-6, rtol=0)
    assert found.chance.tolist() == [0.5, 0.5]
    # What is sent reads columns 1 and 2, the bottom reads 3 and 4.
    torch.testing.assert_close(found.loss_sent, torch.tensor([25 / 30, 5 / 30]).double(), rtol=1e-5, atol=0)
    torch.testing.assert_close(found.loss_whole, torch.tensor([5 / 30, 25 / 30]).double(), rtol=1e-5, atol=0)
    torch.testing.assert_close(found.bound, 1 - 2 * found.gamma.square())


def test_what_is_sent_whole_has_no_rest_and_passes_no_threshold():
    turned = linear(torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(0)))[0])
    found = causal_parts(turned, turned, X, MEAN, noise=0.5)
    torch.testing.assert_close(found.ratio, torch.zeros(2).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.loss_sent, torch.zeros(2).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.threshold, torch.full((2,), 4 * 0.25 / 30).double())
    assert found.means()["above_threshold"] == 0
    assert (found.bound < 0).all()  # the lower bound of Eq. 7 says nothing here


def test_numbers_are_those_of_each_row_alone():
    torch.manual_seed(1)
    first, second = torch.randn(6, 4), torch.randn(6, 4)

    def sent(rows):
        return torch.tanh(rows @ first.T)

    def bottom(rows):
        return torch.tanh(rows @ second.T)

    both = causal_parts(sent, bottom, X, MEAN)
    for i in range(2):
        alone = causal_parts(sent, bottom, X[i : i + 1], MEAN)
        for name, value in vars(alone).items():
            torch.testing.assert_close(getattr(both, name)[i : i + 1], value, rtol=1e-4, atol=1e-6)


def test_the_loss_is_that_of_the_risk_meter():
    from veracausa.metrics.risk import risk_of

    matrix = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
    found = causal_parts(linear(matrix), linear(matrix), X, MEAN)
    measured = risk_of(linear(matrix), X, MEAN)
    assert measured["invre"] == pytest.approx(float((1 - found.loss_sent).mean()), abs=1e-5)


@pytest.mark.parametrize(("first", "rows"), [(torch.ones(3, 4), X), (torch.ones(4, 4), X[:0])])
def test_what_cannot_be_compared_is_refused(first, rows):
    with pytest.raises(RiskUnavailable):
        causal_parts(linear(first), linear(diagonal(1, 1, 1, 1)), rows, MEAN)
