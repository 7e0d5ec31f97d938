"""Links and sites in one process, joined by a network that a test controls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from federation.certificates import Authority
from veracausa.wire.credentials import Credentials
from veracausa.wire.flare.cell import CHANNEL, TOPIC, FlareSite
from veracausa.wire.flare.frames import HEADER, FrameType, Header, parse
from veracausa.wire.flare.link import FlareLink
from veracausa.wire.flare.session import Opening, PeerIdentity, Session, new_life
from veracausa.wire.message import Kind, TensorSpec
from veracausa.wire.network import Member, NetworkOptions, WireLimits

FLOATS = Kind("floats", {"x": TensorSpec(torch.float32, (None,))})
NOTE = Kind("note", meta={"n": int})
NAMES = ("bank", "hospital", "lab")

Frame = tuple[str, str, bytes]
"""Who sends what to whom."""


def identities(folder: Path, names: Sequence[str] = NAMES) -> dict[str, PeerIdentity]:
    authority = Authority(folder)
    return {name: PeerIdentity(name, authority.member(name)) for name in names}


def pair(
    one: PeerIdentity, other: PeerIdentity, sealed: bool = True, purpose: bytes = b"test"
) -> tuple[Session, Session]:
    """The two ends of a fresh session."""
    first = Opening(one, other.name, purpose, sealed, new_life())
    second = Opening(other, one.name, purpose, sealed, new_life())
    return (
        first.session(second.proof(first.public, first.life)),
        second.session(first.proof(second.public, second.life)),
    )


class Pipes:
    """Links of several parties. Frames wait in `frames` until `deliver`, or pass at once while `open` is set."""

    def __init__(
        self,
        who: Mapping[str, PeerIdentity],
        sealed: bool = True,
        timeout: float = 20.0,
        max_body: int = 1 << 20,
        chunk: int = 1 << 12,
        window: int = 1 << 18,
    ) -> None:
        self.frames: list[Frame] = []
        self.sent: list[Frame] = []
        self.open = True
        self.alter: Callable[[Frame], Sequence[Frame]] = lambda frame: [frame]
        """What becomes of a frame on its way."""
        ends: dict[str, dict[str, Session]] = {name: {} for name in who}
        for one in who:
            for other in who:
                if one < other:
                    ends[one][other], ends[other][one] = pair(who[one], who[other], sealed)
        self.links = {
            name: FlareLink(name, ends[name], self._from(name), timeout, max_body, chunk, window) for name in who
        }
        self.sessions = ends
        for link in self.links.values():
            link.declare(FLOATS, NOTE)

    def _from(self, sender: str) -> Callable[[str, bytes | bytearray], bool]:
        def transmit(peer: str, frame: bytes | bytearray) -> bool:
            self.sent.append((sender, peer, bytes(frame)))
            for altered in self.alter((sender, peer, bytes(frame))):
                if self.open:
                    self.hand(altered)
                else:
                    self.frames.append(altered)
            return True

        return transmit

    def hand(self, frame: Frame) -> None:
        sender, peer, content = frame
        header, body = parse(memoryview(content))
        self.links[peer].on_frame(sender, header, body, content[: HEADER.size])

    def deliver(self) -> None:
        """All that waits, and what comes of it."""
        while self.frames:
            self.hand(self.frames.pop(0))

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            for link in self.links.values():
                link.tick()
            self.deliver()

    def forge(self, sender: str, receiver: str, sort: FrameType, body: bytes, **head: int) -> Frame:
        """A frame that `sender`'s program never sent, made with its keys."""
        session = self.sessions[sender][receiver]
        packed = Header(sort, session.id, **head).pack()
        if sort in (FrameType.STATE, FrameType.PROBE):
            return sender, receiver, packed + session.note(packed, body)
        if session.sealed:
            return sender, receiver, packed + session.seal(head.get("number", 0), packed, body)
        return sender, receiver, packed + body

    def force(self, sender: str, receiver: str, sort: FrameType, body: bytes) -> None:
        """Send what the link would not, with the number that comes next."""
        self.links[sender]._out._numbered(receiver, sort, bytearray(HEADER.size) + body, wait=False)


