"""The proof of TLS at live ports, sound and broken on purpose, and the transports that have to stand it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from provisioned import free_port, join, provision_all

from veracausa.cli.doctor import check_wire
from veracausa.federation import tls_check
from veracausa.federation.members import read_network
from veracausa.wire.credentials import Credentials

pytestmark = pytest.mark.federation

CELL = Path(__file__).parents[2] / "federation" / "live_cell.py"
SCHEMES = ("tcp", "grpc")
LET_IN = "a member's certificate is let in"
PLAIN = "plaintext gets nothing"
NAMED = "its certificate is the member's"
OTHERS_NAME = "another member's name is refused"
DIALLER = "a grpc dialler verifies the name"
SILENT = "a silent client keeps nobody out"
NO_CERTIFICATE = "no certificate is refused"
OTHER_AUTHORITY = "another authority's certificate is refused"
ALL = {LET_IN, "TLS 1.2 or later", PLAIN, NO_CERTIFICATE, OTHER_AUTHORITY, NAMED, OTHERS_NAME, SILENT}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three members, and another federation of the same names beside it."""
    folder = tmp_path_factory.mktemp("federation")
    coordinator = provision_all(folder, members=("bank", "hospital"))
    join(coordinator, folder / "lab", "lab")
    (folder / "other").mkdir()
    provision_all(folder / "other", members=("bank",))
    return folder


@contextmanager
def live(kind: str, scheme: str, folder: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A port where a cell of this kind listens."""
    port = free_port()
    command = [sys.executable, str(CELL), "serve", kind, scheme, str(port), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            end = time.monotonic() + 20
            while time.monotonic() < end:
                with suppress(OSError):
                    socket.create_connection(("localhost", port), 1).close()
                    break
                time.sleep(0.1)
            yield port, process
        finally:
            process.kill()


def at(folder: Path, into: Path, port: int, scheme: str) -> Path:
    """The member's folder with the server at this port."""
    shutil.copytree(folder, into)
    network = read_network(into / "federation.toml")
    server = network.members["bank"].model_copy(update={"address": f"localhost:{port}"})
    moved = network.model_copy(update={"scheme": scheme, "members": {**network.members, "bank": server}})
    (into / "federation.toml").write_text(moved.to_toml())
    return into


def proofs(folder: Path) -> dict[str, bool]:
    network, own = read_network(folder / "federation.toml"), Credentials.of_folder(folder)
    (port,) = tls_check.ports(network)
    return {proof.name: proof.passed for proof in tls_check.prove(port, network, own)}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("kind", "member"), [("sound", "hospital"), ("sound", "bank"), ("site", "hospital")])
def test_a_sound_port_passes(kind: str, member: str, scheme: str, home: Path, tmp_path: Path) -> None:
    with live(kind, scheme, home / "bank") as (port, _):
        found = proofs(at(home / member, tmp_path / member, port, scheme))
    assert set(found) == ALL | ({DIALLER} if scheme == "grpc" else set())
    assert all(found.values()), found


@pytest.mark.parametrize(
    ("kind", "scheme", "failing"),
    [
        ("plain", "tcp", {LET_IN, PLAIN}),
        ("plain", "grpc", {LET_IN, PLAIN}),
        ("one-way", "tcp", {NO_CERTIFICATE, OTHER_AUTHORITY, OTHERS_NAME, SILENT}),
        ("one-way", "grpc", {NO_CERTIFICATE, OTHER_AUTHORITY, OTHERS_NAME}),
        ("stock", "tcp", {SILENT}),
    ],
)
def test_a_broken_port_fails(kind: str, scheme: str, failing: set[str], home: Path, tmp_path: Path) -> None:
    with live(kind, scheme, home / "bank") as (port, _):
        found = proofs(at(home / "hospital", tmp_path / "hospital", port, scheme))
    assert {name for name, passed in found.items() if not passed} == failing


@pytest.mark.parametrize("scheme", SCHEMES)
def test_another_authority_at_the_port_fails(scheme: str, home: Path, tmp_path: Path) -> None:
    with live("sound", scheme, home / "other" / "bank") as (port, _):
        found = proofs(at(home / "hospital", tmp_path / "hospital", port, scheme))
    assert found == {LET_IN: False, PLAIN: True}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_another_member_at_the_port_fails(scheme: str, home: Path, tmp_path: Path) -> None:
    with live("sound", scheme, home / "lab") as (port, _):
        found = proofs(at(home / "hospital", tmp_path / "hospital", port, scheme))
    assert not found[NAMED]
    assert scheme == "tcp" or not found[DIALLER]


