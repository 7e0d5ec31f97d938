"""Read a row from its scores under two heads, side by side."""

from __future__ import annotations

import torch

from veracausa.attacks import blind_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.blind import BlindReading, BlindView
from veracausa.attacks.row_readers import ReaderOptions, RowReadingAttack, read_rows


@blind_attacks.register("two_heads", ReaderOptions)
class TwoHeads(RowReadingAttack):
    """The score decoder, given the answers under a second honest head for the same rows."""

    needs = Grant.AUXILIARY | Grant.WEIGHTS | Grant.SECOND_HEAD
    about = "the active party trains a second head and asks for the same rows again"
    breaks = "a second consent for the same rows"
    order = 3
    situations = ("second head",)

    def guess(self, view: BlindView) -> BlindReading:
        opened = torch.cat([view.scores, view.second_scores], 1)
        learnt = torch.cat([view.auxiliary_scores, view.auxiliary_second_scores], 1)
        rows, self.reader = read_rows(view, opened, learnt, self.options)
        return BlindReading(rows=rows)
