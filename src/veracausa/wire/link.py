"""One party's end of the federation: the checks and the record that every link shares."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from veracausa.errors import FULL, PeerLost, VeracausaError, WireError
from veracausa.wire.codec import DEFAULT_MAX_BODY, Layout, layout
from veracausa.wire.ledger import Ledger
from veracausa.wire.message import Kind, Message, Scalar

_log = logging.getLogger(__name__)


class Link(ABC):
    """What a party's program sees of the others. Only `_deliver` and `_collect` differ between the ways to run.

    Every message is checked against its declared kind before it leaves and again where it arrives, and is written to
    the ledger of the party that sent it.
    """

    def __init__(
        self,
        me: str,
        peers: Sequence[str],
        ledger: Ledger | None = None,
        timeout: float = 120.0,
        max_body: int = DEFAULT_MAX_BODY,
    ) -> None:
        self.me = me
        self.peers = tuple(peers)
        self.ledger = ledger or Ledger()
        self.timeout = timeout
        self.max_body = max_body
        self.kinds: dict[str, dict[str, Kind]] = {peer: {} for peer in self.peers}

    marks = False
    """Whether checkpoints must be kept until all parties are known to hold one."""

    def declare(self, *kinds: Kind, peer: str | None = None) -> None:
        """Declare the kinds that may cross to and from `peer`, or every peer. Both ends must declare them."""
        for name in self.peers if peer is None else (peer,):
            for kind in kinds:
                if self.kinds[name].setdefault(kind.name, kind) != kind:
                    raise ValueError(f"kind {kind.name!r} was declared differently before")

    def send(self, to: str, kind: Kind, step: int, tensors: Mapping[str, Tensor] | None = None, **meta: Scalar) -> None:
        """Send one message. A message that does not match its declared kind is refused and does not leave."""
        self._check_peer(to)
        declared = self.kinds[to].get(kind.name)
        if declared is not kind and declared != kind:
            raise WireError("kind", f"{kind.name!r} was not declared by {self.me!r}")
        detached = {name: tensor.detach() for name, tensor in (tensors or {}).items()}
        message = Message(self.me, to, kind.name, step, detached, meta)
        message.check(kind)
        plan = layout(message, self.max_body)
        self._deliver(message, plan)
        self.ledger.record(message, plan.nbytes)
        _log.debug("%s sends %s to %s, step %s: %s bytes", self.me, kind.name, to, step, plan.nbytes)

    def receive(self, sender: str, kind: Kind, step: int) -> Message:
        """The next message of `sender`, which must be of this kind and step. Raises `PeerLost` after the time-out."""
        self._check_peer(sender)
        message = self._collect(sender)
        if message.kind not in self.kinds[sender]:
            raise WireError("kind", f"{message.kind!r} from {sender!r} was not declared by {self.me!r}")
        got = message.sender, message.receiver, message.kind, message.step
        expected = sender, self.me, kind.name, step
        if got != expected:
            at = next(at for at in range(len(got)) if got[at] != expected[at])
            name = ("sender", "receiver", "kind", "step")[at]
            raise WireError(name, f"is {got[at]!r}, expected {expected[at]!r} (from {sender!r})")
        message.check(kind)
        return message

    def broadcast(self, kind: Kind, step: int, tensors: Mapping[str, Tensor] | None = None, **meta: Scalar) -> None:
        """Send the same to every peer."""
        for peer in self.peers:
            self.send(peer, kind, step, tensors, **meta)

    def gather(self, kind: Kind, step: int) -> dict[str, Message]:
        """One message of this kind and step from every peer, in the order of `peers`."""
        return self.gather_each(dict.fromkeys(self.peers, kind), step)

    def gather_each(self, kinds: Mapping[str, Kind], step: int) -> dict[str, Message]:
        """One message from every peer named, each of the kind declared for it, in their order."""
        for peer in kinds:
            self._check_peer(peer)
        self._await_all(tuple(kinds))
        return {peer: self.receive(peer, kind, step) for peer, kind in kinds.items()}

    def checkpointed(self, step: int, mark: Callable[[int], None]) -> None:
        """Announce a checkpoint of `step`. `mark` is called with a step of which all are known to hold a checkpoint.

        Where one process starts all parties, it looks into all their folders instead, and nothing is announced.
        """
        return

    @abstractmethod
    def abort(self, reason: str, lost: str | None = None) -> None:
        """Tell every peer that `lost` (by default this party) is gone; each gets `PeerLost` at its next receive."""

    def give_up(self, error: BaseException) -> None:
        """Tell the peers why this party ends. A lost peer's name is passed on, so that everyone names the same one."""
        if isinstance(error, PeerLost):
            self.abort(error.reason, error.peer)
        elif isinstance(error, OSError):
            # Without the path: partners may know that it failed, not where.
            full = error.errno in FULL
            self.abort("its disk is full" if full else "it could not read or write a file of its own")
        else:
            self.abort(closing_reason(error))

    def close(self) -> None:
        """Leave in good order."""
        self.ledger.flush()

    @abstractmethod
    def _deliver(self, message: Message, plan: Layout) -> None: ...

    @abstractmethod
    def _collect(self, sender: str) -> Message: ...

    def _await_all(self, senders: Sequence[str]) -> None:
        """Where it saves wake-ups, sleep until each of them has sent something; `_collect` tells what went wrong."""
        return

    def _check_peer(self, name: str) -> None:
        if name not in self.peers:
            raise WireError("receiver", f"{self.me!r} has no link to {name!r}")


def closing_reason(error: BaseException) -> str:
    """Why a party ends, as a sentence for its partners. It names no file of the party's own."""
    if isinstance(error, VeracausaError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "stopped by its operator"
    if isinstance(error, OSError):
        full = error.errno in FULL
        return "its disk is full" if full else f"its machine failed ({error.strerror or type(error).__name__})"
    return f"its program failed ({type(error).__name__})"


def silent_party(awaited: str, waits: Mapping[str, str]) -> str:
    """The party that keeps everyone waiting: the end of the chain of parties that wait for each other."""
    seen: set[str] = set()
    party = awaited
    while party in waits:
        if party in seen:
            return awaited  # they wait in a circle: nobody is dead, the programs disagree
        seen.add(party)
        party = waits[party]
    return party
