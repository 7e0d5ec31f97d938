"""What the page of a blind run shows of its audit: a sentence a side, pictures, and every situation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from veracausa.report.audit_figures import tables_read, wall
from veracausa.report.audit_section import broken_off
from veracausa.runs.record import RunRecord, mapping, number, numbers

SIDES = {
    "training rows": "What the active party could learn of a training row",
    "predicted rows": "Of a predicted row",
    "labels": "What a passive party could learn of the labels",
    "membership": "Whether a row was trained on",
    "broken": "If somebody does not keep to the protocol",
}


def blind_audit_section(run: RunRecord) -> dict[str, Any] | None:
    """What the template shows; None where nobody attacked."""
    found, told = mapping(run.summary.get("blind_audit")), mapping(run.status.get("audit"))
    if not found and not told:
        return None
    situations = [mapping(each) for each in found.get("situations", ())]
    strongest = str(mapping(run.summary.get("strongest")).get("attack", ""))
    victims = dict.fromkeys(str(each.get("victim")) for each in situations if "leakage" in each)
    walls = [shown for party in victims if (shown := wall(run.path, party, [strongest], strongest, False))]
    entries = mapping(run.summary.get("attacks"))
    said = mapping(found.get("sentences"))
    return {
        "blind": True,
        "verdict": str(run.summary.get("verdict") or ""),
        "sides": [(title, str(said[side])) for side, title in SIDES.items() if side in said],
        "broken": broken_off(told),
        "bits": {name: f"{value:.0f}" for name, value in numbers(found.get("bits")).items()},
        "step": number(found.get("step")),
        "rows": [row_cells(each) for each in situations if "leakage" in each],
        "members": [member_cells(each) for each in situations if "statistic" in each],
        "labels": [label_cells(each) for each in situations if "accuracy" in each],
        "about": [(name, str(words)) for name, words in mapping(found.get("about")).items()],
        "says": list({str(each.get("situation")): str(each.get("says", "")) for each in situations}.items()),
        "walls": walls,
        "tables": tables_read(run.path, mapping(entries.get(strongest))) if strongest else [],
        "strongest": strongest,
    }


def row_cells(each: Mapping[str, Any]) -> dict[str, Any]:
    """One attack on rows in one situation; `sort` has the numbers."""
    known = numbers(each)
    top = numbers(each.get("identified")).get("top_1")
    return {
        **_named(each),
        "victim": str(each.get("victim")),
        "rows": f"{known.get('samples', 0):.0f} {'training' if each.get('split') == 'train' else 'predicted'}",
        "leakage": _percent(known["leakage"]),
        "works": "yes" if each.get("works") else "no",
        "mse": f"{known.get('mse', float('nan')):.3g}",
        "blind": f"{known.get('blind_mse', float('nan')):.3g}",
        "recognised": "" if top is None else _percent(top),
        "sort": {"leakage": known["leakage"]},
    }


def member_cells(each: Mapping[str, Any]) -> dict[str, Any]:
    """One attack on membership."""
    known, rates = numbers(each), numbers(each.get("true_positives"))
    return {
        **_named(each),
        "statistic": str(each.get("statistic")),
        "advantage": f"{known['advantage']:.3f}",
        "auc": f"{known['auc']:.3f}",
        "bound": f"{known['bound']:.3f}" if "bound" in known else "",
        "low": ", ".join(f"{_percent(rate)} at {100 * float(share):g} %" for share, rate in rates.items()),
    }


def label_cells(each: Mapping[str, Any]) -> dict[str, Any]:
    """One passive party's reading of the labels."""
    known = numbers(each)
    shares: dict[str, str] = {
        str(name): _percent(known[name]) for name in ("accuracy", "prior", "rows_alone", "bound") if name in known
    }
    return {**_named(each), "seat": str(each.get("seat")), **shares}


def _named(each: Mapping[str, Any]) -> dict[str, Any]:
    as_run = bool(each.get("as_run"))
    return {"attack": str(each.get("attack")), "situation": str(each.get("situation")), "as_run": as_run}


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
