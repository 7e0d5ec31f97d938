"""Members meet and talk through a relay that does what it likes. Without an engine: sites hand frames to each other."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch

from federation.joined import FLOATS, NAMES, NOTE, Frame, Sites
from veracausa.errors import PeerLost
from veracausa.wire.flare import cell as cells
from veracausa.wire.flare import handshake as waiting
from veracausa.wire.flare import link as links
from veracausa.wire.flare.cell import FlareSite
from veracausa.wire.flare.frames import HEADER, FrameType, Header
from veracausa.wire.flare.handshake import MAX_OFFERS
from veracausa.wire.flare.link import FlareLink
from veracausa.wire.flare.session import pack

pytest.importorskip("nvflare")
MEETING = (FrameType.POKE, FrameType.OFFER, FrameType.ANSWER, FrameType.CONFIRM)


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    monkeypatch.setattr(cells, "OFTEN", 0.02)
    monkeypatch.setattr(cells, "SELDOM", 0.1)
    monkeypatch.setattr(cells, "TICK", 0.02)
    monkeypatch.setattr(links, "IMPATIENT", 0.05)
    monkeypatch.setattr(links, "RESTART_ANSWER_S", 0.3)
    made = Sites(tmp_path)
    yield made
    for site in made.sites.values():
        site._stopped.set()


def talk(parties: dict[str, FlareLink], step: int = 0) -> None:
    """Everybody hears from everybody."""
    for one in parties:
        for other in parties:
            if one != other:
                parties[one].send(other, NOTE, step, n=step)
    for one in parties:
        for other in parties:
            if one != other:
                assert parties[one].receive(other, NOTE, step).meta == {"n": step}


def in_vain(site: FlareSite, peers: list[str]) -> None:
    with pytest.raises(PeerLost, match="did not come"):
        site.connect(peers, "test", 1.5)


def test_all_meet_and_talk(sites: Sites) -> None:
    parties = sites.connect()
    talk(parties)
    assert [parties[name].session_of("lab").sealed for name in ("bank", "hospital")] == [False, True]  # type: ignore[union-attr]
    assert not any(party.refused for party in parties.values())
    assert not any(site.refused for site in sites.sites.values())


def test_they_meet_through_a_network_that_loses_and_doubles(sites: Sites) -> None:
    chance = torch.Generator().manual_seed(0)
    sites.alter = lambda frame: [frame] * int(torch.randint(0, 3, (1,), generator=chance))
    parties = sites.connect()
    sites.alter = lambda frame: [frame]
    talk(parties)


# ---- what is not between members ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"channel": "cellnet.channel"}, "nothing that members send"),
        ({"topic": "bye"}, "nothing that members send"),
        ({"channel": "cellnet.channel", "topic": "bye"}, "nothing that members send"),
        ({"channel": "task", "topic": "x" * 60000}, "nothing that members send"),
        ({"msg_type": "reply"}, "reply"),
        ({"msg_type": "return"}, "reply"),
        ({"msg_type": None}, "reply"),
        ({"reply_expected": True}, "reply"),
        ({"payload_encoding": "fobs"}, "not plain bytes"),
        ({"payload_encoding": "n"}, "not plain bytes"),
        ({"secure": True}, "not plain bytes"),
        ({"conn_url": "tcp://elsewhere:1"}, "dialled elsewhere"),
        ({"origin": "stranger"}, "not between members"),
        ({"origin": "lab.child"}, "not between members"),
        ({"origin": "server"}, "not between members"),
        ({"destination": "stranger"}, "not between members"),
        ({"origin": ["lab"]}, "cannot be read"),
        ({"origin": {"lab": 1}}, "cannot be read"),
        ({"destination": None}, "not between members"),
        ({"origin": "hospital"}, "claims another sender"),
        ({"came_from": "stranger"}, "not between members"),
        ({"came_from": "hospital"}, "claims another sender"),
    ],
)
def test_the_gate_stops(
    sites: Sites, changed: dict[str, object], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At the server, who would otherwise forward it. Whose connection it was is who is named."""
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey

    known = {value: value for name, value in vars(MessageHeaderKey).items() if not name.startswith("_")}
    keys = {key: known.get(f"cn__{key}", key) for key in changed}
    sites.hand("lab", "bank", Header(FrameType.POKE).pack(), **{keys[key]: value for key, value in changed.items()})
    who = {"stranger": "a stranger"}.get(str(changed.get("came_from")), str(changed.get("came_from", "lab")))
    assert sites.sites["bank"].refused == {who: 1}
    assert f"refused from {who}" in caplog.text
    assert problem in caplog.text


