"""The pages of the documentation site, ready to be built: docs/ with the generated reference, links made for the site.

`python tools/site_pages.py FOLDER` writes them; `make docs` builds the site from them. Nothing is fetched.
Pages under docs/ are written so that they also read well where the repository is shown. So a link that leads out of
docs/ becomes a link to the repository, and each heading keeps the anchor that it has there.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

import site_reference

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = "https://github.com/veracausa/veracausa/blob/main/"
MOVED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "examples/notebooks/blind.ipynb": "notebooks/blind.md",
    "examples/notebooks/audit.ipynb": "notebooks/audit.md",
    "examples/notebooks/discovery.ipynb": "notebooks/discovery.md",
}
"""Pages from outside docs/ that belong to the site, and their names there."""
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_NAMED_BY_FILE = re.compile(r"\[([\w./-]+\.md)\]\(([^)\s]+)\)")
_OPTION = re.compile(r"(?<!`)`(--[^`]{1,40})`(?!`)")
_FENCE = re.compile(r"^(\s*)(```+)(\w*)[ \t]*(.*)$")
_HEADING = re.compile(r"^(#+) (.+?)\s*$")


def write_pages(folder: Path) -> list[Path]:
    """Write all pages and pictures below an empty or earlier folder; the pages' paths within it."""
    if folder.exists():
        shutil.rmtree(folder)
    sources = {f"docs/{path.relative_to(ROOT / 'docs').as_posix()}": path for path in (ROOT / "docs").rglob("*.*")}
    sources |= {name: ROOT / name for name in MOVED}
    for name, path in sources.items():
        target = folder / place(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".ipynb":
            text = notebook_page(json.loads(path.read_text(encoding="utf-8")), name)
            target.write_text(for_the_site(text, name), encoding="utf-8")
        elif path.suffix == ".md":
            target.write_text(for_the_site(path.read_text(encoding="utf-8"), name), encoding="utf-8")
        else:
            shutil.copy(path, target)
    for name, text in site_reference.pages().items():
        target = folder / "reference" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(for_the_site(text, f"docs/reference/{name}"), encoding="utf-8")
    return sorted(path.relative_to(folder) for path in folder.rglob("*.md"))


def place(name: str) -> str:
    """Where a file of the repository lies in the site."""
    return MOVED.get(name) or name.removeprefix("docs/")


def for_the_site(text: str, name: str) -> str:
    """A page's text with links, anchors and fences as the site's builder takes them."""
    lines, fence, used = [], "", dict[str, int]()
    for line in text.splitlines():
        opened = _FENCE.match(line)
        if opened and (not fence or opened[2] == fence):
            fence = "" if fence else opened[2]
            title = f' title="{opened[4]}"' if opened[4].endswith(".py") else ""
            lines.append(f"{opened[1]}{opened[2]}{opened[3] if fence else ''}{title}")
        elif fence:
            lines.append(line)
        elif heading := _HEADING.match(line):
            lines.append(f"{heading[1]} {relinked(heading[2], name)} {{: #{_unique(anchor(heading[2]), used)} }}")
        else:
            lines.append(_OPTION.sub(r"`\1`{: .whole }", relinked(_titled(line, name), name)))
    return "\n".join(lines) + "\n"


def notebook_page(notebook: dict[str, Any], name: str) -> str:
    """A notebook as a page: its words, its code, and what was shown when it was run."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for shown in cell.get("outputs", ()):
            forms = shown.get("data", {})
            html = "".join(forms.get("text/html", ()))
            text = "".join(shown.get("text", forms.get("text/plain", ())))
            # Frames of other packages show themselves by scripts and styles of their own: their plain text is taken.
            parts.append(html if 'class="veracausa"' in html else f"```text\n{text.rstrip()}\n```")
    first, _, rest = "\n\n".join(parts).partition("\n")
    return f"{first}\n\nThis page is [a notebook]({REPOSITORY}{name}) to run and to change.\n{rest}\n"


def anchor(title: str) -> str:
    """A heading's anchor where the repository is shown."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def _unique(found: str, used: dict[str, int]) -> str:
    used[found] = used.get(found, -1) + 1
    return f"{found}-{used[found]}" if used[found] else found


def _titled(line: str, name: str) -> str:
    """The line with the title of a page in place of its file's name: the site has pages, not files."""

    def one(link: re.Match[str]) -> str:
        path = ROOT / normpath((PurePosixPath(name).parent / link[2].partition("#")[0]).as_posix())
        if (
            path.suffix != ".md"
            or not path.is_file()
            or place(path.relative_to(ROOT).as_posix()).startswith("results/")
        ):
            return link[0]
        title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ").strip()
        return f"[{title}]({link[2]})"

    return _NAMED_BY_FILE.sub(one, line)


def relinked(line: str, name: str) -> str:
    """The line with every relative link as it must be in the site."""

    def one(link: re.Match[str]) -> str:
        target = link[1]
        if "://" in target or target.startswith(("mailto:", "#")):
            return link[0]
        path, _, part = target.partition("#")
        inside = normpath((PurePosixPath(name).parent / path).as_posix())
        part = f"#{part}" if part else ""
        if inside in MOVED or inside.startswith("docs/"):
            steps = len(PurePosixPath(place(name)).parts) - 1
            return f"]({'../' * steps}{place(inside)}{part})"
        return f"]({REPOSITORY}{inside}{part})"

    return _LINK.sub(one, line)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python tools/site_pages.py FOLDER", file=sys.stderr)
        return 2
    print(f"{len(write_pages(Path(arguments[0])))} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
