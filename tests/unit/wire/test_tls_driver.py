"""Real ports: one that is taken, one where nobody listens, one that goes away, and who is let in there no more."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from refusals import Peer

pytest.importorskip("nvflare")

from provisioned import free_port

from federation.certificates import Authority
from federation.joined import wait_until
from veracausa.errors import InputError, PeerLost
from veracausa.wire.credentials import Credentials, DenyList, fingerprint, read_certificate
from veracausa.wire.flare import cell as cells
from veracausa.wire.flare import handshake as waiting
from veracausa.wire.flare.cell import FlareSite
from veracausa.wire.network import Member, NetworkOptions, WireLimits

# The libraries of grpc leave threads behind, which does no good to the process of a whole test suite.
schemes = pytest.mark.parametrize("scheme", ["tcp", pytest.param("grpc", marks=pytest.mark.federation)])


class Doors:
    """Bank serves, lab dials; each has a deny list."""

    def __init__(self, folder: Path, scheme: str, port: int | None = None) -> None:
        self.folder, self.port = folder, port or free_port()
        self.address = f"localhost:{self.port}"
        members = {"bank": Member(address=self.address), "hospital": Member(), "lab": Member()}
        self.network = NetworkOptions(name="t", server="bank", scheme=scheme, members=members, wire=WireLimits())  # type: ignore[arg-type]
        self.authority = Authority(folder)

    def own(self, name: str, file: str | None = None) -> Credentials:
        return replace(self.authority.member(name, file=file), denied=self.folder / f"{name}.denied.toml")

    @contextmanager
    def site(self, name: str, own: Credentials | None = None) -> Iterator[FlareSite]:
        with FlareSite(name, self.network, own or self.own(name)) as site:
            # As in a process of its own: the engine does not dial a cell that it finds in the same one.
            type(site._cell).ALL_CELLS.clear()
            yield site


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "GRACE", 0.3)
    monkeypatch.setattr(cells, "RELOAD_S", 0.1)
    monkeypatch.setattr(cells, "TICK", 0.05)


# ---- the port ------------------------------------------------------------------------------------------------------


@schemes
def test_a_taken_port_is_a_sentence_and_not_a_hang(scheme: str, tmp_path: Path) -> None:
    doors = Doors(tmp_path, scheme)
    start = time.monotonic()
    with socket.create_server(("localhost", doors.port)):
        with pytest.raises(InputError, match=rf"cannot listen at localhost:{doors.port}: another program .*--listen"):
            FlareSite("bank", doors.network, doors.own("bank")).open()
        assert time.monotonic() - start < 10
    with doors.site("bank"):  # and once it is free it is opened
        socket.create_connection(("localhost", doors.port), 5).close()


@schemes
def test_two_that_serve_do_not_share_a_port(scheme: str, tmp_path: Path) -> None:
    doors = Doors(tmp_path, scheme)
    sentence = f"localhost:{doors.port}: another program has this port"
    with doors.site("bank"), pytest.raises(InputError, match=sentence):
        FlareSite("bank", doors.network, doors.own("bank")).open()


def test_an_address_of_another_machine_is_a_sentence(tmp_path: Path) -> None:
    doors = Doors(tmp_path, "tcp")
    with pytest.raises(InputError, match=r"192\.0\.2\.1:.* this machine does not have that address"):
        FlareSite("bank", doors.network, doors.own("bank"), listen=f"192.0.2.1:{doors.port}").open()


@schemes
def test_who_cannot_reach_the_server_says_so_and_keeps_trying(scheme: str, tmp_path: Path) -> None:
    """Not "waiting for hospital", which may well be there. Then the server comes, goes, and comes again."""
    doors = Doors(tmp_path, scheme)
    told: list[Mapping[str, Any]] = []
    outcome: list[BaseException] = []

    def meet(site: FlareSite) -> None:
        try:
            site.connect(["hospital"], "test", 30, told.append)
        except PeerLost as lost:
            outcome.append(lost)

    with doors.site("lab") as lab:
        threading.Thread(target=meet, args=(lab,), daemon=True).start()
        wait_until(lambda: bool(told))
        first = dict(told[0])
        assert (first["event"], first["member"], first["at"]) == ("unreachable", "bank", doors.address)
        assert "refused" in first["why"]
        with doors.site("bank"):
            wait_until(lambda: told[-1]["event"] == "waiting", 30)
            assert told[-1]["peers"] == ["hospital"]
        wait_until(lambda: told[-1]["event"] == "unreachable", 30)
        with doors.site("bank"):
            wait_until(lambda: told[-1]["event"] == "waiting", 30)
    assert not outcome


def test_a_relay_that_goes_away_later_is_told_of_and_its_return_too(tmp_path: Path) -> None:
    doors = Doors(tmp_path, "tcp")
    told: list[Mapping[str, Any]] = []
    links: dict[str, Any] = {}

    def meet(site: FlareSite, peer: str, tell: Any) -> None:
        links[peer] = site.connect([peer], "test", 30, tell)

    with doors.site("lab") as lab, doors.site("hospital") as hospital:
        with doors.site("bank"):
            for site, peer, tell in ((lab, "hospital", told.append), (hospital, "lab", lambda event: None)):
                threading.Thread(target=meet, args=(site, peer, tell), daemon=True).start()
            wait_until(lambda: len(links) == 2, 30)
            told.clear()
        wait_until(lambda: bool(told), 30)
        assert told[0]["event"] == "unreachable"
        with doors.site("bank"):
            wait_until(lambda: told[-1]["event"] == "reached", 30)


# ---- who is let in no more -----------------------------------------------------------------------------------------


def deny(own: Credentials, other: Credentials) -> str:
    """Put the other's certificate on one's list, by its certificate alone."""
    digits = fingerprint(read_certificate(other.certificate))
    DenyList(own.denied).add([{"sha256": digits, "member": "lab"}])
    return digits


@schemes
def test_a_revoked_certificate_does_not_get_in_and_is_named(
    scheme: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    doors = Doors(tmp_path, scheme)
    bank, old, new = doors.own("bank"), doors.own("lab", "old"), doors.own("lab", "new")
    digits = deny(bank, old)
    with caplog.at_level(logging.WARNING), doors.site("bank", bank) as server:
        with doors.site("lab", old) as lab, pytest.raises(PeerLost, check=Peer("bank")):
            lab.connect(["hospital"], "test", 3)
        assert server.here() == []
        assert f"was refused: its certificate was revoked ({digits})" in caplog.text  # at the door, not later
        assert "a connection was closed" not in caplog.text
        with doors.site("lab", new):
            wait_until(lambda: server.here() == ["lab"], 30)


@schemes
def test_who_is_connected_when_its_certificate_is_revoked_is_put_out(
    scheme: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    doors = Doors(tmp_path, scheme)
    bank, old = doors.own("bank"), doors.own("lab", "old")
    with caplog.at_level(logging.WARNING), doors.site("bank", bank) as server, doors.site("lab", old):
        wait_until(lambda: server.here() == ["lab"], 30)
        digits = deny(bank, old)
        wait_until(lambda: server.here() == [], 10)
        assert f"a connection was closed: its certificate was revoked ({digits})" in caplog.text
        time.sleep(1.5)  # it dials again meanwhile
        assert server.here() == []


NEVER = (
    "flask",
    "flask_jwt_extended",
    "flask_sqlalchemy",
    "werkzeug",
    "sqlalchemy",
    "jwt",
    "gunicorn",
    "docker",
    "pyhocon",
    "requests",
)


@pytest.mark.federation
@schemes
def test_the_engines_web_stack_is_never_imported(scheme: str, tmp_path: Path) -> None:
    """SECURITY.md says so: a running member has none of it in its memory."""
    doors = Doors(tmp_path, scheme)
    own = doors.own("bank")
    (tmp_path / "federation.toml").write_text(doors.network.to_toml())
    code = f"""
import sys
from pathlib import Path
import veracausa.cli.main, veracausa.federation.session_attempt, veracausa.federation.site_program
from veracausa.federation.members import read_network
from veracausa.federation.training_site import SplitSite
from veracausa.wire.credentials import Credentials
from veracausa.wire.flare.cell import FlareSite
own = Credentials(*map(Path, {[str(path) for path in (own.root, own.certificate, own.key)]!r}))
FlareSite("bank", read_network(Path({str(tmp_path / "federation.toml")!r})), own).open()
print("nvflare" in sys.modules, [name for name in {NEVER!r} if name in sys.modules], flush=True)
import os
os._exit(0)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines()[-1] == "True []"
