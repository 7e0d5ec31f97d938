"""One attempt of a party at its program, with sessions to all its peers."""

from __future__ import annotations

import json
import logging
import math
import queue
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from veracausa.errors import PeerLost, WireError
from veracausa.wire.codec import Layout, decode
from veracausa.wire.flare.frames import HEADER, NUMBERED, Assembly, Frame, Header, Incoming, Outgoing, Sort
from veracausa.wire.flare.peer import Peer, read_words
from veracausa.wire.flare.session import Session
from veracausa.wire.ledger import Ledger
from veracausa.wire.link import Link, silent_party
from veracausa.wire.memory import copy_bytes
from veracausa.wire.message import Kind, Message, shown

log = logging.getLogger(__name__)

Transmit = Callable[[str, Frame], bool]
"""Gives a frame to the engine for a peer; whether it took it. What it did not take is sent again."""

SMALL = 1 << 19
"""Bytes of a message that is sent at once; larger ones by a thread, while the party computes on."""
DOUBT = 1.5
"""Seconds in which a peer must answer that is said to have begun anew."""
IMPATIENT = 1.0
"""Seconds without a sign of the peer having read more, after which it is asked."""
_STEP = struct.Struct("<Q")


class FlareLink(Link):
    """A link to parties in other organisations.

    What a peer sends wrong is refused, counted and logged, and the party goes on waiting for what is right.
    """

    marks = True

    def __init__(
        self,
        me: str,
        sessions: Mapping[str, Session],
        transmit: Transmit,
        timeout: float,
        max_body: int,
        chunk: int,
        window: int,
        ledger: Ledger | None = None,
        device: torch.device | None = None,
    ) -> None:
        super().__init__(me, list(sessions), ledger, timeout, max_body)
        self.refused: Counter[str] = Counter()
        """How often each peer sent something that could not be taken."""
        self._last_refusal: dict[str, str] = {}
        self._transmit, self._chunk, self._window, self._device = transmit, chunk, window, device
        now = time.monotonic()
        self._of = {
            peer: Peer(session, Outgoing(window), Incoming(window), Assembly(max_body), moved_at=now, heard_at=now)
            for peer, session in sessions.items()
        }
        self._lost: PeerLost | None = None
        self._waits: dict[str, str] = {}
        self._changed = threading.Condition()
        self._sending = {peer: threading.Lock() for peer in sessions}
        self._large: queue.SimpleQueue[tuple[str, Tensor] | None] = queue.SimpleQueue()
        self._queued: Counter[str] = Counter()
        self._sender: threading.Thread | None = None
        self._closed = False
        self.step = 0
        self._held: set[int] = set()
        self._mark: Callable[[int], None] = lambda step: None

    # ---- sending ---------------------------------------------------------------------------------------------------

    def _deliver(self, message: Message, plan: Layout) -> None:
        peer = message.receiver
        self.step = max(self.step, message.step)
        self._check_alive(peer)
        if plan.nbytes <= min(SMALL, self._chunk) and not self._queued[peer]:
            frame = torch.empty(HEADER.size + plan.nbytes, dtype=torch.uint8)
            plan.write(frame[HEADER.size :])
            self._send_numbered(peer, Sort.PIECE, memoryview(frame.numpy()))  # type: ignore[arg-type]
            return
        whole = torch.empty(plan.nbytes, dtype=torch.uint8)
        plan.write(whole)
        if self._sender is None:
            self._sender = threading.Thread(target=self._send_large, name=f"{self.me} sends", daemon=True)
            self._sender.start()
        with self._changed:
            self._queued[peer] += 1
        self._large.put((peer, whole))

    def _send_large(self) -> None:
        while (item := self._large.get()) is not None:
            peer, whole = item
            try:
                for start in range(0, len(whole), self._chunk):
                    piece = whole[start : start + self._chunk]
                    frame = torch.empty(HEADER.size + len(piece), dtype=torch.uint8)
                    copy_bytes(frame[HEADER.size :], piece)
                    self._send_numbered(peer, Sort.PIECE, memoryview(frame.numpy()))  # type: ignore[arg-type]
            except PeerLost as lost:
                self.lose(lost.peer, lost.reason)
            with self._changed:
                self._queued[peer] -= 1
                self._changed.notify_all()

    def _send_numbered(self, peer: str, sort: Sort, frame: bytearray | memoryview, wait: bool = True) -> None:
        """Number a frame whose head is still empty, keep it until it was read, and send it."""
        own = self._of[peer]
        if wait:
            self._wait_for_room(own, peer, len(frame))
        with self._sending[peer]:
            with self._changed:
                number = own.out.number()
                head = Header(sort, own.session.id, number, own.incoming.read, own.incoming.arrived).pack()
                own.unsaid = own.freed = 0
            if own.session.sealed:
                ready: Frame = own.session.seal_frame(number, head, memoryview(frame)[HEADER.size :])
            else:
                frame[: HEADER.size] = head
                ready = frame
            with self._changed:
                if not own.out:
                    own.moved_at = time.monotonic()
                own.out.keep(number, ready)
        self._transmit(peer, ready)

    def _wait_for_room(self, own: Peer, peer: str, size: int) -> None:
        """Until the peer has read enough; nothing is locked meanwhile, so that words still go out."""
        start, told = time.monotonic(), False
        with self._changed:
            self._check_alive(peer)
            if own.out.has_room(size):
                return
        while True:
            with self._changed:
                left = start + (self.timeout if told else self.timeout / 2) - time.monotonic()
                room = self._changed.wait_for(
                    lambda: own.out.has_room(size) or self._lost or own.finished, max(0.0, left)
                )
                if room:
                    self._check_alive(peer)
            if room:
                if told:
                    self._whisper("")
                return
            if told:
                lost = silent_party(peer, {**self._waits, self.me: peer})
                raise PeerLost(lost, f"read nothing for {self.timeout:g} s" if lost == peer else self._why_silent(lost))
            told = True
            self._whisper(peer)

    def tell(self, peer: str, sort: Sort, number: int = 0) -> None:
        """Say how far this party has read, or ask the same."""
        own = self._of[peer]
        with self._changed:
            head = Header(sort, own.session.id, number, own.incoming.read, own.incoming.arrived).pack()
            own.unsaid = own.freed = 0
        self._transmit(peer, head + own.session.note(head, _STEP.pack(self.step)))

    def _say(self, peer: str, words: Mapping[str, str]) -> None:
        text = json.dumps(words).encode()
        self._send_numbered(peer, Sort.WORDS, bytearray(HEADER.size) + text, wait=False)

    # ---- receiving -------------------------------------------------------------------------------------------------

    def receive(self, sender: str, kind: Kind, step: int) -> Message:
        """The next message of `sender` that is of this kind and step; what is not is refused, and waited on."""
        self._check_peer(sender)
        start = time.monotonic()
        while True:
            try:
                return super().receive(sender, kind, step)
            except WireError as error:
                self.refuse(sender, error)
            if time.monotonic() - start > self.timeout:
                raise PeerLost(sender, self._why_silent(sender))

    def _collect(self, sender: str) -> Message:
        own = self._of[sender]
        start, told = time.monotonic(), False
        while True:
            with self._changed:
                left = start + (self.timeout if told else self.timeout / 2) - time.monotonic()
                heard = self._changed.wait_for(lambda: own.inbox or self._lost or own.finished, max(0.0, left))
                item = own.inbox.popleft() if own.inbox else None
                if item is not None:
                    # What is still being put together is bounded by the size of a message, not by the window.
                    own.freed += own.incoming.was_read(item[1] if own.inbox else own.incoming.arrived)
                    own.unsaid += 1
                elif self._lost is not None:
                    raise PeerLost(self._lost.peer, self._lost.reason)
                elif own.finished:
                    raise PeerLost(sender, "it had already finished")
                busy = own.unsaid >= 16 or own.freed > self._window // 4 or (item is not None and len(item[0]) > SMALL)
            if item is not None:
                if busy:
                    self.tell(sender, Sort.STATE)
                if (message := self._readable(sender, item[0])) is not None:
                    if told:
                        self._whisper("")
                    return message
                if time.monotonic() - start > self.timeout:
                    raise PeerLost(sender, self._why_silent(sender))
            elif not heard and not told:
                # Half-way to the time-out the others learn whom this party waits for: then nobody blames it.
                told = True
                self._whisper(sender)
            elif not heard:
                lost = silent_party(sender, {**self._waits, self.me: sender})
                raise PeerLost(lost, self._why_silent(lost))

    def _readable(self, sender: str, whole: Tensor) -> Message | None:
        try:
            message = decode(whole, self.kinds[sender], self.max_body, owned=True)
            if message.sender != sender:
                raise WireError("sender", f"is {shown(message.sender)!r} in the session of {sender!r}")
            if message.receiver != self.me:
                raise WireError("receiver", f"is {shown(message.receiver)!r} in a session with {self.me!r}")
            for name, tensor in message.tensors.items():
                if tensor.is_floating_point() and not _finite(tensor):
                    raise WireError(f"{message.kind}.{name}", "holds values that are not finite")
        except WireError as error:
            self.refuse(sender, error)
            return None
        if self._device is None or self._device.type == "cpu":
            return message
        moved = {name: tensor.to(self._device) for name, tensor in message.tensors.items()}
        return Message(message.sender, message.receiver, message.kind, message.step, moved, message.meta)

    def _why_silent(self, lost: str) -> str:
        why = f"silent for {self.timeout:g} s"
        if lost in self._last_refusal:
            why += f"; {self.refused[lost]} of its frames were refused, the last one: {self._last_refusal[lost]}"
        return why

    def _whisper(self, awaited: str) -> None:
        for peer in self.peers:
            self._say(peer, {"awaits": awaited})

    def hear(self, peer: str, header: Header, body: memoryview, head: bytes) -> None:
        """Take in a frame of a peer's session; called by the cell's threads, in any order."""
        own = self._of[peer]
        try:
            if header.sort in NUMBERED:
                if own.session.sealed:
                    body = own.session.open(header.number, head, body)
                self._take(own, peer, header, body)
            elif header.sort in (Sort.STATE, Sort.PROBE):
                note = own.session.read_note(head, body)
                if len(note) != _STEP.size:
                    raise WireError("frame", f"a {header.sort.name.lower()} of {len(note)} bytes says nothing")
                self._take_state(own, peer, header)
                own.step = _STEP.unpack(note)[0]
            else:
                raise WireError("frame", f"a {header.sort.name.lower()} of {len(body)} bytes does not belong here")
        except WireError as error:
            self.refuse(peer, error)

    def _take(self, own: Peer, peer: str, header: Header, body: memoryview) -> None:
        with self._changed:
            own.heard_at = time.monotonic()
            own.acknowledge(header)
            for at, part in list(own.incoming.take(header, body)):
                try:
                    if at.sort is Sort.WORDS:
                        self._take_words(own, peer, part)
                    elif (whole := own.assembly.add(part)) is not None:
                        own.inbox.append((whole, at.number + 1))
                except WireError as error:
                    self.refuse(peer, error)
            if not own.inbox:
                own.freed += own.incoming.was_read(own.incoming.arrived)
            urgent = own.freed > self._window // 4
            self._changed.notify_all()
        if header.sort is Sort.WORDS:
            self.tell(peer, Sort.STATE)  # who leaves waits for this
        elif urgent:
            # Not by this thread: it may be the one that reads the connection.
            threading.Thread(target=self.tell, args=(peer, Sort.STATE), daemon=True).start()

    def _take_words(self, own: Peer, peer: str, body: memoryview) -> None:
        words = read_words(body)
        if "awaits" in words:
            self._waits.pop(peer, None)
            if words["awaits"] in (self.me, *self.peers):
                self._waits[peer] = words["awaits"]
        elif "holds" in words:
            own.holds(words["holds"])
            self._mark_common()
        elif "finished" in words:
            own.finished = True
        elif "lost" in words:
            lost = words["lost"] if words["lost"] in (self.me, *self.peers) else peer
            reason = "".join(sign if sign.isprintable() else " " for sign in words.get("reason", "")[:1000])
            self._lost = self._lost or PeerLost(lost, reason)

    def checkpointed(self, step: int, mark: Callable[[int], None]) -> None:
        for peer in self.peers:
            self._say(peer, {"holds": str(step)})
        with self._changed:
            self._mark = mark
            self._held.add(step)
            self._mark_common()

    def _mark_common(self) -> None:
        """Once all are known to hold a step, older ones need not be kept."""
        common = self._held.intersection(*(own.held for own in self._of.values()))
        if common:
            newest = max(common)
            for steps in (self._held, *(own.held for own in self._of.values())):
                steps -= {step for step in steps if step <= newest}
            self._mark(newest)

    def _take_state(self, own: Peer, peer: str, header: Header) -> None:
        again: list[Frame] = []
        with self._changed:
            own.heard_at = time.monotonic()
            moved = own.acknowledge(header)
            if header.sort is Sort.STATE and header.number == own.probe and own.probe:
                own.latency = time.monotonic() - own.asked_at
                if own.doubted:
                    own.doubted = 0.0
                    self.refuse(peer, WireError("frame", "says that it began anew, but it goes on"))
                # Nothing more has arrived since it was asked before: what is on its way may be lost.
                if not moved and header.arrived < own.out.next and own.stuck == header.arrived:
                    again = own.out.since(header.arrived)
                own.stuck = header.arrived
            self._changed.notify_all()
        if header.sort is Sort.PROBE:
            self.tell(peer, Sort.STATE, header.number)
        for frame in again:
            if not self._transmit(peer, frame):
                break

    # ---- what goes wrong -------------------------------------------------------------------------------------------

    def refuse(self, peer: str, error: WireError) -> None:
        """Count and log what was not taken; the party goes on."""
        with self._changed:
            self.refused[peer] += 1
            count = self.refused[peer]
            self._last_refusal[peer] = problem = str(error).removeprefix("message refused: ")
        if count <= 20 or count % 1000 == 0:
            log.warning("refused from %s (%d so far): %s", peer, count, problem)

    def doubt(self, peer: str) -> None:
        """A relay says that the peer began anew: unless the peer itself answers soon, it is lost."""
        own = self._of[peer]
        with self._changed:
            if own.doubted:
                return
            own.doubted = time.monotonic()
        self._ask(own, peer)

    def lose(self, peer: str, reason: str) -> None:
        """From now on every receive says that this peer is lost."""
        with self._changed:
            self._lost = self._lost or PeerLost(peer, reason)
            self._changed.notify_all()

    def session_of(self, peer: str) -> Session | None:
        return self._of[peer].session if peer in self._of else None

    def _check_alive(self, peer: str) -> None:
        if self._lost is not None:
            raise PeerLost(self._lost.peer, self._lost.reason)
        if self._of[peer].finished:
            raise PeerLost(peer, "it had already finished")

    def tick(self) -> None:
        """Now and then: say what was read, ask who has not said so for long."""
        now = time.monotonic()
        for peer, own in self._of.items():
            with self._changed:
                waiting = bool(own.out) and now - max(own.moved_at, own.asked_at) > IMPATIENT
                curious = now - own.asked_at > 5 * IMPATIENT
                unsaid = own.unsaid > 0 or own.freed > 0
                gone = own.doubted and now - own.doubted > DOUBT
            if gone:
                self.lose(peer, "it began anew")
            elif waiting or curious:
                self._ask(own, peer)
            elif unsaid:
                self.tell(peer, Sort.STATE)

    def _ask(self, own: Peer, peer: str) -> None:
        with self._changed:
            own.probe += 1
            own.asked_at = time.monotonic()
            number = own.probe
        self.tell(peer, Sort.PROBE, number)

    def seen(self) -> dict[str, dict[str, float | int | None]]:
        """For each peer: its step, seconds of a round trip, seconds since it was heard, frames refused."""
        now = time.monotonic()
        return {
            peer: {
                "step": own.step,
                "latency": own.latency,
                "silent": now - own.heard_at,
                "refused": self.refused[peer],
            }
            for peer, own in self._of.items()
        }

    def abort(self, reason: str, lost: str | None = None) -> None:
        self.lose(lost or self.me, reason)  # what this party still sends in the background stops
        for peer in self.peers:
            self._say(peer, {"lost": (lost or self.me)[:60], "reason": reason[:1000]})
        self._end(2.0)

    def close(self) -> None:
        super().close()
        with self._changed:
            self._changed.wait_for(lambda: not any(self._queued.values()) or self._lost, self.timeout)
        for peer in self.peers:
            self._say(peer, {"finished": ""})
        self._end(min(self.timeout, 30.0))

    def wait_for_others(self, patience: float) -> None:
        """Stay until every peer has finished, or has been silent for so long; `PeerLost` names one that fell before."""
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: all(own.finished for own in self._of.values()) or self._lost, 1.0):
                    break
                heard = [own.heard_at for own in self._of.values() if not own.finished]
                if time.monotonic() - max(heard) > patience:
                    return  # it may have left with its last words lost: all that this party had to say has arrived
        if self._lost is not None:
            raise PeerLost(self._lost.peer, self._lost.reason)

    def _end(self, patience: float) -> None:
        """Wait until what was said last has arrived."""
        self._closed = True
        self._large.put(None)
        with self._changed:
            self._changed.wait_for(
                lambda: all(own.arrived_there >= own.out.next for own in self._of.values()), patience
            )


def _finite(tensor: Tensor) -> bool:
    """Whether every value is. A sum is finite only then, and takes one pass instead of four; it may also overflow."""
    return math.isfinite(tensor.sum()) or bool(torch.isfinite(tensor).all())
