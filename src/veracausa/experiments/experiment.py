"""An experiment: one TOML file that says what a published table or figure shows, and at which scales to run it.

`extends` names a file to build on; a scale is a set of settings laid over the rest of its file.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from veracausa.errors import InputError, wrong_value
from veracausa.experiments.table import AUDIT_SCORES, DIAGNOSTICS, SECONDS, TRAFFIC, TRAINING_SECONDS
from veracausa.metrics.cpdag import cpdag_scores
from veracausa.metrics.graphs import graph_scores
from veracausa.registry import did_you_mean

SCALES = ("smoke", "small", "paper")
COSINE = "cosine"
"""Stands where an attack would: the cosine to the causal proxy is measured on a trained run, like an attack."""
EMPTY = "empty"
"""The row of the graph without edges."""
DISCOVERY_COLUMNS = (
    *graph_scores([[0]], [[0]], [0]),
    *cpdag_scores([[0]], [[0]], [[0]]),
    SECONDS,
    *TRAFFIC,
    *AUDIT_SCORES,
)
TRAINING_COLUMNS = ("accuracy", "loss", "invre", TRAINING_SECONDS, *DIAGNOSTICS)
OF_SCALE = {
    "smoke": "Scale smoke: a minute on a CPU with bundled data, to see that everything runs. Its numbers mean nothing.",
    "cpu": "Scale cpu: a CPU for an hour, with far less data and smaller attackers: compare rows of one table only.",
    "small": "Scale small: the paper's comparison with less data and a shorter training; see the settings.",
    "paper": "Scale paper: the published setting, as far as it is published.",
}
Published = float | tuple[float, float]
"""A printed value, or value and spread."""


class ExperimentSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Axis(ExperimentSection):
    """A setting that is moved: the depth of the cut, the overlap of ids."""

    setting: str
    label: str
    values: tuple[float, ...] = Field(min_length=1)


class FigureSpec(ExperimentSection):
    """What is drawn: of which columns, and how."""

    kind: Literal["scatter", "bars", "lines", "curves", "pictures", "times", "graph"]
    title: str = ""
    x: str = ""
    y: str = ""
    threshold: float | None = None
    """A dashed line: from where on the paper calls a defense successful."""


class Panel(ExperimentSection):
    """One data set (or cut) of the figure: part (a), part (b)."""

    label: str
    rows: tuple[str, ...] = ()
    """The experiment's rows, unless this panel has others."""
    substitute: str = ""
    """What stands in for the paper's data; then nothing here is compared with the paper."""


class Experiment(ExperimentSection):
    """One published table or figure at one scale: what both kinds of experiment have in common."""

    paper: ClassVar[str]
    """What it is published in."""

    name: str
    scale: str
    item: str
    """What it is in the paper: `Table II`."""
    title: str
    about: str = ""
    """What the paper shows there, in our words."""
    columns: tuple[str, ...] = ()
    figures: tuple[FigureSpec, ...] = ()
    show: tuple[str, ...] = ()
    """The panels that are run."""
    rows: tuple[str, ...] = ()
    published: dict[str, dict[str, dict[str, Published]]] = Field(default_factory=dict)
    """Panel -> row -> column -> what the paper prints; what it only draws is not here."""
    substitute: str = ""
    footnotes: tuple[str, ...] = ()

    @property
    def all_panels(self) -> Mapping[str, Panel]:
        raise NotImplementedError

    @property
    def scale_text(self) -> str:
        """What this scale is, for the reader."""
        return OF_SCALE.get(self.scale, f"Scale {self.scale}.")

    def showing(self, panels: Sequence[str]) -> Self:
        """The experiment with these panels only, if any are named."""
        for panel in panels:
            if panel not in self.all_panels:
                raise InputError(f"{self.name}: no panel is named {panel!r}{did_you_mean(panel, self.all_panels)}")
        return self.model_copy(update={"show": tuple(panels)}) if panels else self

    def rows_of(self, panel: str) -> tuple[str, ...]:
        return self.all_panels[panel].rows or self.rows

    def substituted(self, panel: str) -> str:
        """What stands in for the paper's data there; empty where nothing does."""
        return self.all_panels[panel].substitute or self.substitute

    def label_of(self, panel: str) -> str:
        """The panel's name, marked where its data are not the paper's."""
        label = self.all_panels[panel].label
        return f"{label} (stand-in data)" if self.substituted(panel) else label

    def published_at(self, panel: str, row: str, column: str) -> tuple[float, float | None] | None:
        """What the paper prints there, with its spread; None where it prints nothing, or data are not the paper's."""
        value = None if self.substituted(panel) else self.published.get(panel, {}).get(row, {}).get(column)
        return value if value is None or isinstance(value, tuple) else (value, None)

    def _check_names(self, rows: Mapping[str, Any], kind: str) -> None:
        """Raise if a panel or a row is asked for, or printed, that is nowhere described."""
        for panel in self.show:
            _known(panel, self.all_panels, "show", "panel")
            for row in self.rows_of(panel):
                _known(row, rows, f"panels.{panel}.rows", kind)
        for panel, of_panel in self.published.items():
            _known(panel, self.all_panels, "published", "panel")
            for row in of_panel:
                _known(row, rows, f"published.{panel}", kind)


