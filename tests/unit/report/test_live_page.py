"""The page of a run that runs: for this machine, by its address alone, to read only, and gone with the run."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from veracausa.errors import InputError
from veracausa.report.live_page import LivePage, lines_svg

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def page() -> Iterator[LivePage]:
    with LivePage("veracausa train") as page:
        yield page


def ask(page: LivePage, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=5)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer, answer.read().decode()
    finally:
        connection.close()


def test_it_says_how_the_run_stands(page: LivePage) -> None:
    page.state({"event": "start", "epochs": 2, "steps": 10, "step": 0})
    page.state({"event": "step", "step": 4})
    for epoch in (1, 2):
        page.state({"event": "epoch", "epoch": epoch, "train": {"loss": 0.5 / epoch}, "test": {"accuracy": 0.75}})
    answer, text = ask(page, f"/{page.token}/")
    assert answer.status == 200
    assert "<h1>Training: 40 %</h1>" in text
    assert "75.0 %" in text
    assert "<polyline" in text
    _, told = ask(page, f"/{page.token}/state.json")
    assert json.loads(told)["step"] == 4
    _, part = ask(page, f"/{page.token}/part")
    assert "<html" not in part
    assert "Training: 40 %" in part


def test_its_policy_lets_it_ask_its_own_server_and_nobody_else(page: LivePage) -> None:
    answer, text = ask(page, f"/{page.token}/")
    rules = dict(rule.split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split("; "))
    assert (rules["default-src"], rules["connect-src"], rules["frame-ancestors"]) == ("'none'", "'self'", "'none'")
    assert "unsafe" not in rules["script-src"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert "://" not in text


@pytest.mark.parametrize(
    "path",
    ["/", "/state.json", "/wrong/", "/wrong/state.json", "{t}", "{t}/../", "{t}/config.toml", "{t}/%2e%2e/x", "{t}//",
     "{t}/?x", "/x{t}/", "{t}/..%2f..%2fetc%2fpasswd", "{t}/part/"],
)  # fmt: skip
def test_nothing_else_is_served(page: LivePage, path: str) -> None:
    answer, text = ask(page, path.format(t=f"/{page.token}"))
    assert (answer.status, text) == (404, "404 Not Found\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", EVIL])
def test_it_can_only_be_read(page: LivePage, method: str) -> None:
    answer, text = ask(page, f"/{page.token}/", method)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET"
    assert EVIL not in text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{p}", "127.0.0.1", "127.0.0.1:1", "[::1]:{p}", ""])
def test_a_name_of_somebody_else_for_this_address_is_refused(page: LivePage, host: str) -> None:
    answer, _ = ask(page, f"/{page.token}/", Host=host.format(p=page.port))
    assert answer.status == 421
    assert ask(page, f"/{page.token}/", Host=f"localhost:{page.port}")[0].status == 200


def test_two_hosts_none_and_pages_of_others_are_refused(page: LivePage) -> None:
    both = f"Host: 127.0.0.1:{page.port}\r\nHost: evil.example\r\n"
    for hosts in (both, ""):
        with socket.create_connection(("127.0.0.1", page.port), timeout=5) as peer:
            peer.sendall(f"GET /{page.token}/ HTTP/1.0\r\n{hosts}\r\n".encode())
            assert b" 421 " in peer.recv(100)
    assert ask(page, f"/{page.token}/state.json", Sec_Fetch_Site="cross-site")[0].status == 403
    assert ask(page, f"/{page.token}/state.json", Sec_Fetch_Site="same-origin")[0].status == 200


def test_it_listens_on_this_machine_alone_and_every_run_has_another_address(page: LivePage) -> None:
    assert page.url.startswith(f"http://127.0.0.1:{page.port}/")
    with LivePage("other") as other:
        assert (other.port, other.token) != (page.port, page.token)
        assert len(other.token) >= 32


def test_names_of_others_are_escaped(page: LivePage) -> None:
    page.state({"event": "folder", "path": f"/nowhere/{EVIL.replace('/', '')}"})
    page.state({"event": "waiting", "peers": [EVIL]})
    _, text = ask(page, f"/{page.token}/")
    assert "<script>alert" not in text
    assert "&lt;script&gt;" in text
    assert "/nowhere" not in text


def test_it_closes_with_the_run_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    opened = []

    def interrupted() -> None:
        with LivePage("veracausa train") as page:
            opened.append(socket.create_connection(("127.0.0.1", page.port), timeout=5))
            ask(page, f"/{page.token}/")
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    (silent,) = opened  # it said nothing, and must hold nobody up
    assert time.monotonic() - began < 3
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(silent.getpeername(), timeout=5)
    silent.close()


def test_a_port_that_is_taken_is_refused_by_name(page: LivePage) -> None:
    with pytest.raises(InputError, match=f"--watch-port {page.port}: "):
        LivePage("other", page.port)


def test_a_line_needs_a_point_and_bears_a_flat_one() -> None:
    assert lines_svg({}) == ""
    assert "nan" not in lines_svg({"train": [(1, 0.5), (1, 0.5)]})
