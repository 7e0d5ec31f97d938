"""The active party's labels: as columns of the sums, as what is told of them, and as what its own map may learn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.config import Job
from veracausa.data.vertical import Part, PartyData
from veracausa.errors import InputError
from veracausa.features.base import FitLabels
from veracausa.training.blind.labels import Told, randomised_labels, target_bins, two_stage_labels
from veracausa.training.blind.rows import LIMIT, make_map
from veracausa.training.split.program import Schema

CLIPPED_TARGET = 3.0
"""The largest size of a scaled target where noise is added to the sums."""

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class LabelColumns:
    """The labels of the training rows, gone through block by block."""

    job: Job
    part: Part
    schema: Schema
    scale: tuple[float, float]
    """Mean and spread of a quantity; 0 and 1 of classes."""

    @classmethod
    def of(cls, job: Job, data: PartyData, schema: Schema) -> LabelColumns:
        """Refused where a class has so few rows that sums over it tell them."""
        if schema.task == "classification":
            counts = torch.zeros(schema.outputs, dtype=torch.int64)
            for block in data.train.blocks(job.blind.block_rows):
                assert block.labels is not None
                counts += torch.bincount(block.labels, minlength=schema.outputs)
            cls._refuse_small(job, schema, counts)
            return cls(job, data.train, schema, (0.0, 1.0))
        count, mean, squares = 0, 0.0, 0.0
        for block in data.train.blocks(job.blind.block_rows):
            assert block.labels is not None
            values = block.labels.double().numpy()
            delta = values.mean() - mean
            squares += ((values - values.mean()) ** 2).sum() + delta**2 * count * len(values) / (count + len(values))
            mean += delta * len(values) / (count + len(values))
            count += len(values)
        spread = float(np.sqrt(squares / max(count, 1)))
        if not spread > 0:
            raise InputError("all targets of the training rows are the same; there is nothing to predict")
        return cls(job, data.train, schema, (float(mean), spread))

    @staticmethod
    def _refuse_small(job: Job, schema: Schema, counts: torch.Tensor) -> None:
        fewest = int(counts.argmin())
        if int(counts[fewest]) < job.blind.min_rows and job.blind.epsilon is None:
            raise InputError(
                f"class {schema.classes[fewest]!r} has {int(counts[fewest])} training rows, and sums over so few tell "
                f"these rows (blind.min_rows = {job.blind.min_rows}); join it to another class, leave it out, or set "
                "blind.epsilon"
            )

    @property
    def width(self) -> int:
        """Label columns of the sums."""
        return self.schema.outputs

    def blocks(self, rows: int) -> Iterator[Array]:
        """(n, width): a 0/1 column a class, or the target with mean 0 and spread 1."""
        for block in self.part.blocks(rows):
            assert block.labels is not None
            if self.schema.task == "classification":
                yield np.eye(self.width)[block.labels.numpy()]
            else:
                most = CLIPPED_TARGET if self.job.blind.epsilon is not None else LIMIT
                mean, spread = self.scale
                yield np.clip((block.labels.double().numpy()[:, None] - mean) / spread, -most, most)

    def _values(self) -> Any:
        """All labels."""
        values = []
        for block in self.part.blocks(self.job.blind.block_rows):
            assert block.labels is not None
            values.append(block.labels)
        return torch.cat(values).numpy()

    def _ids(self) -> list[str] | list[int]:
        """The ids of the rows, or their positions where the data has none."""
        ids: list[str] = []
        for block in self.part.blocks(self.job.blind.block_rows):
            if block.ids is None:
                return list(range(len(self.part)))
            ids += block.ids
        return ids

    def told(self, key: bytes) -> tuple[Labels, int, Array | None, dict[str, Any]]:
        """What leaves: a label a row, how many classes there are, by which chances they were drawn, and the account."""
        blind = self.job.blind
        values, ids = self._values(), self._ids()
        classes, cost = self.schema.outputs, 0.0
        if self.schema.task == "regression":
            spent = blind.label_epsilon if blind.labels == "private" else None
            bins = target_bins(values, blind.label_bins, spent, key)
            values, classes, cost = bins.of(values), bins.classes, bins.epsilon
        if blind.labels == "shared":
            return values.astype(np.int64), classes, None, {"epsilon": None, "classes": classes, "kept": 1.0}
        epsilon = blind.label_epsilon - cost
        if blind.label_prior:
            drawn = two_stage_labels(values, ids, classes, epsilon, key, _class_shares(len(values)))
        else:
            drawn = randomised_labels(values, ids, classes, epsilon, key)
        account = {**drawn.account.state(), "epsilon": drawn.account.epsilon + cost}
        return drawn.told, classes, drawn.transition, account

    def own_labels(self, key: bytes) -> FitLabels | None:
        """The true labels for the active party's own map, if it can use any; a quantity as bins."""
        own = make_map(self.job, self.job.parties.active)
        if not own.labelled and not own.needs_labels:  # streamed labels stay out of memory
            return None
        values = self._values()
        if self.schema.task == "regression":
            bins = target_bins(values, self.job.blind.label_bins, None, key)
            return FitLabels(torch.from_numpy(bins.of(values)), bins.classes)
        return FitLabels(torch.from_numpy(values.astype(np.int64)), self.schema.outputs)


def _class_shares(rows: int) -> Any:
    """How common each class is among the labels told first, for the second stage; from told labels alone."""

    def learn(first: Mask, told: Told) -> Array:
        classes = told.transition.shape[-1]
        counts = np.bincount(told.told, minlength=classes) / max(1, len(told.told))
        # Unbiased: the told shares are the true ones times the chances.
        shares = np.maximum(np.linalg.solve(told.transition.T, counts), 1e-6)
        return np.tile(shares / shares.sum(), (rows - int(first.sum()), 1))

    return learn
