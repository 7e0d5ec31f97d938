"""Who a peer is, is proved before anything else: what is made up, replayed, sent back or expired proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import Field, Names

from federation.certificates import Authority
from federation.joined import identities, pair
from veracausa.errors import InputError, WireError
from veracausa.wire.flare.frames import FrameType, Header
from veracausa.wire.flare.session import Opening, PeerIdentity, SeenNotes, new_life, pack, unpack

Who = dict[str, PeerIdentity]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def who(authority: Authority) -> Who:
    return {name: PeerIdentity(name, authority.member(name)) for name in ("bank", "hospital", "lab")}


def opening(me: PeerIdentity, peer: str, purpose: bytes = b"test", sealed: bool = True) -> Opening:
    return Opening(me, peer, purpose, sealed, new_life())


def test_two_that_know_each_other_share_keys_and_nobody_else_does(who: Who) -> None:
    mine, theirs = pair(who["bank"], who["lab"])
    other, _ = pair(who["bank"], who["lab"])
    head = Header(FrameType.PIECE, mine.id, 3).pack()
    sealed = mine.seal(3, head, b"shares")
    assert mine.id == theirs.id != other.id
    assert b"shares" not in sealed
    assert bytes(theirs.open(3, head, memoryview(sealed))) == b"shares"
    for session in (mine, other):  # not even what one sealed oneself can be sent back
        with pytest.raises(WireError, check=Field("frame")):
            session.open(3, head, memoryview(sealed))


def test_a_session_made_with_keys_of_rsa(tmp_path: Path) -> None:
    authority = Authority(tmp_path, elliptic=False)
    mine, theirs = pair(*(PeerIdentity(name, authority.member(name)) for name in ("bank", "lab")))
    assert mine.id == theirs.id


@pytest.mark.parametrize("changed", ["number", "head", "body", "cut off", "nothing left"])
def test_a_frame_changed_on_its_way_is_known(who: Who, changed: str) -> None:
    mine, theirs = pair(who["bank"], who["lab"])
    head = Header(FrameType.PIECE, mine.id, 3, 1, 1).pack()
    sealed = mine.seal(3, head, b"shares")
    number = 4 if changed == "number" else 3
    if changed == "head":
        head = Header(FrameType.PIECE, mine.id, 3, 2, 2).pack()
    elif changed == "body":
        sealed = bytes([sealed[0] ^ 1]) + sealed[1:]
    elif changed == "cut off":
        sealed = sealed[:-1]
    elif changed == "nothing left":
        sealed = b""
    with pytest.raises(WireError, check=Field("frame")):
        theirs.open(number, head, memoryview(sealed))


def test_what_goes_without_a_number_can_not_be_made_up(who: Who) -> None:
    mine, theirs = pair(who["bank"], who["lab"])
    head = Header(FrameType.STATE, mine.id, 0, 5, 5).pack()
    note = mine.note(head, b"12345678")
    assert theirs.read_note(head, memoryview(note)) == b"12345678"
    assert mine.note(head, b"12345678") != note  # never twice under one nonce
    for false in (b"", b"12345678", note[:7], note[:-1], bytes(8) + bytes(24)):
        with pytest.raises(WireError, check=Field("frame")):
            theirs.read_note(head, memoryview(false))
    with pytest.raises(WireError, check=Field("frame")):
        theirs.read_note(Header(FrameType.STATE, mine.id, 0, 6, 6).pack(), memoryview(note))


Wrong = Callable[[Who, Authority, Opening, Path], bytes]


def another_authority(who: Who, authority: Authority, to: Opening, folder: Path) -> bytes:
    stranger = PeerIdentity("lab", Authority(folder).member("lab"))
    return opening(stranger, "bank").proof(to.public, to.life)


def expired(who: Who, authority: Authority, to: Opening, folder: Path) -> bytes:
    return late(authority, to, -timedelta(days=2), -timedelta(minutes=1))


def not_yet_valid(who: Who, authority: Authority, to: Opening, folder: Path) -> bytes:
    return late(authority, to, timedelta(minutes=5), timedelta(days=1))


def late(authority: Authority, to: Opening, start: timedelta, end: timedelta) -> bytes:
    today, other = authority.member("lab", file="today"), authority.member("lab", start, end, file="other")
    signer = PeerIdentity("lab", today)
    signer.pem, signer._key = other.certificate.read_bytes(), _key(other.key)
    return opening(signer, "bank").proof(to.public, to.life)


def _key(path: Path) -> object:
    from veracausa.wire.credentials import read_key

    return read_key(path)


def another_member(who: Who, authority: Authority, to: Opening, folder: Path) -> bytes:
    return opening(who["hospital"], "bank").proof(to.public, to.life)


def another_members_certificate(who: Who, authority: Authority, to: Opening, folder: Path) -> bytes:
    """The name is right and the certificate valid, but its key is not at hand."""
    fields = unpack(opening(who["hospital"], "bank").proof(to.public, to.life), ("key", "life", "pem", "signature"))
    return pack(**{**fields, "pem": who["lab"].pem})


def another_transcript(who: Who, authority: Authority, to: Opening, folder: Path) -> bytes:
    return opening(who["lab"], "bank").proof(opening(who["bank"], "lab").public, to.life)


def another_purpose(who: Who, authority: Authority, to: Opening, folder: Path) -> bytes:
    return opening(who["lab"], "bank", b"another job").proof(to.public, to.life)


def not_sealed(who: Who, authority: Authority, to: Opening, folder: Path) -> bytes:
    return opening(who["lab"], "bank", sealed=False).proof(to.public, to.life)


def sent_back(who: Who, authority: Authority, to: Opening, folder: Path) -> bytes:
    """This party's own proof, which it made for the peer."""
    theirs = opening(who["lab"], "bank")
    return to.proof(theirs.public, theirs.life)


