"""Members in processes of their own, each in a network namespace where that is permitted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from federation.certificates import Authority
from federation.fabric import Fabric, make_fabric
from veracausa.wire.network import Member, NetworkOptions, WireLimits

HERE = Path(__file__).parent
PATIENCE = 400.0
"""Seconds until something must have happened; a busy machine takes its time to start three interpreters."""


class Site:
    """One process. Every line that it prints is an event; its log is kept."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._log = log
        self._changed = threading.Condition()
        source = str(HERE.parents[1] / "src")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([source, str(HERE.parent)]), "OMP_NUM_THREADS": "1"}
        with log.open("w") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True, env=env
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            if line.startswith("{"):
                with self._changed:
                    self.events.append(json.loads(line))
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_for(self, event: str, patience: float = PATIENCE) -> dict[str, Any]:
        """The event of this name, once it is there."""
        deadline = time.monotonic() + patience
        with self._changed:
            while True:
                for seen in self.events:
                    if seen["event"] == event:
                        return seen
                left = deadline - time.monotonic()
                assert left > 0, f"no {event!r}: {self.events}\n{self.log[-3000:]}"
                assert self._process.poll() is None, f"ended without {event!r}: {self.events}\n{self.log[-3000:]}"
                self._changed.wait(min(left, 0.5))

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def pause(self) -> None:
        """The process stands still, as a machine that is much too slow."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Loopback:
    """One machine; nothing can be cut."""

    kind, address, listen = "loopback", "localhost", None

    def inside(self, member: str, command: Sequence[str]) -> list[str]:
        return list(command)

    def cut(self, member: str) -> None:
        raise NotImplementedError

    def heal(self, member: str) -> None:
        raise NotImplementedError

    def close(self) -> None: ...


class Federation:
    """Members with certificates of one authority, and who pretends to be one."""

    def __init__(self, folder: Path, fabric: Fabric, network: NetworkOptions) -> None:
        self.folder, self.fabric, self.network = folder, fabric, network
        self.authority = Authority(folder / "authority")
        for name in network.members:
            self.authority.member(name)
        (folder / "federation.toml").write_text(network.to_toml())
        self._started: list[Site] = []

    def start(self, member: str, role: str, *words: str, network: Path | None = None) -> Site:
        """A process that plays a role of `member.py` where a member is."""
        command = [sys.executable, str(HERE / "member.py"), role, member]
        command += [str(network or self.folder / "federation.toml"), str(self.authority.folder), *words]
        if member == self.network.server and self.fabric.listen:
            command.append(f"listen={self.fabric.listen}")
        site = Site(self.fabric.inside(member, command), self.folder / f"{member}.{role}.{len(self._started)}.log")
        self._started.append(site)
        return site

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *unused: object) -> None:
        for site in self._started:
            site.kill()


@contextmanager
def federation(
    folder: Path, scheme: str, clients: tuple[str, ...] = ("hospital", "lab", "eve"), **wire: Any
) -> Iterator[Federation]:
    """Bank serves, the others dial; eve is a member without a part."""
    fabric = make_fabric("bank", clients)
    try:
        members = {"bank": Member(address=fabric.address), **{name: Member() for name in clients}}
        limits = WireLimits(**{"patience_s": 300.0, "chunk_kib": 64, **wire})
        network = NetworkOptions(name="t", server="bank", scheme=scheme, members=members, wire=limits)  # type: ignore[arg-type]
        with Federation(folder, fabric, network) as made:
            yield made
    finally:
        fabric.close()
