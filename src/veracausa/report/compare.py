"""Several runs side by side: their key numbers, their curves, and only the settings in which they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from veracausa.errors import InputError
from veracausa.report.audit_figures import AuditPoint, frontier_svg, point_of
from veracausa.report.audit_section import audit_section
from veracausa.report.blind_audit import blind_audit_section
from veracausa.report.blind_section import feature_rows
from veracausa.report.blind_section import sent_in_words as blind_sent
from veracausa.report.figures import Chart, Curve, chart_svg
from veracausa.report.opening import opening_of_comparison
from veracausa.report.page import SCORES, SHARES, format_bytes, format_score, format_seconds, render, write_page
from veracausa.report.sent_words import split_sent
from veracausa.runs.record import RunRecord, numbers, read_run

READ = {"training_rows": "read of a training row", "predicted_rows": "read of a predicted row"}
"""What an audit may say of a run, and how a table calls it."""


def compare(run_dirs: Iterable[Path]) -> list[dict[str, Any]]:
    """One row a run: name, state, data, protocol, model, cut, defense, test scores, leakage, coverage, drift, …"""
    return [_row(run, name) for name, run in _named(run_dirs).items()]


def differences(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Setting -> its value in each config, for the settings that are not the same in all; None where one has none."""
    flat = [_flat(config) for config in configs]
    settings = dict.fromkeys(setting for config in flat for setting in config)
    values = {setting: [config.get(setting) for config in flat] for setting in settings}
    return {setting: found for setting, found in values.items() if any(value != found[0] for value in found)}


def write_comparison(run_dirs: Iterable[Path], out: Path, headline: str | None = None) -> Path:
    """Write one self-contained page that compares the runs, and return its path.

    headline: what the page begins with. Default: which run has the best score.
    """
    runs = _named(run_dirs)
    if len(runs) < 2:
        raise InputError(f"a comparison needs two runs or more, and only {next(iter(runs), 'none')} is given")
    rows = [_row(run, name) for name, run in runs.items()]
    scores = [score for score in SCORES if any(score in row["test"] for row in rows)]
    choices = ["data", "model", "cut", "defense"]
    mixed = any(row["protocol"] != "split" for row in rows)
    # What all have in common is said once, below the table.
    alike = [name for name in choices if len({row[name] for row in rows if row[name] not in (None, "")}) < 2]
    common = {name: next((row[name] for row in rows if row[name] not in (None, "")), None) for name in alike}
    choices = [name for name in choices if name not in alike]
    if mixed:
        choices = ["protocol", *choices]
        scores = [score for score in scores if score not in ("loss", "commonest_class")] or scores
    page = render(
        "comparison.html.j2",
        opening=opening_of_comparison(headline or _headline(rows), rows),
        walls=list(_walls(runs)),
        sent=[row for name, run in runs.items() for row in _sent(name, run)],
        rows=rows,
        protocols=mixed,
        choices=choices,
        common=", ".join(f"{name} {value}" for name, value in common.items() if value is not None),
        scores=[(score, SCORES[score]) for score in scores],
        audited=[
            *READ.items(),
            *([("drift", "drift")] if any(row["drift"] is not None for row in rows) else []),
        ],
        shown=[_shown(row, scores) for row in rows],
        frontier=Markup(frontier_svg(points)) if len(points := _points(runs)) > 1 else None,
        charts=[Markup(chart_svg(chart)) for chart in _charts(runs)],
        differences=differences([run.config for run in runs.values()]),
    )
    return write_page(out, page)


def _named(run_dirs: Iterable[Path]) -> dict[str, RunRecord]:
    """The runs by folder name; where two are called the same, with the folders that tell them apart."""
    runs = {str(path.resolve()): read_run(path) for path in map(Path, run_dirs)}
    names = [run.name for run in runs.values()]
    return {run.name if names.count(run.name) == 1 else _told_apart(run, runs.values()): run for run in runs.values()}


def _told_apart(run: RunRecord, others: Iterable[RunRecord]) -> str:
    """As many folders before the name as tell it from the others of this name, and not where these lie."""
    parts = run.path.resolve().parts
    rivals = [other.path.resolve().parts for other in others if other is not run and other.name == run.name]
    for count in range(2, len(parts)):
        if all(parts[-count:] != rival[-count:] for rival in rivals):
            return "/".join(parts[-count:])
    return str(run.path)


