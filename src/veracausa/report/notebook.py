"""What a notebook shows of a run, of predictions and of a frontier: a short summary as HTML, without a script.

Every text of a file or a peer is escaped. No colour of a background is set and text keeps the notebook's own colour, so
that it reads in dark notebooks, too. Nothing is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from veracausa.escaping import escaped
from veracausa.report.hidden_paths import without_paths
from veracausa.report.page import SCORES, PageOpening, format_score
from veracausa.runs.record import RunRecord, mapping, number, read_run

SHOWN = 12
"""So many edges, and so many attacks."""
ROWS = 5
"""So many predicted rows."""
COLUMNS = 6
"""So many columns of a party, those read best."""
_LINE = "1px solid rgba(128,128,128,.35)"
_TONES = {"bad": "#d1494d", "part": "#b5953a"}
_CELL = f"padding:.15em .9em .15em 0;text-align:left;border-bottom:{_LINE}"
_COLOURS = (
    "--paper:var(--jp-layout-color0,Canvas);--soft:#7f8893;--fail:#d1494d;--warn:#c07a1e;"
    "--s1:#4a86cf;--s2:#d5753a;--s3:#3d9a70;--s4:#9a6cc7;--s5:#b5953a;--s6:#7b8894"
)
"""For drawings of the pages: each can be told from white and from black."""


def run_html(path: Path) -> str:
    """A training: the verdict, its figures, what attacks read, what to do next."""
    from veracausa.audit.snapshots import columns_read
    from veracausa.report.blind_section import title
    from veracausa.report.opening import opening_of_run
    from veracausa.report.run_page import headline, key_numbers

    run = read_run(path)
    blind = title(run) if run.protocol == "blind" and run.summary else ""
    parts = [_opening(opening_of_run(run, headline(run), run.summary, blind), run), _pairs(key_numbers(run))]
    read = [
        (name, str(entry.get("party", "")), f"{100 * leakage:.1f} %")
        for name, entry in ((name, mapping(entry)) for name, entry in mapping(run.summary.get("attacks")).items())
        if (leakage := number(entry.get("leakage"))) is not None
    ]
    if read:
        parts.append(_table(("attack", "rows of", "leakage"), read[:SHOWN]))
        parts += [_soft(f"and {len(read) - SHOWN} more attacks")] if len(read) > SHOWN else []
    strongest = str(mapping(run.summary.get("strongest")).get("attack"))
    for party, columns in columns_read(mapping(mapping(run.summary.get("attacks")).get(strongest))).items():
        told = [f"{column} {100 * leakage:.0f} %" for column, leakage in columns[:COLUMNS] if leakage is not None]
        parts += [_soft(f"Columns of {party} that {strongest} reads best: {', '.join(told)}.")] if told else []
    return _whole([*parts, _place(run)])


def discovery_html(path: Path) -> str:
    """A discovery: its sentence, the graph drawn, the strongest edges, how near a true graph it is."""
    from veracausa.report.discovery_page import beside_truth, discovery_headline, drawn_graph
    from veracausa.report.opening import opening_of_discovery

    run = read_run(path)
    if not run.summary:
        return _whole([_said(f"The discovery is not finished: {run.state}."), _place(run)])
    told = opening_of_discovery(run.summary, discovery_headline(run.summary, scored=False), beside_truth(run.summary))
    graph = drawn_graph(run)
    rows = [
        (
            str(row["cause"]),
            "—" if row.get("directed") == "no" else "→",
            str(row["effect"]),
            "" if row.get("slope") is None else f"{row['slope']:+.2f}".replace("-", "−"),
            "" if row.get("share") is None else f"{100 * row['share']:.0f} %",
            str(row.get("shape") or ""),
        )
        for row in graph.rows
    ]
    parts = [
        _opening(told, run),
        f'<div style="max-width:34em;overflow-x:auto">{escaped(graph.svg, keep=chr(10))}</div>' if rows else "",
    ]
    parts += [_soft(f"{party}: {', '.join(columns)}") for party, columns in graph.parties.items()]
    if rows:
        parts.append(_table(("cause", "", "effect", "deviations", "of variance", "shape"), rows[:SHOWN]))
        parts += [_soft(f"and {len(rows) - SHOWN} more edges")] if len(rows) > SHOWN else []
    audit = read_run(path / "audit").summary if (path / "audit" / "summary.json").is_file() else {}
    learned = [f"Audit: {audit['headline']}"] if audit.get("headline") else []
    learned += [f"{who}: {what}" for who, what in mapping(audit.get("learned")).items()]
    return _whole([*parts, *map(_soft, learned), _place(run)])


def predictions_html(found: Any) -> str:
    """The first predicted rows, and the scores where the rows had labels."""
    count = len(found.ids)
    parts = [_said(f"{count:,} predicted row{'' if count == 1 else 's'}")]
    if found.scores:
        named = [name for name in SCORES if name in found.scores]
        parts.append(_pairs([(SCORES[name], format_score(name, found.scores[name])) for name in named]))
    values = found.outputs[:ROWS].tolist()
    if found.classes:
        rows = [
            (id_, label, f"{max(row):.3f}")
            for id_, label, row in zip(found.ids[:ROWS], found.labels[:ROWS], values, strict=True)
        ]
        parts.append(_table(("id", "prediction", "probability"), rows))
    else:
        pairs = [(id_, f"{value:.4g}") for id_, value in zip(found.ids[:ROWS], values, strict=True)]
        parts.append(_table(("id", "prediction"), pairs))
    return _whole([*parts, _soft("to_csv(path) writes all")] if count > ROWS else parts)


def frontier_html(found: Any) -> str:
    """What is recommended, every point, and what to be wary of."""
    parts = [_said(found.recommendation.sentence)]
    score = found.sweep.score
    rows = [
        (point.defense, point.setting, format_score(score, point.accuracy), f"{100 * point.leakage:.1f} %")
        for point in found.points
    ]
    parts.append(_table(("defense", "setting", SCORES.get(score, score), "leakage"), rows))
    if found.snippet:
        parts.append(f"<pre>{_text(found.snippet)}</pre>")
    return _whole([*parts, *(_soft(line) for line in found.warnings)])


def _opening(opening: PageOpening, run: RunRecord) -> str:
    parts = [_said(opening.verdict, _TONES.get(opening.tone, "")), *(_soft(line) for line in opening.lead)]
    for step in opening.steps[:1]:
        command = f"<br><code>{_text(step.command.replace('RUN', _folder(run.path), 1))}</code>" if step.command else ""
        why = step.why.removesuffix("RUN is the folder of this page.").strip()
        parts.append(f'<p style="margin:.4em 0">Next: {_text(why)}{command}</p>')
    return "".join(parts)


def _place(run: RunRecord) -> str:
    page = " and its page, report.html" if (run.path / "report.html").is_file() else ""
    return _soft(f"Folder {_folder(run.path)}{page}. The call report() writes the page with everything.")


def _folder(path: Path) -> str:
    """A relative path as it is; of one from the root only the last two parts: a notebook is passed on."""
    return str(path) if not path.is_absolute() else "/".join(("…", *path.parts[-2:]))


def _said(text: str, colour: str = "") -> str:
    bar = f"border-left:.3em solid {colour};padding-left:.6em;" if colour else ""
    return f'<p style="margin:.3em 0;font-weight:600;{bar}">{_text(text)}</p>'


def _soft(text: str) -> str:
    return f'<p style="margin:.3em 0;opacity:.75;max-width:60em">{_text(text)}</p>'


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return _table((), pairs) if pairs else ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(f'<th style="{_CELL};font-weight:600">{_text(name)}</th>' for name in header)
    lines = [f"<tr>{cells}</tr>"] if header else []
    for row in rows:
        cells = "".join(f'<td style="{_CELL}">{_text(cell)}</td>' for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return f'<table style="border-collapse:collapse;margin:.5em 0">{"".join(lines)}</table>'


def _text(value: str) -> str:
    return escape(escaped(without_paths(str(value)), keep="\n"))


def _whole(parts: Iterable[str]) -> str:
    return f'<div class="veracausa" style="{_COLOURS}">{"".join(parts)}</div>'
