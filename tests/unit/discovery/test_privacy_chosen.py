"""What an estimator's parameters come to: noise, output, and whether a seed may be handed on."""

from __future__ import annotations

from typing import Any

import pytest

from veracausa.discovery.methods.vfedcd.as_published.laplace import LaplaceHeuristic
from veracausa.discovery.methods.vfedcd.as_published.laplace import statement as heuristic
from veracausa.discovery.privacy.check import chosen
from veracausa.discovery.privacy.mechanism import said
from veracausa.discovery.privacy.options import Privacy
from veracausa.errors import InputError

NONE: dict[str, Any] = {
    "epsilon": None, "delta": 1e-5, "clip": 20.0, "row_limit": 1.5, "laplace": None, "laplace_rule": "published",
    "bootstrap": 0, "encryption": "none", "reveal": "all", "seed": 5,
    "strong": False, "validator": "M2", "local_steps": 1, "shares": "two",
}  # fmt: skip


def test_parameters_become_options() -> None:
    made = chosen({**NONE, "epsilon": 4.0, "clip": 3.0, "reveal": "own"}, "federated")
    assert made["privacy"] == Privacy(epsilon=4.0, clip=3.0)
    assert made["output"] == "own"
    assert chosen({**NONE, "laplace": 64.0}, "federated")["laplace"] == LaplaceHeuristic(epsilon=64.0)
    assert chosen(NONE, "floating") == {}


@pytest.mark.parametrize(("more", "seed"), [
    ({}, 5),
    ({"laplace": 64.0}, 5),
    ({"encryption": "bfv"}, None),
    ({"encryption": "paillier"}, None),
    ({"epsilon": 4.0}, None),
    ({"strong": True}, None),
])  # fmt: skip
def test_where_secrets_matter_no_seed_is_handed_on(more: dict[str, Any], seed: int | None) -> None:
    """The seed is public, in the run's own folder: masks and first weights that followed from it would hide nothing."""
    assert chosen({**NONE, **more}, "federated")["seed"] == seed


@pytest.mark.parametrize(("more", "engine", "message"), [
    ({"epsilon": 4.0, "bootstrap": 3}, "federated", "one more release"),
    ({"epsilon": 4.0}, "floating", "name the parties"),
    ({"laplace": 4.0}, "floating", "name the parties"),
    ({"epsilon": -1.0}, "federated", "epsilon"),
    ({"strong": True}, "floating", "name the parties"),
    ({"strong": True, "encryption": "bfv"}, "federated", "no encryption"),
    ({"strong": True, "epsilon": 4.0}, "federated", "no epsilon"),
    ({"strong": True, "reveal": "own"}, "federated", "no reveal"),
    ({"epsilon": 1.0, "delta": 2.0}, "federated", "delta"),
])  # fmt: skip
def test_what_would_mislead_is_refused(more: dict[str, Any], engine: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        chosen({**NONE, **more}, engine)


def test_a_heuristic_is_called_one() -> None:
    assert said(heuristic(LaplaceHeuristic(), 3)) == "laplace, published: heuristic, gives no guarantee"
