"""A blind training as its audit sees it: every party's columns of any rows, the head, the sums, and what is opened.

No party holds all this. The audit does, to play any of them and to score what it read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from veracausa import seeding
from veracausa.arrays import Array, Mask
from veracausa.attacks.blind import Release
from veracausa.config import Job
from veracausa.crypto import ring
from veracausa.crypto.moments.account import MomentAccount
from veracausa.data.vertical import PartyData, Split, VerticalDataset
from veracausa.errors import InputError
from veracausa.runs.folder import Run
from veracausa.training.blind.active import BlindActive
from veracausa.training.blind.active_block import ActiveBlock
from veracausa.training.blind.answers import SCORE_BITS, dither
from veracausa.training.blind.book import row_names
from veracausa.training.blind.head import BlindHead
from veracausa.training.blind.label_columns import LabelColumns
from veracausa.training.blind.party import BlindParty
from veracausa.training.blind.passive import BlindPassive
from veracausa.training.blind.rows import OwnColumns, row_contents, shortened
from veracausa.training.checkpoints import saved_model
from veracausa.training.split.program import Schema

MOST_TRAINING_ROWS = 20_000
"""Training rows in the audit's sums. Of more, sums over fewer rows tell more, so the audit errs on the safe side."""
_ROWS_AT_ONCE = 2048


@dataclass(frozen=True)
class BlindSample:
    """Positions in the agreed alignment, of people whom every passive party holds; no auxiliary row is a target."""

    auxiliary: Tensor
    """In the test split."""
    predicted: Tensor
    """In the test split."""
    trained: Tensor
    """In the training split."""


