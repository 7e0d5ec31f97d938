"""SDAR: a passive server that learns to simulate the victim's bottom model, regularised by discriminators.

Beside the honest training the attacker trains, exchange by exchange and on labelled auxiliary rows, a simulator whose
payloads the top model classifies rightly and a discriminator cannot tell from the victim's, and a decoder of simulated
payloads whose reading of the victim's own a second discriminator cannot tell from real rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa.attacks import attacks
from veracausa.attacks.adversarial_training import (
    AdversarialTrainingAttack,
    adam,
    build_module,
    captured_training,
    fake_loss,
    pad_batch,
    precision,
    real_loss,
    sgd_step,
)
from veracausa.attacks.base import AdversaryView, Exchange, Grant
from veracausa.attacks.networks import ConditionedDecoder, RowDiscriminator, embedding_discriminator
from veracausa.errors import InputError
from veracausa.registry import Options

_ROWS_AT_ONCE = 512


class SDAROptions(Options):
    lambda1: float = Field(0.02, ge=0)
    """The weight of the embedding discriminator; 0 leaves it out."""
    lambda2: float = Field(1e-5, ge=0)
    """The weight of the row discriminator; 0 leaves it out."""
    lr_simulator: float = Field(1e-3, gt=0)
    """Adam's; the embedding discriminator has lambda1 times that."""
    lr_decoder: float = Field(5e-4, gt=0)
    """Adam's; the row discriminator has lambda2 times that."""
    conditional: bool = True
    """Whether decoder and discriminators are told the labels."""
    others: Literal["simulated", "observed"] = "simulated"
    """The other parties' part of what the top model needs for auxiliary rows: from simulators of theirs, or what they
    sent for somebody of the same class."""
    repeats: int = Field(1, ge=1)
    """Auxiliary batches an exchange; more make up for a training of fewer than the original's 20,000 exchanges."""
    reads: Literal["end", "crossing"] = "end"
    """What it reads of a training row: the trained model's payload, with gathered statistics, or as the original does
    what crosses in the last epoch, as it crosses, victim and decoder in training mode."""
    blocks: int = Field(2, ge=0)
    channels: int = Field(64, ge=1)


@dataclass
class Simulated:
    """A party's bottom model as the attacker imagines it, and the judge of its payloads."""

    rows: Tensor
    """Auxiliary rows of that party."""
    simulator: nn.Module
    judge: nn.Module


