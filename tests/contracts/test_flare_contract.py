"""What we rely on in NVIDIA FLARE, none of which it promises: a version that changes it must not be taken unseen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nvflare")

from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.sfm import sfm_endpoint

import veracausa
from federation.certificates import Authority
from veracausa.wire.flare import tls_driver
from veracausa.wire.flare.engine import (
    CellIdentityResolver,
    CommError,
    CoreCell,
    Encoding,
    MessageHeaderKey,
    MessageType,
    Mode,
    ReturnCode,
    StatsPoolManager,
)
from veracausa.wire.flare.engine import CellMessage as Message
from veracausa.wire.flare.restricted_cell import STRAIGHT, RestrictedCell

MEMBERS = {"server": "bank", "hospital": "hospital", "lab": "lab"}


def message(payload: bytes = b"content", **changed: object) -> Message:
    headers = {
        MessageHeaderKey.CHANNEL: "channel",
        MessageHeaderKey.TOPIC: "topic",
        MessageHeaderKey.ORIGIN: "lab",
        MessageHeaderKey.DESTINATION: "hospital",
        MessageHeaderKey.MSG_TYPE: MessageType.REQ,
        MessageHeaderKey.PAYLOAD_ENCODING: Encoding.BYTES,
    }
    return Message({**headers, **changed}, payload)


@pytest.fixture
def cell() -> Iterator[CoreCell]:
    """FLARE's own."""
    StatsPoolManager.pools.clear()
    yield CoreCell("hospital", "tcp://localhost:1", False, {})
    CoreCell.ALL_CELLS.clear()


@pytest.fixture
def restricted(tmp_path: Path) -> Iterator[Any]:
    tls_driver.register()
    seen = SimpleNamespace(gate=[], heard=[], passes=True)

    def gate(came_from: str, arrived: Message) -> bool:
        seen.gate.append(came_from)
        return bool(seen.passes)

    own = Authority(tmp_path).member("hospital")
    url = tls_driver.url("tcp", "localhost:1", "bank")
    seen.cell = RestrictedCell("hospital", url, own.for_flare(), MEMBERS, gate, seen.heard.append, lambda arrived: True)
    yield seen
    CoreCell.ALL_CELLS.clear()


def test_the_version_is_the_one_that_was_read() -> None:
    assert version("nvflare").startswith("2.9.")


def test_one_module_imports_the_engine() -> None:
    """Whoever takes another version has one list to read."""
    package = Path(veracausa.__file__).parent
    importers = [
        str(path.relative_to(package))
        for path in sorted(package.rglob("*.py"))
        if re.search(r"^\s*(?:from|import) nvflare", path.read_text(encoding="utf-8"), re.MULTILINE)
        and path.parent.name != "bench"  # measures bare FLARE beside ours
    ]
    assert importers == ["wire/flare/engine.py"]


@pytest.mark.parametrize("to", ["hospital", "server"], ids=["for here", "to be forwarded"])
def test_a_filter_comes_before_the_engine_and_stops_it(cell: CoreCell, monkeypatch: Any, to: str) -> None:
    after: list[str] = []
    monkeypatch.setattr(cell, "_forward", lambda *unused: after.append("forwarded"))
    monkeypatch.setattr(cell, "_process_request", lambda *unused: after.append("decoded"))
    cell.process_message(Endpoint("lab"), None, 1, message(**{MessageHeaderKey.DESTINATION: to}))
    assert after == [{"hospital": "decoded", "server": "forwarded"}[to]]
    cell.add_incoming_filter("*", "*", lambda arrived: Message())
    cell.process_message(Endpoint("lab"), None, 1, message(**{MessageHeaderKey.DESTINATION: to}))
    assert len(after) == 1


def test_a_filter_that_fails_stops_the_message(cell: CoreCell, monkeypatch: Any) -> None:
    after: list[str] = []
    monkeypatch.setattr(cell, "_process_request", lambda *unused: after.append("decoded"))

    def fails(arrived: Message) -> None:
        raise ZeroDivisionError

    cell.add_incoming_filter("*", "*", fails)
    cell.process_message(Endpoint("lab"), None, 1, message())
    assert cell._try_cb(message(), fails).get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.PROCESS_EXCEPTION
    assert after == []


