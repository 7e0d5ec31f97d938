"""The job: pydantic models, TOML, `--set a.b=c`. A typo fails here, before any data loads.

This module imports the options of data sets, models and defenses, because a job is made of them. It imports nothing
that needs torch. Those rooms import it for type checking only, or inside a function.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, ValidationError, model_validator
from pydantic_core import ErrorDetails

from veracausa.data.kept_rows import find_rows
from veracausa.data.options import DataOptions, Overlap, Partition
from veracausa.data.sources import datasets
from veracausa.defenses import defenses
from veracausa.errors import InputError, wrong_value
from veracausa.features import feature_maps
from veracausa.models import ModelOptions, models
from veracausa.registry import Options, Registry, did_you_mean
from veracausa.written_settings import as_setting, chooses, parse_setting, read_toml, section_of


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _chosen_from(registry: Registry[Any]) -> Callable[[Any], Any]:
    def choose(value: Any) -> Any:
        if isinstance(value, Options):
            return value
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise ValueError(f"needs a name (there are: {', '.join(registry.names())})")
        try:
            options = registry.options(value["name"])
        except InputError as error:
            raise ValueError(str(error)) from None
        return options.model_validate(value)

    return choose


Data = Annotated[SerializeAsAny[DataOptions], BeforeValidator(_chosen_from(datasets))]
Model = Annotated[SerializeAsAny[ModelOptions], BeforeValidator(_chosen_from(models))]
Defense = Annotated[SerializeAsAny[Options], BeforeValidator(_chosen_from(defenses))]
Features = Annotated[SerializeAsAny[Options], BeforeValidator(_chosen_from(feature_maps))]


class Parties(Section):
    """Who takes part: one active party, which holds the labels, and at least one passive party."""

    active: str = "active"
    passive: tuple[str, ...] = Field(("passive_1", "passive_2"), min_length=1)

    @model_validator(mode="after")
    def _names(self) -> Parties:
        names = [self.active, *self.passive]
        for name in names:
            if not name.replace("_", "").replace("-", "").isalnum():
                raise ValueError(f"party name {name!r} is not made of letters, digits, '-' and '_'")
        if len(set(names)) < len(names):
            raise ValueError(f"party names must differ, got {', '.join(names)}")
        return self


class Optimizer(Section):
    name: Literal["sgd", "adam"] = "adam"
    lr: float = Field(1e-3, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)


class ScheduleOptions(Section):
    """The learning rate as a pure function of the step, so that a resume needs no state for it."""

    name: Literal["constant", "cosine", "step"] = "constant"
    warmup: int = Field(0, ge=0)
    milestones: tuple[float, ...] = (0.5, 0.75)
    gamma: float = Field(0.1, gt=0)


Baseline = Literal["active_only", "joint", "unsplit"]


class Training(Section):
    protocol: Literal["split", "blind"] = "split"
    epochs: int = Field(10, ge=1)
    batch_size: int = Field(256, ge=1)
    local_steps: int = Field(1, ge=1)
    optimizer: Optimizer = Optimizer()
    schedule: ScheduleOptions = ScheduleOptions()
    class_weights: Literal["none", "balanced"] | tuple[float, ...] = "none"
    evaluate_every: int = Field(1, ge=1)
    baselines: tuple[Baseline, ...] = ()


OF_EPOCHS = ("epochs", "batch_size", "local_steps", "optimizer", "schedule", "evaluate_every")
"""The settings of `training` that split training alone reads."""


class Blind(Section):
    """Blind training: only encrypted sums over rows cross. Without effect where `training.protocol` is another."""

    labels: Literal["none", "private", "shared"] = "none"
    label_epsilon: float = Field(4.0, gt=0, le=100)
    label_prior: bool = False
    label_bins: int = Field(8, ge=2, le=256)
    encryption: Literal["bfv", "none"] = "bfv"
    epsilon: float | None = Field(None, gt=0)
    delta: float = Field(1e-5, gt=0, lt=1)
    clip: float | None = Field(None, gt=0)
    ridge: Literal["gcv"] | Annotated[float, Field(ge=0)] = "gcv"
    step: float = Field(0.01, gt=0)
    min_rows: int = Field(20, ge=1)
    allow_small_n: bool = False
    block_rows: int = Field(8192, ge=128, multiple_of=128)


class Risk(Section):
    """The risk meter: how much of a row the payload's Jacobian would give away, on the party's own training rows."""

    every: int = Field(1, ge=0)
    samples: int = Field(8, ge=1)
    values: int = Field(512, ge=1)
    exact: int = Field(4, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _without_rank(cls, given: Any) -> Any:
        """Runs of earlier versions looked at `rank` directions; all are taken now, and such runs still open."""
        return {name: value for name, value in given.items() if name != "rank"} if isinstance(given, dict) else given


class Checkpoints(Section):
    every_steps: int | None = Field(None, ge=1)
    keep: int = Field(3, ge=2)
    moments: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()

    def moment_steps(self, steps: int) -> set[int]:
        """After which training steps every party keeps its model for good; a share of 0 is the first exchange."""
        return {max(1, round(share * steps)) for share in self.moments}


class TranscriptOptions(Section):
    """Whether the active party writes down what it receives, for attacks that come afterwards."""

    record: bool = False
    every: int = Field(1, ge=1)
    victims: tuple[str, ...] = ()
    buffer_mib: int = Field(64, ge=1)


class Runtime(Section):
    link: Literal["threads", "processes"] = "threads"
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?|mps)$")
    precision: Literal["fp32", "bf16"] = "fp32"
    channels_last: bool = False
    cuda_graphs: bool = True
    compile: bool = False
    cpu_threads: int | None = Field(None, ge=1)
    timeout: float = Field(120.0, gt=0)
    max_message_mib: int = Field(1024, ge=1)
    engine: Literal["here", "processes", "dask"] = "here"
    workers: int | None = Field(None, ge=1)
    scheduler: str | None = None


class PartyOwn(Section):
    """What is a party's own and never leaves it: where its data lies, its defense and its feature map."""

    data: dict[str, Any] = {}
    defense: Defense | None = None
    features: Features | None = None
    book: str | None = None
    """Blind training: a folder for what this party must remember over jobs. Without one, each run has its own."""
    second_head: bool = False
    """Blind training: whether rows that were scored for one head may be scored for another."""

    @property
    def book_path(self) -> Path:
        """The folder `book`, which is set."""
        assert self.book is not None
        return Path(self.book).expanduser()


