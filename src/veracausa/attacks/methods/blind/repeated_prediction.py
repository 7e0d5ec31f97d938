"""Ask for the same rows again and again and average the answers: fresh noise goes away, permanent noise does not."""

from __future__ import annotations

import torch
from pydantic import Field

from veracausa.attacks import blind_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindReading, BlindView
from veracausa.attacks.row_readers import ReaderOptions, RowReadingAttack, read_rows


class RepeatedPredictionOptions(ReaderOptions):
    repeats: int = Field(64, ge=2)


@blind_attacks.register("repeated_prediction", RepeatedPredictionOptions)
class RepeatedPrediction(RowReadingAttack):
    """The score decoder on the mean of many answers to the same rows."""

    needs = Grant.AUXILIARY | Grant.WEIGHTS | Grant.QUERIES
    about = "the active party asks for the same rows many times and averages the answers"
    order = 4
    situations = ("asked again", "coarse, permanent", "coarse, fresh noise")
    options: RepeatedPredictionOptions

    def guess(self, view: BlindView) -> BlindReading:
        answers = torch.stack([view.repeat() for _ in range(self.options.repeats)])
        spread = float(answers.std(0, correction=0).mean())
        self.said = {"repeats": float(self.options.repeats), "answers_differ_by": spread}
        # It learns from scores as blurred as the mean of its answers still is.
        learnt = view.auxiliary_scores
        left = spread / len(answers) ** 0.5
        learnt = learnt + left * torch.randn(learnt.shape, generator=view.rng, dtype=learnt.dtype)
        rows, self.reader = read_rows(view, answers.mean(0), learnt, self.options)
        return BlindReading(rows=rows)
