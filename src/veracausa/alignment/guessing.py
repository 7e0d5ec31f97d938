"""Does a partner bring ids that it has, or ids that it guessed? What its numbers say; nothing here can prove either.

Whoever brings an id learns whether it is common. So a partner that brings every id of a small space, such as all dates
of a century, reads everybody's ids. An exact intersection can not prevent that. A limit makes it dear, and these
warnings make it seen.
"""

from __future__ import annotations

import re
import string
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import prod

SMALL = 1_000_000
"""Possible ids that are brought in minutes."""
CENTURY = 36_525
"""Days: what a list of all dates of birth holds."""
MANY_TIMES = 10
"""A partner with so many times one's own ids is worth a look."""
_ENOUGH = 10
"""Ids from which on their form says something."""
_SAMPLE = 10_000
_MOST = 0.95
_FORMS = 100
"""More forms than these are not one small space."""
_SIZES = {"0": 10, "a": 26, "A": 26}
_FORM = str.maketrans(
    dict.fromkeys(string.digits, "0")
    | dict.fromkeys(string.ascii_lowercase, "a")
    | dict.fromkeys(string.ascii_uppercase, "A")
)
_MIDNIGHT = r"(?:[ T]00:00(?::00(?:\.0+)?)?)?"
_YEAR_FIRST = (
    re.compile(rf"(\d{{4}})[-/.](\d{{1,2}})[-/.](\d{{1,2}}){_MIDNIGHT}", re.ASCII),
    re.compile(r"(\d{4})(\d\d)(\d\d)", re.ASCII),
    re.compile(r"(\d\d)(\d\d)(\d\d)", re.ASCII),
)
_YEAR_LAST = (
    re.compile(rf"(\d{{1,2}})[-/.](\d{{1,2}})[-/.](\d{{4}}|\d\d){_MIDNIGHT}", re.ASCII),
    re.compile(r"(\d\d)(\d\d)(\d{4})", re.ASCII),
)


@dataclass(frozen=True)
class IdSpace:
    """How many ids of the same form there can be, as far as a look at some of them tells."""

    form: str
    """`dates`, or an id with 0 for a digit and a, A for letters."""
    size: int


def id_space(keys: Sequence[str]) -> IdSpace | None:
    """What somebody would have to try who knows the form of these ids; None: too much, or not to be told.

    What all ids of a form have in the same place counts as known. Names and the like are not seen through: there are
    lists of them, which have no form.
    """
    some = keys[:: max(1, len(keys) // _SAMPLE)]
    if len(some) < _ENOUGH:
        return None
    if sum(map(_is_date, some)) >= _MOST * len(some):
        return IdSpace("dates", CENTURY)
    of_form: dict[str, list[str]] = defaultdict(list)
    for key in some:
        of_form[key.translate(_FORM)].append(key)
    if len(of_form) > _FORMS:
        return None
    counts = Counter({form: len(found) for form, found in of_form.items()})
    size, seen = 0, 0
    for form, count in counts.most_common():
        if seen >= _MOST * len(some):
            break
        size, seen = size + _possible(form, of_form[form]), seen + count
    return IdSpace(counts.most_common(1)[0][0], size) if size <= SMALL else None


def _possible(form: str, keys: Sequence[str]) -> int:
    known = len(keys) >= _ENOUGH
    places = zip(form, zip(*keys, strict=True), strict=True)
    return prod(1 if known and len(set(there)) == 1 else _SIZES.get(kind, 1) for kind, there in places)


def _is_date(key: str) -> bool:
    for pattern in _YEAR_FIRST:
        if match := pattern.fullmatch(key):
            year, month, day = map(int, match.groups())
            if _exists(year, month, day):
                return True
    for pattern in _YEAR_LAST:
        if match := pattern.fullmatch(key):
            first, second, year = map(int, match.groups())
            if _exists(year, second, first) or _exists(year, first, second):
                return True
    return False


def _exists(year: int, month: int, day: int) -> bool:
    if not (year < 100 or 1850 <= year < 2100):
        return False
    try:
        date(1900 + year if year < 100 else year, month, day)
    except ValueError:
        return False
    return True


def own_risk(space: IdSpace | None, source: str) -> Iterator[str]:
    """What a party should know of its own ids before it brings them."""
    if space is not None:
        yield (
            f"{source}: its ids look like {space.form}, and only about {space.size:,} such are possible: a partner "
            "that brings guesses learns which of them are here"
        )


def before(own: int, announced: Mapping[str, int], space: IdSpace | None) -> Iterator[str]:
    """Of partners' numbers, before anything crosses: do they look like a list of all that is possible?"""
    for peer, count in announced.items():
        if warning := _covers(own, peer, count, space) or _many(own, peer, count):
            yield warning


def after(
    own: int, announced: Mapping[str, int], common: Mapping[str, int], space: IdSpace | None, least: float
) -> Iterator[str]:
    """The same when it is known how many are common; `least` is the share of a partner's that is expected."""
    for peer, found in common.items():
        count = announced[peer]
        warning = (
            _covers(own, peer, count, space)
            or _few(peer, count, found, least)
            or _strangers(own, peer, count, found)
            or _many(own, peer, count)
        )
        if warning:
            yield warning


def _covers(own: int, peer: str, count: int, space: IdSpace | None) -> str:
    if space is None or not (2 * count >= space.size or (10 * count >= space.size and count >= 2 * own)):
        return ""
    return (
        f"{peer} brings {count:,} ids, and only about {space.size:,} that look like this party's ({space.form}) are "
        "possible: they may be guessed, and it learns which of them are here"
    )


def _few(peer: str, count: int, found: int, least: float) -> str:
    if found >= least * count:
        return ""
    return (
        f"{peer}: {found} of its {count} ids are in common, less than {100 * least:g} %: it has other people, writes "
        "ids in another way, or guessed them"
    )


def _strangers(own: int, peer: str, count: int, found: int) -> str:
    if 2 * found < own or count < MANY_TIMES * own:
        return ""
    return (
        f"{peer}: {found:,} of the {own:,} ids here are among its {count:,}, and hardly any of its others are: a list "
        "of guessed ids looks like that"
    )


def _many(own: int, peer: str, count: int) -> str:
    if count < MANY_TIMES * own:
        return ""
    return (
        f"{peer} brings {count:,} ids, {count // own:,} times the {own:,} that are here: of each it learns whether it "
        "is common"
    )