class Job(Section):
    """What to train: the agreed job and each party's own part. `load_job` makes one; docs/jobs.md has all settings.

    >>> job = veracausa.load_job({"data": {"name": "digits"}, "model": {"name": "convnet", "cut": 3}})
    >>> job.parties.passive
    ('passive_1', 'passive_2')
    >>> print(job.to_toml())
    """

    name: str = "job"
    seed: int = Field(0, ge=0)
    data: Data
    partition: Partition = Partition()
    overlap: Overlap = Overlap()
    parties: Parties = Parties()
    model: Model
    training: Training = Training()
    blind: Blind = Blind()
    features: Features = Field(default_factory=lambda: Options(name="auto"))
    risk: Risk = Risk()
    checkpoints: Checkpoints = Checkpoints()
    transcript: TranscriptOptions = TranscriptOptions()
    runtime: Runtime = Runtime()
    defense: Defense = Field(default_factory=lambda: Options(name="none"))
    party: dict[str, PartyOwn] = {}

    @model_validator(mode="before")
    @classmethod
    def _blind_needs_no_model(cls, given: Any) -> Any:
        """In blind training `[model]` is the network of a feature map that has one; most have none."""
        if isinstance(given, dict) and "model" not in given:
            training = given.get("training")
            protocol = training.get("protocol") if isinstance(training, dict) else getattr(training, "protocol", None)
            if protocol not in (None, "split"):  # a misspelt one is refused for itself, not for the model
                return {**given, "model": {"name": "convnet"}}
        return given

    @model_validator(mode="after")
    def _consistent(self) -> Job:
        # The run's folder is named after it.
        if self.name in ("", ".", "..") or any(character in self.name for character in "/\\\0"):
            raise ValueError(f"name: {self.name!r} cannot name a folder")
        known = [self.parties.active, *self.parties.passive]
        for name in self.transcript.victims:
            if name not in self.parties.passive:
                raise ValueError(
                    f"transcript.victims: {name!r} is no passive party{did_you_mean(name, self.parties.passive)}"
                )
        for name in self.party:
            if name not in known:
                raise ValueError(f"party.{name}: no such party{did_you_mean(name, known)}")
        if self.training.protocol == "blind":
            self._refuse_payload_settings()
        return self

    def _refuse_payload_settings(self) -> None:
        """What only changes or keeps payloads is refused: blind training sends none, and silence would look like it."""
        defended = [name for name in self.parties.passive if self.defense_of(name).name != "none"]
        if defended:
            where = f"party.{defended[0]}.defense" if self.defense.name == "none" else "defense"
            name = self.defense_of(defended[0]).name
            raise ValueError(
                f"{where}.name: {name!r} changes payloads, and blind training sends none; leave it out, "
                'or take training.protocol = "split"'
            )
        if self.transcript.record:
            raise ValueError(
                "transcript.record: blind training has no payload to record; leave it out, "
                'or take training.protocol = "split"'
            )

    def notes(self) -> tuple[str, ...]:
        """What the job sets without effect, a sentence each."""
        blind, default = self.blind, Blind()
        if self.training.protocol != "blind":
            idle = [f"blind.{name}" for name in Blind.model_fields if getattr(blind, name) != getattr(default, name)]
            return tuple(f'{name} has no effect: training.protocol is not "blind"' for name in idle)
        training = Training()
        idle = [f"training.{name}" for name in OF_EPOCHS if getattr(self.training, name) != getattr(training, name)]
        said = "blind training solves its head from sums, in no epochs"
        found = [f"{', '.join(idle)} {'has' if len(idle) == 1 else 'have'} no effect: {said}"] if idle else []
        if blind.labels != "private":
            named = [
                name for name in ("label_epsilon", "label_prior") if getattr(blind, name) != getattr(default, name)
            ]
            found += [f'blind.{name} has no effect: blind.labels is "{blind.labels}", not "private"' for name in named]
        if blind.epsilon is None and blind.delta != default.delta:
            found.append("blind.delta has no effect: blind.epsilon is not set, so no noise is added")
        return tuple(found)

    def defense_of(self, party: str) -> Options:
        own = self.party.get(party)
        return own.defense if own and own.defense else self.defense

    def features_of(self, party: str) -> Options:
        own = self.party.get(party)
        return own.features if own and own.features else self.features

    def to_toml(self) -> str:
        import tomli_w

        return tomli_w.dumps(_without_none(self.model_dump(mode="json")))