class Fallback(ExperimentSection):
    """What to run beside a panel where an attack fails though nothing is defended: there it cannot judge a defense."""

    attack: str
    label: str
    job: dict[str, Any]


class JobPanel(Panel):
    """A panel that changes the job."""

    job: dict[str, Any] = {}
    final: bool = False
    """Whether its job has the last word, with what the scale wants everywhere laid over it already."""


class TableRow(ExperimentSection):
    """A defense with its settings, as one line of a table or of a legend."""

    label: str
    defense: dict[str, Any]


class AttackSpec(ExperimentSection):
    """How an attack is run; figures that say the same share what it found."""

    attack: str = ""  # where its name is a title of its own
    settings: dict[str, Any] = {}
    auxiliary: int = Field(4000, ge=4)
    from_training: bool = False  # these three as for an audit
    until_converged: bool = False
    classify: bool = False
    victims: int = Field(2000, ge=1)
    parties: tuple[str, ...] = ()
    snapshots: tuple[float, ...] = (0.0, 0.1, 0.5)
    """At which shares of the training the oracle decoder reads, beside the end; 0 is the first exchange."""
    per_class: int | None = Field(None, ge=1)
    """So many training rows of each class as victims, in place of rows at random."""
    sets: bool = False
    """Attack every class apart from the others, and average."""
    job: dict[str, Any] = {}
    """Laid over the job of the training that an attack sits in on."""


class TimesSpec(ExperimentSection):
    """A figure of times: of every defense, on a ResNet-18 cut at 6."""

    repeats: int | None = Field(None, ge=1)
    precision: Literal["fp32", "bf16"] = "fp32"
    width: int | None = Field(None, ge=1)
    compiled: bool = False
    names: tuple[str, ...] = ()
    """Only these defenses."""
    quick: bool = False
    """Noise in place of pictures, small batches, one repeat: to see that it runs."""


class TrainingExperiment(Experiment):
    """An experiment on defended training: defenses as rows, scores of trainings and attacks as columns."""

    paper = "CausShield (Jiang, Gao, Chen, Fu, 2026)"

    columns: tuple[str, ...] = ()
    """`ATTACK.SCORE`, or what a training says of itself."""
    own: bool = False
    """Whether no paper has it: it is a measurement of ours."""
    seeds: int = Field(1, ge=1)
    seeds_of: dict[str, int] = {}
    """More seeds for some rows."""
    job: dict[str, Any] = {}
    always: dict[str, Any] = {}
    """Laid over every panel's job."""
    axis: Axis | None = None
    fallback: Fallback | None = None
    panels: dict[str, JobPanel] = {}
    defenses: dict[str, TableRow] = {}
    attacks: dict[str, AttackSpec] = {}
    bench: TimesSpec | None = None

    @model_validator(mode="after")
    def _named(self) -> Self:
        self._check_names(self.defenses, "defense")
        for column in self.columns:
            if "." in column:
                _known(column.partition(".")[0], [*self.attacks, COSINE], "columns", "attack")
            else:
                _known(column, TRAINING_COLUMNS, "columns", "score")
        return self

    @property
    def all_panels(self) -> Mapping[str, Panel]:
        return self.panels

    def with_fallback(self, panel: str) -> tuple[str, TrainingExperiment]:
        """The panel's variant for an attack that fails there, by name, and the experiment that has it."""
        assert self.fallback is not None
        name, own = f"{panel}-variant", self.panels[panel]
        job = deep_merge(deep_merge(own.job, self.always), self.fallback.job)
        label = f"{own.label}, {self.fallback.label}"
        variant = own.model_copy(update={"job": job, "label": label, "rows": self.rows_of(panel), "final": True})
        return name, self.model_copy(update={"panels": {**self.panels, name: variant}})

    def job_of(self, panel: str) -> dict[str, Any]:
        """The job of a panel, what the scale wants everywhere laid over it."""
        job = deep_merge(self.job, self.panels[panel].job)
        return job if self.panels[panel].final else deep_merge(job, self.always)

    def rows_of(self, panel: str) -> tuple[str, ...]:
        """The panel's rows, the undefended one first: every figure is read beside it."""
        return tuple(dict.fromkeys(["none", *super().rows_of(panel)]))

    def registered(self, name: str) -> str:
        """The attack that a column's name stands for."""
        return (self.attacks[name].attack if name in self.attacks else "") or name

    @property
    def attacks_used(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column.partition(".")[0] for column in self.columns if "." in column))


