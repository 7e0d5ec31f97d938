"""The index of a paper: every table and figure of it, what was run of each, and what is missing and why.

What was run is read from the results that are there. Why something is missing stands in `_index.toml` beside the
experiments, which lists what the paper has: an item that was never run is in no folder of results.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from veracausa.atomic import atomic_write
from veracausa.errors import InputError
from veracausa.experiments.discovery_grid import row_cells
from veracausa.experiments.earlier import machines_of
from veracausa.experiments.experiment import (
    EMPTY,
    SCALES,
    DiscoveryExperiment,
    Experiment,
    TrainingExperiment,
    load_experiment,
    roots,
)
from veracausa.experiments.properties import properties_page, read_claims
from veracausa.experiments.table import markdown_table

REGISTER = "_index.toml"
HEAD = ("in the paper", "shows", "experiment", "scale", "graphs, seeds", "done of asked", "date", "machine", "state")
NOT_RUN = "not run"
FURTHER_SCALES = ("cpu",)
"""Scales that not every experiment has."""
PROPERTIES = "table1.md"

Place = tuple[str, str, float | None]
"""Panel, row, value on the axis."""


class ContentsSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PaperItem(ContentsSection):
    """A table or figure of the paper."""

    item: str
    shows: str = ""
    """Where no experiment says it."""
    experiments: tuple[str, ...] = ()
    missing: str = ""
    """What is missing, and why. Nothing else may be."""
    page: str = ""
    """The page beside the index that holds it, where it is no measurement: a table of properties."""
    measured: bool = True
    """False: the paper measures nothing there, so there is nothing to run."""


class PaperContents(ContentsSection):
    """What a paper has, and why some of it was not run."""

    title: str
    about: str = ""
    items: tuple[PaperItem, ...]
    dates: Mapping[str, str] = {}
    """Folder of results -> the day of those that do not say it themselves."""


@dataclass(frozen=True)
class MeasuredTable:
    """An experiment's results at one scale."""

    experiment: Experiment
    scale: str
    done: int
    asked: int
    unit: Literal["fits", "lines", "cases"]
    lacking: tuple[str, ...]
    """Rows that have less than was asked for."""
    date: str
    machines: str

    @property
    def whole(self) -> bool:
        return self.done >= self.asked

    @property
    def counted(self) -> str:
        return f"{self.done} {self.unit}" if self.whole else f"{self.done} of {self.asked} {self.unit}"


@dataclass
class PaperIndex:
    """The index of one paper."""

    paper: str
    """As its folders of experiments and of results are called."""
    results: Path
    register: PaperContents
    runs: dict[str, list[MeasuredTable]] = field(default_factory=dict)
    """Experiment -> what was run of it."""

    @classmethod
    def read(cls, paper: str, results: Path) -> PaperIndex:
        """The paper's register, and what its results say."""
        index = cls(paper, results, read_register(paper))
        index.load()
        return index

    def load(self) -> None:
        """Read what was run."""
        for name in (name for item in self.register.items for name in item.experiments):
            every = (*SCALES, *FURTHER_SCALES)
            scales = [scale for scale in every if (self.folder(name, scale) / "table.csv").is_file()]
            self.runs[name] = [run_of(self, name, scale) for scale in scales]

    def folder(self, name: str, scale: str) -> Path:
        return self.results / self.paper / name / scale

    @property
    def unexplained(self) -> list[str]:
        """Items of which something is missing without a reason."""
        return [
            item.item for item in self.register.items if item.measured and not self.whole(item) and not item.missing
        ]

    def whole(self, item: PaperItem) -> bool:
        """Whether all that its experiments ask for was run at one scale."""
        return bool(item.experiments) and all(any(run.whole for run in self.runs[name]) for name in item.experiments)

    def state(self, item: PaperItem) -> str:
        if not item.measured:
            return "whole" if item.page else "nothing to measure"
        if not any(self.runs[name] for name in item.experiments):
            return NOT_RUN
        return "whole" if self.whole(item) and not item.missing else "in part"

    @property
    def markdown(self) -> str:
        """The page."""
        register = self.register
        lines = [f"# {register.title}", "", "`veracausa reproduce --index` writes this page.", ""]
        lines += [register.about.strip(), ""] if register.about else []
        body = [row for item in register.items for row in self._rows(item)]
        lines += [*markdown_table(HEAD, body), "", "## What is missing, and why", ""]
        for item in register.items:
            lacking = [text for name in item.experiments for run in self.runs[name] for text in run.lacking]
            if item.missing or lacking:
                lines += [f"- **{item.item}**: {item.missing or 'no reason is given.'}"]
                lines += [f"  - {text}" for text in dict.fromkeys(lacking)]
        return "\n".join(lines).rstrip() + "\n"

    def _rows(self, item: PaperItem) -> Iterator[list[str]]:
        state = self.state(item)
        if not item.experiments:
            page = f"[page]({item.page})" if item.page else ""
            yield [item.item, item.shows, "", page, *[""] * (len(HEAD) - 5), state]
        for name in item.experiments:
            title = load_experiment(f"{self.paper}/{name}", "small").title
            link = f"[{name}](../../experiments/{self.paper}/{name}.toml)"
            if not self.runs[name]:
                yield [item.item, title, link, *[""] * (len(HEAD) - 4), state]
            for run in self.runs[name]:
                table = f"[{run.scale}]({name}/{run.scale}/table.md)"
                repeats = _repeats(run.experiment)
                yield [item.item, title, link, table, repeats, run.counted, run.date, run.machines, state]