def load_job(
    source: str | Path | dict[str, Any] | Job, overrides: Sequence[str] = (), allow_model: str | None = None
) -> Job:
    """Read and check a job; a typo is refused with the nearest known setting.

    source: a TOML file, a mapping, or a `Job`.
    overrides: settings laid over it, such as `model.cut=3`.
    allow_model: the `package.module:factory` that the caller trusts. A job that names another one can be read, but its
    model cannot be built. A `Job` keeps what was allowed when it was loaded.

    >>> job = veracausa.load_job("job.toml", ["training.epochs=5"])
    >>> job.training.epochs
    5
    """
    tree, where = job_tree(source)
    if isinstance(source, Job):
        allow_model = allow_model or source.model.allowed
    given = [(parse_setting(text), text) for text in overrides]
    # A choice comes first: the settings beside it are meant for what is chosen.
    for (path, value), text in sorted(given, key=lambda setting: not chooses(setting[0][0])):
        node = section_of(tree, path[:-1], text)
        # Another data set, model or defense has other settings: the old one's would only be refused.
        if chooses(path) and node.get("name") != value:
            node.clear()
        node[path[-1]] = value
    try:
        job = Job.model_validate(tree)
    except ValidationError as error:
        raise InputError(f"{where}: {_first_problem(error, tree)}") from None
    job.model.allow(allow_model, where)
    return job


