"""The report of a run: one self-contained page that opens from disk, also for a run that failed or is not finished."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader
from markupsafe import Markup

from veracausa.errors import InputError
from veracausa.runs.figures import (
    SCORES,
    SHARES,
    bytes_png,
    bytes_svg,
    chart_svg,
    charts_png,
    format_bytes,
    format_score,
    number,
    numbers,
    training_charts,
)

BASELINES = {
    "active_only": "the active party alone, on its own features",
    "joint": "the same bottom and top models in one process, nothing sent",
    "unsplit": "one undivided model, all features in one place",
}


@dataclass(frozen=True)
class Sent:
    """What left a party in messages of one kind and shape."""

    to: str
    kind: str
    shape: str
    messages: int
    bytes: int


@dataclass
class _Group:
    messages: int = 0
    bytes: int = 0
    to: dict[str, None] = field(default_factory=dict)
    batches: dict[str, set[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class RunRecord:
    """A run folder as read: what is missing or torn is empty."""

    path: Path
    config: Mapping[str, Any]
    config_text: str
    environment: Mapping[str, Any]
    status: Mapping[str, Any]
    summary: Mapping[str, Any]
    epochs: tuple[Mapping[str, Any], ...]
    sent: Mapping[str, tuple[Sent, ...]]

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def state(self) -> str:
        return str(self.status.get("state") or ("done" if self.summary else "unknown"))

    @property
    def data(self) -> str:
        return str(self.summary.get("data") or _mapping(self.config.get("data")).get("name") or "unknown data")

    @property
    def model(self) -> str:
        return str(self.summary.get("model") or _mapping(self.config.get("model")).get("name") or "a model")

    @property
    def scores(self) -> Mapping[str, float]:
        """The test scores at the end, or those of the last epoch that has any."""
        at_end = numbers(self.summary.get("test"))
        if not at_end and number(self.summary.get("accuracy")) is not None:
            at_end = {"accuracy": float(self.summary["accuracy"])}
        evaluated = [numbers(record.get("test")) for record in self.epochs]
        return at_end or next((scores for scores in reversed(evaluated) if scores), {})

    @property
    def main_score(self) -> str | None:
        return next((name for name in ("accuracy", "auc", "rmse", "mae", "loss") if name in self.scores), None)

    @property
    def parties(self) -> dict[str, Mapping[str, Any]]:
        """Every party with what the summary says of it; before there is one, what job and ledgers say."""
        known = _mapping(self.summary.get("parties"))
        agreed = _mapping(self.config.get("parties"))
        active = str(agreed.get("active", "active"))
        names = dict.fromkeys([*known, active, *map(str, agreed.get("passive", ())), *self.sent])
        if not known and not agreed:
            names = dict.fromkeys(self.sent)
        parties: dict[str, Mapping[str, Any]] = {}
        for name in names:
            lines = self.sent.get(name, ())
            told = _mapping(known.get(name))
            messages, nbytes = number(told.get("messages")), number(told.get("bytes_sent"))
            parties[name] = {
                "role": "active" if name == active else "passive",
                "defense": self._agreed_defense(name),
                **told,
                "messages": sum(line.messages for line in lines) if messages is None else int(messages),
                "bytes_sent": sum(line.bytes for line in lines) if nbytes is None else int(nbytes),
            }
        return parties

    def _agreed_defense(self, party: str) -> str:
        own = _mapping(_mapping(self.config.get("party")).get(party)).get("defense")
        return str((_mapping(own) or _mapping(self.config.get("defense"))).get("name", "not recorded"))

    @property
    def bytes_sent(self) -> int:
        total = number(self.summary.get("bytes_sent"))
        return int(total) if total is not None else sum(p["bytes_sent"] for p in self.parties.values())

    @property
    def rounds(self) -> int | None:
        rounds = number(self.summary.get("rounds")) or number(self.status.get("step"))
        return int(rounds) if rounds else None

    @property
    def seconds(self) -> float | None:
        # An epoch's record says how long the run had taken by then.
        so_far = [number(record.get("seconds")) or 0.0 for record in self.epochs]
        return number(self.summary.get("seconds")) or (max(so_far, default=0.0) or None)


def read_run(run_dir: Path) -> RunRecord:
    """What a run folder says, as far as the run got."""
    if not run_dir.is_dir():
        raise InputError(f"{run_dir}: no such run folder")
    if not any((run_dir / name).exists() for name in ("config.toml", "status.json", "metrics.jsonl", "summary.json")):
        raise InputError(f"{run_dir}: is not a run folder (it has no config.toml, status.json or summary.json)")
    config_text = _text(run_dir / "config.toml")
    try:
        config = tomllib.loads(config_text)
    except tomllib.TOMLDecodeError:
        config = {}
    by_epoch = {}
    active = _mapping(config.get("parties")).get("active", "active")
    for record in _lines(run_dir / "metrics.jsonl"):
        epoch = number(record.get("epoch"))
        if record.get("event") == "epoch" and epoch is not None and record.get("party", active) == active:
            by_epoch[epoch] = record
    return RunRecord(
        path=run_dir,
        config=config,
        config_text=config_text,
        environment=_object(run_dir / "environment.json"),
        status=_object(run_dir / "status.json"),
        summary=_object(run_dir / "summary.json"),
        epochs=tuple(by_epoch[epoch] for epoch in sorted(by_epoch)),
        sent={ledger.parent.name: _sent(ledger) for ledger in sorted(run_dir.glob("parties/*/ledger.jsonl"))},
    )


def write_report(run_dir: Path) -> Path:
    """Write `report.html` into the run folder, with `images/*.png` beside it, and return its path."""
    run = read_run(Path(run_dir))
    charts = training_charts(run.epochs, _mapping(run.summary.get("baselines")))
    by_kind = bytes_by_kind(run)
    if charts:
        charts_png(charts, run.path / "images" / "curves.png")
    if by_kind:
        bytes_png(by_kind, run.path / "images" / "bytes.png")
    page = render(
        "report.html.j2",
        run=run,
        headline=headline(run),
        key_numbers=key_numbers(run),
        charts=[Markup(chart_svg(chart)) for chart in charts],
        bytes_figure=Markup(bytes_svg(by_kind)) if by_kind else None,
        baselines=_baselines(run),
    )
    return write_whole(run.path / "report.html", page)


def headline(run: RunRecord) -> str:
    """The result in one sentence."""
    if run.state == "failed":
        return f"The run failed{_how_far(run)}: {str(run.status.get('error') or 'no reason was recorded').rstrip('.')}."
    if run.state != "done":
        when = format_moment(run.status.get("updated", "its last write"))
        return f"The run is not finished{_how_far(run)}; what follows is as of {when}."
    count = len(run.parties)
    words = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
    who = f"{words[count] if count < len(words) else count} part{'y' if count == 1 else 'ies'}"
    sentence = f"{who} trained {run.model} on {run.data}"
    if (score := run.main_score) is None:
        return f"{sentence}; no test score was taken."
    sentence += f": test {SCORES[score]} {format_score(score, run.scores[score])}"
    baselines = _mapping(run.summary.get("baselines"))
    for name, whom in (("active_only", "the active party alone"), ("unsplit", "one undivided model on all features")):
        reached = numbers(baselines.get(name)).get(score)
        if reached is not None:
            return f"{sentence}; {whom} reaches {format_score(score, reached)}."
    return f"{sentence}."


def key_numbers(run: RunRecord) -> list[tuple[str, str]]:
    """What a reader looks for first, as (name, value)."""
    names = [name for name in SCORES if name in run.scores and (name != "loss" or len(run.scores) == 1)]
    shown = [(f"test {SCORES[name]}", format_score(name, run.scores[name])) for name in names]
    if run.seconds is not None:
        shown.append(("time", format_seconds(run.seconds)))
    if run.rounds is not None:
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
            kinds[line.kind] = kinds.get(line.kind, 0) + line.bytes
        if name not in by_kind and party["bytes_sent"]:
            by_kind[name] = {"all kinds": party["bytes_sent"]}
    return by_kind


def format_seconds(seconds: float) -> str:
    """A duration as a person says it: `48.2 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def format_shape(shape: Any) -> str:
    """(1, 28, 14) as `1 × 28 × 14`."""
    return " × ".join(str(size) for size in shape) if isinstance(shape, list | tuple) else str(shape)


def format_moment(moment: Any) -> str:
    """An ISO time as `10 January 2025, 09:00 UTC`; anything else as it is."""
    try:
        when = datetime.fromisoformat(str(moment))
    except ValueError:
        return str(moment)
    return f"{when.day} {when:%B %Y, %H:%M %Z}".rstrip()


def format_count(value: Any) -> str:
    """A count with its thousands apart; anything else as it is."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def render(template: str, **context: Any) -> str:
    """A page from a template of this package; every value is escaped."""
    folder = files("veracausa.runs") / "templates"
    environment = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        size=format_bytes, duration=format_seconds, shape=format_shape, moment=format_moment, count=format_count
    )
    return environment.get_template(template).render(**context)


def write_whole(path: Path, text: str) -> Path:
    """Write a file so that a reader finds the old text or the new, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _how_far(run: RunRecord) -> str:
    epoch, epochs = run.status.get("epoch"), run.status.get("epochs")
    return f" in epoch {epoch} of {epochs}" if epoch is not None and epochs else ""


def _baselines(run: RunRecord) -> list[dict[str, Any]]:
    """Beside each baseline what it scored, and how much better or worse the parties together are."""
    rows = []
    for name, result in _mapping(run.summary.get("baselines")).items():
        scores = numbers(result)
        shown = [(SCORES[score], format_score(score, scores[score])) for score in SCORES if score in scores]
        gain = ""
        if (score := run.main_score) is not None and score in scores:
            difference = run.scores[score] - scores[score]
            gain = f"{100 * difference:+.1f} points" if score in SHARES else f"{difference:+.4g}"
            gain = gain.replace("-", "−") if abs(difference) >= 5e-4 else "equal"
        rows.append({"name": name, "what": BASELINES.get(name, ""), "scores": shown, "gain": gain})
    return rows


def _sent(ledger: Path) -> tuple[Sent, ...]:
    # One row for all receivers and batch sizes (the last batch of an epoch is shorter), with the range these span.
    groups: dict[tuple[str, tuple[tuple[str, tuple[int, ...]], ...]], _Group] = {}
    for line in _lines(ledger):
        shapes = {
            str(name): tuple(size) for name, size in _mapping(line.get("shape")).items() if isinstance(size, list)
        }
        after_batch = tuple((name, size[1:]) for name, size in shapes.items())
        group = groups.setdefault((str(line.get("kind")), after_batch), _Group())
        group.messages += 1
        group.bytes += int(number(line.get("bytes")) or 0)
        group.to[str(line.get("to"))] = None
        for name, size in shapes.items():
            group.batches.setdefault(name, set()).update(size[:1])
    rows = []
    for (kind, after_batch), group in groups.items():
        shape = ", ".join(f"{name} {_spanned(group.batches[name], size)}" for name, size in after_batch)
        rows.append(Sent(", ".join(group.to), kind, shape or "no tensor", group.messages, group.bytes))
    return tuple(sorted(rows, key=lambda row: (-row.bytes, row.kind)))


def _spanned(batches: set[int], after_batch: tuple[int, ...]) -> str:
    if not batches:
        return "scalar"
    low, high = min(batches), max(batches)
    return format_shape((str(high) if low == high else f"{low}–{high}", *after_batch))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _object(path: Path) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(_text(path) or "{}"))
    except ValueError:
        return {}


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """The objects of a file of JSON lines; a line torn by a crash is passed over."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                yield _mapping(json.loads(line))
            except ValueError:
                continue


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
