"""Getting ready together: a defense may prepare for many minutes, and nobody must take that for silence."""

from __future__ import annotations

import time
from itertools import count

from veracausa.events import Observer
from veracausa.training.split.protocol import READY
from veracausa.wire.link import Link


class Heartbeat:
    """A passive party's side: called with a share of its work, it says so to the active party now and then.

    Every word is answered, and the answer comes when all parties have spoken. So those that are done hear from the
    active party while others still prepare, and where parties take turns (on a GPU) each gives its turn away.
    """

    def __init__(self, link: Link, active: str) -> None:
        self.link, self.active = link, active
        # Parties that take turns speak one after the other, and all must have spoken within the time-out.
        self.every = min(1.0, link.timeout / 4 / len(link.peers))
        self._number = 0
        self._spoke = time.monotonic()

    def __call__(self, share: float) -> None:
        if time.monotonic() - self._spoke >= self.every:
            self._say(share, done=False)

    def done(self) -> None:
        """Say that nothing is left to prepare, until that is so for everyone."""
        while not self._say(1.0, done=True):
            pass

    def _say(self, share: float, done: bool) -> bool:
        self.link.send(self.active, READY, self._number, share=min(1.0, max(0.0, float(share))), done=int(done))
        answer = self.link.receive(self.active, READY, self._number)
        self._number += 1
        self._spoke = time.monotonic()
        return bool(answer.meta["done"])


def await_ready(link: Link, notify: Observer) -> None:
    """The active party's side: return when every passive party is ready; `notify` hears how far each one is."""
    busy: set[str] = set()
    for number in count():
        heard = {peer: message.meta for peer, message in link.gather(READY, number).items()}
        for peer, meta in heard.items():
            if not meta["done"]:
                busy.add(peer)
            elif peer not in busy:
                continue
            else:
                busy.remove(peer)
            notify({"event": "preparing", "party": peer, "share": float(meta["share"])})
        done = all(meta["done"] for meta in heard.values())
        link.broadcast(READY, number, share=min(float(meta["share"]) for meta in heard.values()), done=int(done))
        if done:
            return
