"""An audit of a discovery as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from veracausa.audit.discovery.table import figures, rows

EXPLAINED = (
    "Figures are the mean |correlation| of the guessed with the true columns, over all attributes, attackers and "
    "victims, and the share of attributes that are read (0.99 or more) where it is not 0. Guesses without names are "
    "matched to the columns as well as possible, in the attacker's favour. –: the case gives the attack nothing "
    "to work on. An attack below the best own attribute has read nothing that a neighbour's column would not tell. "
    "That an attack fails does not say that every attack must."
)


def audit_markdown(summary: Mapping[str, Any]) -> str:
    """What each party learns, and the table."""
    cases: Sequence[Mapping[str, Any]] = summary["cases"]
    lines = ["# What the parties of a discovery learn", "", str(summary["headline"]), ""]
    lines += [f"- **{who[0].upper()}{who[1:]}.** {what}" for who, what in summary["learned"].items()]
    lines += ["", _row(["attack", "granted", *(case["name"] for case in cases)]), _row(["---"] * (2 + len(cases)))]
    for row in rows(summary):
        cells = ["–" if cell is None else _text(cell.mean, cell.read) for cell in row.cells]
        lines.append(_row([row.name, "blind" if row.blind else row.granted, *cells]))
    lines += [_row([label, "", *values]) for label, values in figures(summary)]
    lines += ["", EXPLAINED, "", "Cases:", ""]
    lines += [f"- {case['name']}: {case['says']}." for case in cases]
    return "\n".join(lines) + "\n"


def _text(mean: float, read: float) -> str:
    return f"{mean:.2f}" + (f" ({100 * read:.0f} %)" if read else "")


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"
