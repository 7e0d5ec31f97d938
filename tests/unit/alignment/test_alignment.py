"""Every party ends with its rows of the common people, in one order that all agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import Field

from veracausa.alignment import exchange
from veracausa.alignment.embedded import align_embedded
from veracausa.alignment.program import Aligned, AlignmentProgram
from veracausa.alignment.settings import AlignmentSettings, OwnOptions
from veracausa.errors import InputError, WireError
from veracausa.wire.launch import Launch
from veracausa.wire.threads import run_threads, thread_links

HERE = OwnOptions(workers=0)
IDS = st.lists(st.integers(0, 15).map(str), min_size=1, max_size=10, unique=True)


def align(
    ids: Mapping[str, Sequence[str]], mode: Literal["all", "active"] = "all", own: OwnOptions = HERE, **more: Any
) -> dict[str, Aligned]:
    return align_embedded(ids, AlignmentSettings(parties=tuple(ids), mode=mode, **more), own)


def people(ids: Sequence[str], found: Aligned) -> list[str | None]:
    return [ids[row] if row >= 0 else None for row in found.rows.tolist()]


@settings(max_examples=25)
@given(st.lists(IDS, min_size=2, max_size=4))
def test_all_have_what_plain_sets_have_in_common_in_one_order(sets: list[list[str]]) -> None:
    ids = dict(zip("abcd", sets, strict=False))
    found = align(ids)
    orders = [people(ids[name], found[name]) for name in ids]
    assert all(order == orders[0] for order in orders)
    assert len(set(orders[0])) == len(orders[0])
    assert set(orders[0]) == set.intersection(*map(set, sets))
    for name, one in found.items():
        assert one.announced == {name: len(own) for name, own in ids.items()}
        assert set(one.common.values()) == {len(orders[0])}
        assert set(one.common) == set(ids) - {name}


@settings(max_examples=25)
@given(st.lists(IDS, min_size=2, max_size=4))
def test_mode_active_has_all_rows_of_the_active_party_with_whoever_has_them(sets: list[list[str]]) -> None:
    ids = dict(zip("abcd", sets, strict=False))
    found = align(ids, "active")
    order = people(ids["a"], found["a"])
    assert sorted(map(str, order)) == sorted(ids["a"])
    for name in list(ids)[1:]:
        assert people(ids[name], found[name]) == [key if key in ids[name] else None for key in order]
        assert found[name].common == {"a": found["a"].common[name]} == {"a": found[name].held}


def test_the_agreed_order_is_new_every_time_and_no_partys_own() -> None:
    ids = {"a": [str(i) for i in range(40)], "b": [str(i) for i in range(40)]}
    one, other = align(ids)["a"].rows.tolist(), align(ids)["a"].rows.tolist()
    assert one != other
    assert one != sorted(one)


@pytest.mark.parametrize("mode", ["all", "active"])
def test_sets_of_several_messages_and_of_very_different_sizes(
    mode: Literal["all", "active"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "CHUNK", 3)
    many = [f"m{i}" for i in range(20)]
    ids = {"a": [*many[4:9], "x"], "b": many[::-1], "c": [*many[5:7]]}
    found = align(ids, mode)
    orders = [[key for key in people(ids[name], found[name]) if key] for name in ids]
    assert sorted(orders[2]) == ["m5", "m6"]
    assert len(orders[1]) == (2 if mode == "all" else 5)
    if mode == "all":
        assert orders[0] == orders[1] == orders[2]


@pytest.mark.parametrize("mode", ["all", "active"])
def test_random_points_hide_how_many_ids_there_are(mode: Literal["all", "active"]) -> None:
    ids = {"a": ["1", "2", "3"], "b": ["3", "4"], "c": ["3", "2"]}
    found = align(ids, mode, OwnOptions(workers=0, pad_to=7))
    assert found["b"].announced == {"a": 7 if mode == "all" else 3, "b": 7, "c": 7}
    assert [key for key in people(ids["b"], found["b"]) if key] == ["3"]
    assert found["b"].own == 2


def test_the_active_party_cannot_hide_how_long_the_agreed_order_is() -> None:
    program = AlignmentProgram(
        ["1"], AlignmentSettings(parties=("a", "b"), mode="active"), OwnOptions(pad_to=9), "a.csv"
    )
    with pytest.raises(InputError, match="cannot be hidden"):
        program(thread_links("ab")["a"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["all", "active"])
def test_the_same_in_processes_with_processes_that_mask(mode: Literal["all", "active"]) -> None:
    ids = {"a": [str(i) for i in range(300)], "b": [str(i) for i in range(100, 400)], "c": ["7", "150", "200"]}
    plan = AlignmentSettings(parties=tuple(ids), mode=mode)
    found = align_embedded(ids, plan, OwnOptions(workers=1), Launch("processes"))
    assert {key for key in people(ids["c"], found["c"]) if key} == {"150", "200"} | (
        {"7"} if mode == "active" else set()
    )


def run(programs: Mapping[str, Any]) -> None:
    run_threads({name: lambda link, p=p: p(link) for name, p in programs.items()}, thread_links(list(programs), 5))


@pytest.mark.parametrize(
    ("other", "field"),
    [({"mode": "active"}, "mode"), ({"case_fold": True}, "case_fold"), ({"parties": ("b", "a")}, "parties")],
)
def test_who_means_another_alignment_is_refused_before_an_id_leaves(other: dict[str, Any], field: str) -> None:
    said = {"parties": ("a", "b")}
    programs = {
        "a": AlignmentProgram(["1"], AlignmentSettings(**said), HERE),
        "b": AlignmentProgram(["1"], AlignmentSettings(**said | other), HERE),
    }
    with pytest.raises(WireError, match=rf"settings\.{field}: is .* at '[ab]', here it is"):
        run(programs)


def test_who_brings_more_than_is_taken_is_refused_by_name() -> None:
    plan = AlignmentSettings(parties=("a", "b"))
    programs = {
        "a": AlignmentProgram(["1"], plan, OwnOptions(max_ids=2, workers=0)),
        "b": AlignmentProgram(["1", "2", "3"], plan, HERE),
    }
    with pytest.raises(WireError, check=Field("align hello.count")):
        run(programs)


def test_few_of_a_peers_ids_in_common_is_worth_a_warning() -> None:
    ids = {"a": ["1", "2"], "b": [str(i) for i in range(2, 202)]}
    found = align(ids)
    assert len(found["a"].warnings) == 1
    assert found["a"].warnings[0].startswith("b: 1 of its 200 ids")
    assert found["b"].warnings == ()


def test_a_party_that_is_not_among_those_named_is_told_so() -> None:
    program = AlignmentProgram(["1"], AlignmentSettings(parties=("a", "z")), HERE)
    with pytest.raises(InputError, match="the parties are a, z"):
        program(thread_links("ab")["a"])


def test_progress_is_told_and_ends_at_the_whole() -> None:
    events: list[Mapping[str, Any]] = []
    ids = {"a": ["1", "2", "3"], "b": ["3", "4"]}
    align_embedded(ids, AlignmentSettings(parties=("a", "b")), HERE, notify=events.append)
    for name in ids:
        shares = [event["share"] for event in events if event["event"] == "aligning" and event["party"] == name]
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
