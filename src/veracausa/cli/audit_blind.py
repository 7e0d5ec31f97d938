"""What `veracausa audit` prints of a blind training: a sentence a side, then every situation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veracausa.runs.folder import Run


def print_blind_audit(run: Run, found: Mapping[str, Any]) -> None:
    """Sentences first, then a table of what each attack read in each situation."""
    from rich.markup import escape
    from rich.table import Table

    from veracausa.audit.blind_verdict import bits_text
    from veracausa.cli import console

    told = found["blind_audit"]
    table = Table("attack", "situation", "of", box=None, pad_edge=False)
    for name in ("as run", "read", "bound"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in told["situations"]:
        named = [each["attack"], each["situation"], each["victim"]]
        table.add_row(*map(escape, named), "yes" if each["as_run"] else "", *_figures(each))
    for sentence in told["sentences"].values():
        console.say(sentence)
    console.say(f"An opened answer carries {bits_text(told['bits'])}.\n")
    console.out.print(table)
    console.say(
        "\nRows: 0 % is no more than a guess without anything opened, 100 % a perfect copy. Members: advantage over "
        "chance. Labels: share that is right."
    )
    console.out.print(f"Details: {run.path / 'audit.md'}, {run.path / 'summary.json'}", markup=False, soft_wrap=True)


def _figures(each: Mapping[str, Any]) -> tuple[str, str]:
    """What was read, and the bound where there is one."""
    bound = each.get("bound")
    if "accuracy" in each:
        return f"{100 * each['accuracy']:.1f} %", f"{100 * each['bound']:.1f} %"
    if "statistic" in each:
        return f"{each['advantage']:.3f}", "" if bound is None else f"{bound:.3f}"
    return f"{100 * each['leakage']:.1f} %", ""
