"""What a discovery from sums tells whom, in words: for notes, pages and terminals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from veracausa.discovery.engines.sums.plan import SumsPlan

COLLUDING = 25
"""Rows for each function with which one party in league with the validator was seen to gain about .02 of R²."""
SUMS = "sums over all rows of products of two functions of columns"


FEATURES = (
    "networks opened features of every row at each party: mixtures of the others' columns, which can be solved for "
    "those columns, and no encryption hides them; without networks only sums are opened"
)
"""Where networks were trained between the parties, too."""
SIMULATED = (
    "encryption = 'none': a simulation. Functions of every row crossed as plain numbers, and nothing was protected"
)


def protection_in_words(plan: SumsPlan, rows_opened: bool = False) -> tuple[str, ...]:
    """Who saw what, and what that rests on. `rows_opened`: by networks beside the sums."""
    settings = plan.settings
    who = "every party" if settings.receiver == "all" else "the validator"
    if rows_opened:
        return (SIMULATED if settings.encryption == "none" else f"{who} opened {SUMS}", FEATURES)
    said = [f"{who} opened {SUMS}, and nothing of a single row"]
    if settings.encryption == "none":
        said = [SIMULATED]
    elif settings.receiver == "all":
        said.append("so every party knows all columns' correlations and spreads, and finds the same graph from them")
    else:
        said.append("a party that shows the validator its own columns lets it read rows that these single out")
    said.append(few_rows_in_words(plan))
    if settings.epsilon is None:
        said.append("the sums are exact: another release of nearly the same rows would tell those that differ")
    if plan.releases > 1:
        said.append(f"{plan.releases} releases, one of all rows and {plan.releases - 1} of resamples of them")
    elif settings.bootstrap:
        said.append(f"confidence by {settings.bootstrap} draws of the sums: no further release was needed")
    return tuple(said)


def few_rows_in_words(plan: SumsPlan) -> str:
    """What the rows that stand behind each function protect from, what not, and the setting that asks for more.

    Figures are those of `results/discovery`: what the sums add to a guess from a party's own columns, in R².
    """
    settings, rows = plan.settings, plan.rows_a_feature
    enough = f"{rows} rows or more for each function of two parties"
    if settings.allow_small_n:
        said = "allow_small_n = true: there may be so few rows that the sums alone tell rows"
    elif settings.receiver == "all":
        said = (
            "a party that opens the sums guesses others' values better than from its own columns by up to .02 of R², "
            f"several parties in league by .01 to .04. There are {enough}"
        )
    else:
        said = (
            f"{enough} protect rows from a validator that keeps the sums to itself, and not from one in league with a "
            "party. With the sums it guesses others' values better than from its own columns, "
            f"by {'.02 to .08' if rows < COLLUDING else 'about .02'} of R² when measured, several parties by more"
        )
    if settings.epsilon is not None:
        return f"{said}. That was measured without noise; epsilon bounds what anybody learns of a row"
    return f"{said}. A larger rows_a_function lowers that, and epsilon bounds it"


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
