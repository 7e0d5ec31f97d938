"""Experiments on defended training: their grid, means and spreads of what their cells found, footnotes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from pydantic import ValidationError

from veracausa.attacks import attack_title, attacks
from veracausa.audit.snapshots import LAST, SOME, WHOLE
from veracausa.audit.verdict import WORKS_FROM
from veracausa.config import Job, load_job
from veracausa.data.files import SUBSET
from veracausa.errors import InputError, wrong_value
from veracausa.experiments.attack_cell import AttackCell, ResolvedAttack
from veracausa.experiments.cell import Cell, CellStore
from veracausa.experiments.experiment import COSINE, AttackSpec, TrainingExperiment, deep_merge
from veracausa.experiments.figures import Drawing
from veracausa.experiments.grid import Place, Reproduction
from veracausa.experiments.pictures import Gallery, gallery_drawing
from veracausa.experiments.table import NOT_WORKING, Line, PanelTable, Value, compared, parted
from veracausa.experiments.training_cell import TRAINING, TrainingCell
from veracausa.metrics.advantage import lower_bound

_CAPPED = "InvRE: measured by an earlier version, in a tenth of a row's directions only, so it is left out"


@dataclass
class TrainingReproduction(Reproduction):
    """An experiment on defended training."""

    experiment: TrainingExperiment
    overrides: Sequence[str] = ()
    attacked: dict[str, list[Attacked]] = field(default_factory=dict)
    """By attack, what was attacked for each of its numbers."""

    @classmethod
    def begin(cls, experiment: TrainingExperiment, out: Path, overrides: Sequence[str] = ()) -> TrainingReproduction:
        return cls(experiment, out, list(training_places(experiment, experiment.show, overrides)), overrides=overrides)

    def further_places(self, store: CellStore) -> list[Place]:
        """Another cut beside the panels where the attack reads nothing though nothing is defended."""
        fallback, found = self.experiment.fallback, list[Place]()
        if fallback is None or self.experiment.axis is not None:  # an axis shows more than one cut already
            return found
        for panel in self.experiment.show:
            undefended = [place for place in self.places if place.panel == panel and place.row == "none"]
            if works(undefended, fallback.attack, store) is False:
                variant, self.experiment = self.experiment.with_fallback(panel)
                found += training_places(self.experiment, [variant], self.overrides)
        return found

    def gather(self, store: CellStore, why_not: Mapping[str, str]) -> None:
        self._mark_subsets(store)
        experiment, tables, by_place = self.experiment, dict[str, PanelTable](), dict[Any, list[Place]]()
        self.attacked = {}
        for place in self.places:
            by_place.setdefault((place.panel, place.row, place.at), []).append(place)
        for (panel, row, at), seeds in by_place.items():
            if (table := tables.get(panel)) is None:
                table = PanelTable(panel, experiment.label_of(panel), experiment.substituted(panel))
                table.across = experiment.axis.label if experiment.axis else ""
                tables[panel] = table
            working = {name: works(by_place[panel, "none", at], name, store) for name in experiment.attacks}
            values = {}
            for column in experiment.columns:
                published = experiment.published_at(panel, row, column)
                values[column] = _value(column, seeds, store, why_not, published, working)
            table.lines.append(Line(row, experiment.defenses[row].label, at, values))
            if row == "none" and not table.trivial:
                table.trivial = _trivial(experiment.columns, seeds[0], store)
            for place in seeds:
                for name in experiment.attacks:
                    if isinstance(cell := place.cells.get(name), AttackCell) and (found := cell.result(store)):
                        self.attacked.setdefault(name, []).append(Attacked.of(cell, found))
            trainings = [found for place in seeds if (found := place.cells[TRAINING].result(store))]
            for found in trainings:
                table.notes += [note for note in found.get("notes", ()) if note not in table.notes]
            if trainings and at is None:
                table.curves[row] = _curves([found.get("curves", []) for found in trainings])
        self.tables = list(tables.values())

    def _mark_subsets(self, store: CellStore) -> None:
        """Panels whose data turned out to be a part of what they are named after are stand-ins, at any scale."""
        for panel in dict.fromkeys(place.panel for place in self.places):
            found = [place.cells[TRAINING].result(store) for place in self.places if place.panel == panel]
            notes = [note for result in found if result for note in result.get("notes", ()) if SUBSET in note]
            if notes and not self.experiment.substituted(panel):
                own = self.experiment.panels[panel].model_copy(update={"substitute": f"Data: {notes[0]}."})
                panels = {**self.experiment.panels, panel: own}
                self.experiment = self.experiment.model_copy(update={"panels": panels})

    def drawings(self, store: CellStore) -> list[Drawing]:
        found = super().drawings(store)
        if any(figure.kind == "pictures" for figure in self.experiment.figures):
            found += self._galleries(store)
        return found

    def _galleries(self, store: CellStore) -> list[Drawing]:
        """A gallery for each panel and each attack that kept pictures, of the first seed."""
        experiment, found = self.experiment, []
        for panel in dict.fromkeys(place.panel for place in self.places):
            for name in experiment.attacks_used:
                kept: dict[str, Gallery] = {}
                for place in self.places:
                    if place.panel == panel and place.seed == 0:
                        label = experiment.defenses[place.row].label
                        if place.at is not None and experiment.axis is not None:
                            label = f"{label}, {experiment.axis.label} {place.at:g}"
                        if (pictures := _pictures(place.cells[name], store)) is not None:
                            kept[label] = pictures
                if kept:
                    found.append(gallery_drawing(f"{attack_title(name)}, {experiment.label_of(panel)}", kept))
        return found

    @property
    def jobs(self) -> dict[str, Job]:
        found = {}
        for place in self.places:
            cell = place.cells[TRAINING]
            if place.seed == 0 and isinstance(cell, TrainingCell):
                name = "-".join([place.panel, place.row, *([f"{place.at:g}"] if place.at is not None else [])])
                found[name] = cell.job.model_copy(update={"name": name})
        return found

    def footnotes(self) -> list[str]:
        """How to read the numbers, what failed, what is odd in the paper."""
        experiment, tables = self.experiment, self.tables
        values = [value for table in tables for line in table.lines for value in line.values.values()]
        most = max((value.seeds for value in values), default=0)
        counted = "± is the spread over seeds" if most > 1 else "One seed"
        notes = [f"{counted}; the spread over images is another number, in table.csv."]
        notes += _fewer_seeds(experiment, tables)
        if any(name != COSINE for name in experiment.attacks_used):
            notes.append(
                "Leakage: 0 % is no better than the best guess without the payload, 100 % a perfect copy. Rows that "
                "are named no payload are such guesses."
            )
        notes += [attacked_text(attack_title(name), every) for name, every in self.attacked.items()]
        if any(column.startswith("inverse.") for column in experiment.columns):
            notes.append(
                "The oracle decoder is not in the paper: it is trained on what the victim's own model and defense "
                "send, told the labels, and bounds what attackers read that decode alike and know less."
            )
        lines = [line for table in tables for line in table.lines]
        sources = {parted(name)[0] for line in lines for name, value in line.values.items() if value.works is False}
        if sources:
            failing = sorted(attack_title(source) for source in sources)
            notes.append(
                f"{NOT_WORKING} not working here: {' and '.join(failing)} {'do' if len(failing) > 1 else 'does'} not "
                "beat the blind guess in every seed where nothing is defended either, so a low number says nothing of "
                "a defense."
            )
        if any(compared(table, experiment.columns) for table in tables):
            notes.append(
                "Of the paper only printed numbers are here, not what it draws. In the figure they are hollow."
            )
        notes += list(experiment.footnotes)
        for table in tables:
            notes += [f"{table.label}: {note}." for note in table.notes]
            if table.substitute and experiment.published.get(table.name) and not experiment.substitute:
                notes.append(f"{table.label}: the data are not the paper's, so its numbers are left out.")
        missing = dict.fromkeys(value.why_not for value in values if value.mean is None and value.why_not)
        notes += [f"–: {reason}." for reason in missing if reason != "not run yet"]
        if "not run yet" in missing and not self.progress.stopped:
            notes.append("–: not run.")
        return notes


def works(undefended: Sequence[Place], attack: str, store: CellStore) -> bool | None:
    """Whether the attack beats the blind guess in every seed where nothing is defended; None where nobody tried."""
    found = [place.cells[attack].result(store) for place in undefended if attack in place.cells]
    passed = [_passes(result) for result in found if result and "leakage" in result["scores"]]
    return all(passed) if passed else None


def _passes(result: Mapping[str, Any]) -> bool:
    """Whether one seed's attack is better than the blind guess by more than its spread over rows, and by 1 %."""
    scores = result["scores"]
    if scores["leakage"]["mean"] < WORKS_FROM:
        return False
    if told := result.get("advantage"):
        return lower_bound(told["share"], told["error"], told["rows"], told["chances"]) > 0
    # Cells of before have no advantage: their means at least must say the same.
    return "mse" not in scores or "blind_mse" not in scores or scores["mse"]["mean"] < scores["blind_mse"]["mean"]


