"""From what the parties of a discovery saw to the views of attackers: one party, or all but one.

In the strong mode nothing of a row is opened, and of a batch one number an attribute: that is watched and attacked too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.attacks.base import Grant
from veracausa.attacks.columns import Candidates, ColumnView, Opened
from veracausa.audit.discovery_recorder import MOMENTS, DiscoveryRecorder, DiscoveryRecording
from veracausa.crypto import ring
from veracausa.crypto.fixed_point import WEIGHT_BITS, decode
from veracausa.crypto.ring import Ring
from veracausa.crypto.ring64.fixed64 import Words
from veracausa.crypto.shares import FORWARD_BITS, NORM_BITS
from veracausa.data.causal import CausalData
from veracausa.discovery.engines.launch import StrongProgram
from veracausa.discovery.engines.mpc.network import Targets
from veracausa.discovery.engines.mpc.schedule import strong_plan
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.events import Observer
from veracausa.seeding import derive
from veracausa.wire.launch import Launch
from veracausa.wire.link import Link


@dataclass(frozen=True)
class ViewWithTruth:
    """One attacker, what it saw, and the truth that only the score is told."""

    attackers: tuple[str, ...]
    victims: tuple[str, ...]
    view: ColumnView
    truth: Array
    """(n, columns) of the training rows."""
    held_out: Array
    """(rows, columns) of the held-out rows."""

    @property
    def together(self) -> bool:
        """Whether parties collude."""
        return len(self.attackers) > 1


def single(recording: DiscoveryRecording, known_rows: int, seed: int) -> list[ViewWithTruth]:
    """Every party against each other one, or, where only sums are opened, against all others at once.

    Of several searches a party has the features side by side, as if it had so many times as many targets.
    """
    views = []
    for name, recorder in recording.parties.items():
        peers = recorder.plan.peers(name)
        groups = [(peer,) for peer in peers] if recorder.apart else [peers]
        views += [_view(recording, name, group, at, known_rows, seed) for at, group in enumerate(groups)]
    return views


def all_but_one(recording: DiscoveryRecording, known_rows: int, seed: int) -> list[ViewWithTruth]:
    """All other parties together against each one. They know each other's parts of a sum, and take them off.

    That needs a recording in which parts were opened one by one: it shows what is left after taking them off.
    """
    parties = tuple(recording.parties)
    views = []
    for victim in parties:
        others = [name for name in parties if name != victim]
        alone = [
            _view(recording, name, (victim,), recording.parties[name].plan.peers(name).index(victim), known_rows, seed)
            for name in others
        ]
        views.append(_joined(alone))
    return views


def _view(
    recording: DiscoveryRecording, name: str, victims: Sequence[str], at: int, known_rows: int, seed: int
) -> ViewWithTruth:
    """What one attacker saw of all searches together."""
    each = [_of_search(seen, name, victims, at, known_rows, seed) for seen in recording.searches]
    first, views = each[0], [one.view for one in each]
    return first if len(each) == 1 else replace(first, view=first.view.replaced(**_side_by_side(views)))


def _of_search(
    recording: Mapping[str, DiscoveryRecorder],
    name: str,
    victims: Sequence[str],
    at: int,
    known_rows: int,
    seed: int,
) -> ViewWithTruth:
    recorder = recording[name]
    plan = recorder.plan
    foreign = np.concatenate([np.arange(plan.d)[plan.own(victim)] for victim in victims])
    truth = np.concatenate([recording[victim].truth for victim in victims], axis=1)
    held_out = np.concatenate([recording[victim].held_out for victim in victims], axis=1)
    shape = (len(truth), -1, plan.numbers)
    rng = np.random.default_rng(derive(seed, "discovery audit", name, *victims))
    rows = np.sort(rng.choice(len(truth), min(known_rows, len(truth)), replace=False))
    told: dict[str, Any] = {
        "strengths": _of(recorder.strengths, foreign),
        "mean_strengths": _of(recorder.mean_strengths, foreign),
        "candidates": _candidates(recorder, foreign, at),
    }
    if first := _first(recording, recorder, victims, foreign, at):
        weights, opened = first
        told |= {"first": opened, "first_weights": weights, "first_range": np.abs(weights).max()}
        told["openings"] = (opened,)
        told["looked"] = _looked(recording, recorder, victims, opened)
    view = ColumnView(
        grants=Grant.KNOWN_ROWS | Grant.FIRST_WEIGHTS | Grant.VALIDATOR,
        columns=len(foreign),
        own=recorder.truth,
        last=recorder.last[at].reshape(shape),
        mean=recorder.mean[at].reshape(shape),
        history=np.stack([moment[at] for moment in recorder.history]).astype(np.float64),
        rng=rng,
        known=(rows, truth[rows]),
        **told,
    )
    return ViewWithTruth((name,), tuple(victims), view, truth, held_out)


def _of(strengths: Array | None, foreign: NDArray[np.int64]) -> Array | None:
    return None if strengths is None else strengths[foreign]


def _candidates(recorder: DiscoveryRecorder, foreign: NDArray[np.int64], at: int) -> Candidates | None:
    kept = recorder.candidates
    if not kept:
        return None
    features = np.stack([np.concatenate([parts[at] for parts in each.parts]) for each in kept])
    numbers = recorder.plan.numbers
    return Candidates(
        np.stack([each.graph[foreign] for each in kept]), features.reshape(*features.shape[:2], -1, numbers)
    )


def _first(
    recording: Mapping[str, DiscoveryRecorder],
    recorder: DiscoveryRecorder,
    victims: Sequence[str],
    foreign: NDArray[np.int64],
    at: int,
) -> tuple[Array, tuple[Opened, ...]] | None:
    if any(step.steps is None for step in recorder.first):
        return None
    out = {victim: recording[victim].first_out for victim in victims}
    weights = decode(_blocks(recorder, recorder.first_into, out), WEIGHT_BITS + FORWARD_BITS)
    size = recorder.size
    opened = tuple(
        Opened(
            np.arange(step.batch * size, (step.batch + 1) * size),
            step.parts[at],
            np.asarray(step.steps),
            None if step.factors is None else step.factors[foreign],
        )
        for step in recorder.first
    )
    return weights.reshape(len(foreign), -1), opened


def _looked(
    recording: Mapping[str, DiscoveryRecorder],
    recorder: DiscoveryRecorder,
    victims: Sequence[str],
    steps: tuple[Opened, ...],
) -> tuple[Array, tuple[Opened, ...]] | None:
    """What the validator of mode M1 saw at its first look, the factors it gave laid on, and the batches after that."""
    if recorder.plan.validator != "M1" or recorder.first_look is None:
        return None
    after, into, _ = recorder.first_look
    out = {victim: look[2] for victim in victims if (look := recording[victim].first_look)}
    blocks = decode(_blocks(recorder, into, out), WEIGHT_BITS + NORM_BITS)
    factors = steps[after - 1].factors
    if factors is not None:
        blocks = blocks * factors[..., None]
    return blocks.reshape(len(blocks), -1), steps[after:]


def _blocks(recorder: DiscoveryRecorder, into: Ring, out: dict[str, Ring]) -> Ring:
    """Both holders' shares of the blocks from some sources into a party's attributes, added up."""
    plan, name = recorder.plan, recorder.name
    return np.concatenate(
        [
            ring.add(into[plan.among_foreign(name, victim)], share[:, plan.among_foreign(victim, name)])
            for victim, share in out.items()
        ]
    )


def _joined(seen: Sequence[ViewWithTruth]) -> ViewWithTruth:
    """Several attackers' views of one victim as one: all their targets side by side."""
    views = [each.view for each in seen]
    view = views[0].replaced(
        grants=views[0].grants | Grant.OTHER_PARTIES,
        own=np.concatenate([view.own for view in views], axis=1),
        first=None,
        first_weights=None,
        looked=None,
        **_side_by_side(views),
    )
    names = tuple(name for each in seen for name in each.attackers)
    return ViewWithTruth(names, seen[0].victims, view, seen[0].truth, seen[0].held_out)


