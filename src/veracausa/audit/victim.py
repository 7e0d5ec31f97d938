"""A passive party of a finished run, as an oracle attacker may use it: rows in, payloads out (`oracle_transmit`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

import torch
from torch import Tensor, nn

from veracausa.attacks.defended_shadow import alike, standardised
from veracausa.attacks.transcript import Transcript, stack
from veracausa.data.vertical import PartyData, Split
from veracausa.defenses.base import Defense
from veracausa.defenses.protocols import BatchDependent, is_stochastic, resampling
from veracausa.defenses.risk_map import Transmit
from veracausa.errors import RunError
from veracausa.models.runner import fetch_rows, to_device
from veracausa.runs.folder import Run
from veracausa.training.checkpoints import restore_passive
from veracausa.training.split.halves import build_defended, make_defense
from veracausa.training.split.program import Schema

_POOL = 8


class Victim:
    """The party with its trained model and defense; asking it for payloads changes nothing in it.

    With `moment`, as it was after so many training steps.
    """

    def __init__(self, run: Run, data: PartyData, schema: Schema, moment: int | None = None) -> None:
        self.party = restore_passive(run, data.name, data, schema, moment)
        self.run, self.schema, self.step = run, schema, moment
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

    def payloads(
        self,
        split: Split,
        positions: Tensor,
        draws: int,
        rng: torch.Generator,
        as_sent: bool = False,
        redrawn: bool = False,
    ) -> Tensor:
        """What would cross for these rows, in batches as in training; the mean of so many draws of each.

        Where a payload depends on its batch, every draw puts other rows together, and the payloads are standardised
        within their batch: an attacker knows which came together, and a decoder that reads the scale of one batch
        would be lost in the next. `as_sent` leaves them as they crossed, for an attack that models the bottom itself.

        Noise that is new at every exchange is new at every call; noise that belongs to a row, only where it is
        `redrawn`: for rows that an attacker learns from, so that no decoder knows their noise by heart.
        """
        anew = resampling(self.party.defense, rng) if redrawn or is_stochastic(self.party.defense) else nullcontext()
        with anew:
            total = self._drawn(split, positions, rng, as_sent)
            for _ in range(draws - 1):
                total += self._drawn(split, positions, rng, as_sent)
        return total / draws if draws > 1 else total

    def fresh_bottom(self, rng: torch.Generator) -> nn.Module:
        """An untrained bottom model of the victim's architecture, the layers of its defense among them."""
        job = self.party.job
        built = build_defended(job, self.name, self.data.shape, self.schema.outputs, rng, columns=self.data.columns)
        return to_device(built.module, job.runtime, self.device)

    def own_defense(self, model: nn.Module, optimizer: torch.optim.Optimizer, rng: torch.Generator) -> Defense:
        """The victim's defense with its settings, unprepared, on a model of the attacker's own."""
        defense = make_defense(self.party.job, self.name)
        defense.bind(model, optimizer, rng)
        return defense

    def transcript(self, active: str) -> Transcript | None:
        """What crossed while it trained, where the active party kept it."""
        place = self.run.path / "parties" / active / "transcript" / self.name
        return Transcript(place) if place.is_dir() else None

    def transmit(self, rows: Tensor) -> Tensor:
        """The victim's trained map from rows to payloads, differentiable, without its noise.

        Where a payload depends on its batch, the map as one batch of the victim's own rows was sent.
        """
        return self._map(rows, torch.arange(len(rows)))

    @cached_property
    def _map(self) -> Transmit:
        split, held = self._some()
        ids = held[: self.batch]
        defense = self.party.defense
        if not isinstance(defense, BatchDependent):
            return defense.deterministic_payload
        return defense.frozen_map(fetch_rows(self.party.parts[split], ids, self.party.job.runtime), ids)

    @cached_property
    def random(self) -> bool:
        """Whether two payloads of one row in the same batch differ by more than a GPU's rounding."""
        return is_stochastic(self.party.defense) or self._differs()

    @cached_property
    def noisy(self) -> bool:
        """Whether it is random, or adds noise that belongs to a row and can be drawn anew for others."""
        return self.random or self._differs(resampling(self.party.defense, torch.Generator().manual_seed(0)))

    def _differs(self, drawing: AbstractContextManager[None] | None = None) -> bool:
        split, held = self._some()
        with drawing or nullcontext():
            first, second = (self._sent(split, held[: self.batch]) for _ in range(2))
        return not alike(first, second)

    @cached_property
    def by_batch(self) -> bool:
        """Whether the payload of a row depends on the rows it is sent with; not told apart where it is random too."""
        split, held = self._some()
        half = min(self.batch, len(held)) // 2
        if self.random or half < 1 or len(held) < 3:
            return False
        together = self._sent(split, held[: 2 * half])[:half]
        apart = self._sent(split, torch.cat([held[:half], held[2 * half :][:half]]))[:half]
        return not alike(together, apart)

    def _some(self) -> tuple[Split, Tensor]:
        split: Split = "train" if len(self.data.train) else "test"
        part = self.data.part(split)
        everyone = torch.arange(len(part))
        return split, everyone[part.present(everyone)][: 2 * self.batch]

    def _drawn(self, split: Split, positions: Tensor, rng: torch.Generator, as_sent: bool) -> Tensor:
        if not self.by_batch:
            return torch.cat([self._sent(split, ids) for ids in torch.split(positions, self.batch)])
        order = torch.randperm(len(positions), generator=rng)
        # The last batch is filled up with rows of the first: the statistics of a small one would be no statistics,
        # and a defense may be fast for batches of the training's size alone.
        spare = min(-len(positions) % self.batch, len(positions))
        batches = torch.split(positions[torch.cat([order, order[:spare]])], self.batch)
        sent = (self._sent(split, ids) for ids in batches)
        drawn = torch.cat([batch if as_sent else standardised(batch) for batch in sent])[: len(positions)]
        return drawn[order.argsort().to(drawn.device)]

    def _sent(self, split: Split, ids: Tensor) -> Tensor:
        rows = fetch_rows(self.party.parts[split], ids, self.party.job.runtime)
        # As it crosses: in the wire's own type, which may be coarser.
        payload = self.party.defense.infer(rows, ids).to(self.party.dtype).float()
        if not payload.isfinite().all():
            # A comparison with NaN is false, and would come out as "nothing leaked".
            raise RunError(f"{self.name}: some payloads are not finite, so there is nothing an audit could measure")
        return payload


