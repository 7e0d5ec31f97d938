"""What a member is told of a discovery from sums before it says yes, and what it declares to send."""

from __future__ import annotations

from typing import Any

import pytest

from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.job import DiscoveryJob
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.federation.consent import UNENCRYPTED
from veracausa.federation.discovery_terms import described_moments
from veracausa.federation.moments_messages import SumsAhead, declared_moments

OWN = tuple(f"c{at}" for at in range(5))
NAMED = {"lab": OWN, "bank": tuple(f"b{at}" for at in range(6)), "shop": tuple(f"s{at}" for at in range(4))}
OPEN = {"lab": (), "bank": (), "shop": ()}


def ahead(me: str = "lab", parties: Any = NAMED, rows: int = 24887, **settings: Any) -> SumsAhead:
    job = DiscoveryJob(name="causes", method="moments", data={"on": "id"}, parties=parties)
    own, rows = ((), 0) if me == VALIDATOR else (parties[me] or OWN, rows)
    return SumsAhead(job, SumsSettings(**settings), me, own, rows)


def said(*given: Any, **settings: Any) -> dict[str, str]:
    known = ahead(*given, **settings)
    return dict(described_moments(known.job, known, aligned=True))


def test_one_line_says_what_crosses() -> None:
    crosses = said()["crosses"]
    assert crosses == (
        "sums over up to 24,887 rows of products of your 5 columns' functions (up to 12 each, squares and cubes) with "
        "those of 10 columns of others, opened to the validator; no noise (exact sums, no differential privacy); no "
        "row leaves; result: the whole graph"
    )
    noisy = said(epsilon=4, reveal="own", receiver="all")["crosses"]
    assert "opened to all members; noise, epsilon = 4 (delta = 1e-05) for a row; no row leaves" in noisy
    assert noisy.endswith("result: the edges that touch a party's own columns")


def test_columns_that_a_job_does_not_name_are_not_counted() -> None:
    assert "with those of others' columns, opened" in said("lab", OPEN)["crosses"]
    assert "functions of all columns, opened to you" in said(VALIDATOR, OPEN)["crosses"]
    assert "functions of 15 columns, opened to you" in said(VALIDATOR)["crosses"]
    assert "columns" not in said(VALIDATOR)


def test_own_columns_are_named() -> None:
    assert said()["columns"] == "c0, c1, c2, c3, c4; their names and kinds are told to all"


def test_releases_and_budget() -> None:
    assert said()["releases"] == "one; later ones of the same rows are refused"
    assert "together spend epsilon = 6 at most" in said(epsilon=2, budget=6)["releases"]
    assert said(bootstrap=20)["releases"].startswith("one;")
    assert said(bootstrap=20, resampling="rows")["releases"].startswith("21: ")


@pytest.mark.parametrize("me", ["lab", VALIDATOR])
def test_what_few_rows_protect_from_and_what_not(me: str) -> None:
    words = said(me)["few rows"]
    assert words.startswith("10 rows or more for each function of two parties protect rows from a validator")
    assert "and not from one in league with a party" in words
    assert "by .02 to .08 of R²" in words
    assert "rows_a_function" in words


def test_more_rows_a_function_change_what_is_said() -> None:
    assert "25 rows or more" in said(rows_a_function=25)["few rows"]
    assert "by about .02 of R²" in said(rows_a_function=25)["few rows"]
    assert "25 rows or more" in said(receiver="all")["few rows"]
    assert "allow_small_n" in said(allow_small_n=True)["few rows"]
    assert "epsilon bounds" in said(epsilon=4)["few rows"]


def test_an_unencrypted_run_is_said_in_capitals() -> None:
    assert said(encryption="none")["encryption"].startswith(UNENCRYPTED)
    assert said()["encryption"].endswith("the validator opens the sums")
    assert said(receiver="all")["encryption"].endswith("all members open the sums")


def declared(*given: Any, **settings: Any) -> dict[str, Any]:
    return {one.kind: one for one in declared_moments(ahead(*given, **settings))}


@pytest.mark.parametrize("parties", [NAMED, OPEN])
def test_a_party_declares_sizes_of_everything(parties: Any) -> None:
    kinds = declared("lab", parties)
    assert all(one.bytes for one in kinds.values())
    assert kinds["moment_share"].to == (VALIDATOR,)
    assert kinds["sums_layout"].to == (VALIDATOR,)
    assert kinds["moment_query"].to == ("bank", "shop")
    assert "encrypted under its own key" in kinds["moment_query"].shape
    assert "sums_opened" not in kinds


def test_where_all_open_the_first_party_sends_the_sums_on() -> None:
    first, second = declared("lab", receiver="all"), declared("bank", receiver="all")
    assert first["sums_opened"].to == ("bank", "shop")
    assert "moment_share" not in first
    assert second["moment_share"].to == ("lab",)
    assert second["sums_layout"].to == ("lab", "shop")
    assert not any(VALIDATOR in one.to for one in (*first.values(), *second.values()))


def test_noise_and_missing_encryption_are_said_with_the_message() -> None:
    assert "with noise, epsilon = 4" in declared(epsilon=4)["moment_share"].shape
    assert "NOT ENCRYPTED" in declared(encryption="none")["moment_query"].shape


def test_the_validator_sends_no_column_and_no_share() -> None:
    kinds = declared(VALIDATOR)
    assert {"sums_found", "sums_beat"} < set(kinds)
    assert not {"moment_query", "moment_answer", "moment_share", "sums_layout"} & set(kinds)
    assert declared(VALIDATOR, OPEN)["sums_found"].bytes is None
    assert kinds["sums_found"].bytes > 3 * 8 * 15 * 15
