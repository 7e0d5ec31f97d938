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
        return {}
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
    secret = epsilon is not None or parameters["encryption"] != "none"
    return {
        "privacy": privacy,
        "laplace": heuristic,
        "output": parameters["reveal"],
        "seed": None if secret else parameters["seed"],
    }
