"""What an error is about, apart from its wording: `pytest.raises(InputError, check=Names("lab.csv", "nope"))`.

A test matches prose (`match=`) only where the sentence has no name to hold on to, or where its words are what a user
needs: a command to run, a "did you mean".
"""

from __future__ import annotations

import re
from dataclasses import dataclass


class Names:
    """The files, settings, options, columns and numbers that the sentence names, each as a whole word."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __call__(self, error: BaseException) -> bool:
        return all(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", str(error)) for name in self.names)

    def __repr__(self) -> str:
        return f"Names{self.names}"


class Field(Names):
    """The part of a message that was refused, and what else the sentence names."""

    def __init__(self, field: str, *names: str) -> None:
        super().__init__(*names)
        self.field = field

    def __call__(self, error: BaseException) -> bool:
        return getattr(error, "field", None) == self.field and super().__call__(error)

    def __repr__(self) -> str:
        return f"Field{(self.field, *self.names)}"


@dataclass(frozen=True)
class Peer:
    """The party that was lost."""

    name: str

    def __call__(self, error: BaseException) -> bool:
        return getattr(error, "peer", None) == self.name