class Method(ExperimentSection):
    """A row: a method of causal discovery with its settings."""

    label: str
    name: str
    """`vfedcd`, `local_encoders`, `two_layer_encoders`, `empty`, or a baseline."""
    settings: dict[str, Any] = Field(default_factory=dict)
    at: float | None = None
    """Where it lies on the panel's axis; rows of one label are then one line of the figure."""
    seeds: int | None = Field(None, ge=1)
    """Not all of the seeds: a method that draws nothing needs one."""
    graphs: int | None = Field(None, ge=1)
    """Not all of the graphs: for a method that is slow."""
    audit: tuple[str, ...] = ()
    """Attacks on what the parties open while it is fitted."""
    parties: int | None = Field(None, ge=1)
    """So many parties, whatever the panel says: for a row whose place on the axis is their number."""


class DataPanel(Panel):
    """A panel of one data set, or of a family of graphs of one size."""

    data: dict[str, Any]
    """A source of causal data and its settings."""
    vary: str = "seed"
    """The setting that a graph's number goes to."""
    graphs: tuple[int, ...] = ()
    """The experiment's graphs, unless this panel has others."""
    parties: int | tuple[int, ...] | dict[str, tuple[str, ...]] = 3
    """How many parties share the columns, how many columns each has, or each party's columns by name. Columns that are
    not named take no part."""
    axis: str = ""
    """What `at` of its rows is."""
    effect: str = ""
    """Where no true graph is known: the column whose edges are listed."""
    group: str = ""
    """What its data have in common with others': an overview has the mean of each group."""


class DiscoveryExperiment(Experiment):
    """An experiment on causal discovery: methods as rows, scores of graphs as columns, several graphs and seeds."""

    paper = "VFedCD (anonymous authors, under review)"

    says: str = ""
    """What this scale is, where it is not what it usually is."""
    own: bool = False
    """Whether no paper has it: it is a measurement of ours."""
    overview: tuple[str, ...] = ()
    """Scores that get one table over all panels, methods as columns, the sortability of the data beside them."""
    graphs: tuple[int, ...] = (200,)
    seeds: tuple[int, ...] = (0,)
    always: dict[str, Any] = Field(default_factory=dict)
    """Laid over every panel's data."""
    time_limit: float | None = Field(None, gt=0)
    """Seconds of the processor for one fit of a baseline."""
    panels: dict[str, DataPanel] = Field(default_factory=dict)
    methods: dict[str, Method] = Field(default_factory=dict)
    published_edges: dict[str, tuple[tuple[str, str], ...]] = Field(default_factory=dict)
    """Panel -> the edges (cause, effect) that the paper names."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        self._check_names(self.methods, "method")
        for column in (*self.columns, *self.overview):
            _known(column, DISCOVERY_COLUMNS, "columns", "score")
        for panel, of_panel in self.published.items():
            for row, values in of_panel.items():
                for column in values:
                    _known(column, DISCOVERY_COLUMNS, f"published.{panel}.{row}", "score")
        return self

    @property
    def all_panels(self) -> Mapping[str, Panel]:
        return self.panels

    @property
    def scale_text(self) -> str:
        return self.says or super().scale_text

    def rows_of(self, panel: str) -> tuple[str, ...]:
        """The panel's rows, the empty graph last: what is not better than it has found nothing."""
        rows = super().rows_of(panel)
        return tuple(dict.fromkeys([*(row for row in rows if row != EMPTY), EMPTY]))


