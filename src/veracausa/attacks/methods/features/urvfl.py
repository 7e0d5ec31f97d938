"""URVFL: a malicious server hijacks the victim's training with a discriminator that is also a classifier (DAC).

Stage 1: an autoencoder of a shadow bottom and a decoder, on auxiliary rows. Stage 2, through the wire: the DAC learns
to tell the victim's payloads from the shadow's, class by class, and the victim is sent the gradient that makes its
payloads look like the shadow's of the same class. Stage 3: the shadow's decoder reads the victim.

The victim must be able to follow: its optimiser should be Adam at 1e-4, as in the original; a small step of SGD needs a
large `grad_scale`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa.attacks import attacks
from veracausa.attacks.adversarial_training import adam, build_module, captured_training, pad_batch, sgd_step
from veracausa.attacks.base import AdversaryView, Exchange, Grant, LiveAttack
from veracausa.attacks.networks import auxiliary_classifier, light_decoder
from veracausa.errors import InputError
from veracausa.models.decoders import strong_decoder
from veracausa.models.runner import eval_mode
from veracausa.registry import Options

_ROWS_AT_ONCE = 512
_MEMORY = 0.95


class URVFLOptions(Options):
    epochs: int = Field(20, ge=0)
    """Of stage 1, on the auxiliary rows."""
    batch_size: int = Field(128, ge=2)
    """Of stage 1."""
    lr: float = Field(1e-4, gt=0)
    """Adam's, for shadow and decoder."""
    lr_dac: float = Field(1e-4, gt=0)
    """Adam's, for the DAC."""
    dac_norm: bool = True
    """The DAC with batch normalisation; else the plain one."""
    decoder: Literal["light", "strong"] = "light"
    """The original's three layers, or the residual decoder that leakage is measured with."""
    channels: int = Field(64, ge=1)
    """Of the strong decoder."""
    sync: bool = False
    """Train shadow and decoder in every exchange, in place of beforehand."""
    grad_scale: float = Field(1.0, gt=0)
    """What the gradient is multiplied by before it is sent."""
    held_out: float = Field(0.1, gt=0, lt=1)
    """The share of the auxiliary rows that only measures how well the decoder reads the shadow."""


def observed_code(labels: Tensor) -> Tensor:
    """What the DAC calls the victim's payload of class c: 2c."""
    return 2 * labels


def shadow_code(labels: Tensor) -> Tensor:
    """What the DAC calls the shadow's payload of class c: 2c + 1."""
    return 2 * labels + 1


