"""A blind training of a few rows, as `check_attack` shows it to an attack: every field of the view is there."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from veracausa import seeding
from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindView, Release
from veracausa.errors import InputError

TARGETS, AUXILIARY, WIDTH, SMALLEST = 24, 60, 5, 4
OF_BLIND = (
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
"""What an attack on blind training can be granted."""


class ToyBlindTraining:
    """A passive party whose features are a random linear map of its rows, and an active party with one column."""

    def __init__(self, pixels: bool, classes: int = 2) -> None:
        rng = seeding.generator(0, "toy blind training")
        self.pixels, self.classes = pixels, classes
        self.shape = (1, 4, 2) if pixels else (6,)
        draw = torch.rand if pixels else torch.randn
        self.rows, self.auxiliary = (draw(count, *self.shape, generator=rng) for count in (TARGETS, AUXILIARY))
        numbers = self.rows[0].numel()
        self.map = torch.randn(numbers, WIDTH, generator=rng, dtype=torch.float64)
        self.own = torch.randn(TARGETS, 1, generator=rng)
        self.own_auxiliary = torch.randn(AUXILIARY, 1, generator=rng)
        self.heads = [torch.randn(WIDTH, classes, generator=rng, dtype=torch.float64) for _ in range(2)]
        self.labels = torch.arange(TARGETS) % classes

    def features(self, rows: Tensor) -> Tensor:
        return (rows.flatten(1).double() - 0.5 * self.pixels) @ self.map

    def columns(self, own: Tensor | None = None) -> Tensor:
        """(n, 1 + 1 + classes): the active party's columns in the moments, of the training rows or of others."""
        own = (self.own if own is None else own).double()
        hot = torch.nn.functional.one_hot(torch.arange(len(own)) % self.classes, self.classes).double()
        return torch.cat([own, torch.ones(len(own), 1, dtype=torch.float64), hot], 1)

    def release(self, without: int | None = None) -> Release:
        values = torch.cat([self.columns(), self.features(self.rows)], 1).numpy()
        values = values if without is None else np.delete(values, without, 0)
        ends = 2 + self.classes
        return Release(
            values.T @ values, len(values), slice(0, 2), slice(2, ends), slice(ends, ends + WIDTH), noise=0.0
        )

    def cross_moments(self, columns: Tensor) -> Tensor:
        if ((columns != 0).sum(0) < SMALLEST).any():
            raise InputError("a column is supported by too few rows")
        return columns.T @ self.features(self.rows)

    def view(self) -> BlindView:
        """What the active party may look at with every grant; a passive party's part is there, too."""
        features, auxiliary = self.features(self.rows), self.features(self.auxiliary)
        first, second = self.heads
        return BlindView(
            grants=OF_BLIND,
            seat="attacker",
            victim="victim",
            row_shape=self.shape,
            pixels=self.pixels,
            classes=self.classes,
            numbers=self.classes,
            rng=seeding.generator(1, "toy blind training"),
            labels=self.labels.clone(),
            own=self.own.clone(),
            own_auxiliary=self.own_auxiliary.clone(),
            auxiliary=self.auxiliary.clone(),
            auxiliary_labels=torch.arange(AUXILIARY) % self.classes,
            auxiliary_features=auxiliary,
            features=features,
            scores=features @ first,
            auxiliary_scores=auxiliary @ first,
            second_scores=features @ second,
            auxiliary_second_scores=auxiliary @ second,
            ask=lambda weights: features @ weights,
            ask_auxiliary=lambda weights: auxiliary @ weights,
            repeat=lambda: features @ first,
            release=self.release(),
            releases=lambda target: (self.release(), self.release(target)),
            own_moments=self.columns(),
            own_auxiliary_moments=self.columns(self.own_auxiliary),
            small=self.labels.clone(),
            cross_moments=self.cross_moments,
            positions=torch.arange(TARGETS // 2),
            training_rows=TARGETS,
            smallest=SMALLEST,
            told=self.labels.clone(),
            transition=np.full((self.classes, self.classes), 0.1) + (1 - 0.1 * self.classes) * np.eye(self.classes),
            own_chances=torch.full((TARGETS, self.classes), 1 / self.classes, dtype=torch.float64),
            known_targets=torch.arange(4),
            known_labels=self.labels[:4],
        )
