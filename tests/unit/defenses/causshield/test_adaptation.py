"""The inner loop moves a copy of the bottom, never the bottom, and leaves no trace where it should not."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from veracausa import seeding
from veracausa.defenses.causshield import CausShieldOptions
from veracausa.defenses.causshield.adaptation import Adaptation
from veracausa.defenses.causshield.batch_norm import SplitBatchNorm
from veracausa.defenses.causshield.losses import diagnostics, effective_rank, linear_cka
from veracausa.runs.store import deserialize_state, same, serialize_state


def bottom():
    with seeding.drawing_from(seeding.generator(0)):
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
        )


def batch(rows: int = 24):
    rng = seeding.generator(5)
    x = torch.rand(rows, 3, 8, 6, generator=rng)
    return x, (x + 0.2 * torch.randn(x.shape, generator=rng)).clamp(0, 1)


def adaptation(f, **settings):
    made = Adaptation(f, (8, 8, 6), 24, CausShieldOptions(**settings), seed=3)
    made.draws.manual_seed(1)
    made.reset_to_bottom()
    return made


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"dimensions": "flat"},
        {"dimensions": "pooled"},
        {"dimensions": "patch"},
        {"masker": False},
        {"batch_norm": "train_concat"},
        {"batch_norm": "eval"},
        {"score_on": "both"},
        {"sampler": "iterative_gumbel_softmax", "dimensions": "pooled"},
        {"beta": "cirl", "masker": False},
        {"players": "alternating"},
        {"players": "alternating", "dimensions": "flat"},
    ],
)
def test_the_loss_falls_and_the_representation_moves(settings):
    f, (x, surrogate) = bottom(), batch()
    shield = adaptation(f, **settings)
    before, weights = shield.payload(x), copy.deepcopy(f.state_dict())
    shield.adapt(x, surrogate, 1)
    first = float(shield.loss)
    shield.adapt(x, surrogate, 25)
    assert float(shield.loss) < first
    assert float((shield.payload(x) - before).norm() / before.norm()) > 0.01
    assert same(f.state_dict(), weights), "the bottom itself must not move"


def test_players_in_turn_see_what_the_other_became():
    """The masker's step is taken on representations of the generator after its own step."""
    x, surrogate = batch()
    f = bottom()
    settings = {"players": "alternating", "lr_generator": 0.1}
    whole = adaptation(f, **settings)
    whole.iterate(x, surrogate)
    # The same by hand: the generator's gradient, its step, and only then the masker's gradient.
    other = adaptation(f, **settings)
    with torch.enable_grad():
        loss = other._generator_loss(*other._views_of_both(x, surrogate))
        slopes = torch.autograd.grad(loss, other.parameters)
        scoring = other.trained[len(other.parameters) :]
        with torch.no_grad():
            for parameter, slope in zip(other.parameters, slopes, strict=True):
                parameter -= 0.1 * slope
            views = other._views_of_both(x, surrogate)
        told = torch.autograd.grad(other._masker_loss(views, other._noise(len(x))), scoring)
        with torch.no_grad():
            for parameter, slope in zip(scoring, told, strict=True):
                parameter -= other.options.lr_masker * slope
    torch.testing.assert_close([*whole.trained], [*other.trained])
    together = adaptation(f, lr_generator=0.1)
    together.iterate(x, surrogate)
    torch.testing.assert_close(together.parameters, whole.parameters)  # the first step is the same
    assert any(not torch.allclose(a, b) for a, b in zip(together.trained, whole.trained, strict=True))


def test_a_copy_is_the_bottom_again():
    f, (x, surrogate) = bottom(), batch()
    shield = adaptation(f)
    shield.adapt(x, surrogate, 3)
    shield.reset_to_bottom()
    assert same(shield.generator.state_dict(), f.state_dict())
    assert all((momentum == 0).all() for momentum in shield.momenta)
    f.train()
    assert torch.equal(shield.payload(x), f(x).detach())


def test_what_is_borrowed_comes_back():
    f, (x, surrogate) = bottom(), batch()
    shield = adaptation(f)
    shield.adapt(x, surrogate, 2)
    before = deserialize_state(serialize_state(shield.state()))
    with shield.preserving_state():
        shield.adapt(x, surrogate, 3)
        assert not same(shield.state(), before)
    assert same(shield.state(), before)


