"""A run folder as read: what a run says of itself, also one that failed or is not finished. Needs no torch."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from veracausa.errors import InputError
from veracausa.metrics.advantage import is_unbalanced
from veracausa.runs.folder import found_folder


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
    measured: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    """Party -> its own record of each epoch: diagnostics of its defense, and the risk."""
    prepared: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Party -> what it said of what its defense prepared."""
    measured_at_end: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Party -> the exact risk after training."""

    evaluated: Mapping[str, Any] = field(default_factory=dict)
    """What stands behind the scores, where the active party's record is here: ROC, confusion, calibration, balance."""

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def state(self) -> str:
        return str(self.status.get("state") or ("done" if self.summary else "unknown"))

    @property
    def protocol(self) -> str:
        """How the parties trained: `split` or `blind`; runs of before the choice are split."""
        agreed = mapping(self.config.get("training")).get("protocol")
        return str(self.summary.get("protocol") or agreed or "split")

    @property
    def data(self) -> str:
        return str(self.summary.get("data") or mapping(self.config.get("data")).get("name") or "unknown data")

    @property
    def model(self) -> str:
        return str(self.summary.get("model") or mapping(self.config.get("model")).get("name") or "a model")

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
    def unbalanced(self) -> bool:
        """Whether one class is so common among the test rows that accuracy alone says little."""
        classes = int(number(self.summary.get("classes")) or 2)
        return is_unbalanced(self.scores.get("commonest_class", 0.0), classes) and self.main_score == "accuracy"

    @property
    def parties(self) -> dict[str, Mapping[str, Any]]:
        """Every party with what the summary says of it; before there is one, what job and ledgers say."""
        known = mapping(self.summary.get("parties"))
        agreed = mapping(self.config.get("parties"))
        active = str(agreed.get("active", "active"))
        names = dict.fromkeys([*known, active, *map(str, agreed.get("passive", ())), *self.sent])
        if not known and not agreed:
            names = dict.fromkeys(self.sent)
        parties: dict[str, Mapping[str, Any]] = {}
        for name in names:
            lines = self.sent.get(name, ())
            told = mapping(known.get(name))
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
        own = mapping(mapping(self.config.get("party")).get(party)).get("defense")
        return str((mapping(own) or mapping(self.config.get("defense"))).get("name", "not recorded"))

    @property
    def leakage(self) -> float | None:
        """What the strongest attack of an audit reads of the rows; None where nobody attacked."""
        return number(mapping(self.summary.get("strongest")).get("leakage"))

    def read_of(self, rows: Literal["training", "predicted"]) -> float | None:
        """The most that an audit read of such a row, as the job ran; None where nobody tried."""
        if self.protocol == "blind":
            split = "train" if rows == "training" else "test"
            found = [
                each.get("leakage")
                for each in map(mapping, mapping(self.summary.get("blind_audit")).get("situations", ()))
                if each.get("as_run") and each.get("split") == split
            ]
        elif rows == "training":
            return self.leakage
        else:
            strongest = str(mapping(self.summary.get("strongest")).get("attack", ""))
            entry = mapping(mapping(self.summary.get("attacks")).get(strongest))
            found = [mapping(mapping(own).get("test")).get("leakage") for own in mapping(entry.get("parties")).values()]
        return max((leakage for value in found if (leakage := number(value)) is not None), default=None)

    @property
    def coverage(self) -> str:
        """How much of the training that figure is of: `whole training`, `some snapshots` or `last model`."""
        told = mapping(self.summary.get("strongest")).get("coverage") and self.summary.get("coverage")
        return str(told or "last model")  # older records are of the last model alone

    @property
    def drift(self) -> float | None:
        """The largest drift that a party's defense ended with."""
        told = [mapping(party.get("diagnostics")).get("drift") for party in self.parties.values()]
        ends = [records[-1] for records in self.measured.values() if records]
        told += [mapping(record.get("diagnostics")).get("drift") for record in ends]
        return max((drift for value in told if (drift := number(value)) is not None), default=None)

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
    found_folder(run_dir)
    if not any((run_dir / name).exists() for name in ("config.toml", "status.json", "metrics.jsonl", "summary.json")):
        raise InputError(f"{run_dir}: is not a run folder (it has no config.toml, status.json or summary.json)")
    config_text = _text(run_dir / "config.toml")
    try:
        config = tomllib.loads(config_text)
    except tomllib.TOMLDecodeError:
        config = {}
    by_epoch: dict[float, Mapping[str, Any]] = {}
    measured: dict[str, dict[float, Mapping[str, Any]]] = {}
    once: dict[str, dict[str, Mapping[str, Any]]] = {"prepared": {}, "risk": {}, "evaluation": {}}
    active = mapping(config.get("parties")).get("active", "active")
    for record in _lines(run_dir / "metrics.jsonl"):
        epoch, event, party = number(record.get("epoch")), record.get("event"), str(record.get("party", active))
        if event == "epoch" and epoch is not None and party == active:
            by_epoch[epoch] = record
        elif event == "defense" and epoch is not None:
            measured.setdefault(party, {})[epoch] = record
        elif event in once:
            once[event][party] = record
    return RunRecord(
        path=run_dir,
        config=config,
        config_text=config_text,
        environment=_object(run_dir / "environment.json"),
        status=_object(run_dir / "status.json"),
        summary=_object(run_dir / "summary.json"),
        epochs=tuple(by_epoch[epoch] for epoch in sorted(by_epoch)),
        measured={
            party: tuple(measured[party][epoch] for epoch in sorted(measured[party])) for party in sorted(measured)
        },
        prepared=dict(sorted(once["prepared"].items())),
        measured_at_end=dict(sorted(once["risk"].items())),
        evaluated=once["evaluation"].get(str(active), {}),
        sent={ledger.parent.name: _sent(ledger) for ledger in sorted(run_dir.glob("parties/*/ledger.jsonl"))},
    )


