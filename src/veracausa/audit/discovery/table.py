"""An audit of a discovery as a table: attacks down, cases across, and what the same parties reach blindly on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veracausa.attacks.columns import feature_attacks
from veracausa.audit.discovery.measure import BLIND

ORDER = (
    "unsplit",
    "ica",
    "norm_aware",
    "norm_averaging",
    "single_parent",
    "candidate_differencing",
    "guessed_start",
    "known_rows",
    "averaging",
    "stacking",
    "known_start",
    "party_and_validator",
)
NOT_MEASURED = "not measured"


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
    known = sorted(summary["attacks"], key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    for name in known:
        attack = feature_attacks.get(name)
        granted = ", ".join(attack.needs.words)  # type: ignore[attr-defined]
        cells = tuple(_cell(case["attacks"].get(name)) for case in cases)
        found.append(AuditRow(name, granted, attack.about, cells))  # type: ignore[attr-defined]
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
