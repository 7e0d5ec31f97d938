"""The report of a run: one self-contained page that opens from disk, also for a run that failed or is not finished."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from veracausa.report.audit_section import audit_section
from veracausa.report.blind_audit import blind_audit_section
from veracausa.report.blind_section import blind_section, kind_in_a_figure
from veracausa.report.defense_figures import defense_figures, defense_warnings, example_strip, gate_rows, risk_notes
from veracausa.report.evaluation_section import evaluation_section
from veracausa.report.figures import bars_svg, bytes_png, bytes_svg, chart_svg, charts_png, training_charts
from veracausa.report.opening import opening_of_run
from veracausa.report.page import (
    SCORES,
    SHARES,
    format_bytes,
    format_moment,
    format_score,
    format_seconds,
    render,
    write_page,
)
from veracausa.report.sent_words import SHORT, split_sent
from veracausa.runs.folder import refuse_links
from veracausa.runs.record import RunRecord, mapping, numbers, read_run

BASELINES = {
    "active_only": "the active party alone, on its own features",
    "joint": "the same models in one process, nothing sent",
    "unsplit": "one undivided model, all features in one place",
}


def write_report(run_dir: Path) -> Path:
    """Write `report.html` into the run folder, with `images/*.png` beside it, and return its path."""
    run = read_run(Path(run_dir))
    refuse_links(run.path)
    if run.config.get("kind") == "discovery":
        from veracausa.report.discovery_page import write_discovery_page

        return write_discovery_page(run.path)
    charts = training_charts(run.epochs, mapping(run.summary.get("baselines")))
    by_kind = bytes_by_kind(run)
    if charts:
        charts_png(charts, run.path / "images" / "curves.png")
    if by_kind:
        bytes_png(by_kind, run.path / "images" / "bytes.png")
    blind = blind_section(run)
    audit = blind_audit_section(run) if run.protocol == "blind" else audit_section(run)
    page = render(
        "report.html.j2",
        run=run,
        opening=opening_of_run(run, headline(run), audit, blind["title"] if blind else ""),
        key_numbers=key_numbers(run),
        charts=[Markup(chart_svg(chart)) for chart in charts],
        bytes_figure=Markup(bytes_svg(by_kind)) if by_kind else None,
        baselines=_baselines(run),
        audit=audit,
        blind=blind,
        evaluation=evaluation_section(run),
        bars=lambda counts: Markup(bars_svg(counts)),
        sent_in_words=[row for name in run.parties for row in split_sent(run, name)] if blind is None else [],
        defense=_defense(run),
    )
    return write_page(run.path / "report.html", page)


def headline(run: RunRecord) -> str:
    """The result in one sentence."""
    if run.state == "failed":
        return f"The run failed{_how_far(run)}: {str(run.status.get('error') or 'no reason was recorded').rstrip('.')}."
    if run.state == "stopped":
        return f"The run was stopped{_how_far(run)}; `--resume` goes on with it."
    if run.state != "done":
        when = format_moment(run.status.get("updated", "its last write"))
        return f"The run is not finished{_how_far(run)}; what follows is as of {when}."
    count = len(run.parties)
    words = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
    who = f"{words[count] if count < len(words) else count} part{'y' if count == 1 else 'ies'}"
    sentence = f"{who} trained {'a blind head' if run.protocol == 'blind' else run.model} on {run.data}"
    if (score := run.main_score) is None:
        return f"{sentence}; no test score was taken."
    sentence += f": test {_scored(run, run.scores, beside=' (commonest class {})')}"
    baselines = mapping(run.summary.get("baselines"))
    for name, whom in (("active_only", "the active party alone"), ("unsplit", "one undivided model on all features")):
        reached = numbers(baselines.get(name))
        if score in reached:
            shown = _scored(run, reached) if run.unbalanced else format_score(score, reached[score])
            return f"{sentence}; {whom} reaches {shown}."
    return f"{sentence}."


def _scored(run: RunRecord, scores: Mapping[str, float], beside: str = "") -> str:
    """The main score in words; where one class is far commoner than the others, with those that reckon with it.

    `beside` is what then stands behind the score, with a place for that class's share.
    """
    score = run.main_score
    assert score is not None
    words = f"{SCORES[score]} {format_score(score, scores[score])}"
    if not run.unbalanced:
        return words
    words += beside.format(format_score("commonest_class", run.scores["commonest_class"]))
    others = [name for name in ("auc", "balanced_accuracy") if name in scores]
    return ", ".join([*(f"{SCORES[name]} {format_score(name, scores[name])}" for name in others), words])


def sent_rows(run: RunRecord) -> list[str]:
    """How many numbers each passive party sent for a row, beside the columns of its table."""
    said = []
    for name, party in run.parties.items():
        payload, columns = party.get("payload"), party.get("table_columns")
        if isinstance(payload, list) and isinstance(columns, int) and party["role"] != "active":
            count = math.prod(payload)
            said.append(
                f"{name} sent {count} number{'s' if count != 1 else ''} a row for its {columns} "
                f"column{'s' if columns != 1 else ''}"
            )
    return said


def key_numbers(run: RunRecord) -> list[tuple[str, str]]:
    """What a reader looks for first, as (name, value)."""
    order = [*(("auc", "balanced_accuracy") if run.unbalanced else ()), *SCORES]
    known = [name for name in dict.fromkeys(order) if name in run.scores]
    names = [name for name in known if name != "loss" or len(run.scores) == 1]
    test = {name: SCORES[name] if name == "commonest_class" else f"test {SCORES[name]}" for name in names}
    shown = [(test[name], format_score(name, run.scores[name])) for name in names]
    if run.leakage is not None:
        of = "predicted rows" if run.protocol == "blind" else run.coverage
        shown.append((f"leakage, {of}", f"{100 * run.leakage:.0f} %"))
    if run.seconds is not None:
        shown.append(("time", format_seconds(run.seconds)))
    if run.rounds is not None and run.protocol != "blind":  # it has phases, no rounds of batches
        shown.append(("rounds", f"{run.rounds:,}"))
    if run.bytes_sent:
        shown.append(("sent, all parties", format_bytes(run.bytes_sent)))
    return shown


def bytes_by_kind(run: RunRecord) -> dict[str, dict[str, int]]:
    """Party -> kind of message -> bytes; without ledgers, everything is of one kind."""
    by_kind: dict[str, dict[str, int]] = {}
    for name, party in run.parties.items():
        for line in run.sent.get(name, ()):
            kinds = by_kind.setdefault(name, {})
            kind = kind_in_a_figure(line.kind) if run.protocol == "blind" else SHORT.get(line.kind, line.kind)
            kinds[kind] = kinds.get(kind, 0) + line.bytes
        if name not in by_kind and party["bytes_sent"]:
            by_kind[name] = {"all kinds": party["bytes_sent"]}
    return by_kind


def _how_far(run: RunRecord) -> str:
    epoch, epochs = run.status.get("epoch"), run.status.get("epochs")
    return f" in epoch {epoch} of {epochs}" if epoch is not None and epochs else ""


def _defense(run: RunRecord) -> dict[str, Any] | None:
    """What the section on defenses shows; None where no party measured or prepared anything."""
    if not run.measured and not run.prepared and not run.measured_at_end:
        return None
    strips = {party: example_strip(run.path, party) for party in run.parties}
    return {
        "figures": [(Markup(figure.svg), figure.sentence) for figure in defense_figures(run)],
        "risk": bool(run.measured_at_end)
        or any("risk" in record for records in run.measured.values() for record in records),
        "parties": list(run.measured),
        "gated": list(run.prepared),
        "gates": gate_rows(run),
        "warnings": defense_warnings(run),
        "notes": risk_notes(run),
        "strips": {party: strip for party, strip in strips.items() if strip},
    }


def _baselines(run: RunRecord) -> list[dict[str, Any]]:
    """Beside each baseline what it scored, and how much better or worse the parties together are."""
    rows = []
    for name, result in mapping(run.summary.get("baselines")).items():
        scores = numbers(result)
        named = [score for score in SCORES if score in scores and score != "commonest_class"]
        shown = [(SCORES[score], format_score(score, scores[score])) for score in named]
        # Of unbalanced classes the AUC comes first: the accuracy of the commonest class is no gain.
        judged = [run.main_score] if not run.unbalanced else ["auc", run.main_score]
        both = [score for score in judged if score in scores and score in run.scores]
        gains = [_gain(score, run.scores[score] - scores[score], run.unbalanced) for score in both]
        what = ": ".join(filter(None, (BASELINES.get(name, ""), mapping(result).get("note"))))
        rows.append({"name": name, "what": what, "scores": shown, "gain": ", ".join(gains)})
    return rows


def _gain(score: str | None, difference: float, named: bool) -> str:
    gain = f"{100 * difference:+.1f} points" if score in SHARES else f"{difference:+.4g}"
    gain = gain.replace("-", "−") if abs(difference) >= 5e-4 else "equal"
    return f"{SCORES[str(score)]} {gain}" if named else gain