class StackedVictim(Victim):
    """A victim whose payloads come with others of the same people: of its earlier models, of other parties."""

    def __init__(self, victim: Victim, others: Sequence[Victim]) -> None:
        super().__init__(victim.run, victim.data, victim.schema, victim.step)
        self.members = (victim, *others)

    @property
    def payload_shape(self) -> tuple[int, ...]:
        return tuple(stack([torch.empty(1, *member.payload_shape) for member in self.members]).shape[1:])

    @property
    def from_first(self) -> bool:
        """Whether every party's payload of the first exchange is among them."""
        parties = {member.name for member in self.members}
        return parties == {member.name for member in self.members if member.step == 1}

    @cached_property
    def random(self) -> bool:
        return any(member.random for member in self.members)

    @cached_property
    def noisy(self) -> bool:
        return any(member.noisy for member in self.members)

    @cached_property
    def by_batch(self) -> bool:
        return any(member.by_batch for member in self.members)

    def payloads(
        self,
        split: Split,
        positions: Tensor,
        draws: int,
        rng: torch.Generator,
        as_sent: bool = False,
        redrawn: bool = False,
    ) -> Tensor:
        """All members' payloads of these people; zeros of those whom a member does not know."""
        parts = []
        for member in self.members:
            held = member.data.part(split).present(positions)
            own = torch.zeros(len(positions), *member.payload_shape, device=member.device)
            if held.any():
                sent = member.payloads(split, positions[held], draws, rng, as_sent, redrawn)
                own[held.to(member.device)] = sent.to(own)
            parts.append(own.to(self.device))
        return stack(parts)


class Pool:
    """Payloads of the same rows drawn several times; each call averages some of them, others every time.

    For a defense that adapts to every batch, which is too slow to be asked anew for every epoch of an attack.
    """

    def __init__(self, draw: Callable[[], Tensor], draws: int, rng: torch.Generator) -> None:
        self.rng, self.draws = rng, draws
        self.sets = [draw() for _ in range(max(_POOL, 2 * draws))]

    def __call__(self) -> Tensor:
        chosen = torch.randperm(len(self.sets), generator=self.rng)[: self.draws].tolist()
        total: Tensor = self.sets[chosen[0]].clone()
        for number in chosen[1:]:
            total += self.sets[number]
        total /= self.draws
        return total
