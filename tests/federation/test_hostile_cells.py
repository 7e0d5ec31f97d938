"""Real sites in processes of their own, and others that do what they like: honest members finish all the same."""

from __future__ import annotations

import socket
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from federation.fabric import Proxy
from federation.sites import Federation, Loopback, Site, federation
from veracausa.wire.network import Member, NetworkOptions, WireLimits

pytest.importorskip("nvflare")
pytestmark = [pytest.mark.federation]
HONEST = ("bank", "hospital", "lab")

schemes = pytest.mark.parametrize("scheme", ["tcp", "grpc"])


def start_honest(made: Federation, *words: str, members: tuple[str, ...] = HONEST) -> dict[str, Site]:
    """They have met and talk."""
    sites = {name: made.start(name, "honest", *words) for name in members}
    for site in sites.values():
        site.wait_for("under way")
    return sites


def finish(sites: dict[str, Site]) -> dict[str, dict[str, object]]:
    """Each has heard everything that the others sent; what it says in the end."""
    sites[next(iter(sites))].tell("finish")
    outcome = {name: site.wait_for("done") for name, site in sites.items()}
    for name, site in sites.items():
        assert "Traceback" not in site.log, name
    return outcome


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])


@schemes
def test_strangers_are_kept_out(tmp_path: Path, scheme: str) -> None:
    with federation(tmp_path, scheme) as made:
        made.authority.member("eve", -timedelta(days=2), -timedelta(days=1), file="expired")
        sites = start_honest(made)
        eve = made.start("eve", "strangers")
        eve.wait_for("done")
        tried = {event["way"]: event["outcome"] for event in eve.events if event["event"] == "tried"}
        assert not [event for event in eve.events if event["event"] == "error"]
        assert tried.pop("as it should be") == "let in"
        assert len(tried) == 7
        assert set(tried.values()) == {"kept out"}, tried
        finish(sites)


@schemes
def test_a_member_that_sends_anything_is_refused_and_named(tmp_path: Path, scheme: str) -> None:
    with federation(tmp_path, scheme) as made:
        sites = start_honest(made)
        eve = made.start("eve", "raw")
        assert eve.wait_for("in")["server"]
        assert not eve.wait_for("done")["got"]
        outcome = finish(sites)
        assert int(outcome["bank"]["refused"]["eve"]) > 3000  # type: ignore[index, call-overload]
        assert "refused from eve" in sites["bank"].log
        assert sites["bank"].log.count("refused from eve") < 40
        for name in ("hospital", "lab"):  # what looked like a frame was carried to them
            assert outcome[name]["refused"]["eve"] > 0  # type: ignore[index, operator]
            assert "refused from eve" in sites[name].log
            assert set(outcome[name]["refused"]) == {"eve"}  # type: ignore[call-overload]
        assert [outcome[name]["dialled"] for name in HONEST] == [0, 0, 0]


def test_bytes_beneath_the_engine_stop_nobody(tmp_path: Path) -> None:
    with federation(tmp_path, "tcp") as made:
        sites = start_honest(made)
        made.start("eve", "beneath").wait_for("done")
        outcome = finish(sites)
        assert outcome["bank"]["refused"]["eve"] >= 2  # type: ignore[index, operator]


@schemes
def test_a_relay_reads_nothing_and_breaks_nothing(tmp_path: Path, scheme: str) -> None:
    """Bank carries what hospital and lab send each other; it changes, drops, doubles, replays and forges."""
    with federation(tmp_path, scheme) as made:
        bank = made.start("bank", "relay")
        sites = start_honest(made, "without-bank", members=("hospital", "lab"))
        bank.wait_for("busy")
        bank.tell("behave")
        carried = bank.wait_for("carried")
        assert carried["readable"] == 0
        assert carried["bytes"] > 200_000
        assert min(carried["changed"], carried["dropped"], carried["replayed"], carried["forged"]) > 0, carried
        outcome = finish(sites)
        for name, other in (("hospital", "lab"), ("lab", "hospital")):
            refused = outcome[name]["refused"]
            assert refused[other] + refused.get("bank", 0) > 0  # type: ignore[index, attr-defined]
            assert f"refused from {other}" in sites[name].log
            assert outcome[name]["dialled"] == 0


def test_a_relay_would_read_what_is_not_sealed(tmp_path: Path) -> None:
    """So the test above looks in the right place."""
    with federation(tmp_path, "tcp") as made:
        bank = made.start("bank", "relay", "reads")
        sites = start_honest(made, "without-bank", "unsealed", members=("hospital", "lab"))
        bank.tell("behave")
        assert bank.wait_for("carried")["readable"] > 30
        finish(sites)


@schemes
def test_what_is_not_sealed_never_takes_the_relay(tmp_path: Path, scheme: str) -> None:
    """Hospital and lab talk directly, in TLS alone. When that is cut the engine would go over bank without a word."""
    with closing(Proxy()) as proxy:
        members = {
            "bank": Member(address=f"localhost:{free_port()}"),
            "hospital": Member(address=proxy.address),
            "lab": Member(),
        }
        limits = WireLimits(patience_s=300.0, chunk_kib=64)
        network = NetworkOptions(name="t", server="bank", scheme=scheme, route="direct", members=members, wire=limits)  # type: ignore[arg-type]
        with Federation(tmp_path, Loopback(), network) as made:
            bank = made.start("bank", "relay", "reads")
            hospital = made.start("hospital", "honest", "without-bank", f"listen={proxy.listen}")
            sites = {"hospital": hospital, "lab": made.start("lab", "honest", "without-bank")}
            for site in sites.values():
                assert not any(site.wait_for("connected")["sealed"].values())
                site.wait_for("under way")
            proxy.cut("")
            time.sleep(5)
            bank.tell("behave")
            carried = bank.wait_for("carried")
            assert carried["readable"] == 0
            proxy.heal("")
            finish(sites)


@schemes
def test_a_false_server_is_not_talked_to(tmp_path: Path, scheme: str) -> None:
    kinds = ("another authority", "expired", "another member", "calls itself lab", "no TLS", "as it should be")
    with federation(tmp_path, scheme) as made:
        made.authority.member("bank", -timedelta(days=2), -timedelta(days=1), file="expired-server")
        ports = [free_port() for _ in kinds]
        servers = [made.start("hospital", "false_server", kind, port) for kind, port in zip(kinds, ports, strict=True)]
        for server in servers:
            server.wait_for("up")
        client = made.start("hospital", "dial", *ports)
        client.wait_for("done")
        for kind, port in zip(kinds, ports, strict=True):
            tried = client.wait_for(f"tried {port}")
            # A false server counts as one that is not there; the true one is, and nobody else comes.
            words = "did not come" if kind == "as it should be" else "could not be reached at localhost"
            assert words in tried["outcome"], kind
            assert tried["here"] == (["bank"] if kind == "as it should be" else []), kind


@schemes
def test_a_member_that_stands_still_is_waited_for(tmp_path: Path, scheme: str) -> None:
    with federation(tmp_path, scheme) as made:
        sites = start_honest(made)
        sites["lab"].pause()
        sites["bank"].tell("finish")
        with pytest.raises(AssertionError, match="no 'done'"):
            sites["bank"].wait_for("done", 5)
        sites["lab"].resume()
        outcome = {name: site.wait_for("done") for name, site in sites.items()}
        assert not any(event["refused"] for event in outcome.values())