def _row(run: RunRecord, name: str) -> dict[str, Any]:
    model = run.config.get("model")
    used = {str(party["defense"]) for party in run.parties.values() if party["role"] != "active"}
    blind = run.protocol == "blind"  # it has no cut and sends nothing that a defense could change
    maps = dict.fromkeys(row["map"] for row in feature_rows(run) if row["map"] != "none") if blind else {}
    return {
        "name": name,
        "path": str(run.path),
        "state": run.state,
        "data": run.data,
        "protocol": run.protocol,
        "parties": list(run.parties),
        "model": (", ".join(maps) or "features at home") if blind else run.model,
        "cut": model.get("cut") if isinstance(model, dict) and not blind else None,
        "defense": "" if blind else ", ".join(sorted(used)),
        "test": dict(run.scores),
        "leakage": run.leakage,
        "coverage": None if run.leakage is None else "predicted rows" if blind else run.coverage,
        "training_rows": run.read_of("training"),
        "predicted_rows": run.read_of("predicted"),
        "drift": run.drift,
        "seconds": run.seconds,
        "rounds": run.rounds,
        "bytes_sent": run.bytes_sent,
    }


def _shown(row: Mapping[str, Any], scores: Sequence[str]) -> dict[str, str]:
    shown = {score: format_score(score, row["test"][score]) if score in row["test"] else "" for score in scores}
    nothing = "not audited" if row["leakage"] is None else "not attacked"
    for rows in READ:
        shown[rows] = nothing if row[rows] is None else f"{100 * row[rows]:.0f} %"
    if row["training_rows"] is not None and row["protocol"] != "blind":
        shown["training_rows"] += f" ({row['coverage']})"
    shown["drift"] = f"{row['drift']:.3g}" if row["drift"] is not None else ""
    shown["seconds"] = format_seconds(row["seconds"]) if row["seconds"] is not None else ""
    shown["bytes"] = format_bytes(row["bytes_sent"]) if row["bytes_sent"] else ""
    return shown


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    # Scores on different data, or of a run that broke off, do not make one run better than another.
    done = [row for row in rows if row["state"] == "done"]
    same_data = len({row["data"] for row in done}) == 1
    for score, better, extreme in (("accuracy", max, "highest"), ("rmse", min, "lowest")):
        values = [row["test"][score] for row in done if score in row["test"]]
        if same_data and len(values) > 1:
            best = better(values)
            holders = [row["name"] for row in done if row["test"].get(score) == best]
            whose = " and ".join(filter(None, [", ".join(holders[:-1]), holders[-1]]))
            return f"{len(rows)} runs compared: {extreme} test {SCORES[score]} {format_score(score, best)}, by {whose}."
    return f"{len(rows)} runs compared."


def _points(runs: Mapping[str, RunRecord]) -> list[AuditPoint]:
    """The audited runs as accuracy and what was read of a training row."""
    return [point for name, run in runs.items() if (point := point_of(run, name)) is not None]


def _sent(name: str, run: RunRecord) -> Iterator[dict[str, Any]]:
    """A line a party: what most of it was, in words, and how much it was in all."""
    in_words = blind_sent if run.protocol == "blind" else split_sent
    for party in run.parties:
        if rows := in_words(run, party):
            most = max(rows, key=lambda row: row["bytes"])
            whole = sum(row["bytes"] for row in rows)
            yield {"run": name, **most, "share": most["bytes"] / max(1, whole), "bytes": whole}


def _walls(runs: Mapping[str, RunRecord]) -> Iterator[dict[str, Any]]:
    """What was read of the first party's pictures in each audited run."""
    for name, run in runs.items():
        blind = run.protocol == "blind"
        # Attacks on a blind training read rows of several kinds, which do not belong into one strip.
        section = blind_audit_section(run) if blind else audit_section(run)
        if section is not None and section["walls"]:
            yield {"run": name, "of": "predicted" if blind else "training", "wall": section["walls"][0]}


def _charts(runs: Mapping[str, RunRecord]) -> list[Chart]:
    """A chart a score; for each run the split that was evaluated most faithfully: test, else validation."""
    charts = []
    for score, splits in (("loss", ("train",)), ("accuracy", ("test", "validation")), ("rmse", ("test", "validation"))):
        curves = []
        for i, (name, run) in enumerate(runs.items()):
            for split in splits:
                values = [(float(record["epoch"]), numbers(record.get(split)).get(score)) for record in run.epochs]
                points = [(epoch, value) for epoch, value in values if value is not None]
                if points:
                    # Six colours; the next six runs get them again, dashed.
                    label = name if split == splits[0] else f"{name} ({split})"
                    curves.append(Curve(label, points, series=i, dashed=i // 6 % 2 == 1))
                    break
        if any(len(curve.points) > 1 for curve in curves):
            title = f"{splits[0].capitalize()} {SCORES[score]}"
            charts.append(Chart(title, curves, percent=score in SHARES))
    return charts


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat
