"""A network that can be cut: each member in a network namespace of its own where that is permitted, else one proxy."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol


class Fabric(Protocol):
    """How members reach the server, and how they are cut off."""

    kind: str
    address: str
    """Where the server is dialled."""
    listen: str | None
    """Where it listens, if elsewhere."""

    def inside(self, member: str, command: Sequence[str]) -> list[str]:
        """The command that runs another one where a member is."""

    def cut(self, member: str) -> None: ...
    def heal(self, member: str) -> None: ...
    def close(self) -> None: ...


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Namespaces:
    """A namespace a member, each client with a cable of its own to the server."""

    kind = "network namespaces"
    listen = None

    def __init__(self, server: str, clients: Sequence[str], port: int = 8002) -> None:
        self.address = f"10.77.0.1:{port}"
        self._name = {member: f"vc{os.getpid()}-{at}" for at, member in enumerate((server, *clients))}
        self._clients = {member: at for at, member in enumerate(clients, 1)}
        self._server = self._name[server]
        try:
            for name in self._name.values():
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", self._server, "address", "add", "10.77.0.1/32", "dev", "lo")
            for member, at in self._clients.items():
                here, there = f"vc{at}", f"vs{at}"
                _ip("-n", self._server, "link", "add", there, "type", "veth", "peer", here, "netns", self._name[member])
                _ip("-n", self._server, "address", "add", f"10.77.{at}.1/30", "dev", there)
                _ip("-n", self._server, "link", "set", there, "up")
                _ip("-n", self._name[member], "address", "add", f"10.77.{at}.2/30", "dev", here)
                self.heal(member)
        except (OSError, subprocess.CalledProcessError):
            self.close()
            raise

    def inside(self, member: str, command: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self._name[member], *command]

    def cut(self, member: str) -> None:
        _ip("-n", self._name[member], "link", "set", f"vc{self._clients[member]}", "down")

    def heal(self, member: str) -> None:
        at = self._clients[member]
        _ip("-n", self._name[member], "link", "set", f"vc{at}", "up")
        _ip("-n", self._name[member], "route", "replace", "10.77.0.1/32", "via", f"10.77.{at}.1")

    def close(self) -> None:
        for name in self._name.values():
            with suppress(OSError, subprocess.CalledProcessError):
                _ip("netns", "del", name)


class Proxy:
    """One machine, one address, and a proxy before it; cutting anybody cuts all."""

    kind = "loopback behind a proxy"

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self._pairs: list[socket.socket] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"localhost:{self._door.getsockname()[1]}"
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.listen: str | None = f"localhost:{probe.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                came, _ = self._door.accept()
            except OSError:
                return
            if not self._open.is_set():
                came.close()
                continue
            try:
                host, port = str(self.listen).split(":")
                onward = socket.create_connection((host, int(port)), 5)
            except OSError:
                came.close()
                continue
            self._pairs += [came, onward]
            for one, other in ((came, onward), (onward, came)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    @staticmethod
    def _pump(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def inside(self, member: str, command: Sequence[str]) -> list[str]:
        return list(command)

    def cut(self, member: str) -> None:
        self._open.clear()
        for end in self._pairs:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def heal(self, member: str) -> None:
        self._open.set()

    def close(self) -> None:
        self.cut("")
        self._door.close()


def make_fabric(server: str, clients: Sequence[str]) -> Fabric:
    """The best that this machine permits."""
    try:
        return Namespaces(server, clients)
    except (OSError, subprocess.CalledProcessError):
        return Proxy()