def test_state_goes_on_as_if_nothing_had_happened():
    f, (x, surrogate) = bottom(), batch()
    old = adaptation(f)
    old.adapt(x, surrogate, 2)
    new = adaptation(f)
    new.load_state(deserialize_state(serialize_state(old.state())))
    for shield in (old, new):
        shield.draws.manual_seed(7)
        shield.adapt(x, surrogate, 2)
    assert same(old.state(), new.state())


def test_a_plateau_ends_the_loop():
    f, (x, surrogate) = bottom(), batch()
    assert adaptation(f, schedule="plateau", tolerance=0.9).adapt(x, surrogate, 30) < 30
    assert adaptation(f, schedule="plateau", tolerance=1e-9).adapt(x, surrogate, 6) == 6


def test_two_views_in_one_pass_are_two_passes():
    f = bottom().double()
    x, surrogate = (view.double() for view in batch())
    with torch.no_grad():
        for norm in (f[1], f[4]):
            norm.weight.uniform_(0.5, 1.5, generator=seeding.generator(1))
    together, apart = copy.deepcopy(f), copy.deepcopy(f)
    views = SplitBatchNorm(together)
    assert views.possible
    views.set_views(2)
    first, second = together(torch.cat([x, surrogate])).chunk(2)
    assert torch.allclose(first, apart(x))
    assert torch.allclose(second, apart(surrogate))
    for mine, other in zip(together.buffers(), apart.buffers(), strict=True):
        assert torch.allclose(mine, other)
    first.square().sum().add(second.sum()).backward()
    apart_loss = apart(x).square().sum() + apart(surrogate).sum()
    apart_loss.backward()
    for mine, other in zip(together.parameters(), apart.parameters(), strict=True):
        assert torch.allclose(mine.grad, other.grad, atol=1e-8)
    views.set_views(1)
    assert torch.equal(together.eval()(x), together(x))


def test_offsets_and_pulls():
    f, (x, surrogate) = bottom(), batch()
    shield = adaptation(f)
    shield.adapt(x, surrogate, 3)
    moved = copy.deepcopy(shield.generator.state_dict())
    offset = shield.offset()
    shield.reset_to_bottom()
    shield.add(offset)
    for name, value in shield.generator.named_parameters():
        assert torch.allclose(value, moved[name], atol=1e-6)
    shield.pull_towards_bottom(1.0)
    for mine, other in zip(shield.generator.parameters(), f.parameters(), strict=True):
        assert torch.allclose(mine, other)


def test_a_hard_mask_keeps_half_the_channels():
    f, (x, _) = bottom(), batch()
    shield = adaptation(f)
    mask = shield.mask(shield.payload(x))
    assert tuple(mask.shape) == (24, 8, 1, 1)
    assert (mask.sum(1) == 4).all()


def test_diagnostics_say_what_happened():
    f, (x, surrogate) = bottom(), batch()
    shield = adaptation(f)
    before = shield.payload(x)
    untouched = diagnostics(shield, before, x, surrogate)
    assert untouched["drift"] == 0
    assert untouched["cka"] == pytest.approx(1)
    shield.adapt(x, surrogate, 25)
    moved = diagnostics(shield, before, x, surrogate)
    assert moved["drift"] > 0.01
    assert moved["cka"] < 1
    assert moved["correlation_diagonal"] > untouched["correlation_diagonal"]
    assert moved["chroma_sensitivity"] > 0
    assert 0 <= moved["mask_always_up"] <= 1
    assert 1 <= moved["effective_rank"] <= 8


def test_effective_rank_and_alignment_of_known_matrices():
    rng = seeding.generator(2)
    rows = torch.randn(400, 6, generator=rng)
    whitened = torch.linalg.qr(rows - rows.mean(0))[0]
    assert effective_rank(whitened) == pytest.approx(6, abs=1e-3)
    assert effective_rank(rows[:, :1] * torch.ones(1, 6)) == pytest.approx(1, abs=1e-6)
    rotation = torch.linalg.qr(torch.randn(6, 6, generator=rng))[0]
    assert linear_cka(rows, 3 * rows @ rotation) == pytest.approx(1, abs=1e-5)
    assert linear_cka(rows, torch.randn(400, 6, generator=rng)) < 0.1
