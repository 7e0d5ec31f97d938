"""An audit as a Markdown table, for a notebook, an issue or a paper's appendix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from veracausa.report.audit_coverage import columns_read, coverage_sentence, snapshots, works_on, worst
from veracausa.report.audit_twin import undefended_leakage

_HEAD = (
    "attack",
    "granted",
    "works here",
    "party",
    "rows",
    "leakage",
    "when",
    "last model",
    "undefended",
    "MSE",
    "blind MSE",
    "PSNR",
    "SSIM",
    "seconds",
)
_LABELS = ("attack on the labels", "party", "accuracy", "undefended", "prior", "own rows alone", "given labels")


def audit_table(name: str, found: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """The verdict and a row for every attack, party and split."""
    lines = [f"# Audit of {name}", "", str(found["verdict"]), ""]
    if said := coverage_sentence(str(found["coverage"])):
        lines += [said, ""]
    if "accuracy" in summary:
        lines += [f"Test accuracy {100 * summary['accuracy']:.1f} %.", ""]
    lines += [_row(_HEAD), _row(["---"] * len(_HEAD))]
    for attack, entry in found["attacks"].items():
        seconds = entry.get("seconds")
        for party, own in entry["parties"].items():
            works = {True: "yes", False: "no", None: "not known"}[works_on(entry, party)]
            for split in ("train", "test"):
                if found_there := snapshots({party: own}, split):
                    most, end = worst(found_there), found_there[-1]
                    scores, beside = most.scores, _percent(undefended_leakage(entry, party, split))
                    count = own.get(split, {}).get("samples", "")
                    cells = [attack, ", ".join(entry.get("granted", ())), works, party, f"{count} {split}"]
                    cells += [_percent(most.leakage), most.short, _percent(end.leakage), beside]
                    cells.append(f"{scores['mse']:.4f}" if "mse" in scores else "")
                    cells.append(f"{scores['blind_mse']:.4f} ({scores['blind']})" if "blind" in scores else "")
                    cells += [f"{scores[key]:.2f}" if key in scores else "" for key in ("psnr", "ssim")]
                    # Of the whole attack, all parties and moments: said once.
                    cells.append(f"{seconds:.0f}" if seconds is not None else "")
                    seconds = None
                    lines.append(_row(cells))
    lines += [
        "",
        "Leakage: 0 % is no better than the best guess without the payload, 100 % a perfect copy. It is the highest of "
        "all snapshots of the training that were attacked; `when` says which. So is `undefended`. An attack that does "
        "not work without a defense says nothing by failing against one.",
    ]
    lines += _about_columns(found) + _about_labels(found) + _about_usefulness(found)
    return "\n".join(lines) + "\n"


def _about_columns(found: Mapping[str, Any]) -> list[str]:
    """Which columns of a table the strongest attack reads, party by party."""
    name = found["strongest"]["attack"]
    lines: list[str] = []
    for party, columns in columns_read(found["attacks"][name]).items():
        lines += ["", f"## Which columns {name} reads of {party}", "", _row(("column", "leakage")), _row(["---"] * 2)]
        lines += [_row([column, _percent(leaked) or "nothing to learn"]) for column, leaked in columns]
    return lines


def _about_labels(found: Mapping[str, Any]) -> list[str]:
    entries = found.get("label_attacks")
    if not entries:
        return []
    lines = ["", "## The labels", "", str(found["label_verdict"]), "", _row(_LABELS), _row(["---"] * len(_LABELS))]
    for attack, entry in entries.items():
        if "accuracy" not in entry:
            lines.append(_row([attack, entry.get("unavailable", ""), *[""] * (len(_LABELS) - 2)]))
            continue
        without = entry.get("undefended", {}).get("accuracy")
        for party, own in entry["parties"].items():
            if "accuracy" in own:
                beside = _percent(without) if party == entry["party"] else ""
                cells = [attack, party, _percent(own["accuracy"]), beside, _percent(own["prior"])]
                lines.append(_row([*cells, _percent(own.get("rows_alone")), own["known_labels"]]))
    return lines


def _about_usefulness(found: Mapping[str, Any]) -> list[str]:
    kept = found.get("causal_cosine", {})
    if "centred" not in kept:
        return []
    without = kept.get("undefended", {}).get("centred")
    beside = f" (undefended, in its own model: {without:.2f})" if without is not None else ""
    return [
        "",
        f"Cosine of what is sent to the causal proxy of its class: {kept['centred']:.2f}{beside}; "
        f"to the same rows without the defense: {kept['to_clean']:.2f}. Higher is more useful, not safer.",
    ]


def _row(cells: Any) -> str:
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
