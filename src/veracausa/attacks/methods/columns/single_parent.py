"""Single parent: where one attribute of a source enters a target, all its features are copies of that attribute."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from veracausa.attacks import column_attacks
from veracausa.attacks.columns import ColumnAttack, ColumnGuess, ColumnView
from veracausa.registry import Options


class SingleParentOptions(Options):
    share: float = Field(0.99, gt=0.5, le=1)
    """Of the variance that the first direction of a target's features must have to be called a copy."""


@column_attacks.register("single_parent", SingleParentOptions)
class SingleParent(ColumnAttack):
    """Needs nothing but the features: their rank gives the copy away."""

    about = "takes the features of a target that vary in one direction only: a copy of its one cause at that source"
    order, colluding = 5, True
    options: SingleParentOptions

    def guess(self, view: ColumnView) -> ColumnGuess | None:
        copies = []
        for target in range(view.last.shape[1]):
            features = view.last[:, target] - view.last[:, target].mean(0)
            left, singular, _ = np.linalg.svd(features, full_matrices=False)
            if singular[0] ** 2 > self.options.share * np.sum(singular**2) > 0:
                copies.append(left[:, 0])
        return ColumnGuess(np.stack(copies, axis=1)) if copies else None
