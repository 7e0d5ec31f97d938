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

from veracausa.atomic import atomic_write
from veracausa.attacks import attacks
from veracausa.attacks.base import Grant
from veracausa.audit import verdict as gate
from veracausa.audit.baseline import baseline_of, defended_by, undefended_leakage
from veracausa.audit.evaluation import AttackOutcome
from veracausa.audit.labels import label_entries, label_verdict
from veracausa.audit.snapshots import columns_read, coverage_sentence, headline_of, snapshots, widest, works_on, worst
from veracausa.audit.usefulness import kept_usefulness
from veracausa.data.vertical import Split
from veracausa.metrics.images import ssim_window
from veracausa.registry import Options
from veracausa.runs.folder import Run, write_json


def write_attack(run: Run, options: Options, asked: Mapping[str, Any], outcomes: Sequence[AttackOutcome]) -> None:
    """Keep one finished attack; `asked` is what tells whether the same is asked for again."""
    folder = run.path / "attacks" / options.name
    folder.mkdir(parents=True, exist_ok=True)
    granted = list(_granted(options, outcomes).words)
    for outcome in _read_best(outcomes):
        if outcome.gallery is not None:
            outcome.gallery.write(folder / f"pictures-{outcome.party}.safetensors")
            outcome.gallery.write_sheet(run.path / "images" / f"{options.name}-{outcome.party}.png")
        if outcome.rows is not None:
            write_json(folder / f"rows-{outcome.party}.json", outcome.rows)
    _write_samples(folder / "samples.parquet", options.name, outcomes)
    named = {"attack": options.name, "granted": granted, "settings": options.model_dump(mode="json")}
    # Last: an attack counts as finished when this is there.
    write_json(folder / "metrics.json", {**named, "asked": dict(asked), **attack_summary(outcomes)})


def finished_attack(run: Run, name: str, asked: Mapping[str, Any]) -> bool:
    """Whether the run has this attack already, just as it is asked for."""
    return read_kept(run.path / "attacks" / name / "metrics.json", asked) is not None


