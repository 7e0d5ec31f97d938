"""What may be chosen about VFedCD: three groups of settings, and their defaults in a profile.

A new setting is one field here, its value in a profile where it has one, and the place that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import to_json

from veracausa.discovery.methods.vfedcd.decoders import Likelihood
from veracausa.discovery.methods.vfedcd.structure import BY_LIKELIHOOD
from veracausa.errors import InputError, wrong_value
from veracausa.registry import did_you_mean, over_profile

FOLDER = Path(__file__).parent / "profiles"
MOST_SEARCHES = 8
COMPARED_EPOCHS = 10
Acyclicity = Literal["spectral", "spectral_squares", "trace_exponential", "log_determinant"]

RENAMED = {
    "rate": "learning_rate",
    "growth": "acyclicity_growth",
    "ceiling": "acyclicity_max",
    "halt": "cycle_tolerance",
    "pivot": "lasso_pivot",
    "edge_worth": "min_edge_gain",
    "open_parts": "reveal_per_source",
    "prepare": "precompute",
    "row_limit": "row_norm_bound",
}
"""Settings of earlier versions and what they are called now. Files that a run writes for itself keep the old names."""
_BEFORE = {new: old for old, new in RENAMED.items()}
RENAMED_PROFILES = {"paper": "paper_repaired"}
"""Profiles of earlier versions and what they are called now. Files that a run writes for itself keep the old names."""
_PROFILES_BEFORE = {new: old for old, new in RENAMED_PROFILES.items()}


class Search(BaseModel):
    """What one of several searches has of its own. What is None is as in the settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: int | None = Field(None, ge=1)
    acyclicity_growth: float | None = Field(None, ge=0)
    acyclicity_max: float | None = Field(None, gt=0)
    cycle_tolerance: float | None = Field(None, gt=0)
    acyclicity: Acyclicity | None = None
    noisy_rate: float | None = Field(None, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _today(cls, given: Any) -> Any:
        return _renamed(given) if isinstance(given, dict) else given


class Refit(BaseModel):
    """What one of several refits has of its own. What is None is as in the settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sparsity_weight: float | None = Field(None, ge=0)
    refit_noisy_rate: float | None = Field(None, ge=1)
    width: int | None = Field(None, ge=1)


class ModelGroup(BaseModel):
    """The network of one attribute."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    width: int = Field(10, ge=1)
    """h, the hidden units of one target attribute."""
    depth: int = Field(1, ge=0)
    """Layers between the first one and the read-out."""
    activation: Literal["tanh", "sigmoid", "leaky_relu"] = "tanh"
    likelihood: Likelihood = "gaussian"
    """gaussian: one variance an attribute. heteroscedastic: a variance a row, which depends on the causes, too. auto:
    every search is made with both, and held-out rows choose between the two. tested: gaussian, and then heteroscedastic
    where squared residuals of most effects follow from their causes, which stays where held-out rows are surely
    likelier; only with `refits`. mse: half the squared
    error. squared_error: all of it. Both assume that all attributes have the same noise."""
    bernoulli: bool = True
    """Attributes with two values get a Bernoulli likelihood."""


class SearchGroup(BaseModel):
    """How the graph is searched for: optimiser, penalties, and the comparison on held-out rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    learning_rate: float = Field(0.01, gt=0)
    noisy_rate: float = Field(1, ge=1)
    """How many times as fast an attribute of pure noise learns in the search. One with little noise learns as
    `learning_rate` says, others lie between."""
    refit_noisy_rate: float = Field(1, ge=1)
    """The same in the refit."""
    batch: int = Field(16, ge=1)
    epochs: int = Field(200, ge=1)
    refit_epochs: int = Field(200, ge=0)
    """Epochs in the order that was found, without the acyclicity term. 0: cut the first fit."""
    acyclicity_growth: float = Field(0.02, ge=0)
    """γ, by how much the acyclicity term's weight grows in an epoch while the graph has cycles."""
    acyclicity_max: float | None = Field(None, gt=0)
    """The largest weight of the acyclicity term. None: no limit."""
    cycle_tolerance: float = Field(0.1, gt=0)
    """Only edges stronger than this can close a cycle that makes the weight grow."""
    acyclicity: Acyclicity = "trace_exponential"
    sparsity: Literal["group_lasso", "l1", "l2"] = "group_lasso"
    sparsity_weight: float = Field(0.015, ge=0)
    lasso_pivot: float = Field(0.25, ge=0)
    """Of the group lasso in the refit: an edge this strong is shrunk as in the search. 0: all edges are."""
    structure_every: int | Literal["epoch"] = 5
    """Steps between two structure updates."""
    min_edge_gain: float = Field(0.4, ge=0)
    """What an edge must add to the held-out likelihood, as a share of what an attribute gains from all its causes."""
    candidates: int = Field(24, ge=2)
    """How many graphs the rule `held_out` compares."""
    held_out: float = Field(0.2, ge=0, lt=1)
    """The share of rows that is held out: they are not trained on."""
    searches: tuple[Search, ...] = Field((), max_length=MOST_SEARCHES)
    """Several searches, each with a refit of its own. The one that makes the training rows likeliest is kept. Each says
    what it has of its own. None: one search, as set above."""
    start: Literal["empty", "moments"] = "empty"
    """moments: the edges of their graph come first in the order. With `refits` that is one more order, beside those of
    the searches. Otherwise it is that of every search, and between parties only one is made."""
    refits: tuple[Refit, ...] = Field((), max_length=MOST_SEARCHES)
    """In one place: held-out rows choose the order among those of all searches, each refitted as the settings say, and
    then the best of these refits in it. Each says what it has of its own."""
    local_steps: int = Field(1)
    """Between parties: updates of a party's own decoders for one exchange."""


class ProtectionGroup(BaseModel):
    """What parties, validator and readers of the graph learn of each other's columns."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    encryption: str = "none"
    """What protects the offline phase: bfv or paillier. none: a simulation."""
    protocol: Literal["shares", "literal"] = "shares"
    """shares: how parties exchange by default. literal: the published algorithms 1 to 6, unsound, for simulations."""
    key_bits: int = Field(3072, ge=1024)
    """Of the protocol literal: bits of its Paillier keys. Fewer than 3072 can be broken, and the run says so."""
    strong: bool | Literal["dealer", "replicated"] = False
    """Features, decoders and gradients stay on shares, and of rows only sums are opened. replicated (true): three
    servers hold two of three summands each. dealer: all parties hold shares, and the validator deals. Slower than the
    normal mode."""
    servers: tuple[str, ...] = ()
    """With `strong` replicated, the three that compute: parties or the validator. By default the first three parties,
    or two parties and the validator. Any two of them together can open everything."""
    reveal: Literal["all", "own"] = "all"
    """What a party is sent: the whole graph, or the edges that touch its own attributes."""
    precompute: Literal["inline", "process"] = "inline"
    """Where triples are made ahead: between the steps, or in a process of its own."""
    reveal_per_source: bool | None = None
    """Between three parties or more: whether a target opens each source's part of its features, or only the sum."""
    bottleneck: int | None = Field(None, ge=1)
    """A target attribute opens so many numbers of a row, in place of `width`."""
    row_noise: float | None = Field(None, gt=0)
    """The deviation of the noise that the others add to every number that is opened of a row."""
    epsilon: float | None = None
    """Differential privacy of one row against the validator and readers of the graph, for the whole fit. It does not
    protect against the parties. It needs `held_out` = 0 and a `threshold` that is a number or "mixture"."""
    delta: float = 1e-5
    clip: float = 20.0
    """With `epsilon`: the most that a row adds to the gradient of one target's network."""
    row_norm_bound: float = 1.5
    """With `epsilon`: the largest root mean square of a row's columns, party by party."""
    validator: Literal["M1", "M2"] = "M2"
    """What the validator is sent: the norm of every edge's weights, or (M1, as published) the weights themselves."""
    shares: Literal["two", "all"] = "two"
    """Who holds a block's weights: its source and its target, or (as published) every party."""
    laplace: float | None = None
    """ε of the published noise on strengths: a heuristic that gives no guarantee."""
    laplace_rule: Literal["published", "sum"] = "sum"
    """published: at the validator, in its acyclicity term. sum: in parts on shares, so that nobody knows it."""

    @field_validator("strong")
    @classmethod
    def _which_one(cls, said: bool | str) -> bool | str:
        """What `true` stands for."""
        return "replicated" if said is True else said


GROUPS: dict[str, type[BaseModel]] = {"model": ModelGroup, "search": SearchGroup, "protection": ProtectionGroup}


class Settings(ModelGroup, SearchGroup, ProtectionGroup):
    """All settings of a fit. Those not given come from the profile."""

    profile: str = "recommended"
    threshold: float | Literal["held_out", "held_out_graphs", "mixture"] = "held_out"
    """The strength an edge must have: a number, or the rule that finds it. Between parties `held_out` opens a held-out
    row once. `held_out_graphs` opens it under every candidate graph, which tells a target single columns."""

    @model_validator(mode="before")
    @classmethod
    def _from_profile(cls, given: Any) -> Any:
        if isinstance(given, dict):
            given = _renamed(given)
        whole = over_profile(given, FOLDER, cls.model_fields["profile"].default, RENAMED_PROFILES)
        if isinstance(given, dict) and "searches" not in given:
            whole["searches"] = _left(whole.get("searches", ()), given)
        return whole

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        if self.threshold in BY_LIKELIHOOD and not self.held_out:
            raise ValueError(f"threshold: {self.threshold} needs held-out rows; set held_out to 0.2 or so")
        if len(self.searches) > 1 and not self.refit_epochs:
            raise ValueError("searches: their refits are compared; set refit_epochs to 200 or so, or searches to []")
        if self.likelihood == "auto" and not (self.held_out and self.refit_epochs):
            raise ValueError(
                "likelihood: auto compares refits on held-out rows; set held_out to 0.2 or so and refit_epochs to 200"
            )
        if self.likelihood == "tested" and not self.refits:
            raise ValueError("likelihood: tested judges the refits of one order; give refits, or set it to 'auto'")
        if self.refits and not (self.held_out and self.refit_epochs):
            raise ValueError("refits: held-out rows compare them; set held_out to 0.2 or so and refit_epochs to 200")
        if self.bottleneck is not None and self.bottleneck > self.width:
            raise ValueError(f"bottleneck: {self.bottleneck} is more than the {self.width} hidden units; give fewer")
        return self

    @property
    def each(self) -> tuple[Settings, ...]:
        """The settings of every search in turn, each of one search and one likelihood."""
        own = [search.model_dump(exclude_none=True) for search in self.searches]
        made = tuple(self.model_copy(update={"searches": (), **changes}) for changes in own) or (self,)
        if self.likelihood == "tested":
            made = tuple(one.model_copy(update={"likelihood": "gaussian"}) for one in made)
        if self.likelihood != "auto":
            return made
        # The simpler one first: what its searches find does not depend on the others.
        both = ("gaussian", "heteroscedastic")
        return tuple(one.model_copy(update={"likelihood": likelihood}) for likelihood in both for one in made)

    @property
    def compared(self) -> int:
        """So many last epochs of a search say how likely it makes the data. A single one's loss is chance in part."""
        return min(COMPARED_EPOCHS, self.refit_epochs or self.epochs)

    @property
    def total_epochs(self) -> int:
        """Of all searches with their refits."""
        return sum(one.epochs + one.refit_epochs for one in self.each)

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without searches where there is one: settings from before there could be more are the same settings."""
        written: dict[str, Any] = write(self)
        for name in ("searches", "refits"):
            del written[name]
            own = [one.model_dump(exclude_none=True) for one in getattr(self, name)]
            written |= {name: own} if own else {}
        return written

    def recorded(self) -> dict[str, Any]:
        """What one place and a plan compare a resumed run by, in the order and with the names of earlier versions."""
        written = self.model_dump(mode="json")
        without = set(_RECORDED) | set(ProtectionGroup.model_fields) | {"searches", "local_steps"}
        # What says nothing is left out: then settings from before there was such a one are the same settings.
        made_later = {name for name in set(written) - without if written[name] != type(self).model_fields[name].default}
        names = (*_RECORDED, *sorted(made_later), *(["searches"] if "searches" in written else []))
        return spelled_before({name: written[name] for name in names})

    def recorded_json(self) -> bytes:
        """`recorded` as the bytes that checkpoints are named by."""
        return to_json(self.recorded())


_RECORDED = (
    *("profile", "width", "depth", "activation", "likelihood", "bernoulli", "learning_rate", "batch", "epochs"),
    *("refit_epochs", "acyclicity_growth", "acyclicity_max", "cycle_tolerance", "acyclicity", "sparsity"),
    *("sparsity_weight", "lasso_pivot", "structure_every", "threshold", "min_edge_gain", "candidates", "held_out"),
    *("reveal_per_source", "bottleneck", "row_noise"),
)


def spelled_before(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the names of earlier versions, those of single searches and of the profile too."""
    found = {_BEFORE.get(name, name): value for name, value in settings.items()}
    if "profile" in found:
        found["profile"] = _PROFILES_BEFORE.get(found["profile"], found["profile"])
    if "searches" in found:
        found["searches"] = [spelled_before(one) for one in found["searches"]]
    return found


def grouped(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Settings that were given flat, in their groups, and a note on each whose name is one of earlier versions.

    A flat name stands over the same name in a group. A flat None leaves the group as it is.
    """
    found, groups = dict(given), {name: given.get(name) for name in GROUPS}
    notes = []
    for name, value in given.items():
        today = RENAMED.get(name, name)
        group = next((group for group, model in GROUPS.items() if today in model.model_fields), None)
        if group is None:
            continue
        del found[name]
        if value is not None:
            groups[group] = {**(groups[group] or {}), today: value}
            notes += [renaming(name)] if today != name else []
            notes += old_names(value) if name == "searches" else []
    return found | {name: value for name, value in groups.items() if value is not None}, notes


def renaming(name: str) -> str:
    """The note on a setting that was given by the name it had before."""
    return f"setting {name} is called {RENAMED[name]} now"


def profile_note(name: str) -> list[str]:
    """The note on a profile that was given by the name it had before; none on the names of today."""
    if name not in RENAMED_PROFILES:
        return []
    return [
        f"profile {name} is called {RENAMED_PROFILES[name]} now: what the paper leaves open is chosen there so that "
        "its numbers come out; profile literal is what the paper prints"
    ]


def resolve(groups: Mapping[str, Mapping[str, Any] | None], **more: Any) -> Settings:
    """The settings of these groups over those of the profile. The first that is wrong is named."""
    given = {name: value for name, value in more.items() if value is not None}
    for group, own in groups.items():
        for name, value in _renamed(own or {}).items():
            if name not in GROUPS[group].model_fields:
                known = GROUPS[group].model_fields
                raise InputError(f"vfedcd: {group}.{name}: no such setting{did_you_mean(name, known)}")
            given |= {} if value is None else {name: value}
    if given.get("strong") or given.get("epsilon") is not None:
        given.setdefault("searches", [])  # a profile's several are for where they can be had
    try:
        return Settings(**given)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        parts = problem["loc"] if problem["loc"][:1] == ("searches",) else problem["loc"][:1]
        place = ".".join(str(part) for part in parts)
        message = wrong_value(problem)
        raise InputError(f"vfedcd: {place}{': ' if place else ''}{message}") from None


def _renamed(given: Mapping[str, Any]) -> dict[str, Any]:
    return {RENAMED.get(name, name): value for name, value in given.items()}


def old_names(groups: Iterable[Mapping[str, Any] | None]) -> list[str]:
    """Notes on names of earlier versions inside of groups."""
    return [renaming(name) for group in groups for name in group or {} if name in RENAMED]


def _left(searches: Sequence[Mapping[str, Any]], given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A profile's searches beside settings that are given, which hold in all of them: those that still differ."""
    if not given.get("refit_epochs", 1):
        return []
    left: list[dict[str, Any]] = []
    for search in searches:
        own = {name: value for name, value in search.items() if name not in given}
        left += [] if own in left else [own]
    return left