def read_register(paper: str) -> PaperContents:
    """What the paper has, from the file beside its experiments."""
    path = next((root / paper / REGISTER for root in roots() if (root / paper / REGISTER).is_file()), None)
    if path is None:
        raise InputError(f"no paper is named {paper!r}: experiments/{paper} has no {REGISTER}")
    try:
        return PaperContents.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise InputError(f"{path}: {str(error).splitlines()[0]}") from None


def papers() -> list[str]:
    """The papers that have a register."""
    return sorted({path.parent.name for root in roots() for path in root.glob(f"*/{REGISTER}")})


def write_indexes(results: Path = Path("results")) -> list[Path]:
    """Write the index of every paper into its folder of results, and its table of properties where it has one."""
    written = []
    for paper in papers():
        folder = results / paper
        folder.mkdir(parents=True, exist_ok=True)
        pages = {"index.md": PaperIndex.read(paper, results).markdown}
        if claims := read_claims(paper):
            pages[PROPERTIES] = properties_page(claims)
        for name, page in pages.items():
            atomic_write(folder / name, page.encode())
            written.append(folder / name)
    return written


def run_of(index: PaperIndex, name: str, scale: str) -> MeasuredTable:
    """What the table of this experiment at this scale holds, beside what the experiment asks for today."""
    experiment, folder = load_experiment(f"{index.paper}/{name}", scale), index.folder(name, scale)
    with (folder / "table.csv").open(encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    more = _date(index.register, folder, f"{name}/{scale}"), _machines(folder)
    if isinstance(experiment, TrainingExperiment) and experiment.bench is not None:
        return MeasuredTable(experiment, scale, len(records), len(records), "cases", (), *more)
    asked = dict(_asked(experiment))
    found = _found(records)
    done = {place: min(found.get(place, 0), wanted) for place, wanted in asked.items()}
    unit: Literal["fits", "lines"] = "fits" if isinstance(experiment, DiscoveryExperiment) else "lines"
    lacking = tuple(_lacking(experiment, asked, done))
    return MeasuredTable(experiment, scale, sum(done.values()), sum(asked.values()), unit, lacking, *more)


def _asked(experiment: Experiment) -> Iterator[tuple[Place, int]]:
    """Every line of its tables, and of how many fits it should be; of a training's line, that it should be there."""
    for panel in experiment.show:
        for row in experiment.rows_of(panel):
            if isinstance(experiment, DiscoveryExperiment):
                cells = row_cells(experiment, panel, row)
                at = experiment.methods[row].at
                yield (panel, row, at), sum(len(cell.graphs) * len(cell.seeds) for cell in cells)
            elif isinstance(experiment, TrainingExperiment):
                for value in experiment.axis.values if experiment.axis else (None,):
                    yield (panel, row, value), 1


def _found(records: Sequence[Mapping[str, str]]) -> dict[Place, int]:
    found: dict[Place, int] = {}
    for record in records:
        place = record["panel"], record["row"], float(record["at"]) if record["at"] else None
        measured = int(record["fits"]) if "fits" in record else int(bool(record["mean"]))
        found[place] = max(found.get(place, 0), measured)
    return found


def _lacking(experiment: Experiment, asked: Mapping[Place, int], done: Mapping[Place, int]) -> Iterator[str]:
    """A line a panel: its rows that have less than was asked for."""
    for panel in experiment.show:
        rows: dict[str, list[str]] = {}
        for (where, row, at), wanted in asked.items():
            if where == panel and row != EMPTY and (has := done[where, row, at]) < wanted:
                value = "" if at is None or not isinstance(experiment, TrainingExperiment) else f"{at:g}"
                rows.setdefault(_label(experiment, row), []).append(value or f"{has} of {wanted}")
        if rows:
            shown = "; ".join(f"{label} ({', '.join(dict.fromkeys(what))})" for label, what in rows.items())
            yield f"{experiment.all_panels[panel].label}: {shown}"


def _label(experiment: Experiment, row: str) -> str:
    named = experiment.methods if isinstance(experiment, DiscoveryExperiment) else {}
    rows = experiment.defenses if isinstance(experiment, TrainingExperiment) else named
    return rows[row].label


def _repeats(experiment: Experiment) -> str:
    if isinstance(experiment, TrainingExperiment):
        most = max([experiment.seeds, *experiment.seeds_of.values()])
        return "–" if experiment.bench else "one seed" if most == 1 else f"up to {most} seeds"
    assert isinstance(experiment, DiscoveryExperiment)
    graphs = {len(experiment.panels[panel].graphs or experiment.graphs) for panel in experiment.show}
    most_graphs, seeds = max(graphs), len(experiment.seeds)
    return f"{most_graphs} × {seeds}" if len(graphs) == 1 else f"up to {most_graphs} × {seeds}"


def _date(register: PaperContents, folder: Path, name: str) -> str:
    said = [each.get("date") for each in machines_of(folder)]
    days = {day for day in said if day}
    if None in said or not said:
        days |= {register.dates[name]} if name in register.dates else set()
    return " to ".join(dict.fromkeys([min(days), max(days)])) if days else "not recorded"


def _machines(folder: Path) -> str:
    shown = []
    for each in machines_of(folder):
        gpu = each.get("device", "cpu")
        shown.append(f"{each.get('cores', '?')} cores, {each.get('cpu', '?')}" if gpu == "cpu" else str(gpu))
    return "; ".join(dict.fromkeys(shown)) or "not recorded"
