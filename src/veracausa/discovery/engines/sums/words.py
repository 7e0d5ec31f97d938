"""What a discovery from sums tells whom, in words: for notes, pages and terminals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from veracausa.discovery.engines.sums.plan import SumsPlan

SUMS = "sums over all rows of products of two functions of columns"


def protection_in_words(plan: SumsPlan) -> tuple[str, ...]:
    """Who saw what, and what that rests on."""
    settings = plan.settings
    who = "every party" if settings.receiver == "all" else "the validator"
    said = [f"{who} opened {SUMS}, and nothing of a single row"]
    if settings.encryption == "none":
        said = [
            "encryption = 'none': a simulation. Functions of every row crossed as plain numbers, and nothing was "
            "protected"
        ]
    elif settings.receiver == "all":
        said.append("so every party knows all columns' correlations and spreads, and finds the same graph from them")
    else:
        said.append("a party that shows the validator its own columns lets it read rows that these single out")
    if settings.epsilon is None:
        said.append("the sums are exact: another release of nearly the same rows would tell those that differ")
    if plan.releases > 1:
        said.append(f"{plan.releases} releases, one of all rows and {plan.releases - 1} of resamples of them")
    elif settings.bootstrap:
        said.append(f"confidence by {settings.bootstrap} draws of the sums: no further release was needed")
    return tuple(said)


def noise_in_words(plan: SumsPlan, account: Mapping[str, float] | None) -> dict[str, Any] | None:
    """What was spent, and what it guarantees; None: the sums are exact."""
    if account is None:
        return None
    against = "every party, but for the columns it holds itself" if plan.settings.receiver == "all" else "the validator"
    return {
        "mechanism": "discrete Gaussian noise on every sum, from every party",
        "guarantee": "differential privacy of a row in all parties' columns",
        "against": against,
        "releases": plan.releases,
        **account,
    }
