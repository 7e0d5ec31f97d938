"""What surrounds every page: a policy that forbids everything external, the scripts it allows, a list of contents."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from markupsafe import Markup

SCRIPTS = ("sort.js", "graph.js")
"""All scripts that a page may run. They are part of this package, and known by their hashes."""
LIVE = "live.js"
"""The one script of the page of a run that runs. It asks that page's own server, and no other."""
_HEADING = re.compile(r"<h2>(.*?)</h2>", re.DOTALL)
_PLACE = "<!--contents-->"
FEWEST = 3
"""A page of fewer sections has no list of them."""


def policy(live: bool = False) -> str:
    """The Content-Security-Policy of a page: nothing is loaded, nothing is sent, and only our own scripts run.

    live: of a page that shows a run while it runs, and asks its own server how that stands.
    """
    hashes = " ".join(f"'{_hash(name)}'" for name in ((LIVE,) if live else SCRIPTS))
    asks = "connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; script-src {hashes}; {asks}style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def script(name: str) -> Markup:
    """An element with one of these scripts, letter by letter as its hash was taken."""
    if name not in (*SCRIPTS, LIVE):
        raise ValueError(f"{name}: the policy of pages does not allow this script")
    return Markup(f"<script>{_text(name)}</script>")


def with_contents(page: str) -> str:
    """The page with a list of its sections, each by the words of its heading.

    Only templates can write a heading or the place of the list: what others wrote is escaped.
    """
    entries: list[str] = []

    def numbered(found: re.Match[str]) -> str:
        entries.append(f'<li><a href="#part-{len(entries) + 1}">{found[1]}</a></li>')
        return f'<h2 id="part-{len(entries)}">{found[1]}</h2>'

    body = _HEADING.sub(numbered, page)
    if len(entries) < FEWEST:
        return body.replace(_PLACE, "", 1)
    listed = "\n".join(entries)
    return body.replace(_PLACE, f'<p class="label">On this page</p>\n<ol>\n{listed}\n</ol>', 1)


@cache
def _text(name: str) -> str:
    return (files("veracausa.report") / "templates" / name).read_text(encoding="utf-8")


@cache
def _hash(name: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(_text(name).encode()).digest()).decode()
