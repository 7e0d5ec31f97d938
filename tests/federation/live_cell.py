"""A cell in a process of its own, for tests: `serve KIND SCHEME PORT FOLDER` or `ask SCHEME PORT FOLDER NAME PEER`.

KIND: `site` is the product's own; `sound` a bare cell with its transport, `stock` one with FLARE's; `plain` has no TLS,
`one-way` asks for no certificate.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message

from veracausa.federation.members import read_network
from veracausa.wire.credentials import Credentials
from veracausa.wire.flare import tls_driver

STOCK = {"tcp": "stcp", "grpc": "grpcs"}


def serve(kind: str, scheme: str, port: str, folder: str) -> None:
    own = Credentials.of_folder(Path(folder))
    if kind == "site":
        from veracausa.wire.flare.cell import FlareSite  # and torch with it

        network = read_network(Path(folder) / "federation.toml")
        server = network.members[network.server].model_copy(update={"address": f"localhost:{port}"})
        members = {**network.members, network.server: server}
        moved = network.model_copy(update={"scheme": scheme, "members": members})
        FlareSite(own.common_name, moved, own).open()
        print("up", flush=True)
        sys.stdin.read()
        return
    settings, address, secure = own.for_flare(), f"localhost:{port}", kind != "plain"
    url = f"{STOCK[scheme]}://{address}"
    if kind == "sound":
        url = tls_driver.url(scheme, address, own.common_name)
    elif kind == "plain":
        url, settings = f"{scheme}://{address}", {}
    elif kind == "one-way":
        settings["connection_security"] = "tls"
    cell = CoreCell("server", url, secure, settings)
    cell.register_request_cb("test", "ask", lambda message: _answer(message))
    cell.start()
    print("up", flush=True)
    sys.stdin.read()


def _answer(message: Message) -> Message:
    print("asked by", message.get_header(MessageHeaderKey.ORIGIN), flush=True)
    return Message(payload=b"answer")


def ask(scheme: str, port: str, folder: str, name: str, peer: str) -> None:
    settings = Credentials.of_folder(Path(folder)).for_flare()
    url = tls_driver.url(scheme, f"localhost:{port}", peer)
    cell = CoreCell(name, url, True, settings, auth_identity_map={"server": peer})
    cell.start()
    end, reply = time.monotonic() + 6, None
    while time.monotonic() < end and (reply is None or reply.get_header(MessageHeaderKey.RETURN_CODE) != "ok"):
        time.sleep(0.2)
        reply = cell.send_request("test", "ask", "server", Message(payload=b"question"), timeout=1)
    print(reply.get_header(MessageHeaderKey.RETURN_CODE), flush=True)


if __name__ == "__main__":
    tls_driver.register()
    {"serve": serve, "ask": ask}[sys.argv[1]](*sys.argv[2:])
    # The engine's threads do not end by themselves.
    os._exit(0)
