"""docs/fidelity.md: both papers element by element, made from the declarations beside the code.

    python tools/fidelity.py            write the page
    python tools/fidelity.py --check    say whether it is up to date; exit code 1 if not

tests/contracts/test_fidelity.py holds the declarations against the code.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "fidelity.md"
DECLARED = (
    ROOT / "src/veracausa/discovery/methods/vfedcd/fidelity.toml",
    ROOT / "src/veracausa/defenses/causshield/fidelity.toml",
)
NAMES = ("Balanced",)
"""First words of a remark that keep their capital."""
VERDICTS = {"faithful": "faithful", "deviates": "deviates, documented", "missing": "missing"}
HEAD = """# Fidelity to the two papers

What each paper says, element by element, and what is here. `python tools/fidelity.py` makes this page from declarations
beside the code. A test fails if the page is stale, if a name in it does not exist, or if a profile has another value.

**faithful**: as the paper has it. **deviates, documented**: something else, and a page says so. **missing**: not here,
and why. Where profiles differ, each has its line. Where VFedCD's protocols differ, `shares` is ours and `literal` is
[the published one](shares.md#the-published-protocol). What came out of all this is in [findings.md](findings.md).
"""


def declared() -> Iterator[dict[str, Any]]:
    """What stands in each file."""
    for path in DECLARED:
        yield tomllib.loads(path.read_text(encoding="utf-8"))


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_paper(tree) for tree in declared())


def _paper(tree: dict[str, Any]) -> str:
    elements = [element for section in tree["sections"] for element in section["elements"]]
    counts = {name: sum(one["verdict"] == name for one in elements) for name in VERDICTS}
    told = ", ".join(f"{count} {VERDICTS[name]}" for name, count in counts.items())
    parts = [f"\n## {tree['title']}\n\n{tree['about']}\nOf {len(elements)} lines: {told}.\n"]
    return "".join([*parts, *(_section(section) for section in tree["sections"])])


def _section(section: dict[str, Any]) -> str:
    about = f"\n{section['about']}\n" if "about" in section else ""
    rows = "".join(_row(element) for element in section["elements"])
    return f"\n### {section['title']}\n{about}\n| paper | here | holds for | where |\n|---|---|---|---|\n{rows}"


def _row(element: dict[str, Any]) -> str:
    says = element.get("says", "")
    verdict = VERDICTS[element["verdict"]]
    if element["verdict"] == "missing":
        here = f"**{verdict}** because {says}"
    else:
        here = f"**{verdict}**{': ' if says else ''}{says[:1].lower() + says[1:] if _plain(says) else says}"
    holds = [f"`{name}`" for name in element.get("profiles", ())]
    if "protocol" in element:
        holds.append(f"protocol `{element['protocol']}`")
    values = _common(element.get("settings", {}))
    cells = _cell(element["paper"]), _cell(here), _cell(", ".join(holds) or "all") + values, _where(element)
    return f"| {' | '.join(cells)} |\n"


def _plain(says: str) -> bool:
    """Whether its first word may lose its capital: not a name, and no code."""
    first = says.split(" ")[0]
    return first == "A" or (first.isalpha() and first[1:].islower() and first not in NAMES)


def _common(settings: dict[str, dict[str, Any]]) -> str:
    """The values that the profiles named have, where all have the same."""
    trees = list(settings.values())
    if not trees or any(tree != trees[0] for tree in trees):
        return ""
    return "".join(f"<br>`{name} = {_toml(value)}`" for name, value in trees[0].items())


def _toml(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def _where(element: dict[str, Any]) -> str:
    return ", ".join(_link(name) if "/" in name else f"`{_short(name)}`" for name in element["where"])


def _short(name: str) -> str:
    return name.removeprefix("veracausa.").replace(":", ".")


def _link(path: str) -> str:
    inside = path.removeprefix("docs/")
    return f"[{inside}]({inside})" if inside != path else f"[{path}](../{path})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    wanted = page()
    if parser.parse_args().check:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != wanted:
            sys.exit(f"{PAGE.relative_to(ROOT)}: is stale; run python tools/fidelity.py")
        return
    PAGE.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
