"""What a process of a test does: `ROLE MEMBER NETWORK AUTHORITY ...`. Every event is a line of JSON."""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from veracausa.federation.members import read_network
from veracausa.wire.credentials import Credentials
from veracausa.wire.network import NetworkOptions

PARTIES = ("bank", "hospital", "lab")


def say(event: str, **more: Any) -> None:
    print(json.dumps({"event": event, **more}), flush=True)


def credentials(folder: str, name: str) -> Credentials:
    return Credentials(Path(folder) / "root.pem", Path(folder) / f"{name}.pem", Path(folder) / f"{name}.key")


def heard() -> queue.SimpleQueue[str]:
    """The words that the test says to this process."""
    words: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            words.put(line.strip())

    threading.Thread(target=listen, daemon=True).start()
    return words


def listen_of(words: tuple[str, ...]) -> str | None:
    return next((word.removeprefix("listen=") for word in words if word.startswith("listen=")), None)


def secret(name: str) -> Any:
    """The tensor that a member sends; a test knows it, too."""
    import torch

    return torch.arange(20_000, dtype=torch.float32) * 0.37 + sum(name.encode())


def honest(me: str, network: NetworkOptions, folder: str, *words: str) -> None:
    """Exchange tensors with everybody, round after round, until the first party is told to finish."""
    import torch

    from federation.joined import FLOATS, NOTE
    from veracausa.wire.flare import cell as cells

    if "unsealed" in words:  # a build that forgot it, for a test that must see the difference
        cells.FlareSite.sealed = lambda self, peer: False  # type: ignore[method-assign]
        cells.FlareSite._came_from = staticmethod(lambda message: message.get_header("cn__origin"))  # type: ignore[method-assign, assignment]
        cells.OF_A_SESSION = ()  # type: ignore[assignment, attr-defined]
    parties = [name for name in PARTIES if name in network.members and f"without-{name}" not in words]
    others, told = [name for name in parties if name != me], heard()
    with cells.FlareSite(me, network, credentials(folder, me), listen=listen_of(words)) as site:
        link = site.connect(others, "test", 390)
        link.declare(FLOATS, NOTE)
        say("connected", sealed={peer: link.session_of(peer).sealed for peer in others})  # type: ignore[union-attr]
        step, more = 0, 1
        while more:
            for peer in others:
                link.send(peer, FLOATS, step, {"x": secret(me)})
            for peer in others:
                assert torch.equal(link.receive(peer, FLOATS, step).tensors["x"], secret(peer))
            if me == parties[0]:
                more = int(told.empty())
                link.broadcast(NOTE, step, n=more)
            else:
                more = int(link.receive(parties[0], NOTE, step).meta["n"])
            step += 1
            if step == 3:
                say("under way")
            time.sleep(0.05)
        refused = site.refused + link.refused
        link.close()
        if me == network.server:
            link.wait_for_others(30)
        say("done", steps=step, refused=dict(refused), dialled=len(site._cell.adhoc_connectors))
        if me == network.server:
            time.sleep(2)  # others still close


def dial(me: str, network: NetworkOptions, folder: str, *ports: str) -> None:
    """Try servers at several ports, one after the other: does anybody come?"""
    from veracausa.errors import PeerLost
    from veracausa.wire.flare.cell import FlareSite

    for port in ports:
        server = network.members[network.server].model_copy(update={"address": f"localhost:{port}"})
        elsewhere = network.model_copy(update={"members": {**network.members, network.server: server}})
        with FlareSite(me, elsewhere, credentials(folder, me)) as site:
            try:
                site.connect([network.server], "test", 6)
                outcome = "met"
            except PeerLost as lost:
                outcome = str(lost)
            say(f"tried {port}", outcome=outcome, here=site.here())
    say("done")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    role, member, file, authority, *more = sys.argv[1:]
    roles: dict[str, Callable[..., None]] = {"honest": honest, "dial": dial}
    if role not in roles:
        from federation import hostile

        roles = hostile.ROLES
    roles[role](member, read_network(Path(file)), authority, *more)
    sys.stdout.flush()
    os._exit(0)  # the engine's threads do not end by themselves
