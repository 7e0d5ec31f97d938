"""A passive party of a finished run, as an oracle attacker may use it: rows in, payloads out (`oracle_transmit`)."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from veracausa.data.vertical import PartyData, Split
from veracausa.errors import RunError
from veracausa.runs.folder import Run
from veracausa.split.party import Schema
from veracausa.split.placement import rows_of
from veracausa.split.restore import restore_passive


class Victim:
    """The party with its trained model and defense; asking it for payloads changes nothing in it."""

    def __init__(self, run: Run, data: PartyData, schema: Schema) -> None:
        self.party = restore_passive(run, data.name, data, schema)
        self.name, self.data, self.device = data.name, data, self.party.device
        self.batch = run.job.training.batch_size

    @property
    def payload_shape(self) -> tuple[int, ...]:
        return self.party.shape

    @property
    def pixels(self) -> bool:
        """Whether its rows are pictures in [0, 1]."""
        return len(self.data.shape) == 3

    def rows(self, split: Split, positions: Tensor) -> Tensor:
        """The truth."""
        return self.party.parts[split].take(positions)

    def payloads(self, split: Split, positions: Tensor, draws: int = 1) -> Tensor:
        """What would cross for these rows, in batches as in training; the mean of so many draws of each."""
        total = self._drawn(split, positions)
        for _ in range(draws - 1):
            total += self._drawn(split, positions)
        return total / draws if draws > 1 else total

    @cached_property
    def random(self) -> bool:
        """Whether two payloads of one row differ."""
        split: Split = "train" if len(self.data.train) else "test"
        part = self.data.part(split)
        held = torch.arange(len(part))[part.present(torch.arange(len(part)))][: self.batch]
        return not torch.equal(self._drawn(split, held), self._drawn(split, held))

    def _drawn(self, split: Split, positions: Tensor) -> Tensor:
        parts = []
        for ids in torch.split(positions, self.batch):
            rows = rows_of(self.party.parts[split], ids, self.party.job.runtime)
            # As it crosses: in the wire's own type, which may be coarser.
            parts.append(self.party.defense.infer(rows, ids).to(self.party.dtype).float())
        payloads = torch.cat(parts)
        if not payloads.isfinite().all():
            # A comparison with NaN is false, and would come out as "nothing leaked".
            raise RunError(f"{self.name}: some payloads are not finite, so there is nothing an audit could measure")
        return payloads
