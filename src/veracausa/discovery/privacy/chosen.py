"""What an estimator's parameters ask for of noise, output and secrets, as a federation takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from veracausa.discovery.privacy.options import LaplaceHeuristic, Privacy
from veracausa.errors import InputError

PARAMETERS = ("epsilon", "delta", "clip", "row_limit", "laplace", "laplace_rule")


def chosen(parameters: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """`privacy`, `laplace`, `output` and `seed` of a federated fit; combinations that would mislead are refused."""
    epsilon, laplace = parameters["epsilon"], parameters["laplace"]
    if engine != "federated":
        if epsilon is not None or laplace is not None:
            raise InputError("epsilon, laplace: they are about what a validator sees; name the parties")
        if parameters["strong"]:
            raise InputError("strong: it is about what parties open to each other; name the parties")
        return {}
    if parameters["strong"] and (odd := _not_strong(parameters)):
        raise InputError(f"strong: it has no {odd}; leave it out")
    if epsilon is not None and parameters["bootstrap"]:
        raise InputError("bootstrap: every resample would be one more release of all rows; set it to 0")
    try:
        privacy = epsilon and Privacy(
            epsilon=epsilon, delta=parameters["delta"], clip=parameters["clip"], values=parameters["row_limit"]
        )
        heuristic = laplace and LaplaceHeuristic(epsilon=laplace, rule=parameters["laplace_rule"])
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise InputError(f"vfedcd: {problem['loc'][0]}: {problem['msg']}") from None
    # A seed that everybody knows gives masks, first weights and noise away: where secrets matter there is none.
    secret = epsilon is not None or parameters["encryption"] != "none" or parameters["strong"]
    return {
        "privacy": privacy,
        "laplace": heuristic,
        "output": parameters["reveal"],
        "seed": None if secret else parameters["seed"],
    }


def _not_strong(parameters: Mapping[str, Any]) -> str:
    """What was asked for and the strong mode has not; empty: nothing."""
    plain = {
        "shares": "two",
        "encryption": "none",
        "validator": "M2",
        "local_steps": 1,
        "reveal": "all",
        "epsilon": None,
        "laplace": None,
    }
    return next((name for name, value in plain.items() if parameters[name] != value), "")