def _side_by_side(views: Sequence[ColumnView]) -> dict[str, Any]:
    """What several views have of one victim, target beside target.

    `first` is not among it: weights are another's in each view, so the first view keeps its own steps.
    """
    moments = min(len(view.history) for view in views)
    candidates = None
    if all(hasattr(view, "candidates") for view in views):
        graphs = min(len(view.candidates.graphs) for view in views)
        candidates = Candidates(
            np.concatenate([view.candidates.graphs[:graphs] for view in views], axis=2),
            np.concatenate([view.candidates.features[:graphs] for view in views], axis=2),
        )
    return {
        "last": np.concatenate([view.last for view in views], axis=1),
        "mean": np.concatenate([view.mean for view in views], axis=1),
        "history": np.concatenate([view.history[-moments:] for view in views], axis=2),
        "strengths": _all_strengths([getattr(view, "strengths", None) for view in views]),
        "mean_strengths": _all_strengths([getattr(view, "mean_strengths", None) for view in views]),
        "candidates": candidates,
        "openings": _all_openings(views),
    }


def _all_openings(views: Sequence[ColumnView]) -> tuple[tuple[Opened, ...], ...] | None:
    return tuple(opened for view in views for opened in getattr(view, "openings", ())) or None


def _all_strengths(strengths: Sequence[Array | None]) -> Array | None:
    known = [each for each in strengths if each is not None]
    return np.concatenate(known, axis=1) if len(known) == len(strengths) else None


