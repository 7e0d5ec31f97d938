"""A page that shows a run while it runs: a small server on this machine, for whoever has its address, to read only."""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from markupsafe import Markup, escape

from veracausa.errors import InputError
from veracausa.report.frame import policy
from veracausa.report.live_state import LiveState
from veracausa.report.page import SCORES, format_score, render
from veracausa.runs.record import mapping

HOST = "127.0.0.1"
IDLE_SECONDS = 5.0
"""A connection that says nothing for so long is closed."""
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
SPLITS = ("train", "validation", "test")


class LivePage:
    """Serves the page from `with` on until its end, with the run's state in `state`.

    Who asks must know the random word in the address and name this machine as the host, so that neither another user
    nor a web page that is open in the same browser reads it. Nothing but three texts is served, and no file.
    """

    def __init__(self, what: str, port: int = 0) -> None:
        self.state = LiveState(what)
        self.token = secrets.token_urlsafe(24)
        try:
            self._server = _Server((HOST, port), _Handler)
        except OSError as error:
            raise InputError(f"--watch-port {port}: {error.strerror}; name another port, or none") from None
        self._server.page = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="live page", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/{self.token}/"

    def __enter__(self) -> LivePage:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    def answer(self, path: str) -> tuple[str, str] | None:
        """The type and the text of what lies at a path; None where nothing does."""
        parts = path.split("/")
        if len(parts) != 3 or parts[0] or not hmac.compare_digest(parts[1].encode(), self.token.encode()):
            return None
        if parts[2] == "state.json":
            return "application/json", json.dumps(self.state.snapshot(), allow_nan=False)
        template = {"": "live.html.j2", "part": "live_part.html.j2"}.get(parts[2])
        return None if template is None else ("text/html", render(template, **shown(self.state.snapshot())))


def shown(now: Mapping[str, Any]) -> dict[str, Any]:
    """What the template shows of a snapshot."""
    last = now["epochs"][-1] if now["epochs"] else {}
    scores = [
        (
            f"{split} {SCORES[name]}",
            f"{last[split][name]:.3g}" if name == "loss" else format_score(name, last[split][name]),
        )
        for split in SPLITS
        for name in ("loss", "accuracy", "auc", "balanced_accuracy", "rmse")
        if name in mapping(last.get(split)) and (split != "test" or name != "loss")
    ]
    lines = {
        split: [
            (float(record["epoch"]), record[split]["loss"])
            for record in now["epochs"]
            if "loss" in mapping(record.get(split)) and isinstance(record.get("epoch"), int | float)
        ]
        for split in SPLITS
    }
    return {
        "now": now,
        "live": True,
        "scores": scores,
        "losses": Markup(lines_svg({name: points for name, points in lines.items() if len(points) > 1})),
    }


def lines_svg(lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Lines over epochs, drawn anew every second, and so without a library for figures; empty without a line."""
    points = [point for line in lines.values() for point in line]
    if not points:
        return ""
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    wide, tall = max(right - left, 1e-9), max(high - low, 1e-9)
    drawn, names = "", ""
    for at, (name, line) in enumerate(lines.items()):
        path = " ".join(f"{70 + 520 * (x - left) / wide:.1f},{190 - 170 * (y - low) / tall:.1f}" for x, y in line)
        drawn += f'<polyline points="{path}" fill="none" stroke="var(--s{at + 1})" stroke-width="2"></polyline>'
        names += f'<text x="{70 + 90 * at}" y="228" fill="var(--s{at + 1})" font-size="13">{escape(name)}</text>'
    ends = "".join(
        f'<text x="64" y="{y}" text-anchor="end" font-size="12" fill="currentColor">{value:.2g}</text>'
        for y, value in ((24, high), (194, low))
    )
    across = "".join(
        f'<text x="{x}" y="208" text-anchor="{anchor}" font-size="12" fill="currentColor">{value:g}</text>'
        for x, anchor, value in ((70, "start", left), (590, "end", right))
    )
    across += '<text x="330" y="208" text-anchor="middle" font-size="12" fill="currentColor">epoch</text>'
    return (
        f'<svg viewBox="0 0 600 234" role="img" aria-label="Loss by epoch">'
        f'<path d="M70 20V190H590" fill="none" stroke="var(--rule)"></path>{drawn}{ends}{across}{names}</svg>'
    )


class _Server(ThreadingHTTPServer):
    """Threads that end with the server: those that wait for a silent client are hung up on."""

    daemon_threads = False
    block_on_close = True
    allow_reuse_address = True
    page: LivePage

    def __init__(self, *where: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*where)

    def get_request(self) -> tuple[socket.socket, Any]:
        request, address = super().get_request()
        self._open.add(request)
        return request, address

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        for request in list(self._open):
            try:
                request.shutdown(socket.SHUT_RDWR)
            except OSError:  # it has gone by itself
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves in the middle is nobody's fault, and the terminal belongs to the run."""


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "veracausa", ""
    timeout = IDLE_SECONDS
    server: _Server

    def do_GET(self) -> None:
        page = self.server.page
        hosts = self.headers.get_all("Host", [])
        if hosts not in ([f"{HOST}:{page.port}"], [f"localhost:{page.port}"]):
            # A name that somebody else's server gave for this address: the page behind it must not read this one.
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        found = page.answer(self.path)
        if found is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self._send(HTTPStatus.OK, *found)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """The code in words, and nothing of what was asked."""
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        self._send(status, "text/plain", f"{status.value} {status.phrase}\n")

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", f"{policy(live=True)}; frame-ancestors 'none'")
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal belongs to the run, and the address has a secret."""
