"""`veracausa bench discovery`: what is counted is what the formulas say, and the rows are there."""

from __future__ import annotations

import pytest

from benchmarks.discovery import Case, ahead_cost, growth_row, look_cost, method_rows, step_cost


@pytest.mark.parametrize("case", [Case(6, 2, 16), Case(7, 3, 32)], ids=str)
def test_messages_and_bytes_of_a_step_are_those_of_the_formulas(case: Case):
    row = growth_row(case, repeats=1)
    assert row.extra["messages"] == pytest.approx(row.extra["formula"])
    # Beside the numbers a message has a head of some hundred bytes.
    head = row.extra["kB"] - row.extra["formula kB"]
    assert 0 < head < 0.6 * row.extra["messages"]
    ahead = row.extra["kB ahead"] - row.extra["formula kB ahead"]
    assert 0 < ahead < 0.6 * case.parties * (case.parties - 1) / 10, "one message an epoch of ten steps and pair"
    assert row.seconds > 0
    assert row.against_seconds > 0


def test_the_formulas_by_hand():
    cost = step_cost((2, 3), batch=4, width=10)
    assert cost.messages == 4
    # Each way: 4 rows of 10 units for each of the target's attributes, twice; and a block of 2 × 3 × 10.
    assert cost.words == 2 * 4 * 10 * 5 + 2 * 60
    look = look_cost((2, 3), width=10)
    assert look.messages == 4 + 4
    assert look.words == 2 * 2 * 60 + (2 * 12 + 13) + 2 * 25
    ahead = ahead_cost((2, 3), width=10, looks=0.5)
    assert ahead.words == 0.5 * 2 * 60


def test_methods_are_timed_on_the_same_data():
    rows = method_rows(["sortnregress"], attributes=6, time_limit=5, epochs=1, rows=60)
    assert [row.case for row in rows][1:] == ["VFedCD as three parties in threads", "sortnregress"]
    assert len({(row.against, row.against_seconds) for row in rows}) == 1
    assert all(set(row.extra) == {"processor s", "F1", "SHD"} for row in rows)
    assert set(rows[0].as_dict()) >= {"case", "seconds", "against", "against_seconds", "ratio"}