def _value(
    column: str,
    seeds: Sequence[Place],
    store: CellStore,
    why_not: Mapping[str, str],
    published: tuple[float, float | None] | None,
    working: Mapping[str, bool | None],
) -> Value:
    source, score = parted(column)
    chosen: list[Cell] = [place.cells[source or TRAINING] for place in seeds]
    found = [result for cell in chosen if (result := cell.result(store))]
    scores = [result["scores"][score] for result in found if score in result["scores"]]
    if score == "invre" and any("exact" not in entry for entry in scores):
        return Value(None, published=published, why_not=_CAPPED)
    if not scores:
        reason = next((why_not[cell.key] for cell in chosen if cell.key in why_not), "")
        reason = reason or next((why for result in found if (why := result.get("unavailable", {}).get(score))), "")
        reason = reason or ("this run has no such score" if found else "not run yet")
        return Value(None, published=published, why_not=reason)
    means = [entry["mean"] for entry in scores]
    spreads = [entry["spread"] for entry in scores if "spread" in entry]
    return Value(
        fmean(means),
        (stdev(means) if len(means) > 1 else None,),
        fmean(spreads) if spreads else None,
        len(means),
        published,
        working.get(source),
    )


def _trivial(columns: Sequence[str], place: Place, store: CellStore) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for column in columns:
        source, score = parted(column)
        result = place.cells[source].result(store) if source in place.cells else None
        if result is None:
            continue
        if score == "mse":
            for guess, error in result.get("trivial", {}).items():
                found.setdefault(guess, {})[column] = error
        elif score.startswith("success_") and f"{score}_grey" in result["scores"]:
            found.setdefault("grey", {})[column] = result["scores"][f"{score}_grey"]["mean"]
    return found


