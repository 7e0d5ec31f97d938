"""The situations in which attacks on blind training are tried: as the job ran, and with one protection off or broken.

A situation makes a view of some targets. `as_run` says that the attacker needs to break nothing of the job as it ran.
`off` says that the protection in question is off: an attack that fails there proves nothing elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from veracausa import seeding
from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindView, Release, Surface
from veracausa.audit.blind_system import BlindSample, BlindSystem, outside_noise
from veracausa.data.vertical import Split
from veracausa.errors import InputError

GRANTED = (
    Grant.AUXILIARY
    | Grant.LABELLED_AUXILIARY
    | Grant.LABELS
    | Grant.WEIGHTS
    | Grant.QUERIES
    | Grant.TAMPER
    | Grant.KNOWN_ROWS
    | Grant.SECOND_HEAD
    | Grant.SECOND_RELEASE
)
COARSE = 0.5
"""A wide dither, as a share of the scores' spread: narrow ones hide nothing that could be averaged back."""
LOUD = 1000.0
"""How much larger than agreed a malicious party makes its columns: nobody sees what it encrypts."""
FEW_TARGETS = 200
"""Of attacks on training rows: each has its own release."""


@dataclass(frozen=True)
class Situation:
    """What an attack is shown of some targets, and whether that needs anything to be broken."""

    name: str
    says: str
    view: BlindView
    split: Split
    positions: Tensor
    as_run: bool = False
    off: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the attack that this situation is about."""
    member: Tensor | None = None


class RowSituations:
    """What the active party sees of one passive party's rows, at prediction and in the sums."""

    def __init__(self, system: BlindSystem, sample: BlindSample, victim: str) -> None:
        self.system, self.sample, self.victim = system, sample, victim
        self.data = system.dataset.parties[victim]
        self.makers: dict[str, Callable[[], Situation]] = {
            "summed scores": self._summed,
            "one part": self._part,
            "features opened": self._features_opened,
            "chosen head": self._chosen_head,
            "chosen head, coarse": lambda: self._chosen_head(COARSE),
            "many chosen heads": self._many_heads,
            "second head": self._second_head,
            "asked again": lambda: self._asked_again("asked again", None, False),
            "coarse, permanent": lambda: self._asked_again("coarse, permanent", COARSE, False),
            "coarse, fresh noise": lambda: self._asked_again("coarse, fresh noise", COARSE, True),
            "sums": self._sums,
            "a row less": lambda: self._row_less("a row less"),
            "a row less, scaled again": lambda: self._row_less("a row less, scaled again", scaled=True),
            "a row less, epsilon = 1": lambda: self._row_less("a row less, epsilon = 1", 1.0),
            "class of 1": lambda: self._class("class of 1", 1),
            "class of 5": lambda: self._class("class of 5", 5),
            "smallest class": lambda: self._class("smallest class", system.job.blind.min_rows),
            "class of 5, epsilon = 1": lambda: self._class("class of 5, epsilon = 1", 5, 1.0),
            "columns unchecked": lambda: self._columns("columns unchecked", 1),
            "columns checked": lambda: self._columns("columns checked", system.job.blind.min_rows),
            "columns, epsilon = 1": lambda: self._columns("columns, epsilon = 1", 1, 1.0),
            "loud columns, epsilon = 1": lambda: self._columns("loud columns, epsilon = 1", 1, 1.0, LOUD),
            "member by scores": self._member_by_scores,
            "member by sums": lambda: self._member_by_sums("member by sums", self.system.noise),
            "member by sums, epsilon = 1": lambda: self._member_by_sums(
                "member by sums, epsilon = 1", self.system.noise_at(1.0)
            ),
        }

    def names(self, surface: Surface) -> tuple[str, ...]:
        """What an attack is tried in that names no situation itself."""
        by_surface: dict[Surface, tuple[str, ...]] = {
            "predicted rows": ("summed scores", "one part", "features opened"),
            "training rows": ("sums",),
            "membership": ("member by scores", "member by sums"),
        }
        return by_surface.get(surface, ())

    @property
    def as_run(self) -> frozenset[str]:
        """The situations for which an attacker needs to break nothing of the job as it ran."""
        system = self.system
        alone = len(system.passive) == 1
        names = {"one part", "asked again"} if alone else {"summed scores"}
        names |= {"member by sums, epsilon = 1"} if system.noise and system.noise == system.noise_at(1.0) else set()
        return frozenset(names | {"sums", "member by scores", "member by sums"})

    # --- shared parts

    @cached_property
    def _auxiliary_features(self) -> Tensor:
        return self.system.features(self.victim, "test", self.sample.auxiliary)

    @cached_property
    def _training_features(self) -> Tensor:
        return self.system.features(self.victim, "train", self.system.training)

    @cached_property
    def _training_own(self) -> Tensor:
        return self.system.own_block("train", self.system.training)

    def _view(self, split: Split, targets: Tensor, **more: Any) -> BlindView:
        """What every view of the active party has, and more."""
        system, auxiliary = self.system, self.sample.auxiliary
        # One generator for all situations: an attacker has the same luck in each.
        rng = seeding.generator(system.job.seed, "audit", "blind", self.victim)
        own = system.own_rows(split, targets)
        if own is not None:
            more |= {"own": own, "own_auxiliary": system.own_rows("test", auxiliary)}
        return BlindView(
            grants=GRANTED,
            seat=system.dataset.active,
            victim=self.victim,
            row_shape=self.data.shape,
            pixels=len(self.data.shape) == 3,
            classes=system.classes,
            numbers=system.numbers,
            rng=rng,
            labels=system.labels(split, targets),
            auxiliary=system.rows(self.victim, "test", auxiliary),
            auxiliary_labels=system.labels("test", auxiliary),
            auxiliary_features=self._auxiliary_features,
            **more,
        )

    # --- prediction

    def _scored(self, parties: list[str] | None) -> dict[str, Tensor]:
        system = self.system
        return {
            "scores": system.opened("test", self.sample.predicted, parties),
            "auxiliary_scores": system.opened("test", self.sample.auxiliary, parties),
        }

    def _summed(self) -> Situation:
        several = len(self.system.passive) > 1
        says = "scores as opened, the sum over all passive parties"
        view = self._view("test", self.sample.predicted, **self._scored(None))
        return Situation("summed scores", says, view, "test", self.sample.predicted, as_run=several)

    def _part(self) -> Situation:
        alone = len(self.system.passive) == 1
        says = "this party's part of the scores alone" + (", which is what is opened here" if alone else "")
        view = self._view("test", self.sample.predicted, **self._scored([self.victim]))
        return Situation("one part", says, view, "test", self.sample.predicted, as_run=alone)

    def _features_opened(self) -> Situation:
        """What sending the features themselves would have told."""
        features = self.system.features(self.victim, "test", self.sample.predicted)
        view = self._view(
            "test", self.sample.predicted, scores=features, auxiliary_scores=self._auxiliary_features.clone()
        )
        says = f"no head: all {features.shape[1]} features of a row opened in place of its scores"
        return Situation("features opened", says, view, "test", self.sample.predicted, off=True)

    def _asking(self, heads: int, step: float) -> dict[str, Any]:
        """Answers to heads of the attacker's making; the others get weights of zero, so a sum is this part alone."""
        system, asked = self.system, [0]
        rng = np.random.default_rng(seeding.derive(system.job.seed, "audit", "dither"))
        known = self._auxiliary_features.numpy()
        targets = system.features(self.victim, "test", self.sample.predicted).numpy()

        def opened(features: Any, weights: Tensor) -> Tensor:
            scores = features @ weights.numpy()
            # Each passive party adds its dither, whatever its weights are.
            noise = rng.uniform(-step / 2, step / 2, (len(system.passive), *scores.shape)).sum(0)
            return torch.from_numpy(scores + noise)

        def ask(weights: Tensor) -> Tensor:
            if asked[0] >= heads:
                raise InputError("the party has answered for these rows with another head")
            asked[0] += 1
            return opened(targets, weights)

        return {"ask": ask, "ask_auxiliary": lambda weights: opened(known, weights)}

    def _chosen_head(self, coarse: float | None = None) -> Situation:
        # Chosen weights give scores of spread one.
        step = self.system.step if coarse is None else coarse
        view = self._view("test", self.sample.predicted, **self._asking(1, step))
        name = "chosen head" if coarse is None else "chosen head, coarse"
        says = f"one head of the attacker's making, answers dithered by {step:g} (chosen scores have spread 1)"
        return Situation(name, says, view, "test", self.sample.predicted)

    def _many_heads(self) -> Situation:
        heads = max(2, math.ceil(self.system.width(self.victim) / self.system.numbers))
        view = self._view("test", self.sample.predicted, **self._asking(heads, self.system.step))
        says = f"{heads} heads of the attacker's making answered for the same rows: the book of answers is off"
        name = "many chosen heads"
        return Situation(name, says, view, "test", self.sample.predicted, off=True, settings={"heads": heads})

    def _second_head(self) -> Situation:
        """An honest second head: the same labels, trained on a half of the rows."""
        system = self.system
        second = self._other_head()

        def under(split: Split, positions: Tensor) -> Tensor:
            scores = system.part(self.victim, split, positions, second)
            return scores + system.dithered(self.victim, split, positions, head=b"second")

        parties = [self.victim]
        view = self._view(
            "test",
            self.sample.predicted,
            **self._scored(parties),
            second_scores=under("test", self.sample.predicted),
            auxiliary_second_scores=under("test", self.sample.auxiliary),
        )
        says = "this party's part under two heads, the second trained on half of the rows"
        return Situation("second head", says, view, "test", self.sample.predicted, off=True)

    def _other_head(self) -> Any:
        half = slice(0, len(self.system.training) // 2)
        features, own = self._training_features[half].numpy(), self._training_own[half].numpy()
        labels = own[:, -max(1, self.system.classes) :]
        gram = features.T @ features + 1e-3 * len(features) * np.eye(features.shape[1])
        weights = np.linalg.solve(gram, features.T @ (labels - labels.mean(0)))
        return weights[:, : self.system.numbers]

    def _asked_again(self, name: str, coarse: float | None, fresh: bool) -> Situation:
        system = self.system
        parties = [self.victim]
        exact = system.part(self.victim, "test", self.sample.predicted)
        known = system.part(self.victim, "test", self.sample.auxiliary)
        step = system.step if coarse is None else coarse * float(known.std(0).mean()) * math.sqrt(12)
        rng = np.random.default_rng(seeding.derive(system.job.seed, "audit", "fresh noise"))

        def noise(shape: torch.Size) -> Tensor:
            return torch.from_numpy(rng.uniform(-step / 2, step / 2, tuple(shape)))

        once = exact + (noise(exact.shape) if coarse else system.dithered(self.victim, "test", self.sample.predicted))
        learnt = known if fresh else known + noise(known.shape)
        view = self._view(
            "test",
            self.sample.predicted,
            scores=once,
            auxiliary_scores=learnt,
            repeat=(lambda: exact + noise(exact.shape)) if fresh else (lambda: once),
        )
        how = "drawn anew for each answer" if fresh else "permanent: a row's answer repeats bit for bit"
        says = f"the same rows asked for again and again, dither {step:.2g} wide, {how}"
        as_run = not fresh and coarse is None and system.passive == parties
        return Situation(name, says, view, "test", self.sample.predicted, as_run=as_run, off=fresh)

    # --- sums

    def _sums(self) -> Situation:
        system, positions = self.system, self.sample.trained
        view = self._view(
            "train",
            positions,
            release=system.release_of(self.victim, self._training_own, self._training_features, system.noise),
            own_moments=system.own_block("train", positions),
            own_auxiliary_moments=system.own_block("test", self.sample.auxiliary),
        )
        says = f"the sums over {len(system.training):,} training rows, as released"
        return Situation("sums", says, view, "train", positions, as_run=True)

    def _row_less(self, name: str, epsilon: float | None = None, scaled: bool = False) -> Situation:
        system, positions = self.system, self.sample.trained[:FEW_TARGETS]
        noise = system.noise if epsilon is None else system.noise_at(epsilon)
        features, own = self._training_features, self._training_own
        targets, mine = system.features(self.victim, "train", positions), system.own_block("train", positions)
        if noise:
            features, targets = system.clipped(features), system.clipped(targets)
        base = system.release_of(self.victim, own, features)

        def releases(target: int) -> tuple[Release, Release]:
            row = torch.cat([mine[target], targets[target]]).numpy()
            rest = _rescaled(base, row) if scaled else base.gram - np.outer(row, row)
            pair = [base.gram, rest]
            if noise:
                seeds = [seeding.derive(system.job.seed, "audit", name, target, number) for number in (0, 1)]
                own_end = base.victim.start
                pair = [
                    gram + outside_noise(len(gram), own_end, noise, seed)
                    for gram, seed in zip(pair, seeds, strict=True)
                ]
            first, second = (
                Release(gram, base.rows - number, base.own, base.labels, base.victim, noise)
                for number, gram in enumerate(pair)
            )
            return first, second

        view = self._view("train", positions, releases=releases, own_moments=mine)
        says = "two releases that differ by one row" + (", features centred and scaled anew" if scaled else "")
        says += f", noise {noise:.3g} on every sum" if noise else ", no noise"
        return Situation(name, says, view, "train", positions, off=not scaled and not noise)

    def _class(self, name: str, size: int, epsilon: float | None = None) -> Situation:
        """Targets put into classes of so many rows, as if the job had such classes."""
        system = self.system
        noise = system.noise if epsilon is None else system.noise_at(epsilon)
        count = max(size, min(FEW_TARGETS, len(self.sample.trained)) // size * size)
        positions = self.sample.trained[:count]
        if len(positions) < size:
            raise InputError(f"there are {len(positions)} training rows to make a class of {size}")
        features = system.features(self.victim, "train", positions)
        features = system.clipped(features) if noise else features
        groups = torch.arange(count) // size
        hot = torch.nn.functional.one_hot(groups, int(groups.max()) + 1).double().numpy()
        whole = np.concatenate([np.ones((count, 1)), hot, features.numpy()], axis=1)
        gram, ends = whole.T @ whole, 1 + hot.shape[1]
        labels, victim = slice(1, ends), slice(ends, whole.shape[1])
        if noise:
            gram = gram + outside_noise(len(gram), ends, noise, seeding.derive(system.job.seed, "audit", name, size))
        release = Release(gram, len(system.training), slice(0, 1), labels, victim, noise)
        view = self._view("train", positions, release=release, small=groups)
        says = f"the sums of classes of {size} rows" + (f", noise {noise:.3g} on every sum" if noise else "")
        return Situation(name, says, view, "train", positions, off=size == 1)

    def _columns(self, name: str, smallest: int, epsilon: float | None = None, amplitude: float = 1.0) -> Situation:
        system, positions = self.system, self.sample.trained[:FEW_TARGETS]
        noise = system.noise if epsilon is None else system.noise_at(epsilon)
        place = {int(position): number for number, position in enumerate(system.training.tolist())}
        positions = torch.tensor([at for at in positions.tolist() if at in place])
        features = system.clipped(self._training_features) if noise else self._training_features
        rng = np.random.default_rng(seeding.derive(system.job.seed, "audit", name))

        def cross_moments(columns: Tensor) -> Tensor:
            if ((columns != 0).sum(0) < smallest).any():
                raise InputError(f"a column is supported by fewer than {smallest} rows")
            sums = (columns.T @ features).numpy()
            return torch.from_numpy(sums + noise * rng.standard_normal(sums.shape))

        view = self._view(
            "train",
            positions,
            cross_moments=cross_moments,
            positions=torch.tensor([place[at] for at in positions.tolist()]),
            training_rows=len(features),
            smallest=smallest,
            release=Release(np.zeros((0, 0)), len(features), slice(0), slice(0), slice(0), noise),
        )
        says = "indicator columns of single rows among the attacker's own"
        says = f"columns of {smallest} rows or more, pairs of which differ by one row" if smallest > 1 else says
        says += f", noise {noise:.3g} on every sum" if noise else ""
        says += f", columns {amplitude:g} times as large as agreed" if amplitude != 1 else ""
        settings = {"amplitude": amplitude}
        return Situation(name, says, view, "train", positions, off=smallest == 1 and not noise, settings=settings)

    # --- membership

    def _candidates(self) -> tuple[Tensor, Tensor, Tensor]:
        """As many rows of the training as of the test, in turn, and which of them are members."""
        count = min(len(self.sample.trained), len(self.sample.predicted)) // 2 * 2
        member = torch.arange(2 * count) // 2 % 2 == 0
        return self.sample.trained[:count], self.sample.predicted[:count], member

    def _both(self, of: Callable[[Split, Tensor], Tensor]) -> Tensor:
        trained, others, member = self._candidates()
        first, second = of("train", trained), of("test", others)
        whole = first.new_zeros((len(member), *first.shape[1:]))
        whole[member], whole[~member] = first, second
        return whole

    def _member_by_scores(self) -> Situation:
        system = self.system
        trained, _, member = self._candidates()
        view = self._view("train", trained)
        view = view.replaced(
            labels=self._both(system.labels), own=None, own_auxiliary=None, scores=self._both(self._whole_scores)
        )
        says = "scores of rows that the attacker knows, all parties' parts together, labels known"
        return Situation("member by scores", says, view, "train", trained, as_run=True, member=member)

    def _whole_scores(self, split: Split, positions: Tensor) -> Tensor:
        """Class by class (or the target), as the active party puts them together from what it opened."""
        system = self.system
        scores = system.opened(split, positions).numpy()
        if system.active.name in system.columns:
            scores = scores + system.part(system.active.name, split, positions).numpy()
        outputs = system.head.outputs(scores)
        return outputs.double().softmax(1) if system.classes else outputs.double()

    def _member_by_sums(self, name: str, noise: float) -> Situation:
        system = self.system
        trained, _, member = self._candidates()
        values, of_candidates = (
            self._training_features,
            self._both(lambda split, positions: system.features(self.victim, split, positions)),
        )
        if noise:
            values, of_candidates = system.clipped(values), system.clipped(of_candidates)
        view = self._view("train", trained)
        view = view.replaced(
            labels=self._both(system.labels),
            own=None,
            own_auxiliary=None,
            features=of_candidates,
            release=system.release_of(self.victim, self._training_own, values, noise),
        )
        says = "rows that the attacker knows beside the sums, the victim's feature map granted"
        says += f", noise {noise:.3g} on every sum" if noise else ""
        return Situation(name, says, view, "train", trained, as_run=noise == system.noise, member=member)


def _rescaled(base: Release, row: np.ndarray) -> np.ndarray:
    """The sums without a row, the victim's features centred and scaled anew over the others."""
    gram, rest = base.gram - np.outer(row, row), base.rows - 1
    constant = base.own.stop - 1
    mean = gram[constant, base.victim] / rest
    variance = np.diag(gram)[base.victim] / rest - mean**2
    scale = np.ones(len(gram))
    scale[base.victim] = np.sqrt(np.maximum(variance, 1e-12))
    shift = np.zeros(len(gram))
    shift[base.victim] = mean
    sums = gram[constant]
    gram = gram - np.outer(shift, sums) - np.outer(sums, shift) + rest * np.outer(shift, shift)
    return np.asarray(gram / np.outer(scale, scale))