def read_kept(path: Path, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """What an earlier audit found, if it was asked just the same; its record has an `asked`."""
    kept = _read(path)
    return kept if kept is not None and kept.get("asked") == json.loads(json.dumps(dict(asked))) else None


def gather(run: Run) -> dict[str, Any]:
    """Lay what all finished attacks found over the summary, and write samples and table; gives what it added."""
    found = _entries(run)
    if not found:
        return {}
    beside = baseline_of(run)
    undefended = found if beside is run else _entries(beside) if beside is not None else {}
    entries = gate.gated(found, undefended)
    strongest = gate.strongest_of(entries)
    headline = entries[strongest]
    summary = run.summary
    accuracy = beside.summary.get("accuracy") if beside is not None else None
    attacked = {party for entry in entries.values() for party in entry["parties"]}
    left_out = [party for party in run.job.parties.passive if party not in attacked]
    about = {key: headline[key] for key in ("leakage", "party", "moment", "at", "end", "coverage")}
    added: dict[str, Any] = {
        "attacks": entries,
        "blind": {"mse": headline["blind_mse"]} if "blind_mse" in headline else {},
        "strongest": {"attack": strongest, **about},
        "coverage": widest(entry["coverage"] for entry in entries.values()),
        "parties_not_attacked": left_out,
        "verdict": gate.verdict(entries, defended_by(run.job), summary.get("accuracy"), accuracy, left_out),
    }
    labels = label_entries(run, beside)
    if labels:
        added |= {"label_attacks": labels, "label_verdict": label_verdict(labels)}
    if kept := kept_usefulness(run):
        without = kept_usefulness(beside) if beside is not None and beside is not run else {}
        added["causal_cosine"] = {**kept, **({"undefended": without} if without else {})}
    _gather_samples(run, list(entries))
    write_json(run.path / "summary.json", {**summary, **added})
    atomic_write(run.path / "audit.md", audit_table(run.path.name, added, summary).encode())
    return added


def attack_summary(outcomes: Sequence[AttackOutcome]) -> dict[str, Any]:
    """One attack's entry: its headline, the most that was read of any party at any moment; and every party's part."""
    parties = {outcome.party: _party_summary(outcome) for outcome in outcomes if outcome.moment == 1}
    if len(parties) < len(outcomes):
        for outcome in sorted(outcomes, key=lambda outcome: outcome.moment):
            parties[outcome.party].setdefault("moments", []).append(_moment_summary(outcome))
    for outcome in _read_best(outcomes):
        parties[outcome.party]["shown_moment"] = outcome.moment
    return {**headline_of(parties), "seconds": sum(outcome.seconds for outcome in outcomes), "parties": parties}


def _read_best(outcomes: Sequence[AttackOutcome]) -> list[AttackOutcome]:
    """Of each party the outcome that read most: an attacker shows the best it ever had."""
    best: dict[str, AttackOutcome] = {}
    for outcome in sorted(outcomes, key=lambda outcome: -outcome.moment):
        if outcome.party not in best or outcome.leakage > best[outcome.party].leakage:
            best[outcome.party] = outcome
    return list(best.values())


def _granted(options: Options, outcomes: Sequence[AttackOutcome]) -> Grant:
    """What the attack was given: all that it needs, and of what it can do without what it had."""
    attack = attacks.get(options.name)
    told = any(outcome.notes.get("labels_told") for outcome in outcomes)
    return attack.needs | attack.uses if told else attack.needs


def _moment_summary(outcome: AttackOutcome) -> dict[str, Any]:
    entry: dict[str, Any] = {"moment": outcome.moment}
    if outcome.step is not None:
        entry["step"] = outcome.step
    entry |= {str(split): measured.scores["leakage"] for split, measured in outcome.measured.items()}
    if outcome.moment < 1:  # the end has its own place
        entry["scores"] = {str(split): _scores(outcome, split) for split in outcome.measured}
    return entry


def _scores(outcome: AttackOutcome, split: Split) -> dict[str, Any]:
    measured = outcome.measured[split]
    kept = {
        name: measured.others[name]
        for name in ("advantage", "columns", "best", "attributes")
        if name in measured.others
    }
    return {**measured.scores, "blind": measured.blind, "samples": len(outcome.victims[split]), **kept}


def _party_summary(outcome: AttackOutcome) -> dict[str, Any]:
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
    rounds = int(run.summary.get("rounds", 0)) or None
    for path in sorted((run.path / "attacks").glob("*/metrics.json")):
        if (kept := _read(path)) is not None and "leakage" in kept:
            entry = {key: value for key, value in kept.items() if key not in ("attack", "asked")}
            # A record of before headlines were taken over the training has the last model's there.
            entries[path.parent.name] = {**entry, **headline_of(entry.get("parties", {}), rounds)}
    return entries


def _read(path: Path) -> dict[str, Any] | None:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return kept if isinstance(kept, dict) else None


def _write_samples(path: Path, attack: str, outcomes: Sequence[AttackOutcome]) -> None:
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
    atomic_write(path, file.getvalue())


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
        atomic_write(run.path / "samples.parquet", file.getvalue())


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
    lines += _about_columns(found) + _about_attributes(found) + _about_labels(found) + _about_usefulness(found)
    return "\n".join(lines) + "\n"


def _about_columns(found: Mapping[str, Any]) -> list[str]:
    """Which columns of a table the strongest attack reads, party by party."""
    name = found["strongest"]["attack"]
    lines: list[str] = []
    for party, columns in columns_read(found["attacks"][name]).items():
        lines += ["", f"## Which columns {name} reads of {party}", "", _row(("column", "leakage")), _row(["---"] * 2)]
        lines += [_row([column, _percent(leaked) or "nothing to learn"]) for column, leaked in columns]
    return lines


def _about_attributes(found: Mapping[str, Any]) -> list[str]:
    """Of pictures, the single attribute that the last model's payloads tell best, over all attacks and parties."""
    told = [
        (own["train"]["attributes"][0], name, party)
        for name, entry in found["attacks"].items()
        for party, own in entry["parties"].items()
        if own.get("train", {}).get("attributes")
    ]
    if not told:
        return []
    score, name, party = max(told, key=lambda one: one[0]["r2"] - one[0]["blind"])
    return [
        "",
        f"The one attribute read best: {score['attribute']}, by {name} of {party}, R² {score['r2']:.2f} "
        f"({score['blind']:.2f} without the payload; 1 is exact).",
    ]


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
