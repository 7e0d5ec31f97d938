"""How a run ends badly: the input was wrong (exit code 2), the run failed (1), or somebody stopped it (130)."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any


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


FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says when a disk is full."""
_OF_THE_PATH = {
    errno.EROFS: "the file system is read-only; name a folder that can be written to",
    errno.EACCES: "this user has not the rights for it; give them with chmod, or name another folder",
    errno.EPERM: "this user has not the rights for it; give them with chmod, or name another folder",
    errno.ENOENT: "no such file or folder; correct the path",
    errno.EEXIST: "is a file, and a folder is needed there; correct the path",
    errno.ENOTDIR: "a part of this path is a file and not a folder; correct the path",
    errno.EISDIR: "is a folder, and a file is needed; correct the path",
    errno.ENAMETOOLONG: "the name is too long; take a shorter one",
}


def of_system(error: OSError, path: Path | str | None = None) -> VeracausaError:
    """What the system refused, as a sentence: the file, why, and what to do."""
    where = error.filename if isinstance(error.filename, str) else path
    if error.errno in FULL:
        named = f" ({where})" if where else ""
        return RunError(f"the disk is full{named}; free some space and start the same command again")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return RunError("too many files are open; raise the limit with `ulimit -n 4096` and start again")
    said = _OF_THE_PATH.get(error.errno or 0)
    if said is not None and where:
        return InputError(f"{where}: {said}")
    return RunError(f"{where or 'a file'}: {error.strerror or error}; check the disk and start the same command again")


_WANTED = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text, in quotes",
    "tuple_type": 'a list, as ["a", "b"]',
    "list_type": 'a list, as ["a", "b"]',
    "dict_type": "a section with settings of its own",
    "model_type": "a section with settings of its own",
    "model_attributes_type": "a section with settings of its own",
    "finite_number": "a finite number",
}
"""What a setting has to be, by the type of the problem that pydantic found."""
_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


def wrong_value(problem: Mapping[str, Any]) -> str:
    """What is wrong with a setting, as a person says it; `problem` is one of pydantic's."""
    kind, more = problem["type"], problem.get("ctx") or {}
    if kind in _WANTED:
        return f"must be {_WANTED[kind]}"
    if kind in _LIMITS:
        words, bound = _LIMITS[kind]
        limit = more[bound]
        return f"must be {words} {int(limit) if isinstance(limit, float) and limit.is_integer() else limit}"
    return str(problem["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
