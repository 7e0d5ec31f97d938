"""A malicious active party sends a head of its own making: its weights are encrypted, so nobody can look at them."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from veracausa.attacks import blind_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindReading, BlindView
from veracausa.attacks.row_readers import ReaderOptions, RowReadingAttack, read_rows
from veracausa.errors import InputError
from veracausa.metrics.leakage import fit_ridge

_PENALTY = 1e-2


class ChosenHeadOptions(ReaderOptions):
    functionals: Literal["informed", "principal", "random"] = "informed"
    """Which directions of the features it asks for: those that tell most of auxiliary rows, the strongest, or any."""
    heads: int = Field(1, ge=1)
    """How many heads it tries to have answered for the same rows."""
    scale: float = Field(1.0, gt=0)
    """By how much it stretches the weights, so that rounding weighs less."""


@blind_attacks.register("chosen_head", ChosenHeadOptions)
class ChosenHead(RowReadingAttack):
    """A head whose scores are the directions of the features that tell most of the rows."""

    needs = Grant.AUXILIARY | Grant.WEIGHTS | Grant.TAMPER
    about = "a malicious active party sends a head that reads rows in place of the one it computed"
    breaks = "an active party that sends another head than it computed"
    order = 2
    situations = ("chosen head", "chosen head, coarse", "many chosen heads")
    options: ChosenHeadOptions

    def guess(self, view: BlindView) -> BlindReading:
        directions = self._directions(view)
        answers: list[Tensor] = []
        learnt: list[Tensor] = []
        for number in range(self.options.heads):
            head = directions[:, number * view.numbers : (number + 1) * view.numbers]
            if not head.shape[1]:
                break
            short = view.numbers - head.shape[1]
            weights = torch.cat([head, head.new_zeros(len(head), short)], 1) * self.options.scale
            try:
                answers.append(view.ask(weights))
            except InputError:
                if not answers:
                    raise
                break
            learnt.append(view.ask_auxiliary(weights))
        self.said = {"heads_answered": float(len(answers)), "heads_tried": float(self.options.heads)}
        rows, self.reader = read_rows(view, torch.cat(answers, 1), torch.cat(learnt, 1), self.options)
        return BlindReading(rows=rows)

    def _directions(self, view: BlindView) -> Tensor:
        """(width, as many as all heads have): weights whose scores have variance one among the auxiliary rows."""
        features = view.auxiliary_features.double()
        count = min(self.options.heads * view.numbers, features.shape[1])
        centred = features - features.mean(0)
        if self.options.functionals == "random":
            found = torch.randn(features.shape[1], count, generator=view.rng, dtype=torch.float64)
        elif self.options.functionals == "principal":
            found = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, :count]
        else:
            # Reduced-rank regression: the directions that carry most of what a linear reader makes of the rows.
            ridge = fit_ridge(features, view.auxiliary.flatten(1).double(), _PENALTY)
            read = centred @ ridge.weights
            loadings = torch.linalg.eigh(read.T @ read).eigenvectors.flip(1)[:, :count]
            found = ridge.weights @ loadings
        spread = (centred @ found).std(0, correction=0)
        return found / torch.where(spread > 1e-12, spread, 1.0)