def test_the_command_says_it_in_lines_and_by_its_exit_code(home: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "veracausa.cli.main", "doctor", "--json", "--wire"]
    with live("sound", "tcp", home / "bank") as (port, _):
        folder = at(home / "hospital", tmp_path / "hospital", port, "tcp")
        done = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["ok"]
    assert {check["name"].rpartition(": ")[2] for check in said["checks"]} == ALL | {"identity"}
    gone = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=False)
    assert gone.returncode == 1
    assert "federation serve" in json.loads(gone.stdout)["checks"][-1]["fix"]


def test_a_closed_direct_port_is_a_warning(home: Path, tmp_path: Path) -> None:
    with live("sound", "tcp", home / "bank") as (port, _):
        folder = at(home / "hospital", tmp_path / "hospital", port, "tcp")
        network = read_network(folder / "federation.toml")
        lab = network.members["lab"].model_copy(update={"address": f"localhost:{free_port()}"})
        direct = network.model_copy(update={"route": "direct", "members": {**network.members, "lab": lab}})
        (folder / "federation.toml").write_text(direct.to_toml())
        found = check_wire(folder)
    assert found[-1].state == "warn"
    assert {check.state for check in found[:-1]} == {"ok"}


def test_an_old_tls_is_noticed(home: Path) -> None:
    own = Credentials.of_folder(home / "hospital")
    for oldest, refused in ((ssl.TLSVersion.TLSv1, False), (ssl.TLSVersion.TLSv1_2, True)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(own.certificate, own.key)
        context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = oldest
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def shake(listener: socket.socket = listener, context: ssl.SSLContext = context) -> None:
                with suppress(OSError):
                    context.wrap_socket(listener.accept()[0], server_side=True).close()

            threading.Thread(target=shake, daemon=True).start()
            port = tls_check.Port("bank", "127.0.0.1", listener.getsockname()[1], "tcp")
            assert (tls_check._refuses_old_tls(port, own) is not None) == refused


def asked(scheme: str, port: int, folder: Path, name: str, peer: str) -> str:
    command = [sys.executable, str(CELL), "ask", scheme, str(port), str(folder), name, peer]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def served(process: subprocess.Popen[str]) -> str:
    process.kill()
    assert process.stdout is not None
    return process.stdout.read()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_cells_talk_to_whom_they_should(scheme: str, home: Path) -> None:
    with live("sound", scheme, home / "bank") as (port, process):
        assert asked(scheme, port, home / "hospital", "hospital", "bank") == "ok"
        assert served(process) == "asked by hospital\n"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_cell_does_not_talk_to_another_than_it_dialled(scheme: str, home: Path) -> None:
    with live("sound", scheme, home / "lab") as (port, process):
        assert asked(scheme, port, home / "hospital", "hospital", "bank") != "ok"
        assert served(process) == ""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_cell_of_another_name_delivers_nothing(scheme: str, home: Path) -> None:
    with live("sound", scheme, home / "bank") as (port, process):
        assert asked(scheme, port, home / "hospital", "lab", "bank") != "ok"
        assert served(process) == ""


def test_tls_stays_on_whatever_a_setting_says(home: Path) -> None:
    """FLARE opens direct connections in plaintext by default: this scheme does not."""
    code = f"""
import os, socket, sys
from pathlib import Path
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from veracausa.wire.flare import tls_driver
from veracausa.wire.credentials import Credentials
tls_driver.register()
settings = Credentials.of_folder(Path({str(home / "lab")!r})).for_flare() | {{"connection_security": "clear"}}
cell = CoreCell("lab", "vtcp://localhost:{free_port()}?peer=bank", False, settings)
cell.start()
print(cell.communicator.start_listener("vtcp", {{"host": "localhost", "secure": False}})[1], flush=True)
sys.stdin.read()
os._exit(0)
"""
    own = Credentials.of_folder(home / "hospital")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("vtcp://localhost:")
            port = tls_check.Port("lab", "localhost", int(url.rpartition(":")[2]), "tcp")
            time.sleep(1)
            network = read_network(home / "hospital" / "federation.toml")
            found = {proof.name: proof.passed for proof in tls_check.prove(port, network, own)}
        finally:
            process.kill()
    assert set(found) == ALL
    assert all(found.values()), found
