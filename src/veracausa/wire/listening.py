"""A port that is to be opened, and why that failed, in words."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from pathlib import Path
from typing import Any

from nvflare.fuel.f3.comm_error import CommError

from veracausa.wire.credentials import DENIED, DenyList, Shown

_FIXES = {
    errno.EADDRINUSE: "another program has this port; stop it, or open another port with --listen HOST:PORT",
    errno.EACCES: "this user may not open it; take a port above 1023 with --listen HOST:PORT",
    errno.EADDRNOTAVAIL: "this machine does not have that address; give one that it has with --listen 0.0.0.0:PORT",
}


def try_to_bind(host: str, port: int) -> None:
    """Raise what the system says against listening there; the engine below may not say it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen(1)


def not_opened(address: str, error: BaseException) -> str:
    """The sentence for a port that could not be opened."""
    if isinstance(error, socket.gaierror):
        return f"cannot listen at {address}: no such host; give an address of this machine with --listen HOST:PORT"
    number = getattr(error, "errno", None)
    fix = _FIXES.get(number) if number is not None else None
    return f"cannot listen at {address}: {fix or f'{error}; open another one with --listen HOST:PORT'}"


def not_reached(address: str, patience: float = 3.0) -> str:
    """Why a port cannot be dialled; where it can, that who listens there does not let this member in."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), patience).close()
    except socket.gaierror:
        return "no such host"
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return str(error.strerror or error).lower()
    return "the port answers, but does not let this member in (its certificate may be revoked or expired there)"


_log = logging.getLogger(__name__)


class ListeningDriver:
    """What both transports have in common: whether the port was opened, and who is let in there no more."""

    settled: threading.Event
    failure: BaseException | None = None
    """Why the port was not opened."""
    deny_list: DenyList | None = None
    revoked_refused = 0
    """How often; who dials again and again must not fill the log."""

    def wait_until_open(self, patience: float) -> BaseException | None:
        """Why the port could not be opened; None: it was."""
        if not self.settled.wait(patience):
            return TimeoutError(f"nothing came of it in {patience:g} s")
        return self.failure

    def _settle(self, failure: BaseException | None) -> None:
        self.failure = failure
        self.settled.set()

    def read_deny_list(self, params: dict[str, Any]) -> None:
        """The list that the member's credentials name."""
        path = params.get(DENIED)
        self.deny_list = DenyList(Path(path) if path else None)

    def admit(self, der: bytes | None, where: object) -> Shown:
        """What the peer has shown, or a refusal: nothing of it is read then."""
        if not der:
            raise CommError(CommError.BAD_DATA, f"{where} showed no certificate")
        shown = Shown(der)
        refused = self.deny_list.refuses(shown) if self.deny_list is not None else None
        if refused is not None:
            self.revoked_refused += 1
            if self.revoked_refused <= 20 or self.revoked_refused % 1000 == 0:
                _log.warning("a connection from %s was refused: its certificate was revoked (%s)", where, refused)
            raise CommError(CommError.BAD_DATA, f"the certificate of {where} was revoked")
        return shown
