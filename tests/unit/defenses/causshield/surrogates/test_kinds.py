"""Every kind of surrogate on its kind of rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from veracausa.data.colour import rgb_to_lab
from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.defenses.causshield.surrogates.base import choose
from veracausa.defenses.causshield.surrogates.fourier import mix_amplitudes
from veracausa.defenses.causshield.surrogates.neighbours import nearest_others
from veracausa.errors import InputError
from veracausa.runs.store import deserialize_state, serialize_state

SUITS = {
    (3, 8, 4): {"lab", "fourier", "photometric", "permuted_ab", "jitter", "none"},
    (3, 7, 5): {"lab", "fourier", "photometric", "permuted_ab", "jitter", "none"},
    (1, 28, 14): {"fourier", "intensity", "photometric", "none"},
    (6,): {"neighbours", "none"},
}
LITTLE = {"epochs": 1, "width": 4, "batch_size": 8}
FITTING = [(shape, name) for shape, names in SUITS.items() for name in sorted(names)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_rows(shape, count=12, seed=0):
    if len(shape) == 1:
        return torch.randn(count, *shape, generator=generator(seed))
    return torch.randint(256, (count, *shape), dtype=torch.uint8, generator=generator(seed))


def as_batch(rows):
    return rows.float() / 255 if rows.dtype == torch.uint8 else rows


def build(name, **given):
    options = surrogates.options(name)
    little = {key: value for key, value in LITTLE.items() if key in options.model_fields}
    return surrogates.get(name)(options(name=name, **(little | given)))


def fitted(name, rows, seed=0, **given):
    surrogate = build(name, **given)
    surrogate.fit(rows, generator(seed))
    return surrogate


def test_the_kinds():
    assert set(surrogates.names()) == set().union(*SUITS.values())


@pytest.mark.parametrize(("shape", "name"), FITTING)
def test_a_surrogate_is_another_row_of_the_same_kind(shape, name):
    rows = some_rows(shape)
    x = as_batch(rows)
    before = x.clone()
    made = fitted(name, rows).make(x, generator())
    assert made.shape == x.shape
    assert made.dtype == torch.float32
    assert made.isfinite().all()
    assert not made.requires_grad
    assert torch.equal(x, before)
    assert torch.equal(made, x) == (name == "none")
    if len(shape) == 3:
        assert made.min() >= 0
        assert made.max() <= 1


@pytest.mark.parametrize(("shape", "name"), FITTING)
def test_one_seed_gives_the_same_bits_also_after_the_state_was_kept(shape, name):
    rows = some_rows(shape)
    first, second = fitted(name, rows), fitted(name, rows)
    fresh = as_batch(some_rows(shape, 5, seed=9))
    wanted = first.make(fresh, generator(3))
    assert torch.equal(second.make(fresh, generator(3)), wanted)
    restored = build(name)
    restored.load_state(deserialize_state(serialize_state(first.state())))
    assert torch.equal(restored.make(fresh, generator(3)), wanted)


@pytest.mark.parametrize("name", ["fourier", "photometric", "permuted_ab", "jitter", "neighbours"])
def test_another_draw_is_another_surrogate(name):
    shape = (6,) if name == "neighbours" else (3, 8, 4)
    rows = some_rows(shape)
    surrogate = fitted(name, rows)
    assert not torch.equal(surrogate.make(as_batch(rows), generator(1)), surrogate.make(as_batch(rows), generator(2)))


def test_the_global_random_state_is_left_alone():
    before = torch.random.get_rng_state()
    for shape, name in FITTING:
        rows = some_rows(shape)
        fitted(name, rows).make(as_batch(rows), generator())
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        (shape, name)
        for shape, names in SUITS.items()
        for name in sorted(set().union(*SUITS.values()) - names)
        if (shape, name) != ((3, 7, 5), name)
    ],
)
def test_a_kind_that_does_not_suit_the_rows_says_which_does(shape, name):
    with pytest.raises(InputError, match=f"'{name}' is for .* use 'auto', or '{choose(shape)}'"):
        build(name).fit(some_rows(shape), generator())


@pytest.mark.parametrize(("shape", "name"), [((3, 4, 4), "lab"), ((1, 4, 4), "fourier"), ((4, 4, 4), "fourier")])
def test_auto_for_images(shape, name):
    assert choose(shape) == name


def test_no_rows_give_no_surrogates():
    for shape, name in FITTING:
        surrogate = fitted(name, some_rows(shape))
        assert surrogate.make(torch.empty(0, *shape), generator()).shape == (0, *shape)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 9), st.floats(0, 1), st.floats(0.05, 1))
def test_mixed_amplitudes_keep_the_phase(seed, height, width, share, central):
    x, partner = torch.rand(2, 1, 2, height, width, generator=generator(seed), dtype=torch.float64)
    assert torch.allclose(mix_amplitudes(x, partner, 0.0, central), x, atol=1e-9)
    ours, mixed = torch.fft.fft2(x), torch.fft.fft2(mix_amplitudes(x, partner, share, central))
    # A phase is that of a number which is not nought: the product with the conjugate is real and not negative.
    product = mixed * ours.conj()
    assert product.imag.abs().max() < 1e-8
    assert product.real.min() > -1e-8


def test_all_amplitudes_are_the_partners_at_full_share():
    x, partner = torch.rand(2, 1, 1, 8, 6, generator=generator())
    mixed = torch.fft.fft2(mix_amplitudes(x, partner, 1.0))
    assert torch.allclose(mixed.abs(), torch.fft.fft2(partner).abs(), atol=1e-4)


def test_permuted_ab_keeps_luminance_and_takes_a_partners_colours():
    rows = some_rows((3, 8, 4))
    surrogate = fitted("permuted_ab", rows)
    x = as_batch(rows)
    lab, made = rgb_to_lab(x), rgb_to_lab(surrogate.unclipped(x, generator()))
    assert torch.allclose(made[:, 0], lab[:, 0], atol=0.05)
    apart = (made[:, None, 1:] - lab[None, :, 1:]).abs().amax((2, 3, 4))
    assert (apart.min(1).values < 0.05).all()
    assert (apart.argmin(1) != torch.arange(len(x))).all()


def test_jitter_of_no_strength_changes_nothing():
    rows = some_rows((3, 8, 4))
    still = fitted("jitter", rows, brightness=0, contrast=0, saturation=0, hue=0)
    assert torch.allclose(still.make(as_batch(rows), generator()), as_batch(rows), atol=1e-5)


def test_a_row_is_not_its_own_neighbour_and_its_twin_is():
    bank = torch.arange(6.0)[:, None].repeat(1, 3)
    found = nearest_others(bank, bank, 2)
    assert found.shape == (6, 2, 3)
    assert not (found == bank[:, None]).all(2).any()
    assert sorted(found[2, :, 0].tolist()) == [1, 3]
    twins = torch.cat((bank, bank[:1]))
    assert (nearest_others(bank[:1], twins, 1) == bank[0]).all()
    stranger = torch.full((1, 3), 2.2)
    assert sorted(nearest_others(stranger, bank, 2)[0, :, 0].tolist()) == [2, 3]


def test_more_neighbours_than_rows():
    rows = some_rows((6,), 3)
    assert fitted("neighbours", rows, neighbours=50).make(rows, generator()).shape == (3, 6)
    with pytest.raises(InputError, match="two training rows"):
        build("neighbours").fit(rows[:1], generator())


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_one_hot_columns_stay_together(seed):
    rng = generator(seed)
    number = torch.randn(60, 1, generator=rng)
    first = torch.eye(4)[torch.randint(4, (60,), generator=rng)]
    second = torch.eye(3)[torch.randint(3, (60,), generator=rng)]
    rows = torch.cat((first, number, second), dim=1)
    surrogate = build("neighbours", neighbours=8)
    surrogate.fit(rows, rng, groups=(0, 0, 0, 0, 1, 2, 2, 2))
    made = surrogate.make(rows, rng)
    assert (made[:, :4].sum(1) == 1).all()
    assert (made[:, 5:].sum(1) == 1).all()
    assert torch.isin(made[:, 4], number).all()
    # Columns are drawn each for itself: some row is no copy of any row.
    assert not (made[:, None] == rows[None]).all(2).any(1).all()


def test_groups_must_be_one_a_feature():
    with pytest.raises(ValueError, match="2 groups for 6 features"):
        build("neighbours").fit(some_rows((6,)), generator(), groups=(0, 1))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("shape", "name"), FITTING)
def test_on_a_gpu(shape, name):
    rows = some_rows(shape, 64).cuda()
    surrogate = fitted(name, rows, **({"epochs": 3} if name in ("lab", "intensity") else {}))
    made = surrogate.make(as_batch(rows), generator())
    assert made.device == rows.device
    assert made.isfinite().all()
    assert surrogate.make(as_batch(rows).cpu(), generator()).device.type == "cpu"
