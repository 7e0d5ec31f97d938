"""A port that is to be opened, and why that failed, in words."""

from __future__ import annotations

import errno
import socket

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
