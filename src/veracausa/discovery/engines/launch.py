"""The two ways to run the same model: in one place, or as parties that exchange messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.discovery.bootstrap import Rows
from veracausa.discovery.engines.centralized import fit_and_keep
from veracausa.discovery.methods.vfedcd.searches import Searches
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.events import Event, Observer, ProgressCallback


@dataclass(frozen=True)
class EngineResult:
    """What either engine leaves, columns in the order of the rows it was given."""

    strengths: Array
    allowed: Mask
    threshold: float
    held_out_loss: float
    history: list[dict[str, float]]
    sent: dict[str, dict[str, int]] = field(default_factory=dict)
    """Messages and bytes of each party."""
    noise: dict[str, object] | None = None
    """What a federation's noise guarantees, or that it does not."""
    search: int = 0
    """Which of the searches was kept."""
    figures: Array | None = None
    """(d, 4): of each attribute on rows kept apart, see `diagnostics`; None: nobody could say."""


def floating(
    settings: Settings,
    rows: Rows,
    rng: np.random.Generator,
    progress: ProgressCallback,
    time_is_up: Callable[[], bool],
    file: Path | None = None,
    resume: bool = False,
) -> EngineResult:
    """All columns in one place."""
    model = Searches(settings, rows.model(rng))
    fit = fit_and_keep(model, rows.train[None], rows.held_out[None], progress, time_is_up, file, resume)
    return EngineResult(
        fit.strengths[0],
        fit.allowed[0],
        float(fit.thresholds[0]),
        float(fit.held_out_loss[0]),
        fit.history,
        search=int(fit.search[0]),
        figures=fit.figures[0],
    )


def federated(
    settings: Settings,
    rows: Rows,
    parties: Mapping[str, Sequence[int]],
    progress: ProgressCallback,
    out: Path | None = None,
    resume: bool = False,
    tell: Observer = lambda event: None,
    strong: bool = False,
    **how: Any,
) -> EngineResult:
    """Every party and the validator as a program of its own; `parties` says where each one's columns are."""
    from veracausa.discovery.engines.mpc.run import PLAN as STRONG_PLAN
    from veracausa.discovery.engines.mpc.run import discover as discover_on_shares
    from veracausa.discovery.engines.shares.run import discover

    order = [at for positions in parties.values() for at in positions]
    sorted_rows = rows.ordered(order)
    table = np.concatenate([sorted_rows.train, sorted_rows.held_out])
    ends = np.cumsum([len(positions) for positions in parties.values()])
    blocks = np.split(table, ends[:-1], axis=1)

    def hear(event: Event) -> None:
        if event["event"] == "epoch":
            progress(event["step"] / event["of"])
        elif event["event"] == "noise":
            tell(event)

    columns = dict(zip(parties, blocks, strict=True))
    common: dict[str, Any] = {
        "binary": sorted_rows.binary,
        "required": sorted_rows.required,
        "forbidden": sorted_rows.forbidden,
        "train_rows": len(rows.train),
        "observer": hear,
    }
    # A fit killed before its parties wrote anything begins anew.
    begun = resume and out is not None and (out / (STRONG_PLAN if strong else "plan.json")).is_file()
    common |= {"out": out, "resume": begun}
    if strong:
        fit = discover_on_shares(columns, sorted_rows.names, settings, link=how["link"], seed=how["seed"], **common)
    else:
        fit = discover(columns, sorted_rows.names, settings, **common, **how)
    back = np.ix_(np.argsort(order), np.argsort(order))
    return EngineResult(
        np.asarray(fit.strengths)[back],
        np.asarray(fit.allowed)[back],
        float(fit.threshold),
        float(fit.held_out_loss),
        list(fit.history),
        {name: {"messages": told["messages"], "bytes_sent": told["bytes"]} for name, told in fit.sent.items()},
        fit.noise,
        fit.search,
        None if fit.figures is None else fit.figures[np.argsort(order)],
    )
