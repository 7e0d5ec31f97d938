"""An audit as a Markdown table, for a notebook, an issue or a paper's appendix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_HEAD = (
    "attack",
    "granted",
    "works here",
    "party",
    "rows",
    "leakage",
    "undefended",
    "MSE",
    "blind MSE",
    "PSNR",
    "SSIM",
)


def audit_table(name: str, found: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """The verdict and a row for every attack, party and split."""
    lines = [f"# Audit of {name}", "", str(found["verdict"]), ""]
    if "accuracy" in summary:
        lines += [f"Test accuracy {100 * summary['accuracy']:.1f} %.", ""]
    lines += [_row(_HEAD), _row(["---"] * len(_HEAD))]
    for attack, entry in found["attacks"].items():
        works = {True: "yes", False: "no", None: "not known"}[entry.get("works")]
        without = entry.get("undefended", {}).get("leakage")
        for party, own in entry["parties"].items():
            for split in ("train", "test"):
                if split in own:
                    scores = own[split]
                    beside = _percent(without) if party == entry["party"] and split == "train" else ""
                    cells = [attack, ", ".join(entry.get("granted", ())), works, party, f"{scores['samples']} {split}"]
                    cells += [_percent(scores["leakage"]), beside]
                    cells += [f"{scores['mse']:.4f}", f"{scores['blind_mse']:.4f} ({scores['blind']})"]
                    cells += [f"{scores[key]:.2f}" if key in scores else "" for key in ("psnr", "ssim")]
                    lines.append(_row(cells))
    lines += [
        "",
        "Leakage: 0 % is no better than the best guess without the payload, 100 % a perfect copy. An attack that does "
        "not work without a defense says nothing by failing against one.",
    ]
    return "\n".join(lines) + "\n"


def _row(cells: Any) -> str:
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