@dataclass(frozen=True)
class BlindSystem:
    """All parties of one finished blind training."""

    job: Job
    dataset: VerticalDataset
    columns: Mapping[str, OwnColumns]
    """Of the parties that hold features."""
    head: BlindHead
    keys: Mapping[str, bytes]
    """What each passive party's dither follows from."""
    blurs: Mapping[str, bytes]
    """What each dither follows from beside that: the head as its party knows it."""

    @classmethod
    def of_run(cls, run: Run, dataset: VerticalDataset) -> BlindSystem:
        """The parties as the run's folder keeps them."""
        job, schema = run.job, Schema.of(dataset)
        columns: dict[str, OwnColumns] = {}
        keys: dict[str, bytes] = {}
        blurs: dict[str, bytes] = {}
        head = None
        for name, data in dataset.parties.items():
            party: BlindParty = (BlindActive if name == dataset.active else BlindPassive)(job, data, schema)
            model = saved_model(run, name)
            party.load_model(model)
            if party.columns is not None:
                columns[name] = party.columns
            if isinstance(party, BlindActive):
                head = party.head
            else:
                keys[name] = party.lasting_key("answers")
                assert isinstance(party, BlindPassive)
                assert party.head is not None
                blurs[name] = party.head.blur_name(party.secret)
        if head is None:
            raise InputError(f"{run.path}: the active party's head is not there; audit where all parties ran")
        return cls(job, dataset, columns, head, keys, blurs)

    def at_step(self, step: float) -> BlindSystem:
        """The same parties with a dither of another width; rows that were mapped stay mapped."""
        blind = self.job.blind.model_copy(update={"step": step})
        found = replace(self, job=self.job.model_copy(update={"blind": blind}))
        found._kept.update(self._kept)
        return found

    # --- who and what

    @property
    def active(self) -> PartyData:
        return self.dataset.parties[self.dataset.active]

    @property
    def passive(self) -> list[str]:
        return [name for name in self.job.parties.passive if name in self.columns]

    @property
    def classes(self) -> int:
        return len(self.dataset.classes) if self.dataset.task == "classification" else 0

    @property
    def numbers(self) -> int:
        """Opened of a predicted row."""
        return self.head.scores_width

    @property
    def step(self) -> float:
        return self.job.blind.step

    def width(self, party: str) -> int:
        """Features of a party, without its presence column."""
        return len(self.columns[party].scaling.kept)

    def choose(self, auxiliary: int, victims: int) -> BlindSample:
        """Auxiliary rows and targets: of the test rows at least a quarter are targets, the rest are auxiliary."""
        train, test = (self._shuffled(split) for split in ("train", "test"))
        targets = min(victims, max(1, len(test) // 4))
        known = test[targets : targets + auxiliary]
        if len(known) < 10 or len(train) < 2:
            raise InputError(
                f"an audit needs test rows that every party holds, at least 14 of them; there are {len(test)}"
            )
        return BlindSample(known, test[:targets], train[:victims])

    def _shuffled(self, split: Split) -> Tensor:
        count = len(self.active.part(split))
        rng = seeding.generator(self.job.seed, "audit", "victims", split)
        order = torch.randperm(count, generator=rng)
        for name in self.columns:
            order = order[self.dataset.parties[name].part(split).present(order)]
        return order

    # --- rows and columns

    def rows(self, party: str, split: Split, positions: Tensor) -> Tensor:
        return self.dataset.parties[party].part(split).take(positions)

    def labels(self, split: Split, positions: Tensor) -> Tensor:
        labels = self.active.part(split).labels
        assert labels is not None
        return labels[positions]

    def own_rows(self, split: Split, positions: Tensor) -> Tensor | None:
        """What the active party holds of these people; None where it holds labels alone."""
        if self.active.name not in self.columns:
            return None
        return self.rows(self.active.name, split, positions).flatten(1)

    def features(self, party: str, split: Split, positions: Tensor) -> Tensor:
        """(n, width), as in the sums or in answers, without the presence column."""
        return torch.from_numpy(self._mapped(party, split, positions)[:, : self.width(party)].copy())

    def _mapped(self, party: str, split: Split, positions: Tensor) -> Array:
        """(n, width): the party's columns of these rows, each mapped once."""
        own, count = self.columns[party], len(self.dataset.parties[party].part(split))
        if (party, split) not in self._kept:
            self._kept[party, split] = (np.zeros((count, own.width)), np.zeros(count, dtype=bool))
        values, there = self._kept[party, split]
        missing = positions[torch.from_numpy(~there[positions.numpy()])]
        for some in torch.split(missing, _ROWS_AT_ONCE) if len(missing) else ():
            values[some.numpy()] = own.of(self.rows(party, split, some))
            there[some.numpy()] = True
        return np.asarray(values[positions.numpy()])

    @cached_property
    def _kept(self) -> dict[tuple[str, Split], tuple[Array, Mask]]:
        return {}

    @cached_property
    def targets(self) -> LabelColumns:
        return LabelColumns.of(self.job, self.active, Schema.of(self.dataset))

    @cached_property
    def left_out(self) -> Mask | None:
        """Training rows that the active party puts zeros for, since its own columns single some of them out."""
        party = BlindActive(self.job, self.active, Schema.of(self.dataset))
        own = self.columns.get(self.active.name)
        clip = None if self.job.blind.epsilon is None else self.clip
        block = ActiveBlock(self.job, self.active.train, own, self.targets, clip)
        return block.without_heavy_rows(party.lasting_key("left out")).left_out

    def own_block(self, split: Split, positions: Tensor) -> Tensor:
        """(n, columns): the active party's part of these people's rows in the sums: features, constant, labels.

        Where rows are left out, a column of ones stands before them. It is not sent, but the others' features are
        centred over all rows, so its sums are known.
        """
        parts = [np.ones((len(positions), 1))]
        labels = self.labels(split, positions)
        if self.classes:
            parts.append(np.eye(self.classes)[labels.numpy()])
        else:
            mean, spread = self.targets.scale
            parts.append((labels.double().numpy()[:, None] - mean) / spread)
        if self.active.name in self.columns:
            parts.insert(0, self.features(self.active.name, split, positions).numpy())
        whole = np.concatenate(parts, axis=1)
        if self.left_out is not None:
            zeros = self.left_out[positions.numpy()] if split == "train" else np.zeros(len(whole), dtype=bool)
            whole = np.concatenate([np.ones((len(whole), 1)), np.where(zeros[:, None], 0.0, whole)], axis=1)
        return torch.from_numpy(whole)

    # --- the sums

    @cached_property
    def training(self) -> Tensor:
        """The training rows in the audit's sums."""
        return self._shuffled("train")[:MOST_TRAINING_ROWS]

    def release_of(self, victim: str, own: Tensor, features: Tensor, noise: float = 0.0) -> Release:
        """The sums of these people as the active party would hold them, of its own columns and one party's."""
        whole = torch.cat([own, features], 1).numpy()
        gram = whole.T @ whole
        if noise:
            seed = seeding.derive(self.job.seed, "audit", "noise", victim)
            gram = gram + outside_noise(len(gram), own.shape[1], noise, seed)
        labels = max(1, self.classes)
        ends = own.shape[1]
        return Release(
            gram, len(whole), slice(0, ends - labels), slice(ends - labels, ends), slice(ends, whole.shape[1]), noise
        )

    @property
    def noise(self) -> float:
        """The standard deviation of an entry of the sums as run; 0 without `blind.epsilon`."""
        epsilon = self.job.blind.epsilon
        return 0.0 if epsilon is None else self.noise_at(epsilon)

    @property
    def clip(self) -> float:
        """The norm that rows are cut to where noise is added."""
        kept = [own.clip for own in self.columns.values() if own.clip is not None]
        widths = [own.width for own in self.columns.values()]
        return kept[0] if kept else self.job.blind.clip or max(2.0, 0.5 * math.sqrt(max(widths)))

    def noise_at(self, epsilon: float) -> float:
        """What it would be at this ε, at the run's δ and clip."""
        account = MomentAccount.planned(epsilon, self.job.blind.delta, self.clip, len(self.passive), True)
        return account.deviation

    def clipped(self, features: Tensor) -> Tensor:
        return torch.from_numpy(shortened(features.numpy(), self.clip, fixed=0))

    # --- answers

    def part(self, party: str, split: Split, positions: Tensor, weights: Array | None = None) -> Tensor:
        """(n, numbers): one party's part of the scores, by its head or by other weights, without dither."""
        own = self._mapped(party, split, positions)
        used = self.head.weights[party] if weights is None else weights
        if len(used) < own.shape[1]:  # other weights are of features alone
            own = own[:, : len(used)]
        return torch.from_numpy(own @ used)

    def dithered(
        self, party: str, split: Split, positions: Tensor, step: float | None = None, head: bytes | None = None
    ) -> Tensor:
        """(n, numbers): the permanent dither of these rows, for the run's head or for another one."""
        part = self.dataset.parties[party].part(split)
        ids = None if part.ids is None else [part.ids[at] for at in positions.tolist()]
        _, drawn = row_names(ids, row_contents(self.rows(party, split, positions)))
        width = self.step if step is None else step
        found = dither(self.keys[party], head or self.blurs[party], drawn, self.numbers, width)
        return torch.from_numpy(ring.centred(found).T / 2.0**SCORE_BITS)

    def opened(
        self, split: Split, positions: Tensor, parties: Sequence[str] | None = None, step: float | None = None
    ) -> Tensor:
        """(n, numbers): the sum of these passive parties' answers, or of all, as the active party opens it."""
        total = torch.zeros(len(positions), self.numbers, dtype=torch.float64)
        for party in parties or self.passive:
            total += self.part(party, split, positions) + self.dithered(party, split, positions, step)
        return total


def outside_noise(size: int, own: int, deviation: float, seed: int) -> Array:
    """(size, size) Gaussian noise, symmetric; none on the first `own` columns' own block, which the receiver knows."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.standard_normal((size, size)) * deviation)
    noise = upper + np.triu(upper, 1).T
    noise[:own, :own] = 0.0
    return np.asarray(noise)
