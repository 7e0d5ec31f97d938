"""What the transports add to FLARE's: they say whether a port was opened, and refuse certificates on the deny list."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

from nvflare.fuel.f3.comm_error import CommError

from veracausa.wire.credentials import DENIED
from veracausa.wire.deny_list import DenyList, Shown

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