@attacks.register("urvfl", URVFLOptions)
class URVFL(LiveAttack):
    """Sends gradients that make the victim's payloads look like those of a shadow whose decoder it has (malicious)."""

    title = "URVFL"
    needs = Grant.ARCHITECTURE | Grant.LABELS | Grant.AUXILIARY | Grant.LABELLED_AUXILIARY | Grant.TAMPER
    options: URVFLOptions

    @property
    def read_shape(self) -> tuple[int, ...]:
        """Of what the decoder gives for a row."""
        return tuple(self.view.row_shape)

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        if view.classes < 2:
            raise InputError("attack 'urvfl' tells classes apart: it cannot attack a regression")
        self.device, rng = view.device, view.rng
        held = max(1, round(self.options.held_out * len(view.auxiliary)))
        if len(view.auxiliary) - held < 2:
            raise InputError(f"attack 'urvfl' needs more than {len(view.auxiliary)} auxiliary rows to learn from")
        order = torch.randperm(len(view.auxiliary), generator=rng).to(self.device)
        self.held, self.learnt = order[:held], order[held:]
        shape, row = view.payload_shape, view.row_shape
        self.shadow = view.bottom(rng).train()
        self.decoder = build_module(lambda: self._decoder(shape, row), rng, self.device)
        self.dac = build_module(
            lambda: auxiliary_classifier(shape, 2 * view.classes, self.options.dac_norm), rng, self.device
        )
        self.encoding = adam([self.shadow, self.decoder], self.options.lr, self.device)
        self.telling = adam([self.dac], self.options.lr_dac, self.device)
        self.figures = torch.zeros(4, device=self.device)
        self.memory = torch.zeros((), device=self.device)
        self.exchanges = 0
        self.history: list[list[float]] = []
        """Cosine and distance of the embeddings after every epoch."""
        self.ask: Callable[[], None] | None
        self.tell: Callable[[], None] | None
        self._lay_out(0)

    def pretrain(self) -> None:
        """Stage 1: MSE(Dec(S(x')), x') over shadow and decoder; with `sync` there is none."""
        if self.options.sync:
            return
        batch = min(self.options.batch_size, len(self.learnt))
        self.shadow.train()
        self.decoder.train()
        for epoch in range(self.options.epochs):
            order = self.learnt[torch.randperm(len(self.learnt), generator=self.view.rng).to(self.device)]
            for chosen in torch.split(order, batch):
                if len(chosen) > 1:
                    self._encode(chosen)
            self.view.progress((epoch + 1) / self.options.epochs)

    def tamper(self, gradient: Tensor, exchange: Exchange) -> Tensor:
        """∂CE(DAC(P), 2y + 1)/∂P: what makes the victim look like "shadow, class y". The honest gradient is dropped."""
        self._take(exchange)
        if self.ask is None:
            self.ask = captured_training(self._ask, self.device, [self.dac], [])
        self.ask()
        # A short batch was filled up, and the mean taken over more rows than the victim sent.
        share = len(self.sent) / len(exchange.payload)
        return self.gradient[: len(exchange.payload)] * (share * self.options.grad_scale)

    def observe(self, exchange: Exchange) -> None:
        """The DAC learns from the payload as it came and from the shadow; with `sync`, the autoencoder too."""
        self._take(exchange)
        drawn = torch.randint(len(self.learnt), (len(self.chosen),), generator=self.view.rng).to(self.device)
        self.chosen.copy_(self.learnt[drawn])
        if self.options.sync:
            self.shadow.train()
            self.decoder.train()
            self._encode(self.chosen)
        self.shadow.eval()
        self.memory.fill_(_MEMORY if self.exchanges else 0.0)
        if self.tell is None:
            self.tell = captured_training(self._tell, self.device, [self.dac], [self.telling], (self.figures,))
        self.tell()
        self.exchanges += 1
        if self.exchanges % max(1, -(-len(self.view.labels) // len(self.sent))) == 0:
            self.history.append(self.figures[2:].tolist())

    def reconstruct(self, payload: Tensor, ids: Tensor) -> Tensor:
        """Dec(P)."""
        guess = self._decoded(payload.to(self.device, torch.float32))
        return guess.clamp(0, 1) if self.view.pixels else guess

    def notes(self) -> Mapping[str, float]:
        """`ceiling_mse`: the decoder on the shadow's own payloads of held-out rows, the most this attack can read."""
        victim, shadow, cosine, distance = self.figures.tolist()
        ceiling = F.mse_loss(self._read_shadow(self.held), self.view.auxiliary[self.held])
        return {
            "exchanges": float(self.exchanges),
            "ceiling_mse": float(ceiling),
            "dac_loss_victim": victim,
            "dac_loss_shadow": shadow,
            "embedding_cosine": cosine,
            "embedding_distance": distance,
            **({"cosine_first_epoch": self.history[0][0]} if self.history else {}),
        }

    def state(self) -> dict[str, Any]:
        return {
            "modules": [module.state_dict() for module in self._modules()],
            "optimizers": [optimizer.state_dict() for optimizer in (self.encoding, self.telling)],
            "figures": self.figures.clone(),
            "exchanges": self.exchanges,
            "history": self.history,
            "rows": len(self.sent),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        for module, kept in zip(self._modules(), state["modules"], strict=True):
            module.load_state_dict(kept)
        for optimizer, kept in zip((self.encoding, self.telling), state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self.figures.copy_(state["figures"])
        self.exchanges, self.history = state["exchanges"], [list(epoch) for epoch in state["history"]]
        self._lay_out(state["rows"])  # and captured steps are made anew: they read from the optimisers' old memory

    def _modules(self) -> list[nn.Module]:
        return [self.shadow, self.decoder, self.dac]

    def _read_shadow(self, chosen: Tensor) -> Tensor:
        """What the decoder makes of the shadow's payloads of these auxiliary rows."""
        with eval_mode(self.shadow), torch.no_grad():
            return self._decoded(self.shadow(self.view.auxiliary[chosen]).float())

    def _lay_out(self, rows: int) -> None:
        """Memory for what a step reads, of the first exchange's size; shorter exchanges are filled up."""
        self.sent = torch.zeros(rows, *self.view.payload_shape, device=self.device)
        self.gradient = torch.zeros_like(self.sent)
        self.labels, self.chosen = (torch.zeros(rows, dtype=torch.int64, device=self.device) for _ in range(2))
        self.ask = self.tell = None

    def _take(self, exchange: Exchange) -> None:
        if exchange.labels is None:
            raise InputError("attack 'urvfl' needs the labels of what it sees")
        if not len(self.sent):
            self._lay_out(len(exchange.payload))
        self.sent.copy_(pad_batch(exchange.payload.to(self.device), len(self.sent)))
        self.labels.copy_(pad_batch(exchange.labels.to(self.device), len(self.labels)))

    def _encode(self, chosen: Tensor) -> None:
        rows = self.view.auxiliary[chosen]
        sgd_step(F.mse_loss(self.decoder(self.shadow(rows)).view_as(rows), rows), self.encoding)

    def _ask(self) -> None:
        payload = self.sent.detach().clone().requires_grad_()
        loss = F.cross_entropy(self.dac(payload), shadow_code(self.labels))
        self.gradient.copy_(torch.autograd.grad(loss, payload)[0])

    def _tell(self) -> None:
        with torch.no_grad():
            shadowed = self.shadow(self.view.auxiliary.index_select(0, self.chosen)).float()
        labels = self.view.auxiliary_labels.index_select(0, self.chosen)
        victim = F.cross_entropy(self.dac(self.sent), observed_code(self.labels))
        shadow = F.cross_entropy(self.dac(shadowed), shadow_code(labels))
        sgd_step(victim + shadow, self.telling)
        now = torch.stack([victim.detach(), shadow.detach(), *self._likeness(shadowed, labels)])
        self.figures.copy_(torch.lerp(now, self.figures, self.memory))

    def _likeness(self, shadowed: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and mean squared distance of the class means of both sides, over the classes that both have."""
        count = self.view.classes
        ours, theirs = (F.one_hot(values, count).float() for values in (labels, self.labels))
        both = ((ours.sum(0) > 0) & (theirs.sum(0) > 0)).float()
        mine, its = (
            (hot.T @ values.flatten(1)) / hot.sum(0).clamp(min=1).unsqueeze(1)
            for hot, values in ((ours, shadowed), (theirs, self.sent))
        )
        weight = both / both.sum().clamp(min=1)
        cosine = (F.cosine_similarity(mine, its) * weight).sum()
        return cosine, ((mine - its).square().mean(1) * weight).sum()

    def _decoder(self, shape: tuple[int, ...], row: tuple[int, ...]) -> nn.Module:
        if self.options.decoder == "light" and len(shape) == len(row) == 3:
            return light_decoder(shape, row)
        return strong_decoder(shape, row, channels=self.options.channels)

    def _decoded(self, payload: Tensor) -> Tensor:
        with eval_mode(self.decoder), torch.no_grad():
            parts = [self.decoder(part).float() for part in torch.split(payload, _ROWS_AT_ONCE)]
        return torch.cat(parts).view(len(payload), *self.read_shape)
