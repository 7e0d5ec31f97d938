"""Parties as threads of one process: the embedded default."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from veracausa.errors import PeerLost
from veracausa.wire.codec import DEFAULT_MAX_BODY, Layout
from veracausa.wire.ledger import Ledger
from veracausa.wire.link import Link, silent_party
from veracausa.wire.memory import copy_bytes
from veracausa.wire.message import Message

STOPPED = "stopped by its operator"
"""What peers hear of a party that somebody interrupted."""
SMALL = 1 << 14
"""Numbers of a tensor that torch copies with one thread alone, and sooner than any other way."""
STOP_SECONDS = 30.0
"""How long an interrupted run waits for its parties to reach their next exchange."""


class Turns:
    """Lets one party compute at a time. A party that has to wait passes the turn to the next one that is ready.

    On a GPU the parties only queue kernels. Three threads that do so at once compete for the interpreter, and none is
    faster. A turn that is passed on directly costs one wake-up, and parties always run in the same order.
    """

    def __init__(self) -> None:
        self.holder = ""
        self._guard = threading.Lock()
        self._waiting: dict[str, tuple[threading.Lock, Callable[[], bool]]] = {}

    def acquire(self, me: str, timeout: float) -> None:
        """Wait for a first turn."""
        with self._guard:
            if not self.holder:
                self.holder = me
                return
            wake = self._enqueue(me, lambda: True)
        self._sleep(me, wake, timeout)

    def wait(self, me: str, ready: Callable[[], bool], timeout: float) -> None:
        """Hand the turn on and come back with it once `ready`; `TimeoutError` if it never is.

        Whoever holds the turn all that time is lost: it computes without end.
        """
        with self._guard:
            wake = self._enqueue(me, ready)
            self._pass_on()
        self._sleep(me, wake, timeout)

    def release(self) -> None:
        with self._guard:
            self._pass_on()

    def wake_ready(self) -> None:
        """There is news for a sleeper from somebody who holds no turn."""
        with self._guard:
            if not self.holder:
                self._pass_on()

    def _enqueue(self, me: str, ready: Callable[[], bool]) -> threading.Lock:
        wake = threading.Lock()
        wake.acquire()
        self._waiting[me] = (wake, ready)
        return wake

    def _sleep(self, me: str, wake: threading.Lock, timeout: float) -> None:
        if wake.acquire(timeout=timeout):
            return
        with self._guard:
            if self._waiting.pop(me, None) is None:
                return  # woken at the last moment
            if self.holder:
                raise PeerLost(self.holder, f"silent for {timeout:g} s")
        raise TimeoutError

    def _pass_on(self) -> None:
        self.holder = next((name for name, (_, ready) in self._waiting.items() if ready()), "")
        if self.holder:
            self._waiting.pop(self.holder)[0].release()


class Inbox:
    """What has arrived for one party, by sender; the news that a peer is lost reaches it whatever it waits for."""

    def __init__(self, senders: Sequence[str]) -> None:
        self._arrived: dict[str, deque[Message]] = {sender: deque() for sender in senders}
        self._finished: set[str] = set()
        self._lost: PeerLost | None = None
        self.awaited: str | None = None
        self._wanted: set[str] = set()
        """From whom something must come before the party is woken."""
        self._changed = threading.Condition()

    def put(self, message: Message) -> None:
        with self._changed:
            self._arrived[message.sender].append(message)
            self._heard_of(message.sender)

    def lose(self, lost: PeerLost) -> None:
        with self._changed:
            self._lost = self._lost or lost
            self._changed.notify()

    def finish(self, sender: str) -> None:
        with self._changed:
            self._finished.add(sender)
            self._heard_of(sender)

    def _heard_of(self, sender: str) -> None:
        # To wake a thread costs more than the message: it is done once, when all has come that is waited for.
        if sender in self._wanted:
            self._wanted.remove(sender)
            if not self._wanted:
                self._changed.notify()

    def heard(self, sender: str) -> bool:
        """Whether `get` would have something to say at once."""
        return bool(self._arrived[sender] or self._lost or sender in self._finished)

    def await_all(self, senders: Sequence[str], timeout: float) -> None:
        """Sleep until each has been heard, or one is lost; `TimeoutError` when one is silent for so long."""
        with self._changed:
            self.awaited = None
            missing = [sender for sender in senders if not self.heard(sender)]
            if not missing:
                return
            self._wanted, self.awaited = set(missing), missing[0]
            if not self._changed.wait_for(lambda: self._lost is not None or not self._wanted, timeout):
                self.awaited = next(sender for sender in missing if sender in self._wanted)
                raise TimeoutError(self.awaited)  # `awaited` stays: the others must see whom this party gave up on
            self._wanted, self.awaited = set(), None

    def get(self, sender: str, timeout: float) -> Message:
        """The next message of `sender`; `TimeoutError` when nothing at all was heard."""
        arrived = self._arrived[sender]
        if not arrived:
            self.await_all([sender], timeout)
        # The party alone takes something out, and a message that has come is there whatever else happens.
        if arrived:
            return arrived.popleft()
        with self._changed:
            if self._lost is not None:
                raise PeerLost(self._lost.peer, self._lost.reason)
            raise PeerLost(sender, "it had already finished")


class ThreadLink(Link):
    """A link whose messages are copied tensors in a queue: the receiver never shares memory with the sender."""

    def __init__(
        self,
        me: str,
        inboxes: Mapping[str, Inbox],
        turns: Turns | None = None,
        ledger: Ledger | None = None,
        timeout: float = 120.0,
        max_body: int = DEFAULT_MAX_BODY,
    ) -> None:
        super().__init__(me, [name for name in inboxes if name != me], ledger, timeout, max_body)
        self._inboxes = inboxes
        self._turns = turns

    def _deliver(self, message: Message, plan: Layout) -> None:
        # Contiguous, as from any other link: a kernel may round differently for another memory format.
        copies = {name: _copy(tensor) for name, tensor in message.tensors.items()}
        sent = Message(message.sender, message.receiver, message.kind, message.step, copies, message.meta)
        self._inboxes[message.receiver].put(sent)

    def _collect(self, sender: str) -> Message:
        inbox = self._inboxes[self.me]
        try:
            if self._turns is not None and not inbox.heard(sender):
                inbox.awaited = sender
                self._turns.wait(self.me, lambda: inbox.heard(sender), self.timeout)
                inbox.awaited = None
            return inbox.get(sender, self.timeout)
        except TimeoutError:
            raise self._silent(sender) from None

    def _await_all(self, senders: Sequence[str]) -> None:
        if self._turns is not None:  # who has to wait for each of them passes its turn on each time
            return
        try:
            self._inboxes[self.me].await_all(senders, self.timeout)
        except TimeoutError as silent:
            raise self._silent(str(silent)) from None

    def _silent(self, sender: str) -> PeerLost:
        waits = {name: box.awaited for name, box in self._inboxes.items() if box.awaited is not None}
        return PeerLost(silent_party(sender, waits), f"silent for {self.timeout:g} s")

    def close(self) -> None:
        super().close()
        for peer in self.peers:
            self._inboxes[peer].finish(self.me)

    def abort(self, reason: str, lost: str | None = None) -> None:
        for peer in self.peers:
            self._inboxes[peer].lose(PeerLost(lost or self.me, reason))
        if self._turns is not None:
            self._turns.wake_ready()


def _copy(tensor: Tensor) -> Tensor:
    if tensor.is_cpu and tensor.numel() <= SMALL:
        return tensor.clone(memory_format=torch.contiguous_format)
    copied = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    copy_bytes(copied, tensor)
    return copied


def thread_links(
    names: Sequence[str],
    timeout: float = 120.0,
    ledgers: Mapping[str, Ledger] | None = None,
    turns: Turns | None = None,
    max_body: int = DEFAULT_MAX_BODY,
) -> dict[str, ThreadLink]:
    """A link for every name, each connected to all the others."""
    inboxes = {name: Inbox([sender for sender in names if sender != name]) for name in names}
    ledgers = ledgers or {}
    return {name: ThreadLink(name, inboxes, turns, ledgers.get(name), timeout, max_body) for name in names}


def run_threads(
    programs: Mapping[str, Callable[[Link], None]],
    links: Mapping[str, ThreadLink],
    turns: Turns | None = None,
    cpu_threads: Mapping[str, int] | None = None,
) -> None:
    """Run every party's program in a thread of its own; raise what went wrong first."""
    share_one_heap()
    errors: list[BaseException] = []
    go = threading.Event()

    def run(name: str, settled: threading.Event) -> None:
        link = links[name]
        if cpu_threads:
            torch.set_num_threads(cpu_threads[name])
        settled.set()
        go.wait()
        try:
            if turns:
                turns.acquire(name, link.timeout)
            try:
                programs[name](link)
                link.close()
            finally:
                if turns and turns.holder == name:
                    turns.release()
        except BaseException as error:  # whatever it was, the other parties must hear of it
            errors.append(error)
            link.give_up(error)

    before = torch.get_num_threads()
    threads = []
    for name in programs:
        # One after the other: part of the thread count is the process's, and the last word must always be the same.
        settled = threading.Event()
        threads.append(threading.Thread(target=run, args=(name, settled), name=name, daemon=True))
        threads[-1].start()
        settled.wait()
    go.set()
    patience = 2 * max(link.timeout for link in links.values())
    try:
        for thread in threads:
            while thread.is_alive() and not errors:
                thread.join(timeout=0.2)
            # Whoever was given up on for its silence is not waited for once more.
            hung = any(isinstance(error, PeerLost) and error.peer == thread.name for error in errors)
            thread.join(timeout=0.0 if hung else patience)
    except KeyboardInterrupt:
        _stop(threads, links)
        raise
    finally:
        torch.set_num_threads(before)
    if errors:
        raise first_cause(errors)


def _stop(threads: Sequence[threading.Thread], links: Mapping[str, ThreadLink]) -> None:
    """Let every party end at its next exchange, and wait for them a while.

    A thread that still computes while the interpreter is taken down aborts the whole process.
    """
    for link in links.values():
        link.abort(STOPPED)
    deadline = time.monotonic() + STOP_SECONDS
    for thread in threads:
        thread.join(timeout=max(0.0, deadline - time.monotonic()))


def first_cause(errors: Sequence[BaseException]) -> BaseException:
    """The error that the others followed from: one that is not itself about a lost peer, where there is one."""
    return next((error for error in errors if not isinstance(error, PeerLost)), errors[0])


def share_one_heap() -> None:
    """Let all party threads allocate from one heap that keeps its pages (glibc).

    By default every thread gets a heap of its own that hands freed pages back at once; a training step then spends a
    tenth of its time on page faults for activations it had a moment ago.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        arena_max, mmap_threshold, trim_threshold = -8, -3, -1
        mallopt(arena_max, 1)
        mallopt(mmap_threshold, 32 << 20)
        mallopt(trim_threshold, (1 << 31) - 1)
