"""Roles of `member.py` that do not keep to the rules, with the engine's own cells and beneath them."""

from __future__ import annotations

import os
import random
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from nvflare.fuel.f3.cellnet.cell_cipher import SimpleCellCipher
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import Encoding, MessageHeaderKey, MessageType
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.stats_pool import StatsPoolManager
from nvflare.fuel.utils import fobs

from federation.certificates import Authority
from federation.member import credentials, heard, listen_of, say, secret
from veracausa.wire.flare import tls_driver
from veracausa.wire.network import NetworkOptions

tls_driver.register()
SimpleCellCipher._validate_cert_chain = lambda self, chain: None  # who is hostile does not look at its own certificate
MAGIC = b"VCF1"
STOCK = {"tcp": "tcp", "grpc": "grpc"}


def poke(sort: int = 5, session: bytes = bytes(16), number: int = 0, body: bytes = b"") -> bytes:
    """A frame as a member's link would send it."""
    return struct.pack("<4sB3x16sQQQ", MAGIC, sort, session, number, 0, 0) + body


def framed(origin: str, to: str, payload: bytes | None, **changed: Any) -> Message:
    """A message as the engine of a member sends it, except for what is changed."""
    headers = {
        MessageHeaderKey.CHANNEL: "veracausa",
        MessageHeaderKey.TOPIC: "frame",
        MessageHeaderKey.FROM_CELL: origin,
        MessageHeaderKey.TO_CELL: "server",
        MessageHeaderKey.ORIGIN: origin,
        MessageHeaderKey.DESTINATION: to,
        MessageHeaderKey.MSG_TYPE: MessageType.REQ,
        MessageHeaderKey.PAYLOAD_ENCODING: Encoding.BYTES if payload else Encoding.NONE,
        MessageHeaderKey.REPLY_EXPECTED: False,
    }
    return Message({**headers, **changed}, payload)


# ---- who wants in --------------------------------------------------------------------------------------------------


def strangers(me: str, network: NetworkOptions, folder: str, *words: str) -> None:
    """Dial the server in every way that must fail, and once as it should be."""
    from veracausa.wire.flare.tls_driver import url

    address = str(network.members[network.server].address)
    other = Authority(Path(folder) / f"other{os.getpid()}").member(me)
    eve, root = credentials(folder, me), str(Path(folder) / "root.pem")
    ours = url(network.scheme, address, network.server)
    stock = f"{STOCK[network.scheme]}://{address}"
    ways: dict[str, tuple[str, str, bool, dict[str, str]]] = {
        "another authority": (me, ours, True, {**other.for_flare(), "ca_cert": root}),
        "expired": (me, ours, True, credentials(folder, "expired").for_flare()),
        "another member's name": ("hospital", ours, True, eve.for_flare()),
        "a child of a member": ("hospital.child", ours, True, eve.for_flare()),
        "a child of its own": (f"{me}.child", ours, True, eve.for_flare()),
        "no certificate": (me, stock, True, {"ca_cert": root, "connection_security": "tls"}),
        "no TLS": (me, stock, False, {}),
        "as it should be": (me, ours, True, eve.for_flare()),
    }
    for way, (name, target, secure, settings) in ways.items():
        outcome = "kept out"
        try:
            cell = CoreCell(name, target, secure, settings, auth_identity_map={"server": network.server})
            answers: list[Message] = []
            cell.add_incoming_filter("*", "*", answers.append)
            cell.start()
            # The engine greets before it looks at the name: who is in is who gets an answer.
            end = time.monotonic() + (30 if way == "as it should be" else 5)
            while time.monotonic() < end and not answers:
                time.sleep(0.3)
                with suppress(Exception):
                    frame = framed(name, "server", poke(0, os.urandom(16), 3, os.urandom(500)))
                    cell.communicator.send(Endpoint("server"), CoreCell.APP_ID, frame)
            outcome = "let in" if answers else "kept out"
            cell.agents.clear()
            cell.stop()
        except Exception as error:
            say("error", way=way, error=repr(error))
        finally:
            CoreCell.ALL_CELLS.clear()
            StatsPoolManager.pools.clear()
        say("tried", way=way, outcome=outcome)
    say("done")


# ---- a member with a valid certificate -----------------------------------------------------------------------------