@pytest.mark.parametrize("size", [None, 0, 1, HEADER.size - 1, (2048 << 10) + (1 << 16) + 1])
def test_a_frame_of_a_size_that_none_has_is_stopped(sites: Sites, size: int | None) -> None:
    sites.hand("lab", "bank", None if size is None else bytes(size))  # type: ignore[arg-type]
    assert sites.sites["bank"].refused == {"lab": 1}


def test_names_that_strangers_invent_fill_nothing(sites: Sites, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3000):
        sites.hand("lab", "bank", Header(FrameType.POKE).pack(), came_from=f"lab.{number}")
    assert sites.sites["bank"].refused == {"a stranger": 3000}
    assert len(caplog.records) == 23


def test_any_bytes_are_refused_and_nothing_breaks(sites: Sites) -> None:
    parties = sites.connect()
    before = parties["bank"].refused["lab"]
    session = parties["bank"].session_of("lab")
    assert session is not None
    for sort in FrameType:
        for body in (b"", b"\xc1", os.urandom(100), b"\x81" * 5000, session.id):
            for known in (session.id, bytes(16), os.urandom(16)):
                if not (
                    sort in (FrameType.PIECE, FrameType.CONTROL, FrameType.UNKNOWN) and session.id in (known, body)
                ):
                    sites.hand("lab", "bank", Header(sort, known, 1 << 62, 1 << 62, 1 << 62).pack() + body)
    for body in (b"nonsense", os.urandom(48), os.urandom(4000)):
        sites.hand("lab", "bank", body.ljust(HEADER.size))
    assert parties["bank"].refused["lab"] > before + 50
    talk(parties)


# ---- a relay that forges and replays --------------------------------------------------------------------------------


def test_what_is_replayed_from_an_earlier_meeting_changes_nothing(sites: Sites) -> None:
    talk(sites.connect())
    old = [frame for frame in sites.sent if "bank" not in frame[:2]]
    assert {frame[2][4] for frame in old} >= {FrameType.PIECE, FrameType.STATE, *MEETING}
    often = iter(range(10))

    def again(frame: Frame) -> list[Frame]:
        return [*old, frame, *old] if "bank" not in frame[:2] and next(often, None) is not None else [frame]

    sites.alter = again
    parties = sites.connect()
    often = iter(range(3))
    talk(parties)
    assert next(often, None) is None
    refused = parties["hospital"].refused["lab"] + sites.sites["hospital"].refused["lab"]
    assert refused > 0


@pytest.mark.parametrize("sort", MEETING)
def test_what_a_party_said_is_sent_back_to_it(sites: Sites, sort: FrameType) -> None:
    def reflect(frame: Frame) -> list[Frame]:
        sender, receiver, content = frame
        return [(receiver, sender, content), frame] if content[4] == sort and "bank" not in frame[:2] else [frame]

    sites.alter = reflect
    parties = sites.connect()
    talk(parties)
    said_by = "lab" if sort in (FrameType.POKE, FrameType.ANSWER) else "hospital"
    refused = sites.sites[said_by].refused + parties[said_by].refused
    assert set(refused) == {"hospital", "lab"} - {said_by}


@pytest.mark.parametrize("sort", [FrameType.POKE, FrameType.OFFER, FrameType.UNKNOWN])
def test_a_relay_can_not_end_what_two_parties_have(sites: Sites, sort: FrameType) -> None:
    """It says in one's name that it began anew; a probe shows that it did not."""
    parties = sites.connect()
    session = parties["hospital"].session_of("lab")
    assert session is not None
    body = {
        FrameType.POKE: pack(life=os.urandom(8)),
        FrameType.OFFER: pack(key=os.urandom(32), life=os.urandom(8)),
        FrameType.UNKNOWN: session.id,
    }[sort]
    for _ in range(20):
        sites.hand("lab", "hospital", Header(sort).pack() + body)
        sites.hand("hospital", "lab", Header(sort).pack() + body)
        time.sleep(0.03)
    talk(parties)
    assert parties["hospital"].refused["lab"] > 0
    assert parties["lab"].refused["hospital"] > 0


