"""A partner that brings every possible id is refused, or at least seen."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from datetime import date, timedelta

import pytest
from refusals import Field

from veracausa.alignment import guessing
from veracausa.alignment.embedded import align_embedded
from veracausa.alignment.guessing import CENTURY, IdSpace, id_space
from veracausa.alignment.program import AlignmentProgram
from veracausa.alignment.settings import AlignmentSettings, OwnOptions
from veracausa.errors import WireError
from veracausa.wire.threads import run_threads, thread_links

ALL_DATES = [str(date(1920, 1, 1) + timedelta(days)) for days in range(CENTURY)]
PATIENTS = random.Random(0).sample(ALL_DATES, 500)
DATES = IdSpace("dates", CENTURY)


def written(form: str) -> list[str]:
    return [date.fromisoformat(day).strftime(form) for day in PATIENTS]


@pytest.mark.parametrize(
    "form", ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d%m%Y", "%y%m%d", "%Y-%m-%d 00:00:00"]
)
def test_dates_are_seen_through_however_they_are_written(form: str) -> None:
    assert id_space(written(form)) == DATES


@pytest.mark.parametrize(
    ("ids", "size"),
    [
        ([f"{n:04d}" for n in range(0, 10_000, 7)], 10_000),
        ([f"P-{n}" for n in range(1000, 1570)], 1_000),  # the leading 1 is always there
        ([f"80000{n:03d}X" for n in range(0, 999, 3)], 1_000),
        ([str(n) for n in range(1, 500)], 1_100),  # of two and three digits; few have one
        ([f"{'ABC'[n % 3]}{n:02d}" for n in range(90)], 2_600),
        ([*(f"{n:03d}" for n in range(200)), "someone@example.org"], 1_000),  # one odd id does not hide the rest
    ],
)
def test_short_numbers_and_codes_are_a_small_space(ids: Sequence[str], size: int) -> None:
    space = id_space(ids)
    assert space is not None
    assert space.size == size


@pytest.mark.parametrize(
    "ids",
    [
        [str(uuid.UUID(int=random.Random(n).getrandbits(128))) for n in range(200)],
        [f"{random.Random(n).randrange(10**10):010d}" for n in range(200)],
        [f"{name} {other}" for name in ("Ada", "Bo", "Carla") for other in ("Lovelace", "Diddley", "Bruni-Tedeschi")],
        ["1", "2", "3"],  # too few to tell
    ],
)
def test_what_is_no_small_space_or_not_to_be_told(ids: Sequence[str]) -> None:
    assert id_space(ids) is None


@pytest.mark.parametrize("guesses", [CENTURY, 30_000])
def test_all_dates_of_a_century_are_refused_before_an_id_is_masked(guesses: int) -> None:
    ids = {"clinic": PATIENTS, "guesser": ALL_DATES[:guesses]}
    plan = AlignmentSettings(parties=tuple(ids))
    programs = {name: AlignmentProgram(own, plan, OwnOptions(workers=0)) for name, own in ids.items()}
    links, sent = thread_links(tuple(ids), 5), []
    send = links["clinic"].send

    def recorded(to, kind, step, tensors=None, **meta):
        sent.append(kind.name)
        send(to, kind, step, tensors, **meta)

    links["clinic"].send = recorded
    with pytest.raises(WireError, match=rf"'guesser' brings {guesses:,} ids, at most 10,000, .*raise max_ids"):
        run_threads({name: lambda link, p=p: p(link) for name, p in programs.items()}, links)
    assert sent == ["align hello"]


@pytest.mark.parametrize(("guesses", "read"), [(CENTURY, 500), (30_000, 397), (9_999, 140), (5_000, 60)])
def test_a_party_that_takes_them_is_warned_before_and_after(guesses: int, read: int) -> None:
    (before,) = guessing.before(500, {"guesser": guesses}, DATES)
    (after,) = guessing.after(500, {"guesser": guesses}, {"guesser": read}, DATES, 0.01)
    for warning in (before, after):
        assert warning == (
            f"guesser brings {guesses:,} ids, and only about 36,525 that look like this party's (dates) are possible: "
            "they may be guessed, and it learns which of them are here"
        )


def test_most_of_ones_ids_among_many_strangers_is_worth_a_warning_whatever_ids_look_like() -> None:
    names = [str(uuid.UUID(int=random.Random(n).getrandbits(128))) for n in range(600)]
    found = align_embedded(
        {"clinic": names[:30], "guesser": names},
        AlignmentSettings(parties=("clinic", "guesser")),
        OwnOptions(workers=0),
    )
    assert len(found["clinic"].warnings) == 1
    assert "30 of the 30 ids here are among its 600" in found["clinic"].warnings[0]
    assert found["guesser"].warnings == ()
    (before,) = guessing.before(30, {"guesser": 600}, None)
    assert "20 times the 30" in before


@pytest.mark.parametrize(
    ("own", "theirs", "common", "space"),
    [
        (500, 550, 480, None),
        (500, 550, 480, IdSpace("A-0000", 10_000)),
        (500, 4_000, 300, None),
        (150_000, 180_000, 120_000, IdSpace("000000", 1_000_000)),  # serial numbers, and a partner of the same size
    ],
)
def test_honest_partners_are_not_suspected(own: int, theirs: int, common: int, space: IdSpace | None) -> None:
    assert not [*guessing.before(own, {"lab": theirs}, space)]
    assert not [*guessing.after(own, {"lab": theirs}, {"lab": common}, space, 0.01)]


def test_the_limit_follows_what_is_announced() -> None:
    assert [OwnOptions().limit(own) for own in (3, 50, 500)] == [1_000, 1_000, 10_000]
    assert OwnOptions(pad_to=2_000).limit(500) == OwnOptions().limit(2_000)  # or it would tell what padding hides
    assert OwnOptions(max_ids=7).limit(500) == 7
    assert OwnOptions().too_many("lab", 10_000, 500) is None
    assert OwnOptions(max_ids=CENTURY).too_many("lab", CENTURY, 500) is None


def test_passive_parties_that_never_meet_do_not_limit_each_other() -> None:
    many = [f"m{n}" for n in range(1_100)]
    ids = {"a": many[:60], "b": many[:5], "c": many}
    found = align_embedded(ids, AlignmentSettings(parties=tuple("abc"), mode="active"), OwnOptions(workers=0))
    assert (found["b"].held, found["c"].held) == (5, 60)
    with pytest.raises(WireError, check=Field("align hello.count", "c")):
        align_embedded(ids, AlignmentSettings(parties=tuple("abc"), mode="all"), OwnOptions(workers=0))


def test_another_number_than_was_agreed_to_is_refused() -> None:
    plan = AlignmentSettings(parties=("a", "b"))
    programs = {
        "a": AlignmentProgram(["1", "2"], plan, OwnOptions(workers=0), expected={"b": 2}),
        "b": AlignmentProgram(["1", "2", "3"], plan, OwnOptions(workers=0)),
    }
    with pytest.raises(WireError, check=Field("align hello.count", "b", "3", "2")):
        run_threads({name: lambda link, p=p: p(link) for name, p in programs.items()}, thread_links("ab", 5))