def bad_messages(me: str, elsewhere: str) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Headers that differ from those of an honest frame, and a payload."""
    key = MessageHeaderKey
    frame = poke()
    yield "another channel", {key.CHANNEL: "task"}, frame
    yield "the engine's own channel", {key.CHANNEL: "cellnet.channel", key.TOPIC: "bye"}, None
    yield (
        "a farewell that asks to be dialled",
        {key.CHANNEL: "cellnet.channel", key.TOPIC: "bye", key.CONN_URL: elsewhere, key.FROM_CELL: "x"},
        None,
    )
    bulk = {key.CHANNEL: "cellnet.channel", key.TOPIC: "bulk", key.PAYLOAD_ENCODING: Encoding.FOBS}
    yield "bulk", bulk, fobs.dumps([1])
    yield "objects", {key.PAYLOAD_ENCODING: Encoding.FOBS}, fobs.dumps({"a": 1})
    yield "objects that are none", {key.PAYLOAD_ENCODING: Encoding.FOBS}, os.urandom(100)
    yield "a reply", {key.MSG_TYPE: MessageType.REPLY, key.REQ_ID: "1"}, frame
    yield "a return", {key.MSG_TYPE: MessageType.RETURN, key.REQ_ID: "1"}, frame
    yield "a reply wanted", {key.REPLY_EXPECTED: True}, frame
    yield "encrypted by the engine", {key.SECURE: True}, frame
    yield "to be dialled elsewhere", {key.CONN_URL: elsewhere, key.FROM_CELL: "x"}, frame
    for origin in ("hospital", "server", "lab", "nobody", f"{me}.child"):
        yield f"in the name of {origin}", {key.ORIGIN: origin}, frame
    yield "to nobody", {key.DESTINATION: "nobody"}, frame
    yield "to itself", {key.DESTINATION: me}, frame
    yield "oversized", {}, frame + bytes(4 << 20)
    yield "empty", {}, b""
    yield "truncated", {}, frame[:20]
    yield "garbage", {}, os.urandom(3000)
    yield "an unknown sort", {}, poke(99)
    yield "a session that does not exist", {}, poke(0, os.urandom(16), 3, os.urandom(500))
    yield "an offer of nothing", {}, poke(6, body=b"\xc1")
    yield "a strange route", {key.ROUTE: 7}, frame
    yield "headers of another type", {key.ORIGIN: [1], key.CHANNEL: {"a": 1}}, frame


def raw(me: str, network: NetworkOptions, folder: str) -> None:
    """A member's own cell, without our gate, sends what it likes to the server and through it to the others."""
    own = credentials(folder, me)
    address = str(network.members[network.server].address)
    cell = CoreCell(me, tls_driver.url(network.scheme, address, network.server), True, own.for_flare(),
                    auth_identity_map={"server": network.server})  # fmt: skip
    got: list[str] = []

    def seen(message: Message) -> None:
        if message.get_header(MessageHeaderKey.CHANNEL) != "veracausa":
            got.append(str(message.headers))

    cell.add_incoming_filter("*", "*", seen)
    cell.start()
    end = time.monotonic() + 30
    while "server" not in cell.agents and time.monotonic() < end:
        time.sleep(0.1)
    say("in", server="server" in cell.agents)
    count = 0
    for destination in ("server", "hospital", "lab"):
        for _, headers, payload in bad_messages(me, "tcp://localhost:1"):
            message = framed(me, destination, payload, **headers)
            with suppress(Exception):
                cell.communicator.send(Endpoint("server"), CoreCell.APP_ID, message)
            count += 1
    for number in range(3000):  # invents topics
        headers = {
            MessageHeaderKey.CHANNEL: f"c{number}",
            MessageHeaderKey.TOPIC: "t" * 500,
            MessageHeaderKey.ORIGIN: me,
            MessageHeaderKey.DESTINATION: "server",
            MessageHeaderKey.MSG_TYPE: MessageType.REQ,
            MessageHeaderKey.ROUTE: [(f"r{number}", 0.0)],
        }
        with suppress(Exception):
            cell.communicator.send(Endpoint("server"), CoreCell.APP_ID, Message(headers, b"x"))
    time.sleep(2)
    say("done", sent=count, got=got[:5], connected="server" in cell.agents)
    sys.stdin.readline()


def beneath(me: str, network: NetworkOptions, folder: str) -> None:
    """Bytes on a TLS connection of a member's, beneath the engine: each one on a connection of its own."""
    own = credentials(folder, me)
    host, port = str(network.members[network.server].address).split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(own.root)
    context.check_hostname = False
    context.load_cert_chain(own.certificate, own.key)

    def frame(sort: int, body: bytes, header: bytes = b"", length: int | None = None) -> bytes:
        size = 16 + len(header) + len(body) if length is None else length
        return struct.pack(">IHBBHHHH", size, len(header), sort, 0, 0, CoreCell.APP_ID, 17, 1) + header + body

    import msgpack

    hello = frame(4, msgpack.packb({"endpoint_name": me, "timestamp": 0.0}))
    tries = {
        "noise": os.urandom(4000),
        "zeros": bytes(4000),
        "a frame of two gigabytes": frame(1, b"", length=(1 << 31) - (1 << 22)),
        "a hello that is none": frame(4, b"\xc1"),
        "a hello in another's name": frame(4, msgpack.packb({"endpoint_name": "hospital", "timestamp": 0.0})),
        "a hello with a list": frame(4, msgpack.packb([1, 2])),
        "headers that are none": hello + frame(1, b"x", b"\xc1"),
        "headers in a list": hello + frame(1, b"x", msgpack.packb([1])),
        "no headers": hello + frame(1, b"x"),
        "another application": hello + frame(1, b"x", msgpack.packb({"a": 1})),
        "an unknown sort": hello + frame(77, b"x"),
        "two names": hello + frame(4, msgpack.packb({"endpoint_name": "lab", "timestamp": 0.0})),
    }
    for name, content in tries.items():
        with suppress(OSError):
            sock = context.wrap_socket(socket.create_connection((host, int(port)), 10))
            sock.settimeout(1)
            if content.startswith(hello):  # who is not known yet is not heard
                sock.sendall(hello)
                sock.recv(1000)
                time.sleep(0.5)
            sock.sendall(content.removeprefix(hello))
            with suppress(OSError):
                sock.recv(1000)
            sock.close()
        say("tried", way=name)
    silent = [socket.create_connection((host, int(port)), 10) for _ in range(50)]
    say("done", silent=len(silent))
    sys.stdin.readline()