def _curves(seeds: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, list[tuple[float, float]]]:
    curves = {}
    for score in ("accuracy", "loss"):
        by_epoch: dict[float, list[float]] = {}
        for records in seeds:
            for record in records:
                if score in record and record.get("epoch") is not None:
                    by_epoch.setdefault(float(record["epoch"]), []).append(float(record[score]))
        if by_epoch:
            curves[score] = [(epoch, fmean(values)) for epoch, values in sorted(by_epoch.items())]
    return curves


def _fewer_seeds(experiment: TrainingExperiment, tables: Sequence[PanelTable]) -> list[str]:
    """Which rows have numbers of fewer seeds than the experiment asks for: without ± one looks like a choice."""
    fewest: dict[tuple[str, int], int] = {}
    for table in tables:
        for line in table.lines:
            asked = experiment.seeds_of.get(line.row, experiment.seeds)
            run = min((value.seeds for value in line.values.values() if value.seeds), default=asked)
            if run < asked:
                row = f"{table.label}: {line.label}" if len(tables) > 1 else line.label
                fewest[row, asked] = min(run, fewest.get((row, asked), run))
    rows = "; ".join(f"{row}, {run} of {asked}" for (row, asked), run in fewest.items())
    return [f"Not all seeds are run: {rows}."] if rows else []


def _pictures(cell: Cell, store: CellStore) -> Gallery | None:
    path = store.pictures(cell)
    if not path.is_file():
        return None
    from safetensors.numpy import load_file

    found: Gallery = load_file(path)
    return found if found["truth"].shape[1] in (1, 3) else None


@dataclass(frozen=True)
class Attacked:
    """What was attacked for the number of one cell: which parties, and how much of their training."""

    coverage: str
    parties: tuple[str, ...]
    others: tuple[str, ...]
    """Passive parties that were not attacked."""
    snapshots: int
    """How many moments of the training, its end among them."""

    @classmethod
    def of(cls, cell: AttackCell, found: Mapping[str, Any]) -> Attacked:
        """From what a cell found; cells of before snapshots were attacked read the last model."""
        passive = tuple(cell.job.parties.passive)
        parties = cell.attack.parties or passive
        moments = [len(own.get("moments", ())) for own in found.get("parties", {}).values()]
        others = tuple(party for party in passive if party not in parties)
        coverage = WHOLE if found.get("notes", {}).get("whole_training") else found.get("coverage", LAST)
        return cls(coverage, parties, others, 1 + max(moments, default=0))