class WatchedTargets:
    """A party's own noise, whose sums somebody writes down."""

    def __init__(self, targets: Targets, seen: list[Array]) -> None:
        self._targets, self._seen = targets, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._targets, name)

    def learn(self, sums: Words) -> Words:
        self._seen.append(sums.view(np.int64).astype(np.float64).ravel())
        return self._targets.learn(sums)


@dataclass
class WatchedProgram(StrongProgram):
    """One party of the strong mode, watched."""

    seen: list[Array] = field(default_factory=list)
    """For every step, the sums (own,) that were opened to the party."""

    def member(self, link: Link, notify: Observer) -> Any:
        member = super().member(link, notify)
        if self.values is not None:
            member.targets = WatchedTargets(member.targets, self.seen)
        return member


def prepared_columns(
    method: VFedCD, data: CausalData, parties: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Array], list[str], int]:
    """Each party's columns as a fit prepares them, their names party by party, and how many rows train."""
    none = np.zeros((len(data.names),) * 2, dtype=bool)
    rows, _, _ = method._prepared(method.settings(), data.values, data.names, none, none, data.nominal)
    table = np.concatenate([rows.train, rows.held_out])
    at = {party: [rows.names.index(name) for name in own if name in rows.names] for party, own in parties.items()}
    names = [rows.names[position] for positions in at.values() for position in positions]
    return {party: table[:, positions] for party, positions in at.items() if positions}, names, len(rows.train)


def train_mpc(
    columns: Mapping[str, Array], names: Sequence[str], settings: Settings, train_rows: int, seed: int
) -> dict[str, WatchedProgram]:
    """Fit on replicated shares with every party a program; gives the programs with what they saw."""
    settings = settings.model_copy(update={"strong": settings.strong or "replicated"})
    plan = strong_plan(columns, names, settings, train_rows, seed)
    allowed, required = ~np.eye(plan.d, dtype=bool), np.zeros((plan.d, plan.d), dtype=bool)
    programs = {name: WatchedProgram(plan, name, values, allowed, required, seed) for name, values in columns.items()}
    validator = StrongProgram(plan, VALIDATOR, None, allowed, required, seed)
    Launch("threads", 600.0, cpu_threads=dict.fromkeys((*programs, VALIDATOR), 1)).run(
        {**programs, VALIDATOR: validator}, lambda event: None
    )
    return programs


def mpc_views(programs: Mapping[str, WatchedProgram], known_rows: int, seed: int) -> list[ViewWithTruth]:
    """Every party against all others: each row has the numbers of its batch."""
    return [_mpc_view(programs, name, known_rows, seed) for name in programs]


def _mpc_view(programs: Mapping[str, WatchedProgram], name: str, known_rows: int, seed: int) -> ViewWithTruth:
    plan = programs[name].plan
    victims = plan.peers(name)
    rows = np.concatenate(plan.batches)
    truth = np.concatenate([_values(programs[victim])[rows] for victim in victims], axis=1)
    epochs = _by_epoch(plan, programs[name].seen)
    moments = np.unique(np.linspace(0, len(epochs) - 1, MOMENTS).round().astype(int))
    rng = np.random.default_rng(derive(seed, "discovery audit", "strong", name))
    known = np.sort(rng.choice(len(rows), min(known_rows, len(rows)), replace=False))
    view = ColumnView(
        grants=Grant.KNOWN_ROWS,
        columns=truth.shape[1],
        own=_values(programs[name])[rows],
        last=epochs[-1][..., None],
        mean=epochs[len(epochs) // 2 :].mean(0)[..., None],
        history=epochs[moments],
        rng=rng,
        known=(known, truth[known]),
    )
    held_out = np.concatenate([_values(programs[victim])[plan.train_rows :] for victim in victims], axis=1)
    return ViewWithTruth((name,), victims, view, truth, held_out)


def _by_epoch(plan: Plan, seen: Sequence[Array]) -> Array:
    """(epochs, rows, own): the sums of each row's batch."""
    steps = len(plan.batches)
    epochs = np.zeros((len(seen) // steps, steps, len(seen[0])))
    for epoch in range(len(epochs)):
        for number, (batch, _) in enumerate(plan.order(epoch)):
            epochs[epoch, batch] = seen[epoch * steps + number]
    return np.repeat(epochs, len(plan.batches[0]), axis=1)


def _values(program: WatchedProgram) -> Array:
    assert program.values is not None
    return program.values