class Sites:
    """Members with everything but an engine: what one hands to its cell comes out of the other's."""

    def __init__(self, folder: Path, names: Sequence[str] = NAMES, **wire: Any) -> None:
        self.authority = Authority(folder)
        members = {name: Member(address="localhost:1" if name == names[0] else None) for name in names}
        self.network = NetworkOptions(name="t", server=names[0], members=members, wire=WireLimits(**wire))
        self.credentials: dict[str, Credentials] = {name: self.authority.member(name) for name in names}
        self.sites: dict[str, FlareSite] = {}
        self.sent: list[Frame] = []
        self.alter: Callable[[Frame], Sequence[Frame]] = lambda frame: [frame]
        for name in names:
            self.start(name)

    def start(self, name: str) -> FlareSite:
        """The member's site, as after a restart."""
        site = FlareSite(name, self.network, self.credentials[name])
        site._cell = _Cell(self, name)
        self.sites[name] = site
        threading.Thread(target=site._tick, daemon=True).start()
        return site

    def hand(self, sender: str, receiver: str, frame: bytes, straight: bool = False, **changed: Any) -> None:
        """Bring a frame to a site, as the engine would: over the server, unless one of both is it."""
        from nvflare.fuel.f3.cellnet.defs import Encoding, MessageHeaderKey, MessagePropKey, MessageType
        from nvflare.fuel.f3.endpoint import Endpoint
        from nvflare.fuel.f3.message import Message

        site, cell = self.sites[receiver], self.network.cell
        relayed = self.network.relayed(sender, receiver) and not straight
        came_from = changed.pop("came_from", cell(self.network.server if relayed else sender))
        headers = {
            MessageHeaderKey.CHANNEL: CHANNEL,
            MessageHeaderKey.TOPIC: TOPIC,
            MessageHeaderKey.ORIGIN: cell(sender),
            MessageHeaderKey.DESTINATION: cell(receiver),
            MessageHeaderKey.MSG_TYPE: MessageType.REQ,
            MessageHeaderKey.PAYLOAD_ENCODING: Encoding.BYTES,
            MessageHeaderKey.REPLY_EXPECTED: False,
            **changed,
        }
        message = Message(headers, bytearray(frame) if frame is not None else None)
        message.set_prop(MessagePropKey.ENDPOINT, Endpoint(came_from))
        if site._gate(came_from, message):
            site._on_message(message)

    def connect(self, names: Sequence[str] = NAMES, patience: float = 20.0) -> dict[str, FlareLink]:
        """All meet; the links, by party."""
        links: dict[str, FlareLink] = {}

        def run(name: str) -> None:
            links[name] = self.sites[name].connect([peer for peer in names if peer != name], "test", patience)
            links[name].declare(FLOATS, NOTE)

        threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(patience + 5)
        assert set(links) == set(names), "a party stands still"
        return links


class _Cell:
    """Takes the engine's place."""

    def __init__(self, sites: Sites, me: str) -> None:
        self._sites, self._me = sites, me
        self.agents = {sites.network.cell(name): None for name in sites.network.members}

    def fire_and_forget(self, channel: str, topic: str, target: str, message: Any) -> dict[str, str]:
        receiver = self._sites.network.member(target)
        self._sites.sent.append((self._me, receiver, bytes(message.payload)))
        for sender, to, frame in self._sites.alter((self._me, receiver, bytes(message.payload))):
            self._sites.hand(sender, to, frame)
        return {target: ""}

    def stop(self) -> None: ...


def two(who: dict[str, PeerIdentity], **options: float) -> Pipes:
    return Pipes({name: who[name] for name in ("bank", "lab")}, **options)  # type: ignore[arg-type]


def send_all(pipes: Pipes, sizes: list[int]) -> None:
    for step, size in enumerate(sizes):
        pipes.links["bank"].send("lab", FLOATS, step, {"x": torch.arange(size, dtype=torch.float32)})
    wait_until(lambda: pipes.links["bank"]._out.idle)


def took_all(pipes: Pipes, sizes: list[int]) -> None:
    for step, size in enumerate(sizes):
        x = pipes.links["lab"].receive("bank", FLOATS, step).tensors["x"]
        assert torch.equal(x, torch.arange(size, dtype=torch.float32))
    assert not pipes.links["lab"]._of["bank"].inbox


def still_works(pipes: Pipes, step: int = 1000) -> None:
    """Honest traffic goes on, in both directions."""
    for one, other in (("bank", "lab"), ("lab", "bank")):
        pipes.links[one].send(other, NOTE, step, n=step)
        pipes.deliver()
        assert pipes.links[other].receive(one, NOTE, step).meta == {"n": step}


def wait_until(true: Callable[[], bool], patience: float = 10.0) -> None:
    deadline = time.monotonic() + patience
    while not true():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.005)


def in_thread(program: Callable[[], object]) -> list[object]:
    """What the program returns or raises, once it does."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(program())
        except Exception as error:
            outcome.append(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome
