"""A model of the user's own, named `package.module:factory` in a job."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from refusals import Names

from veracausa.errors import InputError
from veracausa.models import ModelOptions, UserModel, models
from veracausa.models.cut import build_bottom, build_top, payload_shape
from veracausa.models.layers import Dropout
from veracausa.seeding import generator

NETS = """
from torch import nn

NOT_A_FUNCTION = 3

def make(shape, outputs, hidden=5):
    layers = [nn.LazyLinear(hidden), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.LazyLinear(outputs)]
    return nn.Sequential(nn.Flatten(), *layers)

def fixed(shape, outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, outputs)))

class Declared(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.first = nn.Linear(shape[0], 3)
        self.second = nn.LazyLinear(outputs)
        self.units = [self.first, nn.Sigmoid(), self.second]

class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.never = nn.LazyLinear(3)

    def forward(self, x):
        return x

class Two(nn.Module):
    def forward(self, x):
        return x, x

def unused(shape, outputs):
    return nn.Sequential(Unused(), nn.LazyLinear(outputs))

def two(shape, outputs):
    return nn.Sequential(Two(), nn.LazyLinear(outputs))

def breaks(shape, outputs):
    channels, height, width = shape

def nothing(shape, outputs):
    return None
"""


@pytest.fixture(autouse=True)
def _nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "users_own"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "nets.py").write_text(NETS)
    (package / "broken.py").write_text("import no_such_package_anywhere\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "users_own"]:
        del sys.modules[name]


def own(factory: str, cut: int, module: str = "users_own.nets", **settings: object) -> ModelOptions:
    name = f"{module}:{factory}"
    options = models.options(name).model_validate({"name": name, "cut": cut, **settings})
    assert isinstance(options, UserModel)
    options.allow(name, "job.toml")
    return options


def test_both_halves_of_a_users_sequential():
    options = own("make", 2, args={"hidden": 7})
    bottom = build_bottom(options, (2, 3), 4, generator(0))
    payload = payload_shape(bottom, (2, 3))
    assert payload == (7,)
    top = build_top(options, [payload] * 3, "features", 4, generator(0))
    assert top(torch.zeros(2, 21)).shape == (2, 4)
    assert isinstance(top[1], Dropout)


def test_dropout_of_a_built_half_follows_the_partys_generator():
    options = own("make", 2)
    outputs = []
    for _ in range(2):
        rng = generator(0, "top")
        top = build_top(options, [(5,)], "features", 4, rng)
        assert top[1].rng is rng
        outputs.append(top(torch.ones(8, 5)))
        torch.rand(1)
    assert torch.equal(*outputs)


def test_a_users_module_with_units():
    options = own("Declared", 2)
    bottom = build_bottom(options, (4,), 2, generator(0))
    assert payload_shape(bottom, (4,)) == (3,)
    assert build_top(options, [(3,), (3,)], "features", 2, generator(0))[0].in_features == 6


def test_reading_a_job_does_not_run_the_code_it_names():
    assert models.options("users_own.broken:make") is UserModel
    assert "users_own.broken" not in sys.modules


def test_a_fixed_layer_that_does_not_fit_names_unit_and_sizes():
    options = own("fixed", 3)
    with pytest.raises(
        InputError,
        check=Names("4", "8", "16"),
    ):
        build_top(options, [(8,), (8,)], "features", 4, generator(0))
    assert len(build_top(options, [(8,)], "features", 4, generator(0))) == 1


def test_a_factory_that_reckons_with_the_samples_shape_is_given_it():
    with pytest.raises(InputError, match=r"calling it as \(\(3,\), 2\) failed: ValueError"):
        build_top(own("breaks", 1), [(3,)], "features", 2, generator(0))
    with pytest.raises(InputError, match="gave a NoneType"):
        build_top(own("breaks", 1), [(3,)], "features", 2, generator(0), shape=(1, 2, 3))


@pytest.mark.parametrize(("name", "problem"), [
    ("users_own.nets:absent", "has no function 'absent'"),
    ("users_own.nets:NOT_A_FUNCTION", "has no function"),
    ("users_own.absent:make", "cannot import users_own.absent.*PYTHONPATH"),
    ("users_own.broken:make", "no_such_package_anywhere"),
    ("users_own.nets:", "package.module:factory"),
    (":make", "package.module:factory"),
    ("../nets:make", "package.module:factory"),
])  # fmt: skip
def test_a_name_that_leads_nowhere_is_refused(name: str, problem: str):
    with pytest.raises(InputError, match=problem):
        models.get(name, name)


@pytest.mark.parametrize(("factory", "problem"), [
    ("nothing", "gave a NoneType, not an nn.Module"),
    ("unused", r"unit 1 \(Unused\) has a lazy layer"),
    ("two", r"unit 1 \(Two\) gives a tuple"),
])  # fmt: skip
def test_a_factory_whose_model_cannot_be_used(factory: str, problem: str):
    with pytest.raises(InputError, match=problem):
        build_bottom(own(factory, 1), (4,), 2, generator(0))


def test_an_argument_the_factory_does_not_take():
    with pytest.raises(InputError, match=r"hiden=3.*TypeError"):
        build_bottom(own("make", 2, args={"hiden": 3}), (4,), 2, generator(0))


def test_a_name_without_a_colon_is_looked_up_in_the_zoo():
    with pytest.raises(InputError, match="did you mean 'resnet18'"):
        models.get("resnet8")
