"""Gradient directions (the cosine attack of Li et al. 2022, and clustering for more classes): rows of one class are
pushed alike, because the gradient of cross-entropy is (p − y) seen through the top model.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from veracausa.attacks import label_attacks
from veracausa.attacks.gradient_record import GradientRecord, spread_passes
from veracausa.attacks.labels import Clusters, LabelAttack, LabelGuess, PassiveView, best_naming, spherical_k_means
from veracausa.errors import InputError
from veracausa.registry import Options


class GradientDirectionOptions(Options):
    passes: int = Field(4, ge=1)
    """Passes over the data to look at, evenly spread from the first to the last; the best separated one counts."""
    restarts: int = Field(32, ge=1)
    iterations: int = Field(50, ge=1)


@label_attacks.register("gradient_direction", GradientDirectionOptions)
class GradientDirection(LabelAttack):
    """Rows whose gradients point the same way have the same label; a few known labels name the groups."""

    reads_gradients = True
    options: GradientDirectionOptions

    def begin(self, view: PassiveView) -> None:
        super().begin(view)
        self.group = torch.empty(0, dtype=torch.int64)
        self.named, self.separation, self.chosen_pass = False, float("-inf"), -1
        # The top model moves: only gradients of one pass are compared with each other.
        numbers = spread_passes(view.gradients.passes(), self.options.passes)
        directions = directions_of(view.gradients, numbers)
        for done, (number, (ids, vectors)) in enumerate(directions.items(), start=1):
            if len(ids) >= view.classes:
                self._try(view, number, ids, vectors.to(view.device))
            view.progress(done / len(directions))
        if self.chosen_pass < 0:
            raise InputError(f"fewer rows than the {view.classes} classes were recorded; record a longer training")
        if view.known is not None:
            self.known = view.known

    known: tuple[Tensor, Tensor] | None = None

    def infer(self, ids: Tensor) -> LabelGuess:
        """The group of each row; one that was not seen in the chosen pass counts to the largest group."""
        ids = ids.cpu()
        largest = int(self.group[self.group >= 0].bincount().argmax())
        found = torch.full((len(ids),), -1, dtype=torch.int64)
        inside = ids < len(self.group)
        found[inside] = self.group[ids[inside]]
        found[found < 0] = largest
        if self.named and self.known is not None:
            names = dict(zip(*(values.tolist() for values in self.known), strict=True))
            found = torch.tensor([names.get(i, group) for i, group in zip(ids.tolist(), found.tolist(), strict=True)])
        return LabelGuess(found, up_to_permutation=not self.named)

    def notes(self) -> Mapping[str, float]:
        return {"separation": self.separation, "pass": float(self.chosen_pass)}

    def _try(self, view: PassiveView, number: int, ids: Tensor, vectors: Tensor) -> None:
        """Group one pass, and keep it if its groups lie further apart than those of the passes before."""
        settings = {"restarts": self.options.restarts, "iterations": self.options.iterations}
        at, labels = _known_rows(view, ids)
        start = _class_means(vectors[at.to(vectors.device)], labels, view.classes)
        clusters: Clusters = spherical_k_means(vectors, view.classes, view.rng, start=start, **settings)
        if clusters.separation <= self.separation:
            return
        group = clusters.group.cpu()
        if start is None and len(at):
            group = best_naming(group[at], labels, view.classes)[group]
        self.separation, self.chosen_pass = clusters.separation, number
        self.named = len(at) > 0
        self.group = torch.full((int(ids.max()) + 1,), -1, dtype=torch.int64)
        self.group[ids] = group


def directions_of(record: GradientRecord, passes: list[int]) -> dict[int, tuple[Tensor, Tensor]]:
    """By pass: the positions of the rows seen in it, and (m, d) unit vectors of their gradients; zeros are left out."""
    found: dict[int, tuple[list[Tensor], list[Tensor]]] = {number: ([], []) for number in passes}
    for before, part in record.by_pass():
        for number, (ids, vectors) in found.items():
            chosen = (before == number) & (part.norm > 0)
            ids.append(part.ids[chosen])
            vectors.append(F.normalize(part.direction[chosen].float()))
    return {number: (torch.cat(ids), torch.cat(vectors)) for number, (ids, vectors) in found.items()}


def _known_rows(view: PassiveView, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Where in `ids` the rows stand whose labels are known, and these labels."""
    if view.known is None:
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    known, labels = view.known
    place = {position: at for at, position in enumerate(ids.tolist())}
    pairs = [(place[i], label) for i, label in zip(known.tolist(), labels.tolist(), strict=True) if i in place]
    at, own = zip(*pairs, strict=True) if pairs else ((), ())
    return torch.tensor(at, dtype=torch.int64), torch.tensor(own, dtype=torch.int64)


def _class_means(vectors: Tensor, labels: Tensor, classes: int) -> Tensor | None:
    """(classes, d) the known rows' mean direction of every class; None if a class has no known row."""
    if len(torch.unique(labels)) < classes:
        return None
    return torch.stack([vectors[(labels == label).to(vectors.device)].mean(0) for label in range(classes)])