def of_an_earlier_meeting(who: Who, authority: Authority, to: Opening, folder: Path) -> bytes:
    earlier = opening(who["bank"], "lab")
    return opening(who["lab"], "bank").proof(earlier.public, earlier.life)


def key_of_zeros(who: Who, authority: Authority, to: Opening, folder: Path) -> bytes:
    """Signed as it should be, by a peer that wants a secret that everybody knows."""
    theirs = opening(who["lab"], "bank")
    theirs.public = bytes(32)
    return theirs.proof(to.public, to.life)


def key_changed(who: Who, authority: Authority, to: Opening, folder: Path) -> bytes:
    fields = unpack(opening(who["lab"], "bank").proof(to.public, to.life), ("key", "life", "pem", "signature"))
    return pack(**{**fields, "key": opening(who["lab"], "bank").public})


def no_certificate(who: Who, authority: Authority, to: Opening, folder: Path) -> bytes:
    fields = unpack(opening(who["lab"], "bank").proof(to.public, to.life), ("key", "life", "pem", "signature"))
    return pack(**{**fields, "pem": b"-----BEGIN CERTIFICATE-----"})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (another_authority, "not of this federation's authority"),
        (expired, "not valid today"),
        (not_yet_valid, "not valid today"),
        (another_member, "names another party"),
        (another_members_certificate, "was not made by 'lab'"),
        (another_transcript, "was not made by 'lab'"),
        (another_purpose, "was not made by 'lab'"),
        (not_sealed, "was not made by 'lab'"),
        (sent_back, "names another party"),
        (of_an_earlier_meeting, "was not made by 'lab'"),
        (key_of_zeros, "key: of 'lab' is not one"),
        (key_changed, "was not made by 'lab'"),
        (no_certificate, "not of this federation's authority"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_refused(who: Who, authority: Authority, tmp_path: Path, wrong: Wrong, message: str) -> None:
    mine = opening(who["bank"], "lab")
    with pytest.raises(WireError, match=message):
        mine.session(wrong(who, authority, mine, tmp_path))


def test_the_same_two_agree_when_nothing_is_wrong(who: Who) -> None:
    mine = opening(who["bank"], "lab")
    assert mine.session(opening(who["lab"], "bank").proof(mine.public, mine.life)).sealed


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x81" * 3000,
        pack(key=bytes(32)),
        pack(key=bytes(31), life=bytes(8)),
        pack(key=bytes(32), life=bytes(9)),
        pack(key=bytes(32), life=bytes(8), more=b""),
        pack(key=bytes(1 << 16), life=bytes(8)),
        b"\x82\xa3key\x01\xa4life\x02",
        b"\x82\x01\x01\x02\x02",
    ],
)
def test_what_holds_other_fields_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        unpack(body, ("key", "life"))


def test_ones_own_expired_certificate_is_known_before_anybody_is_dialled(authority: Authority) -> None:
    own = authority.member("bank", -timedelta(days=2), -timedelta(days=1), file="old")
    with pytest.raises(InputError, match="expired"):
        PeerIdentity("bank", own)


def test_ones_own_certificate_of_another_name_is_known(tmp_path: Path) -> None:
    assert identities(tmp_path, ("bank",))
    with pytest.raises(InputError, check=Names("lab.pem", "lab")):
        PeerIdentity("bank", Authority(tmp_path / "other").member("lab"))


def test_a_note_is_read_once_however_often_it_is_replayed(who: Who) -> None:
    mine, theirs = pair(who["bank"], who["lab"])
    head = Header(FrameType.STATE, mine.id, 0, 5, 5).pack()
    notes = [mine.note(head, bytes([n]) * 8) for n in range(3)]
    assert theirs.read_note(head, memoryview(notes[0])) == bytes(8)
    for _ in range(1000):
        with pytest.raises(WireError, match="was replayed"):
            theirs.read_note(head, memoryview(notes[0]))
    # What overtook another on its way is honest; each is still read once.
    assert theirs.read_note(head, memoryview(notes[2])) == b"\x02" * 8
    assert theirs.read_note(head, memoryview(notes[1])) == b"\x01" * 8
    for note in notes:
        with pytest.raises(WireError, match="was replayed"):
            theirs.read_note(head, memoryview(note))


def test_a_note_that_is_too_old_to_be_known_counts_as_replayed(who: Who) -> None:
    mine, theirs = pair(who["bank"], who["lab"])
    head = Header(FrameType.STATE, mine.id).pack()
    notes = [mine.note(head, bytes(8)) for _ in range(300)]
    theirs.read_note(head, memoryview(notes[-1]))
    theirs.read_note(head, memoryview(notes[-256]))
    for old in (notes[-1], notes[-256], notes[-257], notes[0]):
        with pytest.raises(WireError, match="was replayed"):
            theirs.read_note(head, memoryview(old))


@given(st.lists(st.integers(0, 40), max_size=60))
def test_numbers_are_new_exactly_once(numbers: list[int]) -> None:
    seen, before = SeenNotes(), set()
    for number in numbers:
        assert seen.first_time(number) is (number not in before)
        before.add(number)
