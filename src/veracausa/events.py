"""What a run tells whoever watches it: one typed event, one observer, one callback for the share that is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Required, TypedDict, cast

EventName = Literal[
    # a run: its folder is there, and it is over
    "folder",
    "done",
    "status_lost",
    # a training
    "start",
    "step",
    "epoch",
    "preparing",
    "phase",
    "baseline",
    # a party's program, heard by whoever started it
    "finished",
    "result",
    "graph",
    "failed",
    "ended",
    "timed",
    # a discovery
    "progress",
    "noise",
    "announced",
    "notes",
    "found",
    # an audit and a frontier
    "attack",
    "label_attack",
    "trial",
    # alignment
    "aligning",
    "aligned",
    "warning",
    # a session between organisations
    "attempt",
    "waiting",
    "unreachable",
    "reached",
    "agreed",
    "starts",
    "lost",
    "stopped",
    "finished_here",
    "serves",
    "came",
    "left",
]

DISCOVERY_PARTS = {
    "graph": "learning the graph",
    "resamples": "resamples",
    "sums": "sums over rows",
    "search": "the search",
    "residuals": "residuals against causes",
}
"""What the parts of a discovery are called on a screen."""
TRAINING_PHASES = {
    "features": "features, at home",
    "moments": "sums over rows",
    "head": "the head, from sums",
    "scores": "scores of rows to predict",
}
"""What the phases of a blind training are called on a screen."""


class Event(TypedDict, total=False):
    """One thing that happened: `event` names it, the other keys say who, when and how much.

    Every event has `event` and the few other keys that fit it. Events are plain mappings of JSON values, because they
    cross from a party's process to the one that started it.
    """

    event: Required[EventName]

    party: str
    """Whose event it is."""
    member: str
    """Which organisation it is about, in a session between organisations."""
    peers: Sequence[str]
    """Who has not come yet."""

    step: int
    steps: int
    """Training steps done, and how many there are in all."""
    number: int
    of: int
    """How many there are in all: epochs of a discovery, of which `step` are done; attacks of an audit, of which this is
    `number`."""
    epoch: float
    epochs: int
    seconds: float
    share: float
    """How much is done, between 0 and 1."""
    baseline: bool
    """Whether it is about the undefended baseline of an audited run."""

    train: Mapping[str, float]
    validation: Mapping[str, float]
    test: Mapping[str, float]
    """Scores of an epoch, by name."""

    name: str
    """Which baseline."""
    path: str
    """The folder of a run."""
    what: str
    """Which part of a discovery, or of a blind training."""
    attack: str
    moment: float
    """Which snapshot is attacked, as a share of the training."""
    defense: str
    setting: str
    cut: int
    seed: int
    kept: bool
    left: float
    """A trial of a frontier: what is tried, whether it was kept from before, and the seconds that are left."""

    rows: Any
    own: int
    held: int
    announced: Mapping[str, int]
    common: Mapping[str, int]
    warnings: Sequence[str]
    text: str
    """An alignment: who brought how many ids, how many are common, and what to know."""

    attempt: int
    hash: str
    at: str | None
    why: str
    reason: str
    """A session: which attempt, what was agreed, where the serving member is, and what went wrong."""

    type: str
    peer: str
    message: str
    """A failed program: the class of the error, whom it is about, and its sentence."""

    found: Mapping[str, Any]
    history: list[dict[str, float]]
    strengths: Any
    allowed: Any
    threshold: float
    held_out_loss: float
    graph: Any
    figures: Any
    """A learnt graph and the numbers beside it, as nested lists."""
    opened: bool
    whole: bool
    account: Mapping[str, float] | None
    notes: list[str]
    """Of a discovery from sums: whether a member saw the sums, whether it knows all of the graph, what the sums told of
    a row at most, and what it did to its columns."""

    sent: dict[str, int]
    bytes: int
    messages: int
    """What a program sent."""


Observer = Callable[[Event], None]
"""Hears every event of a run."""
ProgressCallback = Callable[[float], None]
"""Hears the share that is done, between 0 and 1."""


def event_of(name: EventName, values: Mapping[str, Any]) -> Event:
    """An event whose other keys come as a mapping that somebody else filled, such as the scores of an epoch."""
    return cast(Event, {"event": name, **values})