def _known(name: str, known: Any, where: str, kind: str) -> None:
    if name not in known:
        raise ValueError(f"{where}: no {kind} is named {name!r}{did_you_mean(name, known)}")


def roots() -> list[Path]:
    """Where experiments lie: here, in the clone this package runs from, beside an installed package."""
    package = Path(__file__).resolve()
    places = [Path("experiments"), package.parents[3] / "experiments", Path(sys.prefix) / "share/veracausa/experiments"]
    found = {place.resolve(): place for place in reversed(places) if place.is_dir()}
    return list(reversed(found.values()))


def known_experiments() -> dict[str, Path]:
    """All experiments by name (`causshield/table2`); jobs that lie beside them are none."""
    found: dict[str, Path] = {}
    for root in roots():
        for path in sorted(root.rglob("*.toml"), key=_in_order):
            name = path.relative_to(root).with_suffix("").as_posix()
            if not path.name.startswith("_") and name not in found and "item" in _read(path):
                found[name] = path
    return found


def load_experiment(name: str, scale: str) -> TrainingExperiment | DiscoveryExperiment:
    """The experiment of this name, or in this file, with the settings of the scale laid over it."""
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        if not path.is_file():
            raise InputError(f"{path}: no such experiment file")
        shown = path.with_suffix("").name
    else:
        known = known_experiments()
        if name not in known:
            raise InputError(f"no experiment is named {name!r}{did_you_mean(name, known)}")
        path, shown = known[name], name
    *below, tree = _layers(path)
    return resolve(tree, shown, scale, str(path), below)


def resolve(
    tree: Mapping[str, Any], name: str, scale: str, where: str = "experiment", below: Sequence[Mapping[str, Any]] = ()
) -> TrainingExperiment | DiscoveryExperiment:
    """The validated experiment from a file's content over those `below` it, each with its settings of the scale."""
    layers = [*below, tree]
    scales = dict.fromkeys(known for layer in layers for known in layer.get("scales", {}))
    if "item" not in tree and not any("item" in layer for layer in below):
        raise InputError(f"{where}: has no `item`, so it is no experiment; a job is run with `veracausa train`")
    if scale not in scales:
        raise InputError(f"{where}: no scale is named {scale!r}{did_you_mean(scale, scales)}")
    whole: dict[str, Any] = {}
    for layer in layers:  # what a file says is stronger than what the one below it says of a scale
        whole = deep_merge(whole, {key: value for key, value in layer.items() if key not in ("scales", "extends")})
        whole = deep_merge(whole, layer.get("scales", {}).get(scale, {}))
    kind = DiscoveryExperiment if "methods" in whole else TrainingExperiment
    try:
        return kind.model_validate({**whole, "name": name, "scale": scale})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise InputError(f"{where}: {f'{place}: ' if place else ''}{wrong_value(problem)}") from None


def deep_merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, table by table; a table of another `name` replaces the whole table, as in a job."""
    if "name" in above and "name" in below and above["name"] != below["name"]:
        return dict(above)
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = deep_merge(merged[key], value) if both else value
    return merged


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None


def _layers(path: Path) -> list[dict[str, Any]]:
    """What the file builds on, the lowest first, and its own content last."""
    tree = _read(path)
    base = tree.get("extends")
    if base is None:
        return [tree]
    places = [path.parent / base, *(root / f"{base}.toml" for root in roots())]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise InputError(f"{path}: extends = {base!r}: no such file beside it, and no such experiment")
    return [*_layers(found), tree]


def _in_order(path: Path) -> tuple[str, str, int, str]:
    """fig9 before fig10."""
    word = path.stem.rstrip("0123456789ab")
    digits = "".join(character for character in path.stem if character.isdigit())
    return str(path.parent), word, int(digits or 0), path.stem
