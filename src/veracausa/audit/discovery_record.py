"""What an audit of a discovery leaves in its folder: numbers, a table and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veracausa.atomic import atomic_write
from veracausa.attacks import column_attacks
from veracausa.audit.column_scores import BLIND
from veracausa.audit.verdict import headline, learned
from veracausa.runs import folder
from veracausa.runs.machine import describe_machine

if TYPE_CHECKING:
    from veracausa.audit.discovery import DiscoveryAudit


def write_audit(out: Path, audit: DiscoveryAudit, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Write it all; gives the summary."""
    from veracausa import __version__
    from veracausa.report.audit_discovery import write_audit_page

    summary: dict[str, Any] = {
        "kind": "discovery audit",
        "headline": headline(found),
        "learned": learned(found, audit.options.known_rows),
        "attributes": len(audit.data.names),
        "rows": len(audit.data.values),
        "parties": {name: list(columns) for name, columns in audit.parties.items()},
        "known_rows": audit.options.known_rows,
        "attacks": list(audit.attacks),
        "cases": [{name: value for name, value in case.items() if name != "asked"} for case in found],
    }
    atomic_write(out / "config.toml", audit.job.to_toml().encode())
    folder.write_json(out / "environment.json", {"veracausa": __version__, **describe_machine(cuda=False)})
    folder.write_json(out / "summary.json", summary)
    atomic_write(out / "audit.md", audit_markdown(summary).encode())
    write_audit_page(out, summary)
    return summary


@dataclass(frozen=True)
class AuditCell:
    """One attack in one case."""

    mean: float
    most: float
    read: float

    @property
    def text(self) -> str:
        return f"{self.mean:.2f}"


@dataclass(frozen=True)
class AuditRow:
    """One attack in all cases."""

    name: str
    granted: str
    about: str
    cells: tuple[AuditCell | None, ...]
    blind: bool = False
    together: bool = False


def rows(summary: Mapping[str, Any]) -> list[AuditRow]:
    """Blind guesses first, then attacks by what they are granted, then colluding parties."""
    cases: Sequence[Mapping[str, Any]] = summary["cases"]
    found = [
        AuditRow(name, "", "", tuple(_cell(case["blind"].get(name)) for case in cases), blind=True)
        for name in BLIND
        if any(name in case["blind"] for case in cases)
    ]
    known = sorted(summary["attacks"], key=lambda name: (column_attacks.get(name).order, name))
    for name in known:
        attack = column_attacks.get(name)
        granted = ", ".join(attack.needs.words)
        cells = tuple(_cell(case["attacks"].get(name)) for case in cases)
        found.append(AuditRow(name, granted, attack.about, cells))
    if any("all_but_one" in case for case in cases):
        for name in known:
            inside = [case.get("all_but_one", {}).get("attacks", {}).get(name) for case in cases]
            if any(inside):
                about = "the same on the features of all parties but the one that is attacked"
                found.append(
                    AuditRow(f"all but one: {name}", "other parties", about, tuple(map(_cell, inside)), together=True)
                )
    return found


def _cell(entry: Mapping[str, float] | None) -> AuditCell | None:
    return None if not entry else AuditCell(entry["mean"], entry["most"], entry["read"])


def figures(summary: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """What else is said of each case: linear R², the graph's scores, the account of noise."""
    cases: Sequence[Mapping[str, Any]] = summary["cases"]
    found = []
    for name in cases[0]["linear_r2"]:
        label = f"R² of a foreign attribute: {name}"
        found.append((label, [f"{case['linear_r2'][name]:.4f}" for case in cases]))
    for score, label in (("f1", "F1 of the graph"), ("shd", "SHD of the graph"), ("edges", "edges")):
        if any(score in case["graph"] for case in cases):
            digits = 2 if score == "f1" else 0
            values = [case["graph"].get(score) for case in cases]
            found.append((label, ["" if value is None else f"{value:.{digits}f}" for value in values]))
    if any("account" in case for case in cases):
        found.append(("μ over all openings (once)", [_account(case.get("account"), "mu", "mu_once") for case in cases]))
        found.append(
            ("ε at δ = 1e−5 (once)", [_account(case.get("account"), "epsilon", "epsilon_once") for case in cases])
        )
    return found


def _account(account: Mapping[str, float] | None, name: str, once: str) -> str:
    return "" if account is None else f"{account[name]:.3g} ({account[once]:.2g})"


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
