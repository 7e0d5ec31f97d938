"""The masker: its masks, and the losses of generator and masker."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from veracausa import seeding
from veracausa.defenses.causshield import losses
from veracausa.defenses.causshield import masker as dimensions
from veracausa.defenses.causshield.masker import always_up, build_masker, gumbel, iterative_softmax, top_k, upper_count


def views(rows: int, columns: int, seed: int = 0):
    rng = torch.Generator().manual_seed(seed)
    r = torch.randn(rows, columns, generator=rng)
    return r, r + 0.7 * torch.randn(rows, columns, generator=rng)


def by_hand(r, other, beta):
    """Eq. 14 over J, from the definition: z-scored columns, C = ZᵀẐ / N."""
    z, y = ((v - v.mean(0)) / (v.std(0, unbiased=False) + 1e-6) for v in (r.double(), other.double()))
    c = z.T @ y / len(r)
    diagonal = c.diagonal()
    off = c.square().sum() - diagonal.square().sum()
    return float(((1 - diagonal).square().sum() + beta * off) / (2 * r.shape[1]))


@pytest.mark.parametrize(("rows", "columns"), [(32, 20), (16, 100), (8, 8), (4, 300)])
@pytest.mark.parametrize("beta", [1.0, 0.01])
def test_matrix_and_gram_give_the_same_number(rows, columns, beta):
    r, other = views(rows, columns)
    assert float(losses.decomposition(r, other, beta)) == pytest.approx(by_hand(r, other, beta), rel=1e-5)


@given(rows=st.integers(3, 24), columns=st.integers(2, 40), seed=st.integers(0, 99))
@settings(max_examples=25)
def test_the_gram_identity_holds_for_any_size(rows, columns, seed):
    r, other = views(rows, columns, seed)
    c = losses.correlations(r, other)
    diagonal, off = losses.correlation_sums(r, other)
    assert torch.allclose(diagonal, c.diagonal(), atol=1e-5)
    assert float(off) == pytest.approx(float(c.square().sum() - c.diagonal().square().sum()), rel=1e-4, abs=1e-4)


def test_gradients_agree_too():
    r, other = views(16, 16)
    wide_r, wide_other = (torch.cat([v, v.flip(1)], 1) for v in (r, other))
    for a, b in ((r, other), (wide_r, wide_other)):  # one each way of computing
        mine, reference = a.clone().requires_grad_(), a.double().requires_grad_()
        losses.decomposition(mine, b, 1.0).backward()
        z, y = ((v - v.mean(0)) / (v.std(0, unbiased=False) + 1e-6) for v in (reference, b.double()))
        c = z.T @ y / len(a)
        (0.5 / a.shape[1] * (c - torch.eye(a.shape[1])).square().sum()).backward()
        assert torch.allclose(mine.grad.double(), reference.grad, atol=1e-6)


@pytest.mark.parametrize(("rows", "columns"), [(32, 20), (16, 100)])
def test_a_view_agrees_with_itself(rows, columns):
    r, _ = views(rows, columns)
    diagonal, off = losses.correlation_sums(r, r)
    assert torch.allclose(diagonal, torch.ones(columns), atol=1e-4)
    # rank(C) ≤ N - 1, so that the squares of a J × J matrix with unit diagonal cannot all vanish.
    assert float(off + columns) >= columns**2 / min(rows - 1, columns) * 0.999


@pytest.mark.parametrize(("rows", "columns"), [(32, 20), (16, 100)])
def test_scale_and_shift_of_a_dimension_do_not_matter(rows, columns):
    r, other = views(rows, columns)
    rng = torch.Generator().manual_seed(9)
    scale, shift = torch.rand(columns, generator=rng) * 5 + 0.5, torch.randn(columns, generator=rng)
    assert float(losses.decomposition(r * scale + shift, other, 1.0)) == pytest.approx(
        float(losses.decomposition(r, other, 1.0)), rel=1e-4
    )


@pytest.mark.parametrize(("rows", "columns"), [(32, 20), (16, 100)])
def test_a_dead_dimension_costs_a_constant_and_pulls_at_nothing(rows, columns):
    r, other = views(rows, columns)
    r[:, 3] = 2.5
    r.requires_grad_()
    loss = losses.decomposition(r, other, 1.0)
    loss.backward()
    assert r.grad.isfinite().all()
    assert (r.grad[:, 3] == 0).all()
    assert losses.correlation_sums(r, other)[0][3] == 0


def test_the_weight_of_off_diagonals():
    assert losses.off_diagonal_weight("auto", 65536, 64) == 1
    assert losses.off_diagonal_weight("auto", 256, 336) == pytest.approx(0.759, abs=1e-3)
    assert losses.off_diagonal_weight("auto", 128, 32768) == pytest.approx(0.0039, abs=1e-4)
    assert losses.off_diagonal_weight("cirl", 10, 11) == pytest.approx(0.0005)
    assert losses.off_diagonal_weight(0.3, 10, 11) == 0.3


def test_a_wide_flat_payload_never_builds_the_matrix_of_correlations():
    """J = 32,768: C alone would be 4 GiB."""
    r, other = views(16, 32768)
    r.requires_grad_()
    losses.decomposition(r, other, 0.004).backward()
    assert r.grad.isfinite().all()


@pytest.mark.parametrize(
    ("reading", "matrix"),
    [("flat", (6, 5 * 4 * 3)), ("channel", (6 * 12, 5)), ("pooled", (6, 5)), ("patch", (6, 5 * 2 * 2))],
)
def test_readings_of_a_map(reading, matrix):
    r = torch.randn(6, 5, 4, 3)
    assert tuple(dimensions.as_matrix(r, reading, (2, 2)).shape) == matrix
    assert dimensions.count((5, 4, 3), reading, (2, 2)) == matrix[1]
    mask = dimensions.spread(torch.rand(6, matrix[1]), (5, 4, 3), reading, (2, 2))
    assert torch.broadcast_shapes(mask.shape, r.shape) == r.shape


def test_channels_last_is_the_same_matrix():
    r = torch.randn(6, 5, 4, 3)
    wide = r.contiguous(memory_format=torch.channels_last)
    assert torch.equal(dimensions.as_matrix(r, "channel"), dimensions.as_matrix(wide, "channel"))


def test_auto_takes_channels_for_maps_too_wide_for_the_batch():
    assert dimensions.choose_reading("auto", (64, 32, 16), 128) == "channel"
    assert dimensions.choose_reading("auto", (16, 7, 3), 256) == "flat"
    assert dimensions.choose_reading("auto", (120,), 8) == "flat"
    assert dimensions.choose_reading("patch", (64, 32, 16), 128) == "patch"


def test_masker_losses_reward_what_they_should():
    upper = torch.tensor([[1.0, 0.0]])
    assert losses.masker_loss(torch.tensor([[1.0, 0.0]]), upper) == 0
    assert losses.masker_loss(torch.tensor([[0.0, 1.0]]), upper) == 1
    assert losses.generator_score(torch.ones(2, 3)) == 0


def draw(logits, seed=0):
    return gumbel(logits.shape, seeding.generator(seed))


@given(dimensions=st.integers(2, 60), tau=st.floats(0.05, 0.95), seed=st.integers(0, 20))
def test_exactly_k_ones_a_row(dimensions, tau, seed):
    logits = torch.randn(5, dimensions, generator=seeding.generator(seed))
    k = upper_count(tau, dimensions)
    assert 1 <= k < dimensions
    upper = top_k(logits, k, 0.5, draw(logits, seed)).detach()
    assert (upper.round() - upper).abs().max() < 1e-6
    assert (upper.round().sum(1) == k).all()


def test_gradient_reaches_the_logits_and_the_draw_is_the_generator_s():
    logits = torch.randn(4, 10, requires_grad=True)
    first, second = (top_k(logits, 5, 0.5, draw(logits, 3)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, top_k(logits, 5, 0.5, draw(logits, 4)))
    (first * torch.arange(10.0)).sum().backward()
    assert (logits.grad != 0).any(1).all()


def test_without_noise_the_highest_logits_win():
    logits = torch.tensor([[3.0, -1.0, 2.0, 0.0]])
    assert torch.equal(top_k(logits, 2, 0.5, None), torch.tensor([[1.0, 0.0, 1.0, 0.0]]))


@given(dimensions=st.integers(2, 40), tau=st.floats(0.1, 0.9), seed=st.integers(0, 99))
def test_the_mask_and_its_slope_are_those_of_a_sort(dimensions, tau, seed):
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(5, dimensions, generator=rng, requires_grad=True)
    weights, k = torch.randn(5, dimensions, generator=rng), upper_count(tau, dimensions)
    mask = top_k(logits, k, 0.5, draw(logits, seed))
    (mask * weights).sum().backward()
    noisy = logits.detach() / 0.5 + draw(logits, seed)
    ranked = noisy.sort(dim=1, descending=True).values
    soft = torch.sigmoid(noisy - (ranked[:, k - 1 : k] + ranked[:, k : k + 1]) / 2)
    assert torch.equal(mask.detach().round(), (noisy >= ranked[:, k - 1 : k]).float())
    torch.testing.assert_close(logits.grad, weights * soft * (1 - soft) / 0.5)


def test_the_noise_is_gumbel_s():
    noise = gumbel(torch.Size((200_000,)), seeding.generator(0)).double()
    for at in (-1.0, 0.0, 1.0, 3.0):  # its distribution is exp(-exp(-x)); 0.005 is more than four standard errors
        assert float((noise <= at).double().mean()) == pytest.approx(math.exp(-math.exp(-at)), abs=0.005)
    assert noise.isfinite().all()


def test_cirl_s_sampler_stays_within_bounds():
    mask = iterative_softmax(torch.randn(3, 8), 4, 0.5, seeding.generator(0))
    assert mask.min() >= 0
    assert mask.max() <= 1


SHAPES = [((6, 8, 4), "channel"), ((6, 8, 4), "pooled"), ((6, 8, 4), "patch"), ((6, 8, 4), "flat"), ((12,), "flat")]


@pytest.mark.parametrize(("shape", "reading"), SHAPES)
def test_no_dimension_is_always_up_with_the_last_normalisation(shape, reading):
    rng = seeding.generator(1)
    with seeding.drawing_from(rng):
        masker = build_masker(shape, reading, (2, 2), True, rng)
    rows = torch.randn(64, *shape, generator=rng)
    logits = masker(rows)
    upper = top_k(logits, upper_count(0.5, logits.shape[1]), 0.5, None)
    assert float(always_up(upper)) == 0
    assert logits.var(0).min() > 0


def test_a_biased_masker_without_it_is_caught():
    rng = seeding.generator(1)
    with seeding.drawing_from(rng):
        masker = build_masker((6, 8, 4), "channel", (2, 2), False, rng)
    with torch.no_grad():
        masker[11].bias.copy_(torch.tensor([9.0, 9, 9, -9, -9, -9]))
    upper = top_k(masker(torch.randn(64, 6, 8, 4, generator=rng)), 3, 0.5, None)
    assert float(always_up(upper)) == 0.5