def test_offers_and_answers_that_a_relay_makes_up_do_not_keep_two_apart(sites: Sites) -> None:
    """A relay that also holds back the true ones keeps them apart, whatever is done; one that only adds does not."""
    forged: Counter[FrameType] = Counter()

    def forge(frame: Frame) -> list[Frame]:
        sender, receiver, content = frame
        if "bank" in frame[:2]:
            return [frame]
        made_up = {
            FrameType.OFFER: pack(key=os.urandom(32), life=os.urandom(8)),
            FrameType.POKE: pack(life=os.urandom(8)),
            FrameType.ANSWER: pack(key=os.urandom(32), life=os.urandom(8), pem=b"", signature=b""),
            FrameType.CONFIRM: pack(key=os.urandom(32), life=os.urandom(8), pem=b"", signature=b""),
        }.get(sort := FrameType(content[4]))
        if made_up is None:
            return [frame]
        forged[sort] += 1
        return [frame, (sender, receiver, content[: HEADER.size] + made_up)]

    sites.alter = forge
    parties = sites.connect()
    talk(parties)
    assert {FrameType.OFFER, FrameType.ANSWER} <= forged.keys()
    assert parties["hospital"].session_of("lab") is not None


def test_offers_are_remembered_and_signed_sparingly(sites: Sites) -> None:
    lab = sites.sites["lab"]
    waiting = threading.Thread(target=in_vain, args=(lab, ["hospital"]))
    waiting.start()
    while lab._meeting is None:
        time.sleep(0.01)
    meeting = lab._meeting
    for _ in range(300):
        sites.hand("hospital", "lab", Header(FrameType.OFFER).pack() + pack(key=os.urandom(32), life=os.urandom(8)))
        time.sleep(0.002)
    answered = [frame for frame in sites.sent if frame[2][4] == FrameType.ANSWER]
    assert len(meeting._states["hospital"].offers) <= MAX_OFFERS
    assert 1 <= len(answered) < 60
    waiting.join()


