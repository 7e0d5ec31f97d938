"""What an estimator's parameters come to: noise, output, and whether a seed may be handed on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from veracausa.data.causal.columns import PreparedTable
from veracausa.discovery.engines.shares.plan import make_plan
from veracausa.discovery.methods.vfedcd.as_published.laplace import LaplaceHeuristic
from veracausa.discovery.methods.vfedcd.as_published.laplace import statement as heuristic
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.privacy.check import check_choice, needs_secrets, noise_of
from veracausa.discovery.privacy.mechanism import said
from veracausa.discovery.privacy.options import Privacy
from veracausa.errors import InputError

PLAIN: dict[str, Any] = {"held_out": 0.0, "threshold": 0.1, "searches": []}


def settings(**more: Any) -> Settings:
    return Settings(**PLAIN, **more)


def test_parameters_become_options() -> None:
    made = noise_of(settings(epsilon=4.0, clip=3.0))
    assert made == {"privacy": Privacy(epsilon=4.0, clip=3.0), "laplace": None}
    heuristic = LaplaceHeuristic(epsilon=64.0, rule="published")
    assert noise_of(settings(laplace=64.0, laplace_rule="published"))["laplace"] == heuristic
    columns = {"a": np.zeros((40, 1)), "b": np.zeros((40, 1))}
    plan = make_plan(columns, ["x", "y"], settings(epsilon=4.0, reveal="own"), None, 1)
    assert (plan.privacy, plan.output) == (Privacy(epsilon=4.0), "own")


@pytest.mark.parametrize(("more", "secret"), [
    ({}, False),
    ({"laplace": 64.0}, False),
    ({"encryption": "bfv"}, True),
    ({"encryption": "paillier"}, True),
    ({"epsilon": 4.0}, True),
    ({"strong": True}, True),
])  # fmt: skip
def test_where_secrets_matter_no_seed_is_handed_on(more: dict[str, Any], secret: bool) -> None:
    """The seed is public, in the run's own folder: masks and first weights that followed from it would hide nothing."""
    assert needs_secrets(settings(**more)) == secret
    table = PreparedTable(np.zeros((4, 2)), np.zeros((0, 2)), ("x", "y"), *np.zeros((3, 2), dtype=bool))
    method = VFedCD(**PLAIN, **more, seed=5)
    method.engine_, method.parties_ = "federated", {"a": ("x",), "b": ("y",)}
    assert method._engine(method.settings(), table, print, None).seed == (None if secret else 5)


@pytest.mark.parametrize(("more", "engine", "message"), [
    ({"epsilon": 4.0}, "federated", "one more release"),
    ({"epsilon": 4.0}, "floating", "name the parties"),
    ({"laplace": 4.0}, "floating", "name the parties"),
    ({"epsilon": -1.0}, "federated", "epsilon"),
    ({"strong": True}, "floating", "name the parties"),
    ({"strong": True, "encryption": "bfv"}, "federated", "no encryption, because its shares hide columns"),
    ({"strong": True, "epsilon": 4.0}, "federated", "no epsilon"),
    ({"strong": True, "reveal": "own"}, "federated", "no reveal"),
    ({"epsilon": 1.0, "delta": 2.0}, "federated", "delta"),
])  # fmt: skip
def test_what_would_mislead_is_refused(more: dict[str, Any], engine: str, message: str) -> None:
    bootstrap = 3 if message == "one more release" else 0
    with pytest.raises(InputError, match=message):
        check_choice(settings(**more), engine, bootstrap)


def test_a_heuristic_is_called_one() -> None:
    assert said(heuristic(LaplaceHeuristic(), 3)) == "laplace, published: heuristic, gives no guarantee"
