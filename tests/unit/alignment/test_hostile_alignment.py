"""What a dishonest peer sends is refused with its name; what honest ones send tells an onlooker nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from refusals import Field
from torch import Tensor

from veracausa.alignment import masking
from veracausa.alignment.exchange import NONCE
from veracausa.alignment.masking import SMALL_ORDER
from veracausa.alignment.program import AlignmentProgram
from veracausa.alignment.settings import AlignmentSettings, OwnOptions
from veracausa.errors import WireError
from veracausa.wire.codec import Layout
from veracausa.wire.message import Message
from veracausa.wire.threads import ThreadLink, run_threads, thread_links

Change = Callable[[Message], Message]
IDS = {"a": ["1", "2", "3", "4"], "b": ["9", "4", "3", "2"], "c": ["2", "5", "3", "4"]}


def run(
    mode: Literal["all", "active"],
    parties: Sequence[str] = ("a", "b"),
    watch: Callable[[Message], Message] = lambda message: message,
    hostile: str | None = None,
) -> None:
    """Align, while whatever `hostile` sends (everybody, if nobody is) goes through `watch`."""
    plan = AlignmentSettings(parties=tuple(parties), mode=mode)
    links = thread_links(list(parties), 5)
    for name, link in links.items():
        if hostile in (None, name):
            link._deliver = _through(link, watch)  # type: ignore[method-assign]
    programs = {name: AlignmentProgram(IDS[name], plan, OwnOptions(workers=0)) for name in parties}
    run_threads({name: (lambda link, p=program: p(link)) for name, program in programs.items()}, links)


def _through(link: ThreadLink, watch: Change) -> Callable[[Message, Layout], None]:
    deliver = link._deliver
    return lambda message, plan: deliver(watch(message), plan)


def tensor(message: Message, change: Callable[[Tensor], Tensor]) -> Message:
    return replace(message, tensors={name: change(t.clone()) for name, t in message.tensors.items()})


def first_row(value: bytes) -> Callable[[Tensor], Tensor]:
    def change(points: Tensor) -> Tensor:
        if len(points):
            points[0] = torch.frombuffer(bytearray(value), dtype=torch.uint8)
        return points

    return change


def repeated(rows: Tensor) -> Tensor:
    if len(rows) > 1:
        rows[1] = rows[0]
    return rows


POINTS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "truncated": (lambda t: t[:-1] if len(t) else torch.zeros(1, 32, dtype=torch.uint8), "rows, . were announced"),
    "longer": (lambda t: torch.cat([t, torch.full((1, 32), 7, dtype=torch.uint8)]), "rows, . were announced"),
    "short points": (lambda t: t[:, :31], "declared"),
    "another type": (lambda t: t.float(), "declared"),
    "not canonical": (first_row(masking.P.to_bytes(32, "little")), "canonical"),
    "top bit": (first_row(b"\xff" * 32), "canonical"),
    "zero": (first_row(SMALL_ORDER[0]), "small order"),
    "order 8": (first_row(SMALL_ORDER[3]), "small order"),
    "repeated": (repeated, "twice"),
}


WHERE = [
    (case, hostile, step)
    for case in POINTS
    for hostile in "ab"
    for step in (0, 1)
    # In its last round the active party sends no points, only signs of life.
    if (hostile, step) != ("a", 1) or case in ("truncated", "longer", "short points", "another type")
]


@pytest.mark.parametrize("mode", ["all", "active"])
@pytest.mark.parametrize(("case", "hostile", "step"), WHERE)
def test_bad_points_are_refused(case: str, mode: Literal["all", "active"], hostile: str, step: int) -> None:
    change, words = POINTS[case]

    def watch(message: Message) -> Message:
        return tensor(message, change) if (message.kind, message.step) == ("align masked", step) else message

    with pytest.raises(WireError, match=words) as error:
        run(mode, watch=watch, hostile=hostile)
    assert f"'{hostile}'" in str(error.value)


@pytest.mark.parametrize(
    ("mode", "hostile", "kind"),
    [("all", "a", "align positions"), ("all", "b", "align positions"), ("active", "a", "align places")],
)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t + 4, "outside of 4"),
        (lambda t: -1 - t, "outside of 4"),
        (repeated, "twice"),
        (lambda t: t[1:], "rows, 3 were announced"),
    ],
)
def test_bad_positions_are_refused(mode: Any, hostile: str, kind: str, change: Any, words: str) -> None:
    with pytest.raises(WireError, match=words) as error:
        run(mode, watch=lambda m: tensor(m, change) if m.kind == kind else m, hostile=hostile)
    assert f"'{hostile}'" in str(error.value)


@pytest.mark.parametrize(
    ("kind", "meta", "words"),
    [
        ("align hello", {"count": 0}, "brings 0 ids"),
        ("align hello", {"count": 1 << 60}, "are taken"),
        ("align hello", {"settings": "["}, "cannot be read"),
        ("align hello", {"settings": "7"}, "cannot be read"),
        ("align hello", {"settings": "{}"}, r"settings\.\w+: is null"),
        ("align hello", {"more": 1}, "no such field"),
        ("align common", {"count": 5}, "between 0 and 4"),
        ("align common", {"count": -1}, "between 0 and 4"),
    ],
)
def test_bad_words_are_refused(kind: str, meta: dict[str, Any], words: str) -> None:
    def watch(message: Message) -> Message:
        return replace(message, meta={**message.meta, **meta}) if message.kind == kind else message

    with pytest.raises(WireError, match=words) as error:
        run("all", watch=watch, hostile="a")
    assert "'a'" in str(error.value)


def test_a_message_out_of_turn_is_refused() -> None:
    def watch(message: Message) -> Message:
        return replace(message, step=message.step + 1) if message.kind == "align masked" else message

    with pytest.raises(WireError, check=Field("step")):
        run("all", watch=watch, hostile="b")


def overheard(mode: Literal["all", "active"]) -> list[Message]:
    heard: list[Message] = []

    def watch(message: Message) -> Message:
        heard.append(message)
        return message

    run(mode, ("a", "b", "c"), watch)
    return heard


def dictionary_attack(heard: Sequence[Message], candidates: Sequence[str], parties: Sequence[str]) -> set[str]:
    """The candidates that somebody who overheard everything, and has a list of all people, finds in it.

    It knows how ids are hashed, and the session's label from the greetings, and tries no exponent and the smallest one.
    """
    import hashlib

    said = {m.sender: m for m in heard if m.kind == "align hello"}
    agreed = str(said[parties[0]].meta["settings"])
    nonces = b"".join(said[name].tensors["nonce"].numpy().tobytes() for name in parties)
    assert len(nonces) == NONCE * len(parties)
    domain = b"veracausa-align-curve25519_XMD:SHA-512_ELL2_NU_" + hashlib.sha256(agreed.encode() + nonces).digest()
    crossed = {
        bytes(row) for m in heard if m.kind == "align masked" for row in m.tensors["points"].numpy().astype("uint8")
    }
    known = masking.masking(NO_SECRET)
    found = set()
    for candidate in candidates:
        point = masking.to_curve(masking.expand(candidate.encode(), domain))
        if crossed & {point, known(point), known(known(point)), known(known(known(point)))}:
            found.add(candidate)
    return found


NO_SECRET = bytes(32)
EVERYBODY = [str(i) for i in range(1, 13)]


@pytest.mark.parametrize("mode", ["all", "active"])
def test_a_list_of_all_people_finds_nobody_in_what_crossed(mode: Literal["all", "active"]) -> None:
    assert dictionary_attack(overheard(mode), EVERYBODY, "abc") == set()


@pytest.mark.parametrize("mode", ["all", "active"])
def test_without_secret_exponents_it_would_find_everyone(
    mode: Literal["all", "active"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masking, "new_key", lambda: NO_SECRET)
    assert dictionary_attack(overheard(mode), EVERYBODY, "abc") == {key for ids in IDS.values() for key in ids}


def test_only_the_active_party_hears_whole_sets_and_nobody_hears_an_id() -> None:
    heard = overheard("all")
    kinds: Mapping[str, set[str]] = {
        kind: {m.receiver for m in heard if m.kind == kind} for kind in {m.kind for m in heard}
    }
    assert set(kinds) == {"align hello", "align masked", "align common", "align positions"}
    assert kinds["align common"] == {"b", "c"}
    # Under all three exponents (steps 2) a set goes to the active party alone.
    assert {m.receiver for m in heard if m.kind == "align masked" and m.step == 2 and len(m.tensors["points"])} == {"a"}


def test_equal_ids_look_equal_to_the_active_party_alone() -> None:
    points = [bytes(row) for m in overheard("all") if m.kind == "align masked" for row in m.tensors["points"].numpy()]
    # Everybody's sets under one and under two exponents, and the two that reach the active party under all three: only
    # there are equal ids equal.
    alike = len(points) - len(set(points))
    assert len(points) == 12 + 12 + 8
    assert alike == len(IDS["a"] + IDS["c"]) - len(set(IDS["a"] + IDS["c"]))