# ---- members that come and go ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_member_that_comes_anew_is_met_anew(sites: Sites, name: str) -> None:
    parties = sites.connect()
    talk(parties)
    sites.sites[name]._stopped.set()
    sites.start(name)
    lost: list[str] = []
    links_again: dict[str, FlareLink] = {}

    def again(party: str) -> None:
        if party != name:
            with pytest.raises(PeerLost, match="began anew") as error:
                parties[party].receive(name, NOTE, 1)
            lost.append(error.value.peer)
        peers = [peer for peer in NAMES if peer != party]
        links_again[party] = sites.sites[party].connect(peers, "test", 20)
        links_again[party].declare(FLOATS, NOTE)

    threads = [threading.Thread(target=again, args=(party,), daemon=True) for party in NAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(lost) == 2
    talk(links_again)


def test_a_member_without_a_part_is_refused(sites: Sites, caplog: pytest.LogCaptureFixture) -> None:
    outsider = threading.Thread(target=in_vain, args=(sites.sites["lab"], ["bank", "hospital"]))
    outsider.start()
    with caplog.at_level(logging.WARNING):
        parties = sites.connect(("bank", "hospital"))
        outsider.join()
    talk(parties)
    assert "'lab' has no part in this job" in caplog.text


def test_what_comes_before_the_last_party_does_is_kept_within_bounds(sites: Sites) -> None:
    """Hospital has met bank and waits for lab; bank, which needs nobody else, floods it meanwhile."""
    hospital = sites.sites["hospital"]
    outcome: list[FlareLink] = []
    threading.Thread(target=lambda: outcome.append(hospital.connect(["bank", "lab"], "test", 20)), daemon=True).start()
    bank = sites.sites["bank"].connect(["hospital"], "test", 20)
    bank.declare(FLOATS, NOTE)
    for step in range(30):
        bank.send("hospital", FLOATS, step, {"x": torch.ones(1 << 18)})
    time.sleep(0.5)
    assert hospital._meeting is not None
    assert hospital._meeting._states["bank"].early_bytes <= (16 << 20) + (1 << 20)
    lab = threading.Thread(target=lambda: sites.sites["lab"].connect(["hospital"], "test", 20), daemon=True)
    lab.start()
    lab.join(20)
    while not outcome:
        time.sleep(0.01)
    outcome[0].declare(FLOATS, NOTE)
    for step in range(30):
        assert len(outcome[0].receive("bank", FLOATS, step).tensors["x"]) == 1 << 18


# ---- what is told and counted ---------------------------------------------------------------------------------------


def test_what_an_honest_restart_leaves_over_is_no_refusal(sites: Sites, caplog: pytest.LogCaptureFixture) -> None:
    """Lab is killed and comes again; the others still send what belongs to the session of before."""
    parties = sites.connect()
    talk(parties)
    sites.sites["lab"]._stopped.set()
    lab = sites.start("lab")
    meeting = threading.Thread(target=lambda: lab.connect(["bank", "hospital"], "test", 20), daemon=True)
    meeting.start()
    while lab._meeting is None:
        time.sleep(0.01)
    for peer in ("bank", "hospital"):
        session = parties[peer].session_of("lab")
        assert session is not None
        for number in range(30):
            sites.hand(peer, "lab", Header(FrameType.PIECE, session.id, number).pack() + b"late")
    assert min(lab.stale["bank"], lab.stale["hospital"]) >= 30
    assert not lab.refused
    again = [
        threading.Thread(target=sites.sites[name].connect, args=([*({*NAMES} - {name})], "test", 20))
        for name in ("bank", "hospital")
    ]
    for thread in again:
        thread.start()
    for thread in (*again, meeting):
        thread.join(20)
    # The same sessions are known for what they are also when the next one is open.
    for peer in ("bank", "hospital"):
        session = parties[peer].session_of("lab")
        assert session is not None
        sites.hand(peer, "lab", Header(FrameType.PIECE, session.id, 99).pack() + b"late")
    link = lab._link
    assert link is not None
    assert link.stale == {"bank": 1, "hospital": 1}
    assert not link.refused
    assert "refused" not in caplog.text
    # One that nobody ever had is still refused.
    sites.hand("bank", "lab", Header(FrameType.PIECE, os.urandom(16), 1).pack() + b"made up")
    assert link.refused == {"bank": 1}


def test_waiting_is_told_at_once_and_then_ever_more_rarely(sites: Sites) -> None:
    clock = [1000.0]
    told: list[Mapping[str, object]] = []
    here = waiting.Waiting("lab", sites.network, lambda: True, told.append, lambda: clock[0])
    for _ in range(185):
        here.absent(["hospital"])
        clock[0] += 1
    assert [round(float(event["seconds"])) for event in told] == [0, 10, 30, 70, 150]  # type: ignore[arg-type]
    here.absent(["bank", "hospital"])  # another one went: told at once
    assert told[-1]["peers"] == ["bank", "hospital"]
    for _ in range(3600):
        here.absent(["bank", "hospital"])
        clock[0] += 1
    assert len(told) < 25


def test_words_for_who_waits() -> None:
    from veracausa.cli.federation.site import waiting_words

    unreachable = {"event": "unreachable", "member": "coordinator", "at": "h:1", "why": "no answer", "seconds": 1.0}
    assert waiting_words({"event": "waiting", "peers": ["a", "b"], "seconds": 0.1}) == "waiting for a, b"
    assert waiting_words({"event": "waiting", "peers": ["a"], "seconds": 70.0}) == "waiting for a (70 s so far)"
    assert waiting_words(unreachable) == "cannot reach the coordinator at h:1: no answer; trying again"
    other = {**unreachable, "member": "bank", "seconds": 300.0}
    assert waiting_words(other) == "cannot reach bank, which serves, at h:1: no answer; trying again (5 min so far)"