def test_the_engine_counts_by_what_a_peer_invents(cell: CoreCell, monkeypatch: Any) -> None:
    """Before any filter: the reason why ours has no such pools, and a gate before them."""
    monkeypatch.setattr(cell, "_process_request", lambda *unused: None)
    cell.add_incoming_filter("*", "*", lambda arrived: Message())
    for number in range(5):
        headers = {MessageHeaderKey.CHANNEL: f"c{number}", MessageHeaderKey.ROUTE: [("lab", 0.0)]}
        cell.process_message(Endpoint("lab"), None, 1, message(**headers))
    assert len(cell.msg_travel_stats_pool.cat_bins) == 5


def test_an_identity_of_another_name_is_refused_but_children_are_taken() -> None:
    stock = CellIdentityResolver("server", {"server": "bank"})
    stock.require_match("hospital", "hospital", "a connection")
    stock.require_match("server", "bank", "a connection")
    for name, certificate in (("hospital", "lab"), ("server", "lab"), ("hospital", ""), ("hospital", "N/A")):
        with pytest.raises(ValueError, match="connection"):
            stock.require_match(name, certificate, "a connection")
    stock.require_match("hospital.anything", "hospital", "a connection")  # why ours is stricter


def test_ours_takes_members_only(restricted: Any) -> None:
    resolver = restricted.cell.communicator.conn_manager.identity_resolver
    for name, certificate in MEMBERS.items():
        resolver.require_match(name, certificate, "a connection")
    wrong = [("hospital.child", "hospital"), ("hospital", "lab"), ("server", "server"), ("eve", "eve"), ("lab", "")]
    for name, certificate in wrong:
        with pytest.raises(ValueError, match="is not that of"):
            resolver.require_match(name, certificate, "a connection")


@pytest.mark.parametrize("mode", [Mode.PASSIVE, Mode.ACTIVE])
def test_a_connection_whose_certificate_has_another_name_is_closed(restricted: Any, mode: Mode) -> None:
    closed: list[bool] = []
    connector = SimpleNamespace(params={"secure": True, "connection_security": "mtls"}, mode=mode)
    connection = SimpleNamespace(
        connector=connector,
        get_conn_properties=lambda: {"peer_cn": "lab"},
        close=lambda: closed.append(True),
    )
    arrived = SimpleNamespace(conn=connection, get_name=lambda: "connection 1")
    with pytest.raises(CommError):
        restricted.cell.communicator.conn_manager.update_endpoint(arrived, {"endpoint_name": "hospital.child"})
    with pytest.raises(CommError):
        restricted.cell.communicator.conn_manager.update_endpoint(arrived, {"endpoint_name": "server"})
    assert closed == [True, True]


def test_a_member_has_one_connection() -> None:
    """A second one of the same name takes the place of the first: nobody can hold many."""
    assert sfm_endpoint.MAX_CONN_PER_ENDPOINT == 1


def test_the_engine_hands_every_message_to_ours(restricted: Any) -> None:
    assert restricted.cell.communicator.conn_manager.receivers == {CoreCell.APP_ID: restricted.cell}


@pytest.mark.parametrize("passes", [True, False])
def test_nothing_passes_the_gate_that_it_refuses(restricted: Any, monkeypatch: Any, passes: bool) -> None:
    restricted.passes, seen = passes, []
    monkeypatch.setattr(CoreCell, "process_message", lambda *unused: seen.append("the engine"))
    connection = SimpleNamespace()
    restricted.cell.process_message(Endpoint("lab"), connection, 1, message())
    assert restricted.gate == ["lab"]
    assert len(restricted.heard) == passes
    assert seen == []


def test_there_are_no_statistics_that_a_peer_could_fill(restricted: Any) -> None:
    pools = [value for name, value in vars(restricted.cell).items() if name.endswith("_pool")]
    assert len(pools) >= 7
    for pool in pools:
        assert not vars(pool)
        pool.record_value(category="x", value=1.0)
        pool.increment(category="x", counter_name="y")


def test_what_must_not_pass_a_relay_does_not(restricted: Any, monkeypatch: Any) -> None:
    sent: list[str] = []
    monkeypatch.setattr(restricted.cell.communicator, "send", lambda to, app, what: sent.append(to.name))
    for connected in (("server",), ("server", "lab")):
        restricted.cell.agents = {name: SimpleNamespace(endpoint=Endpoint(name)) for name in connected}
        for headers in ({}, {STRAIGHT: True}):
            restricted.cell.fire_and_forget("channel", "topic", "lab", Message(dict(headers), b"content"))
    assert sent == ["server", "lab", "lab"]


def test_adhoc_connections_are_off(restricted: Any) -> None:
    """FLARE's would be plaintext, to wherever a peer says."""
    assert restricted.cell.connector_manager.adhoc_allowed is False
