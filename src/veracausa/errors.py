"""How a run ends badly: the input was wrong (exit code 2), the run failed (1), or somebody stopped it (130)."""

from __future__ import annotations


class VeracausaError(Exception):
    """One sentence for a person: what, where, and how to mend it."""

    exit_code = 1


class InputError(VeracausaError):
    """What the user gave cannot be used; nothing was started and nothing was written."""

    exit_code = 2


class RunError(VeracausaError):
    """The run could not go on; what was finished is kept."""


class Interrupted(VeracausaError):
    """Somebody pressed Ctrl-C; the sentence says how to go on."""

    exit_code = 130


class WireError(RunError):
    """A message was refused; `field` names the part of it that is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"message refused: {field}: {problem}")
        self.field = field


class PeerLost(RunError):
    """A peer died, fell silent or gave up; `peer` names it."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"lost party {peer!r}: {reason}")
        self.peer = peer
        self.reason = reason

    def __reduce__(self) -> tuple[type[PeerLost], tuple[str, str]]:
        return PeerLost, (self.peer, self.reason)
