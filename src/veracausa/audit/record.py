"""What an audit leaves in the run's folder: `attacks/NAME/`, `samples.parquet`, `audit.md` and its part of the summary.

Each attack is written when it is finished. What stands in the summary is always gathered from all that are, so that an
audit that broke off, or came in several parts, reads like one.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from veracausa.attacks import attacks
from veracausa.audit import gate, twin
from veracausa.audit.labels import label_entries, label_verdict
from veracausa.audit.markdown import audit_table
from veracausa.audit.scene import Outcome
from veracausa.audit.usefulness import kept_usefulness
from veracausa.metrics.images import ssim_window
from veracausa.registry import Options
from veracausa.runs.atomic import write_whole
from veracausa.runs.folder import Run, write_json


def write_attack(run: Run, options: Options, asked: Mapping[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Keep one finished attack; `asked` is what tells whether the same is asked for again."""
    folder = run.path / "attacks" / options.name
    folder.mkdir(parents=True, exist_ok=True)
    granted = list(attacks.get(options.name).needs.words)  # type: ignore[attr-defined]
    for outcome in outcomes:
        if outcome.gallery is not None and outcome.moment == 1:
            outcome.gallery.write(folder / f"pictures-{outcome.party}.safetensors")
            outcome.gallery.write_sheet(run.path / "images" / f"{options.name}-{outcome.party}.png")
    _write_samples(folder / "samples.parquet", options.name, outcomes)
    named = {"attack": options.name, "granted": granted, "settings": options.model_dump(mode="json")}
    # Last: an attack counts as finished when this is there.
    write_json(folder / "metrics.json", {**named, "asked": dict(asked), **attack_summary(outcomes)})


def finished_attack(run: Run, name: str, asked: Mapping[str, Any]) -> bool:
    """Whether the run has this attack already, just as it is asked for."""
    kept = _read(run.path / "attacks" / name / "metrics.json")
    return kept is not None and kept.get("asked") == json.loads(json.dumps(dict(asked)))


def gather(run: Run) -> dict[str, Any]:
    """Lay what all finished attacks found over the summary, and write samples and table; gives what it added."""
    found = _entries(run)
    if not found:
        return {}
    beside = twin.twin_of(run)
    undefended = found if beside is run else _entries(beside) if beside is not None else {}
    entries = gate.gated(found, undefended)
    strongest = gate.strongest_of(entries)
    summary = run.summary
    accuracy = beside.summary.get("accuracy") if beside is not None else None
    added: dict[str, Any] = {
        "attacks": entries,
        "blind": {"mse": entries[strongest]["blind_mse"]},
        "strongest": {"attack": strongest, "leakage": entries[strongest]["leakage"]},
        "verdict": gate.verdict(entries, twin.defended_by(run.job), summary.get("accuracy"), accuracy),
    }
    labels = label_entries(run, beside)
    if labels:
        added |= {"label_attacks": labels, "label_verdict": label_verdict(labels)}
    if kept := kept_usefulness(run):
        without = kept_usefulness(beside) if beside is not None and beside is not run else {}
        added["causal_cosine"] = {**kept, **({"undefended": without} if without else {})}
    _gather_samples(run, list(entries))
    write_json(run.path / "summary.json", {**summary, **added})
    write_whole(run.path / "audit.md", audit_table(run.path.name, added, summary).encode())
    return added


def attack_summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """One attack's entry: the worst victim's scores on training rows at the end, every party's, and the moments."""
    at_end = [outcome for outcome in outcomes if outcome.moment == 1]
    worst = max(at_end, key=lambda outcome: outcome.leakage)
    scores = worst.measured["train"].scores
    headline = {score: scores[score] for score in gate.HEADLINE if score in scores}
    entry: dict[str, Any] = {
        **headline,
        "blind_mse": scores["blind_mse"],
        "party": worst.party,
        "seconds": sum(outcome.seconds for outcome in outcomes),
        "parties": {outcome.party: _party_summary(outcome) for outcome in at_end},
    }
    if len(at_end) < len(outcomes):
        for outcome in sorted(outcomes, key=lambda outcome: outcome.moment):
            moments = entry["parties"][outcome.party].setdefault("moments", [])
            leaked = {str(split): measured.scores["leakage"] for split, measured in outcome.measured.items()}
            moments.append({"moment": outcome.moment, **leaked})
    return entry


def _party_summary(outcome: Outcome) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for split, measured in outcome.measured.items():
        entry[split] = {**measured.scores, "blind": measured.blind, "samples": len(outcome.victims[split])}
        entry[split]["trivial"] = dict(measured.trivial)
        entry[split].update(measured.others)
    entry["auxiliary"] = outcome.auxiliary
    entry["payloads_averaged"] = outcome.draws
    entry["seconds"] = outcome.seconds
    entry.update(outcome.notes)
    if outcome.gallery is not None:
        entry["ssim_window"] = ssim_window(*outcome.gallery.truth.shape[-2:])
    if outcome.strength:
        entry["strength"], entry["settled"] = outcome.strength, outcome.settled
    return entry


def _entries(run: Run) -> dict[str, dict[str, Any]]:
    """The finished attacks of a run by name."""
    entries: dict[str, dict[str, Any]] = {}
    for path in sorted((run.path / "attacks").glob("*/metrics.json")):
        if (kept := _read(path)) is not None and "leakage" in kept:
            entries[path.parent.name] = {key: value for key, value in kept.items() if key not in ("attack", "asked")}
    return entries


def _read(path: Path) -> dict[str, Any] | None:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return kept if isinstance(kept, dict) else None


def _write_samples(path: Path, attack: str, outcomes: Sequence[Outcome]) -> None:
    """A row a victim, where polars is at hand."""
    try:
        import polars as pl
    except ImportError:
        return
    frames = []
    for outcome in outcomes:
        for split, measured in outcome.measured.items():
            named = {"attack": attack, "party": outcome.party, "split": split, "moment": outcome.moment}
            count = len(outcome.victims[split])
            columns: dict[str, Any] = {name: [value] * count for name, value in named.items()}
            columns["position"] = outcome.victims[split].tolist()
            columns.update({name: values.cpu().numpy() for name, values in measured.samples.items()})
            frames.append(pl.DataFrame(columns))
    file = io.BytesIO()
    pl.concat(frames, how="diagonal").write_parquet(file)
    write_whole(path, file.getvalue())


def _gather_samples(run: Run, names: Sequence[str]) -> None:
    try:
        import polars as pl
    except ImportError:
        return
    paths = [run.path / "attacks" / name / "samples.parquet" for name in names]
    frames = [pl.read_parquet(path) for path in paths if path.is_file()]
    if frames:
        file = io.BytesIO()
        pl.concat(frames, how="diagonal").write_parquet(file)
        write_whole(run.path / "samples.parquet", file.getvalue())
