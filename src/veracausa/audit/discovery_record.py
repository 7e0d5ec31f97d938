"""What an audit of a discovery leaves in its folder: numbers, a table and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veracausa.atomic import atomic_write
from veracausa.attacks import column_attacks
from veracausa.audit.column_scores import BLIND
from veracausa.audit.sums_scores import BASELINES
from veracausa.audit.sums_verdict import sums_headline, sums_learned
from veracausa.audit.verdict import headline, learned
from veracausa.runs import folder
from veracausa.runs.machine import describe_machine

if TYPE_CHECKING:
    from veracausa.audit.discovery import DiscoveryAudit


def write_audit(out: Path, audit: DiscoveryAudit, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Write it all; gives the summary."""
    from veracausa import __version__
    from veracausa.report.audit_discovery import write_audit_page

    on_sums = audit.opened == "sums"
    summary: dict[str, Any] = {
        "kind": "discovery audit",
        "opened": audit.opened,
        "headline": sums_headline(found) if on_sums else headline(found),
        "learned": sums_learned(found) if on_sums else learned(found, audit.options.known_rows),
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

    mean: float | None
    most: float | None
    read: float
    gain: float | None = None
    """Of sums: beyond what own columns and rows of other people tell."""
    cells: float | None = None
    """Of sums: the share of categories that are right."""

    @property
    def text(self) -> str:
        parts = [] if self.mean is None else [f"{self.mean:.2f}"]
        if self.gain is not None:
            parts.append(f"({self.gain:+.2f})")
        if self.cells is not None:
            parts.append(f"{100 * self.cells:.0f} % right")
        return " ".join(parts)


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
        for name in (*BLIND, *BASELINES)
        if any(name in case["blind"] for case in cases)
    ]
    known = sorted(summary["attacks"], key=lambda name: (column_attacks.get(name).order, name))
    for name in known:
        attack = column_attacks.get(name)
        granted = ", ".join(attack.needs.words)
        for label in _labels(name, cases):
            cells = tuple(_cell(case["attacks"].get(label)) for case in cases)
            if summary.get("opened") != "sums" or any(cells):
                found.append(AuditRow(label, granted, attack.about, cells))
    if any("all_but_one" in case for case in cases):
        for name in known:
            inside = [case.get("all_but_one", {}).get("attacks", {}).get(name) for case in cases]
            if any(map(_cell, inside)):
                about = "the same on the features of all parties but the one that is attacked"
                found.append(
                    AuditRow(f"all but one: {name}", "other parties", about, tuple(map(_cell, inside)), together=True)
                )
    return found


def _labels(name: str, cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """An attack by its name, or by each situation that it was tried in."""
    tried = dict.fromkeys(label for case in cases for label in case["attacks"])
    return [label for label in tried if label == name or label.startswith(f"{name}: ")] or [name]


def _cell(entry: Mapping[str, Any] | None) -> AuditCell | None:
    if not entry or ("mean" not in entry and "cells" not in entry):
        return None
    mean, most, gain, cells = (entry.get(name) for name in ("mean", "most", "gain", "cells"))
    return AuditCell(mean, most, entry.get("read", 0.0), gain, cells)


def figures(summary: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """What else is said of each case: linear R², the graph's scores, the account of noise."""
    cases: Sequence[Mapping[str, Any]] = summary["cases"]
    found = []
    for name in cases[0].get("linear_r2", {}):
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
    if "rows_a_function" in cases[0]:
        found.append(("rows", [f"{case['rows']:,}" for case in cases]))
        found.append(("rows for each function of two parties", [f"{case['rows_a_function']:.1f}" for case in cases]))
        found.append(("noise on a sum, in rows", [f"{case['noise']:.3g}" for case in cases]))
        found.append(("membership: AUC (advantage, at most by ε)", [_member(case) for case in cases]))
    return found


def _member(case: Mapping[str, Any]) -> str:
    told = [entry for entry in case["attacks"].values() if entry and "auc" in entry]
    if not told:
        return ""
    bound = "" if told[0]["bound"] is None else f", {told[0]['bound']:.2f}"
    return f"{told[0]['auc']:.2f} ({told[0]['advantage']:.2f}{bound})"


def _account(account: Mapping[str, float] | None, name: str, once: str) -> str:
    return "" if account is None else f"{account[name]:.3g} ({account[once]:.2g})"


EXPLAINED_SUMS = (
    "Figures are R² of a partner's numbers, row by row, beside the column's mean: the mean over all columns, attackers "
    "and victims. In brackets is the gain over own columns and rows of other people, which is what the sums tell. Of "
    "categories, the share of cells that are right. All but one means all other parties and the validator together. "
    "That an attack fails does not say that every attack must."
)
EXPLAINED = (
    "Figures are the mean |correlation| of the guessed with the true columns, over all attributes, attackers and "
    "victims, and the share of attributes that are read (0.99 or more) where it is not 0. Guesses without names are "
    "matched to the columns as well as possible, in the attacker's favour. –: the case gives the attack nothing "
    "to work on. An attack below the best own attribute has read nothing that a neighbour's column would not tell. "
    "That an attack fails does not say that every attack must."
)


def explained(summary: Mapping[str, Any]) -> str:
    """What the figures are."""
    return EXPLAINED_SUMS if summary.get("opened") == "sums" else EXPLAINED


def audit_markdown(summary: Mapping[str, Any]) -> str:
    """What each party learns, and the table."""
    cases: Sequence[Mapping[str, Any]] = summary["cases"]
    lines = ["# What the parties of a discovery learn", "", str(summary["headline"]), ""]
    lines += [f"- **{who[0].upper()}{who[1:]}.** {what}" for who, what in summary["learned"].items()]
    lines += ["", _row(["attack", "granted", *(case["name"] for case in cases)]), _row(["---"] * (2 + len(cases)))]
    for row in rows(summary):
        cells = ["–" if cell is None else _text(cell) for cell in row.cells]
        lines.append(_row([row.name, "blind" if row.blind else row.granted, *cells]))
    lines += [_row([label, "", *values]) for label, values in figures(summary)]
    lines += ["", explained(summary), "", "Cases:", ""]
    lines += [f"- {case['name']}: {case['says']}." for case in cases]
    return "\n".join(lines) + "\n"


def _text(cell: AuditCell) -> str:
    share = f" ({100 * cell.read:.0f} %)" if cell.read and cell.gain is None else ""
    return cell.text + share


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"
