"""UnSplit over a whole training: one picture and as many clones of the bottom as payloads of it crossed.

A row crosses once an epoch, each time through another state of the same bottom. UnSplit looks at one payload, which
many pairs of row and clone explain. Here one row must explain all of them, each by a clone of its own that serves
everybody of that epoch. It knows the architecture and keeps what crossed, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.func import functional_call, vmap

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView
from veracausa.attacks.matching import ProgressReporter, starting_rows
from veracausa.attacks.methods.features.unsplit import UnSplit, UnSplitOptions, alternate, finished
from veracausa.attacks.transcript import nearest_payloads, spread
from veracausa.errors import InputError
from veracausa.models.runner import eval_mode


class UnSplitClonesOptions(UnSplitOptions):
    exchanges: int = Field(4, ge=1)
    """How many payloads of an id there are, and so how many clones, spread over the training; the last among them."""


@attacks.register("unsplit_clones", UnSplitClonesOptions)
class UnSplitClones(UnSplit):
    """One row and several clones of the bottom by alternating optimisation, from all payloads of it that crossed."""

    title = "UnSplit, several clones"
    by_default = ""
    uses_transcript = True
    splits: ClassVar = ("train",)
    quick: ClassVar = {**UnSplit.quick, "exchanges": 2}
    options: UnSplitClonesOptions

    def begin(self, view: AdversaryView) -> None:
        if not hasattr(view, "transcript"):
            raise InputError("attack 'unsplit_clones' reads what crossed in training: record a transcript")
        super().begin(view)
        self.steps = spread(view.transcript, self.options.exchanges)
        self.clones: dict[str, Tensor] = {}

    def notes(self) -> Mapping[str, float]:
        return {**super().notes(), "whole_training": 1.0, "exchanges": float(len(self.steps))}

    def reconstruct(self, payload: Tensor, ids: Tensor | None = None) -> Tensor:
        """The rows behind all payloads of these ids; of an id that never crossed, the row that the search starts from.

        Victims are read in batches, and the clones of one batch begin the next.
        """
        if ids is None:
            raise InputError("attack 'unsplit_clones' reads by the positions of training rows: give them as `ids`")
        view, options = self.view, self.options
        found, crossed = nearest_payloads(view.transcript, ids, self.steps)
        crossed &= ids.cpu() >= 0
        rows = starting_rows(len(ids), view)
        batches = torch.split(crossed.nonzero().squeeze(1), options.batch_size)
        with eval_mode(self.clone), torch.enable_grad():
            for number, chosen in enumerate(batches):
                pulse = ProgressReporter(view.progress, number, len(batches))
                rows[chosen.to(rows.device)] = self._explained(found[chosen].to(view.device), pulse)
        view.progress(1.0)
        return finished(rows, view.pixels, options.post)

    def _explained(self, target: Tensor, pulse: ProgressReporter) -> Tensor:
        """Rows whose payloads under the clones are (n, clones, …) these."""
        count = target.shape[1]
        if not self.clones or not self.options.reuse_clone:
            self.clones = {
                name: weight.detach().expand(count, *weight.shape).clone().requires_grad_(weight.requires_grad)
                for name, weight in self.clone.named_parameters()
            }
        buffers = dict(self.clone.named_buffers())

        def of_one(weights: dict[str, Tensor], rows: Tensor) -> Tensor:
            payloads: Tensor = functional_call(self.clone, (weights, buffers), (rows,))
            return payloads

        def run(rows: Tensor) -> Tensor:
            payloads: Tensor = vmap(of_one, (0, None))(self.clones, rows)
            return payloads.transpose(0, 1)

        weights = [weight for weight in self.clones.values() if weight.requires_grad]
        start = starting_rows(len(target), self.view)
        options = self.options.model_copy(update={"batching": "joint"})
        rows = alternate(run, weights, target, start, options, self.view.pixels, pulse)
        self.tally.add(self.options.name, run, rows, target, pulse.count)
        return rows