def job_tree(source: str | Path | dict[str, Any] | Job) -> tuple[dict[str, Any], str]:
    """The settings of a job as a tree that is the caller's own, not yet checked; and what messages call it."""
    if isinstance(source, Job):
        return source.model_dump(mode="json", exclude_none=True), source.model.named_in
    if isinstance(source, dict):
        return json.loads(json.dumps(source, default=as_setting)), "job"
    if not isinstance(source, str | os.PathLike):
        raise InputError(f"job: a {type(source).__name__} is no job; give a file, a mapping of settings, or a Job")
    tree = read_toml(Path(source))
    find_rows(tree, Path(source).parent)
    return tree, str(source)


FIXES = {
    "data": '; write a section [data] with a name, such as name = "digits" (`veracausa list datasets`)',
    "data.name": '; such as name = "digits" (`veracausa list datasets`)',
    "model": '; write a section [model] with a name, such as name = "mlp" (`veracausa list models`)',
    "model.name": '; such as name = "mlp" (`veracausa list models`)',
}
"""What to write where a setting is missing that every job, or every job of split training, has."""


def _first_problem(error: ValidationError, tree: dict[str, Any]) -> str:
    """The first problem as one sentence, with the nearest known setting for an unknown one."""
    problems = error.errors(include_url=False)
    first = min(problems, key=lambda e: e["type"] != "extra_forbidden")
    # A setting of several types has one problem a type: the one that came furthest is what was meant.
    start = _place(first)
    problem = max((e for e in problems if _place(e)[: len(start)] == start), key=lambda e: len(e["loc"]))
    place = _place(problem)
    if problem["type"] == "extra_forbidden":
        *section, word = place
        return f"{'.'.join(place)}: no such setting{did_you_mean(word, _fields_at(section, tree))}"
    if problem["type"] == "missing":
        return f"{'.'.join(place)}: is missing{FIXES.get('.'.join(place), '')}"
    # A word or a number that none of a setting's types takes: say what each of them wants.
    wanted = dict.fromkeys(wrong_value(each) for each in problems if _place(each) == place)
    own, *others = [one for one in wanted if not one.startswith("must be a list")] or wanted
    message = ", or ".join([own, *(one.removeprefix("must be ") for one in others)])
    given = problem.get("input")
    shown = f" (got {given!r})" if isinstance(given, str | int | float | bool) else ""
    return f"{'.'.join(place)}: {message}{shown}" if place else f"{message}{shown}"


def _place(problem: ErrorDetails) -> list[str]:
    """Where it is, as a person would write it: pydantic adds the names of types and functions."""
    words = [str(part) for part in problem["loc"]]
    if problem["type"] == "extra_forbidden":
        return words
    types = ("float", "int", "str", "bool")  # of a setting that may be several things
    added = ("function-", "constrained-")
    return [word for word in words if not word.startswith(added) and "[" not in word and word not in types]


def _fields_at(section: list[str], tree: dict[str, Any]) -> list[str]:
    registries: dict[str, Registry[Any]] = {
        "data": datasets,
        "model": models,
        "defense": defenses,
        "features": feature_maps,
        "source": datasets,
    }
    if section and section[-1] == "surrogate":
        from veracausa.defenses.causshield.surrogates import surrogates

        registries["surrogate"] = surrogates
    if section and section[-1] in registries and (len(section) == 1 or section[0] in ("party", "defense")):
        node: Any = tree
        for part in section:
            node = node.get(part, {}) if isinstance(node, dict) else {}
        name = node.get("name", "auto")
        return ["name"] if name == "auto" else list(registries[section[-1]].options(name).model_fields)
    fields = Job.model_fields
    if section[:1] == ["party"]:
        return list(PartyOwn.model_fields)
    for part in section:
        annotation = fields[part].annotation if part in fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        fields = annotation.model_fields
    return list(fields)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value
