"""The norm attack on a binary task with a rare class (Li et al. 2022, "Label leakage and protection in two-party split
learning"): a model that expects the common class errs most on the rare one, and a larger error is a longer gradient.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from veracausa.attacks import label_attacks
from veracausa.attacks.labels import LabelAttack, LabelGuess, PassiveView, best_cut, best_naming
from veracausa.errors import InputError
from veracausa.registry import Options


class GradientNormOptions(Options):
    rare: int = Field(1, ge=0, le=1)
    """The class that is rare, which is common knowledge in most tasks; known labels overrule it."""


@label_attacks.register("gradient_norm", GradientNormOptions)
class GradientNorm(LabelAttack):
    """Rows whose gradients are long belong to the rare one of two classes."""

    reads_gradients = True
    options: GradientNormOptions

    def begin(self, view: PassiveView) -> None:
        super().begin(view)
        if view.classes != 2:
            raise InputError(f"label attack 'gradient_norm' tells 2 classes apart, not {view.classes}")
        self.length = mean_length(view)
        seen = ~self.length.isnan()
        self.cut = best_cut(self.length[seen])
        self.long = self.options.rare
        if view.known is not None:
            ids, labels = view.known
            there = ids < len(self.length)
            ids, labels = ids[there], labels[there]
            ids, labels = ids[seen[ids]], labels[seen[ids]]
            if len(ids):
                self.long = int(best_naming((self.length[ids] > self.cut).long(), labels, 2)[1])

    def infer(self, ids: Tensor) -> LabelGuess:
        """The rare class for long gradients; a row that never had one counts as common."""
        ids = ids.cpu()
        inside = ids < len(self.length)
        length = torch.full((len(ids),), torch.nan, dtype=self.length.dtype)
        length[inside] = self.length[ids[inside]]
        length = length.nan_to_num(self._shortest)
        classes = torch.where(length > self.cut, self.long, 1 - self.long)
        return LabelGuess(classes, score=length if self.long == 1 else -length)

    def notes(self) -> Mapping[str, float]:
        seen = self.length[~self.length.isnan()]
        return {"cut": self.cut, "long_share": float((seen > self.cut).float().mean()), "rows": float(len(seen))}

    @property
    def _shortest(self) -> float:
        seen = self.length[~self.length.isnan()]
        return float(seen.min()) if len(seen) else 0.0


def mean_length(view: PassiveView) -> Tensor:
    """By position, the mean length of all gradients of a row; NaN: never seen.

    Not relative to the exchange: early ones, where gradients are long, tell the classes apart best and so count most.
    """
    total, count = torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
    for part in view.gradients:
        if not len(part.ids):
            continue
        if (longer := int(part.ids.max()) + 1 - len(total)) > 0:
            total, count = (torch.cat([values, values.new_zeros(longer)]) for values in (total, count))
        total.index_add_(0, part.ids, part.norm.double())
        count.index_add_(0, part.ids, torch.ones(len(part.ids), dtype=torch.float64))
    return total / count