# ---- a server that is not the server -------------------------------------------------------------------------------


def false_server(me: str, network: NetworkOptions, folder: str, kind: str, port: str) -> None:
    """Listens where the server should."""
    address, right = f"localhost:{port}", credentials(folder, network.server)
    settings: dict[str, str] = right.for_flare()
    name, target, secure = "server", tls_driver.url(network.scheme, address, network.server), True
    if kind == "another authority":
        settings = Authority(Path(folder) / f"other{os.getpid()}").member(network.server).for_flare()
    elif kind == "expired":
        settings = credentials(folder, "expired-server").for_flare()
    elif kind == "another member":
        settings = credentials(folder, "lab").for_flare()
    elif kind == "calls itself lab":
        name = "lab"
    elif kind == "no TLS":
        target, secure, settings = f"{STOCK[network.scheme]}://{address}", False, {}
    cell = CoreCell(name, target, secure, settings) if name == "server" else _listening(name, target, settings)
    cell.start()
    say("up")
    sys.stdin.readline()


def _listening(name: str, target: str, settings: dict[str, str]) -> CoreCell:
    """A cell that listens as the server does, and calls itself something else."""
    cell = CoreCell("server", target, True, settings)
    cell.endpoint.name = name
    return cell


# ---- a relay -------------------------------------------------------------------------------------------------------


def relay(me: str, network: NetworkOptions, folder: str, *words: str) -> None:
    """Serves as it should, and reads, changes, drops, doubles and replays what it carries; forges what it does not."""
    from veracausa.wire.flare.cell import FlareSite

    chance, told, carried = random.Random(0), heard(), bytearray()
    kept: list[Any] = []
    seen = {"frames": 0, "changed": 0, "dropped": 0, "replayed": 0, "forged": 0}
    hostile, said = "reads" not in words, list[str]()
    site = FlareSite(me, network, credentials(folder, me), listen=listen_of(words)).open()
    forward: Callable[..., None] = site._cell._forward

    def altered(endpoint: Any, origin: str, to: str, sort: str, message: Any) -> None:
        seen["frames"] += 1
        content = bytes(message.payload)
        if len(carried) < 64 << 20:
            carried.extend(content)
        if len(kept) < 300:
            kept.append((endpoint, origin, to, sort, dict(message.headers), content))
        active = hostile and not stopped
        luck = chance.random() if active else 0.5
        if active and min(seen.values()) > 2 and "busy" not in said:
            said.append("busy")
            say("busy")
        if luck < 0.1:
            seen["dropped"] += 1
            return
        if luck < 0.2:
            seen["changed"] += 1
            changed = bytearray(content)
            changed[chance.randrange(4, len(changed))] ^= 1 << chance.randrange(8)
            message.payload = bytes(changed)
        forward(endpoint, origin, to, sort, message)
        if luck > 0.8:
            seen["replayed"] += 1
            there, name, target, kind, headers, old = chance.choice(kept)
            forward(there, name, target, kind, Message(dict(headers), old))
        if luck > 0.9:
            forge(origin, to)

    def forge(origin: str, to: str) -> None:
        for _, headers, payload in bad_messages(origin, "tcp://localhost:1"):
            seen["forged"] += 1
            with suppress(Exception):
                site._cell.communicator.send(Endpoint(to), CoreCell.APP_ID, framed(origin, to, payload, **headers))

    stopped = False
    site._cell._forward = altered
    say("up")
    told.get()
    stopped = True  # and behaves from now on
    known = [secret(name)[at : at + 8].numpy().tobytes() for name in ("hospital", "lab") for at in range(0, 20_000, 8)]
    content = bytes(carried)
    say("carried", bytes=len(content), readable=sum(part in content for part in known[:: len(known) // 40]), **seen)
    told.get()
    say("done")


ROLES: dict[str, Callable[..., None]] = {
    "strangers": strangers,
    "raw": raw,
    "beneath": beneath,
    "false_server": false_server,
    "relay": relay,
}