@attacks.register("sdar", SDAROptions)
class SDAR(AdversarialTrainingAttack):
    """Simulates the victim's model beside the honest training, and decodes its payloads by the simulation's decoder."""

    title = "SDAR"
    needs = Grant.ARCHITECTURE | Grant.LABELS | Grant.LABELLED_AUXILIARY
    options: SDAROptions

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        view, name = self.view, self.options.name
        if len(view.auxiliary) < 2:
            raise InputError(f"attack {name!r} needs at least 2 auxiliary rows, there are {len(view.auxiliary)}")
        self.predict = view.predict
        self.device, rng = view.device, view.rng
        self.classes = view.classes if self.options.conditional and view.classes else None
        self.targets = view.auxiliary_labels.to(self.device)
        self.parties = {view.victim: self._simulated(view.auxiliary, view.bottom)}
        if self.options.others == "simulated":
            for party, rows in view.others.items():
                self.parties[party] = self._simulated(rows, view.other_bottoms[party])
        self.victim = self.parties[view.victim]
        shape, row = view.payload_shape, view.row_shape
        blocks, channels = self.options.blocks, self.options.channels
        self.decoder = build_module(
            lambda: ConditionedDecoder(shape, row, self.classes, blocks, channels), rng, self.device
        )
        self.row_judge = build_module(lambda: RowDiscriminator(row, self.classes), rng, self.device)
        simulators = [party.simulator for party in self.parties.values()]
        judges = [party.judge for party in self.parties.values()]
        lr_e, lr_d = self.options.lr_simulator, self.options.lr_decoder
        self.modules = [*simulators, *judges, self.decoder, self.row_judge]
        self.simulating = adam(simulators, lr_e, self.device)
        self.judging = adam(judges, lr_e * self.options.lambda1, self.device)
        self.decoding = adam([self.decoder], lr_d, self.device)
        self.row_judging = adam([self.row_judge], lr_d * self.options.lambda2, self.device)
        self.optimizers = [self.simulating, self.judging, self.decoding, self.row_judging]
        self.figures = torch.zeros(3, device=self.device)
        self.exchanges = self.batch = 0
        self.step = None
        people = len(view.labels) if self.options.reads == "crossing" else 0
        self.read = torch.zeros(people, *row, dtype=torch.float16)
        """What was read of each training row as it crossed."""
        self.crossed = torch.zeros(people, dtype=torch.bool)

    def observe(self, exchange: Exchange) -> None:
        """One training step of all networks beside this exchange; the top model has learnt from it or will."""
        if len(exchange.payload) < 2:
            return  # one row alone has no batch statistics
        if self.step is None:
            self._lay_out(exchange)
        sent = {self.view.victim: exchange.payload, **exchange.others}
        for party, payload in self.sent.items():
            payload.copy_(pad_batch(sent[party].detach(), len(payload)))
        if exchange.labels is not None:
            self.labels.copy_(pad_batch(exchange.labels.to(self.device), len(self.labels)))
        for _ in range(self.options.repeats):
            drawn = torch.randint(len(self.targets), (len(self.chosen),), generator=self.view.rng)
            self.chosen.copy_(drawn)
            self._match()
            if self.step is None:
                self.step = captured_training(self._step, self.device, self.modules, self.optimizers, (self.figures,))
            self.step()
        self.exchanges += 1
        # A batch early: what crosses twice is read again.
        if self.options.reads == "crossing" and (self.exchanges + 1) * self.batch > len(self.crossed) * self._earlier:
            self._read_crossing(exchange)

    @property
    def _earlier(self) -> int:
        """Epochs before the last."""
        return self.view.epochs - 1

    def _read_crossing(self, exchange: Exchange) -> None:
        labels = None if exchange.labels is None else self._told(exchange.labels.to(self.device))
        with torch.no_grad(), precision(self.device):
            rows = self.decoder(exchange.payload.detach().to(self.device), labels).float()
        ids = exchange.ids.cpu()
        self.read[ids] = (rows.clamp(0, 1) if self.view.pixels else rows).cpu().half()
        self.crossed[ids] = True

    def reconstruct(self, payload: Tensor, ids: Tensor) -> Tensor:
        """The decoder's reading; an id out of the training's range, such as −1, is somebody of unknown label."""
        guess = self._read_now(payload, ids)
        if self.options.reads == "crossing":
            at = ids.cpu().clamp(0, len(self.crossed) - 1)
            there = (ids.cpu() == at) & self.crossed[at]
            guess[there.to(guess.device)] = self.read[at[there]].to(guess)
        return guess

    def state(self) -> dict[str, Any]:
        kept = {"read": self.read, "crossed": self.crossed} if self.options.reads == "crossing" else {}
        return {**super().state(), **kept}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        if self.options.reads == "crossing":
            self.read, self.crossed = state["read"].cpu().clone(), state["crossed"].cpu().clone()

    def _read_now(self, payload: Tensor, ids: Tensor) -> Tensor:
        labels = None
        if self.classes:
            known, ids = self.view.labels.to(self.device), ids.to(self.device)
            took_part = (ids >= 0) & (ids < len(known))
            labels = torch.where(took_part, known[ids.clamp(0, len(known) - 1)], -1)
        payload = payload.to(self.device, torch.float32)
        parts = []
        self.decoder.eval()
        with torch.no_grad():
            for start in range(0, len(payload), _ROWS_AT_ONCE):
                some = slice(start, start + _ROWS_AT_ONCE)
                parts.append(self.decoder(payload[some], None if labels is None else labels[some]).float())
        self.decoder.train()
        guess = torch.cat(parts)
        return guess.clamp(0, 1) if self.view.pixels else guess

    def notes(self) -> Mapping[str, float]:
        task, told, decoded = self.figures.tolist()
        return {"exchanges": float(self.exchanges), "task_loss": task, "judge_loss": told, "decoder_mse": decoded}

    def _simulated(self, rows: Tensor, bottom: Callable[[torch.Generator], nn.Module]) -> Simulated:
        simulator = bottom(self.view.rng).to(self.device).train()
        with torch.no_grad():
            shape = simulator.eval()(rows[:1].to(self.device)).shape[1:]
        judge = build_module(lambda: embedding_discriminator(shape, self.classes), self.view.rng, self.device)
        return Simulated(rows.to(self.device), simulator.train(), judge)

    def _lay_out(self, exchange: Exchange) -> None:
        """Memory for what a step reads, of the first exchange's size; shorter exchanges are filled up."""
        batch = self.batch = self.batch or len(exchange.payload)
        sent = {self.view.victim: exchange.payload, **exchange.others}
        self.sent = {party: torch.zeros(batch, *values.shape[1:], device=self.device) for party, values in sent.items()}
        kind = torch.int64 if self.view.classes else torch.float32
        self.labels = torch.zeros(batch, dtype=kind, device=self.device)
        self.chosen = torch.zeros(batch, dtype=torch.int64, device=self.device)
        self.matched = torch.zeros(batch, dtype=torch.int64, device=self.device)

    def _match(self) -> None:
        """For each auxiliary row, somebody of this exchange of its class, or anybody where there is none."""
        if self.options.others == "observed":
            likeness = torch.rand(len(self.chosen), len(self.labels), generator=self.view.rng).to(self.device)
            same = self.targets[self.chosen].unsqueeze(1) == self.labels
            self.matched.copy_((likeness + same).argmax(1))

    def _step(self) -> None:
        labels, targets = self._told(self.labels), self.targets.index_select(0, self.chosen)
        told = self._told(targets)
        simulated = self._simulate(targets, told)
        self._judge(simulated, labels, told)
        own = self.sent[self.view.victim]
        rows = self.victim.rows.index_select(0, self.chosen)
        with precision(self.device):
            with torch.no_grad():  # of the simulator after its step, as in the original
                again = self.victim.simulator(rows).float()
            decoded = self.decoder(again, told).float()
        error = F.mse_loss(decoded, rows)
        if not self.options.lambda2:
            sgd_step(error, self.decoding)
        else:
            with precision(self.device):
                read = self.decoder(own, labels)
                verdict = self.row_judge(read, labels)
            sgd_step(error + self.options.lambda2 * real_loss(verdict), self.decoding)
            with precision(self.device):
                real, fake = self.row_judge(rows, told), self.row_judge(read.detach(), labels)
            sgd_step(real_loss(real) + fake_loss(fake), self.row_judging)
        self.figures[2].copy_(error.detach())

    def _simulate(self, targets: Tensor, told: Tensor | None) -> dict[str, Tensor]:
        """CE(top(e(x')), y') + λ1·BCE(De(e(x'), y') → real), over all simulators; gives their payloads."""
        simulated = {}
        for name, party in self.parties.items():
            with precision(self.device):
                simulated[name] = party.simulator(party.rows.index_select(0, self.chosen))
        seen = {
            name: payload.index_select(0, self.matched)
            for name, payload in self.sent.items()
            if name not in self.parties
        }
        given = {**seen, **{name: payload.float() for name, payload in simulated.items()}}
        output = self.predict(given, self.chosen).float()
        loss = F.cross_entropy(output, targets) if self.view.classes else F.mse_loss(output.flatten(), targets)
        self.figures[0].copy_(loss.detach())
        if self.options.lambda1:
            for name, party in self.parties.items():
                with precision(self.device):
                    verdict = party.judge(simulated[name], told)
                loss = loss + self.options.lambda1 * real_loss(verdict)
        sgd_step(loss, self.simulating)
        return {name: payload.detach().float() for name, payload in simulated.items()}

    def _judge(self, simulated: Mapping[str, Tensor], labels: Tensor | None, told: Tensor | None) -> None:
        """Real: what was sent, with its labels. Fake: what was simulated, with its own."""
        if not self.options.lambda1:
            return
        total = torch.zeros((), device=self.device)
        for name, party in self.parties.items():
            with precision(self.device):
                real, fake = party.judge(self.sent[name], labels), party.judge(simulated[name], told)
            total = total + real_loss(real) + fake_loss(fake)
        self.figures[1].copy_(total.detach() / len(self.parties))
        sgd_step(total, self.judging)

    def _told(self, labels: Tensor) -> Tensor | None:
        return labels if self.classes else None
