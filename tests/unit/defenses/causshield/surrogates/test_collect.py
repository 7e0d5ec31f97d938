"""Surrogates of all training rows, and the cache that keeps them."""

from __future__ import annotations

import stat
from dataclasses import replace

import pytest
import torch

from veracausa.data.vertical import Part
from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.defenses.causshield.surrogates.base import SurrogateOptions
from veracausa.defenses.causshield.surrogates.collect import SurrogateSet, collect, resolve
from veracausa.errors import InputError
from veracausa.registry import Options
from veracausa.runs.store import deserialize_state, serialize_state


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def strips(count=20, shape=(3, 8, 8)):
    """Views of whole images, as a party holds them."""
    images = torch.randint(256, (count, *shape), dtype=torch.uint8, generator=generator())
    return Part(count, images[..., : shape[-1] // 2])


def settings(name="fourier", **given):
    return surrogates.options(name)(name=name, **given)


def files(cache):
    return sorted((cache / "surrogates").iterdir())


@pytest.mark.parametrize(
    ("shape", "name"), [((3, 8, 8), "lab"), ((1, 8, 8), "fourier"), ((4, 8, 8), "fourier"), ((8,), "neighbours")]
)
def test_auto_takes_the_kind_that_suits(tmp_path, shape, name):
    chosen = resolve(Options(name="auto"), shape)
    assert chosen == settings(name)
    if name == "lab":
        return  # with its default settings it takes too long for a test
    part = strips(shape=shape) if len(shape) == 3 else Part(20, torch.randn(20, *shape, generator=generator()))
    made = collect(part, Options(name="auto"), cache=tmp_path)
    assert made.maker.options == chosen
    assert made.rows.shape == part.features.shape
    assert made.rows.dtype == part.features.dtype
    assert not torch.equal(made.rows, part.features)


def test_auto_takes_a_seed_too():
    assert resolve(SurrogateOptions(name="auto", seed=7), (1, 8, 8)) == settings("fourier", seed=7)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((3, 8, 8), {"name": "lab", "l_source": "predicted", "ab_target": "hard", "rebalance": False}),
        ((1, 8, 8), {"name": "intensity", "target": "hard", "rebalance": False}),
        ((8,), {"name": "neighbours"}),
    ],
)
def test_printed_takes_the_equations_to_the_letter(shape, expected):
    assert resolve(Options(name="printed"), shape) == settings(**expected)


@pytest.mark.parametrize("shape", [(1, 28, 14), (1, 8, 4)])  # halves of MNIST's pictures and of the digits
def test_printed_surrogates_of_grey_pictures_have_hard_targets_and_predicted_edges(shape):
    found = resolve(Options(name="printed"), shape)
    maker = surrogates.get(found.name)(found)
    values = torch.rand(2, *shape)
    target = maker._target(values)
    assert target.masses.unique().tolist() == [1]
    assert target.indices.shape == values.shape
    assert (maker.structure_from_a2, found.rebalance) == (1, False)


def test_printed_surrogates_of_colours_predict_the_luminance():
    maker = surrogates.get("lab")(resolve(Options(name="printed"), (3, 8, 8)))
    assert maker.structure_from_a2 == 1
    assert maker.sigma == 0


def test_taken_rows_are_what_models_see(tmp_path):
    part = strips()
    made = collect(part, settings(), cache=tmp_path)
    taken = made.take(torch.tensor([3, 1]))
    assert taken.dtype == torch.float32
    assert torch.equal(taken, made.rows[[3, 1]].float() / 255)
    assert made.examples.shape == (8, 2, 3, 8, 4)
    assert made.examples.dtype == torch.uint8
    assert torch.equal(made.examples[0], torch.stack((part.features[0], made.rows[0])))
    assert made.seconds > 0


def test_tables_have_no_examples_and_their_own_quality_checks(tmp_path):
    made = collect(Part(20, torch.randn(20, 4, generator=generator())), settings("neighbours"), cache=tmp_path)
    assert made.examples is None
    assert 0 < made.quality["changed_share"] <= 1
    assert made.quality["mean_standardised_change"] > 0


def test_quality_checks_of_grey_images(tmp_path):
    quality = collect(strips(shape=(1, 8, 8)), settings("photometric"), cache=tmp_path).quality
    assert set(quality) == {"intensity_ssim", "mean_absolute_change", "structure_lost", "out_of_gamut"}


def test_nothing_changes_without_a_surrogate(tmp_path):
    part = strips()
    made = collect(part, settings("none"), cache=tmp_path)
    assert torch.equal(made.rows, part.features)
    assert made.quality["colour_kept"]
    assert made.quality["l_ssim"] == pytest.approx(1, abs=1e-5)


