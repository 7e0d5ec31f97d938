"""FSHA, the feature-space hijacking attack: a malicious server steers the victim's model into a space of its own.

On unlabelled auxiliary rows the attacker trains a pilot model and its decoder. A discriminator learns to tell the
pilot's payloads from the victim's, and the victim, in place of the honest gradient, gets one that makes it fool the
discriminator. Once its payloads lie in the pilot's space, the decoder reads them. The victim does not learn the task
meanwhile, so the accuracy of such a run says nothing of an honest one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

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
from veracausa.attacks.networks import ConditionedDecoder, embedding_discriminator
from veracausa.errors import InputError
from veracausa.registry import Options

_ROWS_AT_ONCE = 512
_RATE = 1e-3
_SLOWER = {"wgan": 1.0, "bce": 10.0}
"""How much slower than the victim the discriminator learns: one by cross-entropy that wins drives the victim off."""


class FSHAOptions(Options):
    form: Literal["wgan", "bce"] = "wgan"
    """The original's Wasserstein loss with a gradient penalty, or a discriminator of cross-entropy."""
    penalty: float = Field(500.0, ge=0)
    """The gradient penalty's weight; `wgan` only."""
    lr_autoencoder: float | None = Field(None, gt=0)
    """Adam's, for pilot and decoder; unset: the victim's own rate, 1e-3 where that is not Adam. The victim must not
    outrun the space that it is to be drawn into."""
    lr_discriminator: float | None = Field(None, gt=0)
    """Adam's; unset: the victim's rate for `wgan`, a tenth of it for `bce`."""
    grad_scale: float = Field(1.0, gt=0)
    """What the victim's gradient is multiplied by: an SGD victim hardly moves for a small one."""
    repeats: int = Field(1, ge=1)
    """Auxiliary batches an exchange."""
    blocks: int = Field(2, ge=0)
    channels: int = Field(64, ge=1)


@attacks.register("fsha", FSHAOptions)
class FSHA(AdversarialTrainingAttack):
    """Steers the victim's model into the space of the attacker's own autoencoder, whose decoder then reads it."""

    title = "FSHA"
    needs = Grant.ARCHITECTURE | Grant.AUXILIARY | Grant.TAMPER
    options: FSHAOptions

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        if len(view.auxiliary) < 2:
            raise InputError(f"attack 'fsha' needs at least 2 auxiliary rows, there are {len(view.auxiliary)}")
        self.device, options = view.device, self.options
        self.rows = view.auxiliary.to(self.device)
        self.pilot = view.bottom(view.rng).to(self.device).train()
        shape, row = view.payload_shape, view.row_shape
        decoder = lambda: ConditionedDecoder(shape, row, None, options.blocks, options.channels)  # noqa: E731
        self.decoder = build_module(decoder, view.rng, self.device)
        judge = embedding_discriminator if options.form == "bce" else critic
        self.judge = build_module(lambda: judge(shape), view.rng, self.device)
        rate = self.view.victim_rate or _RATE
        self.encoding = adam([self.pilot, self.decoder], options.lr_autoencoder or rate, self.device)
        self.judging = adam([self.judge], options.lr_discriminator or rate / _SLOWER[options.form], self.device)
        self.modules, self.optimizers = [self.pilot, self.decoder, self.judge], [self.encoding, self.judging]
        self.figures = torch.zeros(3, device=self.device)
        self.exchanges = self.batch = 0
        self.step = None

    def tamper(self, gradient: Tensor, exchange: Exchange) -> Tensor:
        """∂ of the adversarial loss by the payload; the honest gradient is not looked at."""
        payload = exchange.payload.detach().to(self.device, torch.float32).requires_grad_()
        verdict = self.judge(payload)
        loss = verdict.mean() if self.options.form == "wgan" else real_loss(verdict)
        (wanted,) = torch.autograd.grad(loss, payload)
        self.figures[0].copy_(loss.detach())
        return self.options.grad_scale * wanted.to(gradient)

    def observe(self, exchange: Exchange) -> None:
        """One step of pilot and decoder on auxiliary rows, one of the discriminator on both payloads."""
        if len(exchange.payload) < 2:
            return  # one row alone has no batch statistics
        if self.step is None:
            batch = self.batch = self.batch or len(exchange.payload)
            self.payload = torch.zeros(batch, *exchange.payload.shape[1:], device=self.device)
            self.chosen = torch.zeros(batch, dtype=torch.int64, device=self.device)
            self.between = torch.zeros(batch, *[1] * (self.payload.ndim - 1), device=self.device)
        self.payload.copy_(pad_batch(exchange.payload.detach(), len(self.payload)))
        for _ in range(self.options.repeats):
            self.chosen.copy_(torch.randint(len(self.rows), self.chosen.shape, generator=self.view.rng))
            self.between.copy_(torch.rand(self.between.shape, generator=self.view.rng))
            if self.step is None:
                self.step = captured_training(self._step, self.device, self.modules, self.optimizers, (self.figures,))
            self.step()
        self.exchanges += 1

    def reconstruct(self, payload: Tensor, ids: Tensor) -> Tensor:
        """The decoder's reading of these payloads."""
        self.decoder.eval()
        with torch.no_grad():
            parts = torch.split(payload.to(self.device, torch.float32), _ROWS_AT_ONCE)
            guess = torch.cat([self.decoder(part).float() for part in parts])
        self.decoder.train()
        return guess.clamp(0, 1) if self.view.pixels else guess

    def notes(self) -> Mapping[str, float]:
        victim, judge, decoded = self.figures.tolist()
        return {"exchanges": float(self.exchanges), "victim_loss": victim, "judge_loss": judge, "decoder_mse": decoded}

    def _step(self) -> None:
        rows = self.rows.index_select(0, self.chosen)
        with precision(self.device):
            piloted = self.pilot(rows).float()
            decoded = self.decoder(piloted).float()
        error = F.mse_loss(decoded, rows)
        piloted = piloted.detach()
        sgd_step(error, self.encoding)
        # In full precision: the penalty differentiates a gradient.
        own, victims = self.judge(piloted), self.judge(self.payload)
        if self.options.form == "bce":
            loss = real_loss(own) + fake_loss(victims)
        else:
            loss = own.mean() - victims.mean()
            if self.options.penalty:
                penalty = gradient_penalty(self.judge, torch.lerp(self.payload, piloted, self.between))
                loss = loss + self.options.penalty * penalty
        sgd_step(loss, self.judging)
        self.figures[1].copy_(loss.detach())
        self.figures[2].copy_(error.detach())


def gradient_penalty(judge: Callable[[Tensor], Tensor], between: Tensor) -> Tensor:
    """E(‖∇D(x)‖₂ − 1)², the norm of a sample's gradient taken over all of its axes (WGAN-GP)."""
    between = between.detach().requires_grad_()
    (slope,) = torch.autograd.grad(judge(between).sum(), between, create_graph=True)
    # A gradient of exactly nothing has no derivative of its norm: it would make the weights NaN.
    norm = slope.flatten(1).square().sum(1).add(1e-12).sqrt()
    return (norm - 1).square().mean()


def critic(payload_shape: tuple[int, ...]) -> nn.Module:
    """SDAR's discriminator without batch normalisation: the penalty needs every sample's gradient to be its own."""
    judge = embedding_discriminator(payload_shape)
    for name, module in list(judge.body.named_children()):
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.Dropout):
            setattr(judge.body, name, nn.Identity())
    return judge
