"""One attempt of a party at its program, with sessions to all its peers."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from veracausa.errors import PeerLost, WireError
from veracausa.escaping import escaped
from veracausa.wire.codec import Layout, decode
from veracausa.wire.flare.frames import NUMBERED, Frame, FrameType, Header, StaleFrame
from veracausa.wire.flare.peers import SMALL, STEP, Peer, Peers, Sender, Transmit, read_control
from veracausa.wire.flare.session import Session
from veracausa.wire.ledger import Ledger
from veracausa.wire.link import Link
from veracausa.wire.message import Kind, Message, shown

RESTART_ANSWER_S = 1.5
"""Seconds in which a peer must answer after a relay has claimed that it restarted."""
IMPATIENT = 1.0
"""Seconds without a sign of the peer having read more, after which it is asked."""


class FlareLink(Link):
    """A link to parties in other organisations.

    A wrong frame of a peer is refused, counted and logged. The party goes on waiting for the right one.
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
        self._peers = Peers(me, sessions, timeout, window, max_body)
        super().__init__(me, list(sessions), ledger, timeout, max_body)
        self._of, self._changed = self._peers.of, self._peers.changed
        self._out = Sender(self._peers, transmit, chunk)
        self._device = device
        self._held: set[int] = set()
        self._mark: Callable[[int], None] = lambda step: None

    @property
    def timeout(self) -> float:
        """Seconds of silence after which a peer is lost."""
        return self._peers.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._peers.timeout = seconds

    @property
    def refused(self) -> Counter[str]:
        """How many frames of each peer were refused."""
        return self._peers.refused

    @property
    def stale(self) -> Counter[str]:
        """How many stale frames of each peer came."""
        return self._peers.stale

    @property
    def step(self) -> int:
        """The furthest step that this party has sent something of."""
        return self._peers.step

    def greet(self) -> None:
        """Let all peers know that this party is there."""
        for peer in self.peers:
            self._out.send_state(peer, FrameType.STATE)

    def _deliver(self, message: Message, plan: Layout) -> None:
        self._peers.step = max(self._peers.step, message.step)
        self._peers.check_alive(message.receiver)
        self._out.send_message(message.receiver, plan)

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
                raise self._peers.silence_of(sender)

    def _collect(self, sender: str) -> Message:
        own = self._of[sender]
        start, announced = time.monotonic(), False
        while True:
            with self._changed:
                left = start + (self.timeout if announced else self.timeout / 2) - time.monotonic()
                heard = self._changed.wait_for(lambda: own.inbox or self._peers.lost or own.finished, max(0.0, left))
                item = own.inbox.popleft() if own.inbox else None
                if item is not None:
                    # What is still being put together is bounded by the size of a message, not by the window.
                    own.freed += own.incoming.was_read(item[1] if own.inbox else own.incoming.arrived)
                    own.unacknowledged += 1
                else:
                    self._peers.check_alive(sender)
                large = item is not None and len(item[0]) > SMALL
                busy = large or own.unacknowledged >= 16 or own.freed > self._peers.window // 4
            if item is not None:
                if busy:
                    self._out.send_state(sender, FrameType.STATE)
                if (message := self._readable(sender, item[0])) is not None:
                    if announced:
                        self._out.announce_waiting("")
                    return message
                if time.monotonic() - start > self.timeout:
                    raise self._peers.silence_of(sender)
            elif not heard and not announced:
                # Half-way to the time-out the others learn whom this party waits for: then nobody blames it.
                announced = True
                self._out.announce_waiting(sender)
            elif not heard:
                raise self._peers.silence_of(self._peers.blamed_for(sender))

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

    def on_frame(self, peer: str, header: Header, body: memoryview, head: bytes) -> None:
        """Take in a frame of a peer's session; called by the cell's threads, in any order."""
        own = self._of[peer]
        try:
            if header.type in NUMBERED:
                if own.session.sealed:
                    body = own.session.open(header.number, head, body)
                self._take(own, peer, header, body)
            elif header.type in (FrameType.STATE, FrameType.PROBE):
                note = own.session.read_note(head, body)
                if len(note) != STEP.size:
                    raise WireError("frame", f"a {header.type.name.lower()} of {len(note)} bytes says nothing")
                self._take_state(own, peer, header)
                own.step = max(own.step, STEP.unpack(note)[0])  # a note may have overtaken this one
            else:
                raise WireError("frame", f"a {header.type.name.lower()} of {len(body)} bytes does not belong here")
        except StaleFrame:
            self.count_stale(peer)
        except WireError as error:
            self.refuse(peer, error)

    def _take(self, own: Peer, peer: str, header: Header, body: memoryview) -> None:
        with self._changed:
            own.heard_at = time.monotonic()
            own.acknowledge(header)
            for at, part in list(own.incoming.take(header, body)):
                try:
                    if at.type is FrameType.CONTROL:
                        self._take_control(own, peer, part)
                    elif (whole := own.assembly.add(part)) is not None:
                        own.inbox.append((whole, at.number + 1))
                except WireError as error:
                    self.refuse(peer, error)
            if not own.inbox:
                own.freed += own.incoming.was_read(own.incoming.arrived)
            urgent = own.freed > self._peers.window // 4
            self._changed.notify_all()
        if header.type is FrameType.CONTROL:
            self._out.send_state(peer, FrameType.STATE)  # who leaves waits for this
        elif urgent:
            # Not by this thread: it may be the one that reads the connection.
            threading.Thread(target=self._out.send_state, args=(peer, FrameType.STATE), daemon=True).start()

    def _take_control(self, own: Peer, peer: str, body: memoryview) -> None:
        words = read_control(body)
        if "awaits" in words:
            self._peers.waits.pop(peer, None)
            if words["awaits"] in (self.me, *self.peers):
                self._peers.waits[peer] = words["awaits"]
        elif "holds" in words:
            own.holds(words["holds"])
            self._mark_common()
        elif "finished" in words:
            own.finished = True
        elif "lost" in words:
            lost = words["lost"] if words["lost"] in (self.me, *self.peers) else peer
            self._peers.lost = self._peers.lost or PeerLost(lost, escaped(words.get("reason", "")[:1000]))

    def checkpointed(self, step: int, mark: Callable[[int], None]) -> None:
        for peer in self.peers:
            self._out.send_control(peer, {"holds": str(step)})
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
            if header.type is FrameType.STATE and header.number == own.probe and own.probe:
                own.latency = time.monotonic() - own.asked_at
                if own.suspected_at:
                    own.suspected_at = 0.0
                    self.refuse(peer, WireError("frame", "says that it began anew, but it goes on"))
                # Nothing more has arrived since it was asked before: what is on its way may be lost.
                if not moved and header.arrived < own.out.next and own.stuck == header.arrived:
                    again = own.out.since(header.arrived)
                own.stuck = header.arrived
            self._changed.notify_all()
        if header.type is FrameType.PROBE:
            self._out.send_state(peer, FrameType.STATE, header.number)
        self._out.resend(peer, again)

    # ---- what goes wrong -------------------------------------------------------------------------------------------

    def refuse(self, peer: str, error: WireError) -> None:
        """Count and log a refused frame. The party continues."""
        self._peers.refuse(peer, error)

    def count_stale(self, peer: str) -> None:
        """Count a stale frame. It has no other effect."""
        self._peers.count_stale(peer)

    def suspect_restart(self, peer: str) -> None:
        """A relay claims that the peer restarted. Unless the peer itself answers soon, it counts as lost."""
        own = self._of[peer]
        with self._changed:
            if own.suspected_at:
                return
            own.suspected_at = time.monotonic()
        self._out.probe(peer)

    def lose(self, peer: str, reason: str) -> None:
        """From now on every receive says that this peer is lost."""
        self._peers.lose(peer, reason)

    def session_of(self, peer: str) -> Session | None:
        return self._of[peer].session if peer in self._of else None

    @property
    def sessions(self) -> dict[str, Session]:
        """The session with each peer."""
        return {peer: own.session for peer, own in self._of.items()}

    def tick(self) -> None:
        """Called regularly: acknowledge what was read, and probe peers that have not acknowledged for long."""
        now = time.monotonic()
        for peer, own in self._of.items():
            with self._changed:
                waiting = bool(own.out) and now - max(own.moved_at, own.asked_at) > IMPATIENT
                curious = now - own.asked_at > 5 * IMPATIENT
                unacknowledged = own.unacknowledged > 0 or own.freed > 0
                gone = own.suspected_at and now - own.suspected_at > RESTART_ANSWER_S
            if gone:
                self.lose(peer, "it began anew")
            elif waiting or curious:
                self._out.probe(peer)
            elif unacknowledged:
                self._out.send_state(peer, FrameType.STATE)

    def seen(self) -> dict[str, dict[str, float | int | None]]:
        """For each peer: its step, seconds of a round trip and since it was heard, frames refused and passed over."""
        now = time.monotonic()
        return {
            peer: {
                "step": own.step,
                "latency": own.latency,
                "silent": now - own.heard_at,
                "refused": self.refused[peer],
                "stale": self.stale[peer],
            }
            for peer, own in self._of.items()
        }

    def abort(self, reason: str, lost: str | None = None) -> None:
        self.lose(lost or self.me, reason)  # what this party still sends in the background stops
        for peer in self.peers:
            self._out.send_control(peer, {"lost": (lost or self.me)[:60], "reason": reason[:1000]})
        self._end(2.0)

    def close(self) -> None:
        super().close()
        with self._changed:
            self._changed.wait_for(lambda: self._out.idle or self._peers.lost, self.timeout)
        for peer in self.peers:
            self._out.send_control(peer, {"finished": ""})
        self._end(min(self.timeout, 30.0))

    def wait_for_others(self, patience: float) -> None:
        """Stay until every peer has finished, or has been silent for so long; `PeerLost` names one that fell before."""
        all_own = self._of.values()
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: all(own.finished for own in all_own) or self._peers.lost, 1.0):
                    break
                heard = [own.heard_at for own in all_own if not own.finished]
                if time.monotonic() - max(heard) > patience:
                    return  # it may have left with its last words lost: all that this party had to say has arrived
        if self._peers.lost is not None:
            raise PeerLost(self._peers.lost.peer, self._peers.lost.reason)

    def _end(self, patience: float) -> None:
        """Wait until the last frames have arrived."""
        self._out.finish()
        with self._changed:
            self._changed.wait_for(
                lambda: all(own.arrived_there >= own.out.next for own in self._of.values()), patience
            )


def _finite(tensor: Tensor) -> bool:
    """Whether every value is. A sum is finite only then, and takes one pass instead of four; it may also overflow."""
    return math.isfinite(tensor.sum()) or bool(torch.isfinite(tensor).all())