def figures_in_words(summary: Mapping[str, Any]) -> list[str]:
    """The few figures by which a person tells a run from another: scores and leakage, or edges."""
    said = []
    if (edges := number(summary.get("edges"))) is not None:
        said.append(f"{edges:.0f} edge{'' if edges == 1 else 's'} among {summary.get('attributes')} attributes")
    test = numbers(summary.get("test"))
    said += [f"test {name} {test[name]:.4g}" for name in ("accuracy", "auc", "rmse") if name in test]
    if (leakage := number(mapping(summary.get("strongest")).get("leakage"))) is not None:
        said.append(f"leakage {leakage:.3g}")
    return said


def number(value: Any) -> float | None:
    """The value if it is a finite number."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def numbers(value: Any) -> dict[str, float]:
    """The finite numbers of a JSON object, by name."""
    items = value.items() if isinstance(value, dict) else ()
    return {name: found for name, item in items if (found := number(item)) is not None}


def invre(risk: Any) -> float | None:
    """InvRE as a record holds it; None where it was not measured, or not in all of a row's directions."""
    told = mapping(risk)
    if number(told.get("exact")) != 1 and number(told.get("k_capped")) != 0:
        return None
    return number(told.get("invre"))


def format_shape(shape: Any) -> str:
    """(1, 28, 14) as `1 × 28 × 14`."""
    return " × ".join(str(size) for size in shape) if isinstance(shape, list | tuple) else str(shape)


def _sent(ledger: Path) -> tuple[Sent, ...]:
    # One row for all receivers and batch sizes (the last batch of an epoch is shorter), with the range these span.
    groups: dict[tuple[str, tuple[tuple[str, tuple[int, ...]], ...]], _Group] = {}
    for line in _lines(ledger):
        shapes = {str(name): tuple(size) for name, size in mapping(line.get("shape")).items() if isinstance(size, list)}
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
        return mapping(json.loads(_text(path) or "{}"))
    except (ValueError, RecursionError):
        return {}


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """The objects of a file of JSON lines; a line torn by a crash is passed over."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                yield mapping(json.loads(line))
            except (ValueError, RecursionError):
                continue


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}