def test_the_second_run_finds_what_the_first_made(tmp_path):
    first = collect(strips(), settings(), cache=tmp_path)
    heard = []
    second = collect(strips(), settings(), heard.append, cache=tmp_path)
    assert (first.cached, second.cached) == (False, True)
    assert torch.equal(first.rows, second.rows)
    assert torch.equal(first.examples, second.examples)
    assert (first.quality, first.seconds) == (second.quality, second.seconds)
    assert heard == [1.0]
    x = first.take(torch.arange(4))
    assert torch.equal(first.maker.make(x, generator(1)), second.maker.make(x, generator(1)))
    assert len(files(tmp_path)) == 1


def test_two_runs_with_one_seed_agree_to_the_bit(tmp_path):
    little = {"epochs": 2, "width": 4, "batch_size": 8}
    made = [collect(strips(), settings("lab", **little), cache=tmp_path / name) for name in ("a", "b")]
    assert not made[1].cached
    assert torch.equal(made[0].rows, made[1].rows)


def test_other_rows_settings_seeds_and_groups_are_made_anew(tmp_path):
    part = strips()
    changed = part.features.clone()
    changed[7, 0, 0, 0] += 1
    collect(part, settings(), cache=tmp_path)
    for other, chosen in (
        (replace(part, features=changed), settings()),
        (part, settings(seed=1)),
        (part, settings(strength=0.5)),
        (part, settings("photometric")),
        (replace(part, groups=(0,)), settings()),
    ):
        assert not collect(other, chosen, cache=tmp_path).cached
    assert len(files(tmp_path)) == 6


@pytest.mark.parametrize("spoil", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: serialize_state({"rows": 1})])
def test_a_spoilt_file_is_made_anew(tmp_path, spoil):
    first = collect(strips(), settings(), cache=tmp_path)
    (path,) = files(tmp_path)
    path.write_bytes(spoil(path.read_bytes()))
    again = collect(strips(), settings(), cache=tmp_path)
    assert not again.cached
    assert torch.equal(first.rows, again.rows)
    assert collect(strips(), settings(), cache=tmp_path).cached


def test_nobody_else_may_read_it(tmp_path):
    collect(strips(), settings(), cache=tmp_path)
    (path,) = files(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    # A file where the folder should be: root, who may write anywhere, cannot either.
    (tmp_path / "cache").write_text("")
    assert not collect(strips(), settings(), cache=tmp_path / "cache").cached
    assert not collect(strips(), settings(), cache=tmp_path / "cache").cached


def test_where_the_cache_lies(tmp_path, monkeypatch):
    monkeypatch.setenv("VERACAUSA_CACHE", str(tmp_path / "named"))
    collect(strips(), settings())
    assert len(files(tmp_path / "named")) == 1
    monkeypatch.delenv("VERACAUSA_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    collect(strips(), settings())
    assert len(files(tmp_path / ".cache" / "veracausa")) == 1


@pytest.mark.parametrize("name", ["lab", "neighbours"])
def test_the_state_of_a_set_is_the_set(tmp_path, name):
    little = {"epochs": 1, "width": 4} if name == "lab" else {}
    part = strips() if name == "lab" else Part(20, torch.randn(20, 4, generator=generator()), groups=(0, 0, 1, 2))
    made = collect(part, settings(name, **little), cache=tmp_path)
    state = deserialize_state(serialize_state(made.state()))
    options = settings(name, **little) if name == "lab" else Options(name="auto")
    again = SurrogateSet.from_state(state, options, torch.device("cpu"))
    assert torch.equal(again.rows, made.rows)
    x = made.take(torch.arange(5))
    assert torch.equal(again.maker.make(x, generator(2)), made.maker.make(x, generator(2)))


def test_groups_of_the_part_reach_the_surrogate(tmp_path):
    rows = torch.eye(3)[torch.randint(3, (40,), generator=generator())]
    made = collect(Part(40, rows, groups=(0, 0, 0)), settings("neighbours"), cache=tmp_path)
    assert (made.rows.sum(1) == 1).all()


def test_progress_is_heard_to_the_end(tmp_path):
    heard = []
    collect(strips(), settings("lab", epochs=2, width=4), heard.append, cache=tmp_path)
    assert heard == sorted(heard)
    assert heard[-1] == 1


def test_a_party_without_features(tmp_path):
    with pytest.raises(InputError, match="holds none"):
        collect(Part(4), settings(), cache=tmp_path)
