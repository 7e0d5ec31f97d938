"""Decode the scores that are opened of a predicted row.

The active party opens a few numbers of each row it asks about. Here it is given what no partner has: every passive
party's feature map, so that it computes the scores of rows like the victim's and learns to read them.
"""

from __future__ import annotations

from pydantic import Field

from veracausa.attacks import blind_attacks
from veracausa.attacks.blind import BlindReading, BlindView
from veracausa.attacks.row_readers import ReaderOptions, RowReadingAttack, read_rows


class ScoreDecoderOptions(ReaderOptions):
    """The headline is its figure, so it trains longest."""

    epochs: int = Field(20, ge=0)


@blind_attacks.register("score_decoder", ScoreDecoderOptions)
class ScoreDecoder(RowReadingAttack):
    """Readers trained on the scores that the parties' own maps and the head give for auxiliary rows."""

    about = "the active party decodes the scores it opened, with every passive party's feature map in its hands"
    order = 1
    options: ScoreDecoderOptions
    situations = ("summed scores", "one part", "features opened")

    def guess(self, view: BlindView) -> BlindReading:
        rows, self.reader = read_rows(view, view.scores, view.auxiliary_scores, self.options)
        return BlindReading(rows=rows)
