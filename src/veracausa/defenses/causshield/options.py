"""What a job may say about CausShield: every reading of the paper that the literature leaves open is one setting."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from veracausa.errors import InputError
from veracausa.registry import Options, over_profile

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent / "profiles"
RENAMED_PROFILES = {"paper": "paper_repaired"}
"""Profiles of earlier versions and what they are called now."""

CHOSEN_BY_ROWS = ("auto", "printed")
"""Names that stand for the kind of surrogate that suits the rows, and for the one that the paper prints."""


@cache
def _tell_of(name: str) -> None:
    """Say once in a program that a profile has another name now."""
    log.warning(
        "causshield: profile %s is called %s now: it mends what the paper prints; profile literal is the paper's own",
        name,
        RENAMED_PROFILES[name],
    )


def _surrogate(value: Any) -> Any:
    from veracausa.defenses.causshield.surrogates import surrogates

    if isinstance(value, Options):
        return value
    if not isinstance(value, dict) or not isinstance(value.get("name", "auto"), str):
        raise ValueError(f"needs a name (there are: {', '.join((*CHOSEN_BY_ROWS, *surrogates.names()))})")
    name = value.get("name", "auto")
    if name in CHOSEN_BY_ROWS:
        return Options.model_validate({"name": name} | value)
    try:
        return surrogates.options(name).model_validate(value)
    except InputError as error:
        raise ValueError(str(error)) from None


SurrogateChoice = Annotated[SerializeAsAny[Options], BeforeValidator(_surrogate)]
"""A kind of surrogate and its settings, or one of `CHOSEN_BY_ROWS`."""


class CausShieldOptions(Options):
    """Settings of CausShield; those not given come from the profile, a file beside this module."""

    swept: ClassVar[tuple[str, ...]] = ("iterations",)
    sweep: ClassVar[Mapping[str, tuple[Any, ...]]] = {"iterations": (1, 5, 10, 20, 30)}

    name: str = "causshield"
    profile: str = "recommended"
    """`literal`: as printed; `paper_repaired`: with repairs; `recommended`: what was measured to be worth its price."""

    surrogate: SurrogateChoice = Options(name="auto")
    refresh: Literal["never", "epoch"] = "never"
    """One surrogate a row for the whole run, as in the paper, or a new one each time the row is used."""

    dimensions: Literal["auto", "flat", "channel", "pooled", "patch"] = "auto"
    """What a dimension of a map is; auto: flat for vectors and small payloads, channel for maps."""
    patch: tuple[int, int] = (4, 4)
    trade_off: float = Field(1.0, ge=0)
    """λ of Eq. 19."""
    beta: float | Literal["auto", "cirl"] = "auto"
    """Weight of the off-diagonal correlations; 1 is the paper's, auto keeps their noise from drowning the diagonal."""

    masker: bool = True
    tau: float = Field(0.5, gt=0, lt=1)
    sampler: Literal["gumbel_topk_st", "iterative_gumbel_softmax"] = "gumbel_topk_st"
    temperature: float = Field(0.5, gt=0)
    logit_bn: bool = True
    """A last normalisation without weights: without it a masker may call the same dimensions upper for every row."""
    score_on: Literal["raw", "both"] = "raw"

    iterations: int = Field(30, ge=0)
    """M, the inner iterations of an adaptation; 0 sends the bottom's own output."""
    schedule: Literal["const", "exp", "plateau"] = "exp"
    decay: float = Field(0.9, gt=0, le=1)
    minimum: int = Field(1, ge=1)
    tolerance: float = Field(1e-3, gt=0)
    scope: Literal["batch", "epoch", "offset", "persistent"] = "batch"
    """Where the generator starts: from the bottom at each exchange (the paper), once an epoch and then frozen, once an
    epoch and then carried along with the bottom, or from itself, pulled towards the bottom."""
    pull: float = Field(0.1, ge=0, le=1)
    lr_generator: float = Field(1e-2, gt=0)
    lr_masker: float = Field(1e-1, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    players: Literal["together", "alternating"] = "together"
    """Generator and masker step from one pass, or in turn: then the masker sees what the generator became."""
    batch_norm: Literal["train_separate", "train_concat", "eval"] = "train_separate"

    transmit: Literal["raw", "surrogate"] = "raw"
    mask: Literal["none", "hard_topk"] = "none"
    update: Literal["st_bottom", "first_order", "merge"] = "st_bottom"
    infer: Literal["adapt", "frozen", "bottom"] = "adapt"

    @model_validator(mode="before")
    @classmethod
    def _from_profile(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("profile") in RENAMED_PROFILES:
            _tell_of(str(given["profile"]))
        return over_profile(given, FOLDER, cls.model_fields["profile"].default, RENAMED_PROFILES)

    @model_validator(mode="after")
    def _consistent(self) -> CausShieldOptions:
        if self.mask == "hard_topk" and not self.masker:
            raise ValueError("mask: hard_topk needs the masker; set masker = true")
        if self.update == "merge" and self.scope != "batch":
            raise ValueError('update: merge makes the generator the bottom itself; use it with scope = "batch"')
        return self