def attacked_text(name: str, attacked: Sequence[Attacked]) -> str:
    """What an attack's numbers are of; where they are not all of the same, the least that any of them is of."""
    coverage = max((one.coverage for one in attacked), key=(WHOLE, SOME, LAST).index)
    others = list(dict.fromkeys(party for one in attacked for party in one.others))
    parties = list(dict.fromkeys(party for one in attacked for party in one.parties if party not in others))
    whom = f"of {' and '.join(parties)}" if parties else "of one party"
    alone = f"; {' and '.join(others)} was not attacked" if others else ""
    if coverage == WHOLE:
        count = min(one.snapshots for one in attacked)
        if count == 1:
            return f"{name}: reads the whole training at once, {whom}{alone}."
        how = (
            "the first exchange and the end" if count == 2 else f"{count} snapshots from the first exchange to the end"
        )
        return f"{name}: the most that is read over the whole training ({how}) {whom}{alone}."
    part = "last model only" if coverage == LAST else "some snapshots only, not the first exchange"
    some = "" if len({one.coverage for one in attacked}) == 1 else " in some cells"
    return f"{name}: {part}{some}, {whom}{alone}. What crossed earlier in the training may tell more."


"""The name of a place's training among its cells; every other cell is an attack by its own name."""


def training_places(
    experiment: TrainingExperiment, panels: Sequence[str], overrides: Sequence[str] = ()
) -> Iterator[Place]:
    """All places of these panels; `overrides` (`a.b=c`) are laid over every job."""
    used = [experiment.registered(name) for name in experiment.attacks_used]
    remembers = any(name != COSINE and attacks.get(name).uses_transcript for name in used)
    for panel in panels:
        for row in experiment.rows_of(panel):
            for at in experiment.axis.values if experiment.axis else (None,):
                for seed in range(experiment.seeds_of.get(row, experiment.seeds)):
                    tree = job_tree(experiment, panel, row, at, seed)
                    if remembers:
                        tree = deep_merge(tree, {"transcript": {"record": True}})
                    where = f"{experiment.name}, {experiment.defenses[row].label}"
                    cells: dict[str, Cell] = {TRAINING: TrainingCell(checked_job(tree, overrides, where))}
                    for name in experiment.attacks_used:
                        spec = experiment.attacks.get(name, AttackSpec())
                        job = checked_job(deep_merge(tree, spec.job if name != COSINE else {}), overrides, where)
                        cells[name] = AttackCell(job, _resolved(experiment.registered(name), spec, where))
                    yield Place(panel, row, at, seed, cells)


def job_tree(experiment: TrainingExperiment, panel: str, row: str, at: float | None, seed: int) -> dict[str, Any]:
    """The job at one place: the common one, the panel's, what the scale wants everywhere, the axis, the defense."""
    tree = {**experiment.job_of(panel), "name": "cell", "seed": seed, "defense": dict(experiment.defenses[row].defense)}
    if experiment.axis is not None and at is not None:
        *path, last = experiment.axis.setting.split(".")
        node: dict[str, Any] = {last: int(at) if float(at).is_integer() and last == "cut" else at}
        for part in reversed(path):
            node = {part: node}
        tree = deep_merge(tree, node)
    return tree


def _resolved(name: str, spec: AttackSpec, where: str) -> ResolvedAttack:
    if name == COSINE:
        return ResolvedAttack(COSINE, {}, spec.auxiliary, spec.victims, spec.parties, None, False)
    try:
        options = attacks.options(name).model_validate({"name": name, **spec.settings})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(("attacks", name, "settings", *map(str, problem["loc"])))
        raise InputError(f"{where}: {place}: {wrong_value(problem)}") from None
    return ResolvedAttack(
        name,
        options.model_dump(mode="json"),
        spec.auxiliary,
        spec.victims,
        spec.parties,
        spec.per_class,
        spec.sets,
        spec.snapshots if attacks.get(name).snapshots else (),
        spec.from_training,
        spec.until_converged,
        spec.classify,
    )


def checked_job(tree: dict[str, Any], overrides: Sequence[str], where: str) -> Job:
    """The job of these settings, which may name models of the registry alone."""
    try:
        job = load_job(tree, overrides)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if ":" in job.model.name:
        raise InputError(f"{where}: model.name = {job.model.name!r}: an experiment trains models of the registry alone")
    return job
