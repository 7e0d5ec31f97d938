"""Text of others made harmless before it reaches a screen or a log.

A terminal obeys control characters: they move the cursor, hide a line, or make text stand in another order than it
was written. What a peer or a file of a peer says may hold them, so they are written out as `\\x1b`, never sent.
"""

from __future__ import annotations

import unicodedata


def escaped(text: str, keep: str = "") -> str:
    """The text with everything that is not printed written out: control and format characters, line ends, DEL.

    Letters of any script, symbols and spaces stay. `keep` names control characters that may stay, such as line ends of
    a text of one's own.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign in keep or _is_printed(sign) else _written_out(sign) for sign in text)


def escaped_ascii(text: str) -> str:
    """The same with everything beyond ASCII written out, too: nothing in it looks like something else."""
    return escaped(text).encode("ascii", "backslashreplace").decode()


def _is_printed(sign: str) -> bool:
    return sign.isprintable() or unicodedata.category(sign) == "Zs"


def _written_out(sign: str) -> str:
    return sign.encode("unicode_escape").decode()
