"""An experiment: one TOML file that says what a published table or figure shows, and at which scales to run it.

`extends` names a file to build on; a scale is a set of settings laid over the rest of its file.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from veracausa.errors import InputError
from veracausa.registry import did_you_mean

if TYPE_CHECKING:
    from veracausa.experiments.discovery.experiment import DiscoveryExperiment

SCALES = ("smoke", "small", "paper")
COSINE = "cosine"
"""Stands where an attack would: the cosine to the causal proxy is measured on a trained run, like an attack."""
Published = float | tuple[float, float]
"""A printed value, or value and spread."""


class ExperimentSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Fallback(ExperimentSection):
    """What to run beside a panel where an attack fails though nothing is defended: there it cannot judge a defense."""

    attack: str
    label: str
    job: dict[str, Any]


class Panel(ExperimentSection):
    """One data set (or cut) of the figure: part (a), part (b)."""

    label: str
    job: dict[str, Any] = {}
    rows: tuple[str, ...] = ()
    """The experiment's rows, unless this panel has others."""
    substitute: str = ""
    """What stands in for the paper's data; then nothing here is compared with the paper."""
    last: bool = False
    """Whether its job has the last word, with what the scale wants everywhere laid over it already."""


class TableRow(ExperimentSection):
    """A defense with its settings, as one line of a table or of a legend."""

    label: str
    defense: dict[str, Any]


class AttackSpec(ExperimentSection):
    """How an attack is run; figures that say the same share what it found."""

    settings: dict[str, Any] = {}
    auxiliary: int = Field(4000, ge=4)
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


class Bench(ExperimentSection):
    """A figure of times: of every defense, on a ResNet-18 cut at 6, as `veracausa bench causshield` takes them."""

    repeats: int | None = Field(None, ge=1)
    precision: Literal["fp32", "bf16"] = "fp32"
    width: int | None = Field(None, ge=1)
    compiled: bool = False
    names: tuple[str, ...] = ()
    """Only these defenses."""
    quick: bool = False
    """Noise in place of pictures, small batches, one repeat: to see that it runs."""


class Experiment(ExperimentSection):
    """One published table or figure at one scale."""

    name: str
    scale: str
    item: str
    """What it is in the paper: `Table II`."""
    title: str
    about: str = ""
    """What the paper shows there, in our words."""
    columns: tuple[str, ...] = ()
    """`accuracy`, `loss`, `invre`, or `ATTACK.SCORE`."""
    figures: tuple[FigureSpec, ...] = ()
    show: tuple[str, ...] = ()
    """The panels that are run."""
    rows: tuple[str, ...] = ()
    seeds: int = Field(1, ge=1)
    seeds_of: dict[str, int] = {}
    """More seeds for some rows."""
    job: dict[str, Any] = {}
    always: dict[str, Any] = {}
    """Laid over every panel's job."""
    axis: Axis | None = None
    fallback: Fallback | None = None
    panels: dict[str, Panel] = {}
    defenses: dict[str, TableRow] = {}
    attacks: dict[str, AttackSpec] = {}
    published: dict[str, dict[str, dict[str, Published]]] = {}
    """Panel -> row -> column -> what the paper prints; what it only draws is not here."""
    substitute: str = ""
    footnotes: tuple[str, ...] = ()
    bench: Bench | None = None

    @model_validator(mode="after")
    def _named(self) -> Experiment:
        for name in self.show:
            _known(name, self.panels, "show", "panel")
            for row in self.rows_of(name):
                _known(row, self.defenses, f"panels.{name}.rows", "defense")
        for column in self.columns:
            if "." in column:
                _known(column.partition(".")[0], [*self.attacks, COSINE], "columns", "attack")
            elif column not in ("accuracy", "loss", "invre"):
                raise ValueError(f"columns: {column!r} is neither accuracy, loss, invre nor ATTACK.SCORE")
        for name, of_panel in self.published.items():
            _known(name, self.panels, "published", "panel")
            for row in of_panel:
                _known(row, self.defenses, f"published.{name}", "defense")
        return self

    def with_fallback(self, panel: str) -> tuple[str, Experiment]:
        """The panel's variant for an attack that fails there, by name, and the experiment that has it."""
        assert self.fallback is not None
        name, own = f"{panel}-variant", self.panels[panel]
        job = deep_merge(deep_merge(own.job, self.always), self.fallback.job)
        label = f"{own.label}, {self.fallback.label}"
        variant = own.model_copy(update={"job": job, "label": label, "rows": self.rows_of(panel), "last": True})
        return name, self.model_copy(update={"panels": {**self.panels, name: variant}})

    def job_of(self, panel: str) -> dict[str, Any]:
        """The job of a panel, what the scale wants everywhere laid over it."""
        job = deep_merge(self.job, self.panels[panel].job)
        return job if self.panels[panel].last else deep_merge(job, self.always)

    def rows_of(self, panel: str) -> tuple[str, ...]:
        """The panel's rows, the undefended one first: every figure is read beside it."""
        rows = self.panels[panel].rows or self.rows
        return tuple(dict.fromkeys(["none", *rows]))

    def substituted(self, panel: str) -> str:
        """What stands in for the paper's data there; empty where nothing does."""
        return self.panels[panel].substitute or self.substitute

    def label_of(self, panel: str) -> str:
        """The panel's name, marked where its data are not the paper's."""
        return f"{self.panels[panel].label} (stand-in data)" if self.substituted(panel) else self.panels[panel].label

    def published_at(self, panel: str, row: str, column: str) -> tuple[float, float | None] | None:
        """What the paper prints there, with its spread; None where it prints nothing, or data are not the paper's."""
        if self.substituted(panel):
            return None
        value = self.published.get(panel, {}).get(row, {}).get(column)
        if value is None:
            return None
        return value if isinstance(value, tuple) else (value, None)

    @property
    def attacks_used(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column.partition(".")[0] for column in self.columns if "." in column))


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


def load_experiment(name: str, scale: str) -> Experiment | DiscoveryExperiment:
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
) -> Experiment | DiscoveryExperiment:
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
    if "methods" in whole:
        from veracausa.experiments.discovery.experiment import validated

        return validated({**whole, "name": name, "scale": scale}, where)
    try:
        return Experiment.model_validate({**whole, "name": name, "scale": scale})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        raise InputError(f"{where}: {f'{place}: ' if place else ''}{message}") from None


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
