"""Whatever is registered can be listed, has settings that validate, and can be built."""

from __future__ import annotations

import pytest
import torch

from veracausa.attacks import attacks, label_attacks
from veracausa.data.options import DataOptions
from veracausa.data.sources import datasets
from veracausa.defenses import defenses
from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.models import ModelOptions, models
from veracausa.models.cut import build_bottom, build_top, build_whole, join, payload_shape, units_of
from veracausa.registry import Options
from veracausa.seeding import drawing_from, generator

REGISTRIES = (datasets, models, defenses, surrogates, attacks, label_attacks)
REGISTERED = [(registry, name) for registry in REGISTRIES for name in registry.names()]
# Settings that have no default, because only the user can know them.
NEEDED = {"csv": {"label": "y"}, "parquet": {"label": "y"}, "images": {"path": "pictures"}}


def test_what_is_listed_here_is_there():
    assert {"digits", "mnist", "cifar10", "csv"} <= set(datasets.names())
    assert {"convnet", "resnet18", "resnet34", "mlp"} <= set(models.names())
    assert "none" in defenses.names()


@pytest.mark.parametrize(("registry", "name"), REGISTERED, ids=[f"{r.kind}: {n}" for r, n in REGISTERED])
def test_a_registered_thing_says_what_it_is_and_has_settings(registry, name):
    first = (registry.get(name).__doc__ or "").strip().splitlines()[:1]
    assert first, f"{name} has no docstring"
    assert first[0].strip()
    assert len(first[0]) <= 120
    options = registry.options(name)
    assert issubclass(options, {"model": ModelOptions, "data set": DataOptions}.get(registry.kind, Options))
    needed = {field for field, info in options.model_fields.items() if info.is_required()} - {"name"}
    assert needed <= set(NEEDED.get(name, {}))
    made = options.model_validate({"name": name, **NEEDED.get(name, {})})
    # Defaults that were never validated would fail only when somebody writes them out.
    assert options.model_validate(made.model_dump()) == made
    assert options.model_validate(made.model_dump(mode="json")) == made


CUTS = []
for _name in models.names():
    _shape = (5,) if _name == "mlp" else (3, 16, 8)
    _options = models.options(_name).model_validate(
        {"name": _name, **({"width": 4} if "width" in models.options(_name).model_fields else {})}
    )
    with drawing_from(generator(0)):
        _count = len(units_of(models.get(_name)(_options, _shape, 3)))
    CUTS += [(_options, _shape, cut) for cut in range(1, _count)]


@pytest.mark.parametrize(("options", "shape", "cut"), CUTS, ids=[f"{o.name} {cut}" for o, _, cut in CUTS])
def test_every_model_can_be_cut_at_every_unit(options, shape, cut):
    """Two strips, payloads joined along the width, and for one party the join is the whole model."""
    options = options.model_copy(update={"cut": cut})
    rng = generator(1, "model")
    before = torch.get_rng_state()
    bottoms = [build_bottom(options, shape, 3, rng).eval() for _ in range(2)]
    shapes = [payload_shape(bottom, shape) for bottom in bottoms]
    top = build_top(options, shapes, "width" if len(shape) == 3 else "features", 3, rng).eval()
    x = torch.randn(2, *shape, generator=generator(2))
    payloads = [bottom(x) for bottom in bottoms]
    assert [tuple(payload.shape[1:]) for payload in payloads] == shapes
    joined = join(payloads, "width" if len(shape) == 3 else "features")
    if len(shapes[0]) == 3:
        assert joined.shape[3] == 2 * shapes[0][2]
        wide = build_bottom(options, (*shape[:2], 2 * shape[2]), 3, rng).eval()
        assert payload_shape(wide, (*shape[:2], 2 * shape[2])) == tuple(joined.shape[1:])
    assert tuple(top(joined).shape) == (2, 3)
    whole = build_whole(options, shape, 3, rng).eval()
    assert tuple(whole(x).shape) == (2, 3)
    assert torch.equal(torch.get_rng_state(), before)
