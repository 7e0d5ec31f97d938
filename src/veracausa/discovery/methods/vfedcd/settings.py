"""What may be chosen about VFedCD; a profile is a file of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from veracausa.discovery.methods.vfedcd.decoders import Likelihood
from veracausa.discovery.methods.vfedcd.structure import BY_LIKELIHOOD
from veracausa.registry import over_profile

FOLDER = Path(__file__).parent / "profiles"
MOST_SEARCHES = 8
COMPARED_EPOCHS = 10
Acyclicity = Literal["spectral", "spectral_squares", "trace_exponential", "log_determinant"]


class Search(BaseModel):
    """What one of several searches has of its own; what is None is as in the settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: int | None = Field(None, ge=1)
    growth: float | None = Field(None, ge=0)
    ceiling: float | None = Field(None, gt=0)
    halt: float | None = Field(None, gt=0)
    acyclicity: Acyclicity | None = None


class Settings(BaseModel):
    """Settings of a fit; those not given come from the profile."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: str = "recommended"
    width: int = Field(10, ge=1)
    """h, the hidden units of one target attribute."""
    depth: int = Field(1, ge=0)
    """Layers between the first one and the read-out."""
    activation: Literal["tanh", "sigmoid", "leaky_relu"] = "tanh"
    likelihood: Likelihood = "gaussian"
    """gaussian: one variance an attribute; heteroscedastic: a variance a row, which the causes say, too; auto: every
    search is made with both, and rows kept apart say which of the two."""
    bernoulli: bool = True
    """Attributes with two values get a Bernoulli likelihood."""
    rate: float = Field(0.01, gt=0)
    batch: int = Field(16, ge=1)
    epochs: int = Field(200, ge=1)
    refit_epochs: int = Field(200, ge=0)
    """Epochs in the order that was found, without the acyclicity term; 0: cut the first fit."""
    growth: float = Field(0.02, ge=0)
    """γ, by how much the acyclicity term's weight grows in an epoch while the graph has cycles."""
    ceiling: float | None = Field(None, gt=0)
    halt: float = Field(0.1, gt=0)
    """Edges stronger than this count when growth asks whether the graph is acyclic."""
    acyclicity: Acyclicity = "trace_exponential"
    sparsity: Literal["group_lasso", "l1", "l2"] = "group_lasso"
    sparsity_weight: float = Field(0.015, ge=0)
    pivot: float = Field(0.25, ge=0)
    """Of the group lasso in the refit: an edge this strong is shrunk as in the search; 0: all edges are."""
    structure_every: int | Literal["epoch"] = 5
    """Steps between two looks at the graph as a whole."""
    threshold: float | Literal["held_out", "held_out_graphs", "mixture"] = "held_out"
    """The strength an edge must have: a number, or the rule that finds it. Between parties `held_out` opens a row kept
    apart once, and `held_out_graphs` under every candidate graph, which tells a target single columns."""
    edge_worth: float = Field(0.4, ge=0)
    """What an edge must add to the held-out likelihood, as a share of what an attribute gains from all its causes."""
    candidates: int = Field(24, ge=2)
    """How many graphs the rule `held_out` compares."""
    held_out: float = Field(0.2, ge=0, lt=1)
    """The share of rows that is kept for the held-out likelihood."""
    searches: tuple[Search, ...] = Field((), max_length=MOST_SEARCHES)
    """Several searches, each with a refit of its own; the one that makes the training rows likeliest is kept. Each says
    what it has of its own. None: one search, as set above."""
    open_parts: bool | None = None
    """Between three parties or more: whether a target opens each source's part of its features; else only the sum."""
    bottleneck: int | None = Field(None, ge=1)
    """Between parties: so many numbers of a target attribute are opened of a row, in place of `width`."""
    row_noise: float | None = Field(None, gt=0)
    """Between parties: the deviation of the noise on every number that is opened of a row."""

    @model_validator(mode="before")
    @classmethod
    def _from_profile(cls, given: Any) -> Any:
        whole = over_profile(given, FOLDER, cls.model_fields["profile"].default)
        if isinstance(given, dict) and "searches" not in given:
            whole["searches"] = _left(whole.get("searches", ()), given)
        return whole

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        if self.threshold in BY_LIKELIHOOD and not self.held_out:
            raise ValueError(f"threshold: {self.threshold} needs rows that were kept apart; set held_out to 0.2 or so")
        if len(self.searches) > 1 and not self.refit_epochs:
            raise ValueError("searches: their refits are compared; set refit_epochs to 200 or so, or searches to []")
        if self.likelihood == "auto" and not (self.held_out and self.refit_epochs):
            raise ValueError(
                "likelihood: auto compares refits on rows kept apart; set held_out to 0.2 or so and refit_epochs to 200"
            )
        if self.bottleneck is not None and self.bottleneck > self.width:
            raise ValueError(f"bottleneck: {self.bottleneck} is more than the {self.width} hidden units; give fewer")
        return self

    @property
    def each(self) -> tuple[Settings, ...]:
        """The settings of every search in turn, each of one search and one likelihood."""
        own = [search.model_dump(exclude_none=True) for search in self.searches]
        made = tuple(self.model_copy(update={"searches": (), **changes}) for changes in own) or (self,)
        if self.likelihood != "auto":
            return made
        # The simpler one first: what its searches find does not depend on the others.
        both = ("gaussian", "heteroscedastic")
        return tuple(one.model_copy(update={"likelihood": likelihood}) for likelihood in both for one in made)

    @property
    def compared(self) -> int:
        """So many last epochs of a search say how likely it makes the data; a single one's loss is chance in part."""
        return min(COMPARED_EPOCHS, self.refit_epochs or self.epochs)

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without searches where there is one: settings from before there could be more are the same settings."""
        written: dict[str, Any] = write(self)
        del written["searches"]
        own = [search.model_dump(exclude_none=True) for search in self.searches]
        return written | ({"searches": own} if own else {})


def _left(searches: Sequence[Mapping[str, Any]], given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A profile's searches beside settings that are given, which hold in all of them: those that still differ."""
    if not given.get("refit_epochs", 1):
        return []
    left: list[dict[str, Any]] = []
    for search in searches:
        own = {name: value for name, value in search.items() if name not in given}
        left += [] if own in left else [own]
    return left
