"""Every registered method of discovery keeps to the contract, and the check sees what does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest

from veracausa.discovery.base import CausalDiscovery
from veracausa.discovery.methods import methods
from veracausa.errors import InputError
from veracausa.testing import check_method


@pytest.mark.parametrize("name", methods.names())
def test_it_keeps_to_the_contract(name: str) -> None:
    try:
        check_method(name)
    except InputError as error:
        if "pip install" not in str(error):
            raise
        pytest.skip(str(error))


@dataclass(kw_only=True, eq=False, repr=False)
class Honest(CausalDiscovery):
    """The correlation of every two columns, from the earlier to the later."""

    fast_settings: ClassVar[dict[str, Any]] = {}

    def learn(self, data, time_is_up):
        return np.triu(np.abs(np.corrcoef(data.values.T)), 1)


@dataclass(kw_only=True, eq=False, repr=False)
class Random(Honest):
    """Other strengths every time."""

    def learn(self, data, time_is_up):
        return np.random.default_rng().uniform(size=(data.values.shape[1],) * 2)


@dataclass(kw_only=True, eq=False, repr=False)
class Forgetful(Honest):
    """Changes its own parameters."""

    def learn(self, data, time_is_up):
        self.threshold = 0.5
        return super().learn(data, time_is_up)


@dataclass(kw_only=True, eq=False, repr=False)
class Vandal(Honest):
    """Overrides all of `fit`, and writes into the table."""

    def fit(self, X, y=None):
        if isinstance(X, np.ndarray):
            X[0, 0] = 1e3
        return super().fit(X)


@dataclass(kw_only=True, eq=False, repr=False)
class Early(Honest):
    """Has a result before any fit."""

    graph_: list = field(default_factory=list)


def test_an_honest_method_passes() -> None:
    check_method(Honest)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Random, "the same seed gave other strengths"),
        (Forgetful, "changed the method's own parameters"),
        (Vandal, "changed the table"),
        (Early, "is there before a fit"),
        (object, "is no CausalDiscovery"),
    ],
)
def test_each_fault_is_named(kind: type, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_method(kind)
