"""From what the parties of a discovery saw to the views of attackers: one party, or all but one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.attacks.columns.base import Candidates, ColumnGrant, Opened, View
from veracausa.audit.discovery.recorder import DiscoveryRecorder, DiscoveryRecording
from veracausa.crypto import ring
from veracausa.crypto.fixed_point import WEIGHT_BITS, decode
from veracausa.crypto.ring import Ring
from veracausa.crypto.shares import FORWARD_BITS, NORM_BITS
from veracausa.seeding import derive


@dataclass(frozen=True)
class DiscoveryViews:
    """One attacker, what it saw, and the truth that only the score is told."""

    attackers: tuple[str, ...]
    victims: tuple[str, ...]
    view: View
    truth: Array
    """(n, columns) of the training rows."""
    kept_apart: Array
    """(rows, columns) of the rows kept apart."""

    @property
    def together(self) -> bool:
        """Whether parties collude."""
        return len(self.attackers) > 1


def single(recording: DiscoveryRecording, known_rows: int, seed: int) -> list[DiscoveryViews]:
    """Every party against each other one, or, where only sums are opened, against all others at once."""
    scenes = []
    for name, recorder in recording.parties.items():
        peers = recorder.plan.peers(name)
        groups = [(peer,) for peer in peers] if recorder.apart else [peers]
        scenes += [_scene(recording, name, group, at, known_rows, seed) for at, group in enumerate(groups)]
    return scenes


def all_but_one(recording: DiscoveryRecording, known_rows: int, seed: int) -> list[DiscoveryViews]:
    """All other parties together against each one. They know each other's parts of a sum, and take them off.

    That needs a recording in which parts were opened one by one: it shows what is left after taking them off.
    """
    parties = tuple(recording.parties)
    scenes = []
    for victim in parties:
        others = [name for name in parties if name != victim]
        alone = [
            _scene(recording, name, (victim,), recording.parties[name].plan.peers(name).index(victim), known_rows, seed)
            for name in others
        ]
        scenes.append(_joined(alone))
    return scenes


def _scene(
    recording: DiscoveryRecording, name: str, victims: Sequence[str], at: int, known_rows: int, seed: int
) -> DiscoveryViews:
    recorder = recording.parties[name]
    plan = recorder.plan
    foreign = np.concatenate([np.arange(plan.d)[plan.own(victim)] for victim in victims])
    truth = np.concatenate([recording.parties[victim].truth for victim in victims], axis=1)
    kept_apart = np.concatenate([recording.parties[victim].kept_apart for victim in victims], axis=1)
    shape = (len(truth), -1, plan.numbers)
    rng = np.random.default_rng(derive(seed, "discovery audit", name, *victims))
    rows = np.sort(rng.choice(len(truth), min(known_rows, len(truth)), replace=False))
    first = _first(recording, recorder, victims, foreign, at)
    grants = ColumnGrant.KNOWN_ROWS | ColumnGrant.FIRST_WEIGHTS | ColumnGrant.VALIDATOR
    view = View(
        grants=grants,
        columns=len(foreign),
        own=recorder.truth,
        last=recorder.last[at].reshape(shape),
        mean=recorder.mean[at].reshape(shape),
        history=np.stack([moment[at] for moment in recorder.history]).astype(np.float64),
        rng=rng,
        strengths=_of(recorder.strengths, foreign),
        mean_strengths=_of(recorder.mean_strengths, foreign),
        candidates=_candidates(recorder, foreign, at),
        known=(rows, truth[rows]),
        first=first,
        looked=None if first is None else _looked(recording, recorder, victims, first[1]),
    )
    return DiscoveryViews((name,), tuple(victims), view, truth, kept_apart)


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
    recording: DiscoveryRecording,
    recorder: DiscoveryRecorder,
    victims: Sequence[str],
    foreign: NDArray[np.int64],
    at: int,
) -> tuple[Array, tuple[Opened, ...]] | None:
    if any(step.steps is None for step in recorder.first):
        return None
    out = {victim: recording.parties[victim].first_out for victim in victims}
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
    recording: DiscoveryRecording, recorder: DiscoveryRecorder, victims: Sequence[str], steps: tuple[Opened, ...]
) -> tuple[Array, tuple[Opened, ...]] | None:
    """What the validator of mode M1 saw at its first look, the factors it gave laid on, and the batches after that."""
    if recorder.plan.validator != "M1" or recorder.first_look is None:
        return None
    after, into, _ = recorder.first_look
    out = {victim: look[2] for victim in victims if (look := recording.parties[victim].first_look)}
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


def _joined(scenes: Sequence[DiscoveryViews]) -> DiscoveryViews:
    """Several attackers' views of one victim as one: all their targets side by side."""
    views = [scene.view for scene in scenes]
    first = views[0]
    candidates = [view.candidates for view in views if view.candidates is not None]
    moments = np.concatenate([view.history for view in views], axis=2)
    view = replace(
        first,
        grants=first.grants | ColumnGrant.OTHER_PARTIES,
        own=np.concatenate([view.own for view in views], axis=1),
        last=np.concatenate([view.last for view in views], axis=1),
        mean=np.concatenate([view.mean for view in views], axis=1),
        history=moments,
        strengths=_side_by_side([view.strengths for view in views]),
        mean_strengths=_side_by_side([view.mean_strengths for view in views]),
        candidates=None
        if len(candidates) < len(views)
        else Candidates(
            np.concatenate([each.graphs for each in candidates], axis=2),
            np.concatenate([each.features for each in candidates], axis=2),
        ),
        first=None,
        looked=None,
    )
    names = tuple(name for scene in scenes for name in scene.attackers)
    return DiscoveryViews(names, scenes[0].victims, view, scenes[0].truth, scenes[0].kept_apart)


def _side_by_side(strengths: Sequence[Array | None]) -> Array | None:
    known = [each for each in strengths if each is not None]
    return np.concatenate(known, axis=1) if len(known) == len(strengths) else None
