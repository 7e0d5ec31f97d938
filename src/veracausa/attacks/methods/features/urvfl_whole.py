"""URVFL as its authors mainly run it: the malicious party holds a part of every row itself, and reads the whole row.

Stage 1 has two encoders, one of the attacker's own part and the shadow of the victim's, and a decoder of both payloads
together to the whole row. Stages 2 and 3 are those of `urvfl`: the victim is drawn to the shadow, and what it sends is
decoded beside the attacker's own encoding of the same person. What the attacker knows of a row anyway helps it to read
the rest. It reads training rows: of other people it holds no part that it could look up.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa.attacks import attacks
from veracausa.attacks.adversarial_training import adam, sgd_step
from veracausa.attacks.base import AdversaryView, LiveView
from veracausa.attacks.methods.features.urvfl import URVFL, URVFLOptions
from veracausa.errors import InputError
from veracausa.models.runner import eval_mode

_ROWS_AT_ONCE = 512


class URVFLWholeOptions(URVFLOptions):
    """Those of `urvfl`."""


@attacks.register("urvfl_whole", URVFLWholeOptions)
class URVFLWhole(URVFL):
    """URVFL with an encoder of the attacker's own part of a row, and a decoder of the whole row (malicious)."""

    title = "URVFL, own half"
    splits: ClassVar = ("train",)
    options: URVFLWholeOptions

    def begin(self, view: AdversaryView) -> None:
        if not isinstance(view, LiveView) or view.own is None:
            raise InputError(
                "attack 'urvfl_whole' reads beside its own part of a row, and the active party holds none: "
                "set partition.active_has_features, or take urvfl"
            )
        self.own = view.own
        self.encoder = view.own.bottom(view.rng).train()
        with eval_mode(self.encoder), torch.no_grad():
            self.own_payload = tuple(self.encoder(view.own.auxiliary[:1]).shape[1:])
        self.own_row = tuple(view.own.auxiliary.shape[1:])
        super().begin(view)
        self.encoding = adam([self.shadow, self.encoder, self.decoder], self.options.lr, self.device)

    @property
    def read_shape(self) -> tuple[int, ...]:
        return joined_shape(self.own_row, tuple(self.view.row_shape))

    def reconstruct(self, payload: Tensor, ids: Tensor) -> Tensor:
        """The victim's part of Dec(E(own part), P); of somebody who took no part in the training the mean own part."""
        parts = self.own.auxiliary.mean(0, keepdim=True).repeat(len(ids), *[1] * len(self.own_row))
        known = ids >= 0
        if known.any():
            parts[known.to(parts.device)] = self.own.rows(ids[known]).to(parts)
        with eval_mode(self.encoder), torch.no_grad():
            own = torch.cat([self.encoder(some).float() for some in torch.split(parts, _ROWS_AT_ONCE)])
        guess = self._victims_part(self._decoded(joined(own, payload.to(self.device, torch.float32))))
        return guess.clamp(0, 1) if self.view.pixels else guess

    def _modules(self) -> list[nn.Module]:
        return [*super()._modules(), self.encoder]

    def _decoder(self, shape: tuple[int, ...], row: tuple[int, ...]) -> nn.Module:
        return super()._decoder(joined_shape(self.own_payload, tuple(shape)), joined_shape(self.own_row, tuple(row)))

    def _encode(self, chosen: Tensor) -> None:
        own, rows = self.own.auxiliary[chosen], self.view.auxiliary[chosen]
        whole = joined(own, rows)
        guess = self.decoder(joined(self.encoder(own), self.shadow(rows)))
        sgd_step(F.mse_loss(guess.view_as(whole), whole), self.encoding)

    def _read_shadow(self, chosen: Tensor) -> Tensor:
        own, rows = self.own.auxiliary[chosen], self.view.auxiliary[chosen]
        with eval_mode(self.shadow), eval_mode(self.encoder), torch.no_grad():
            return self._victims_part(self._decoded(joined(self.encoder(own).float(), self.shadow(rows).float())))

    def _victims_part(self, whole: Tensor) -> Tensor:
        axis = seam(self.own_row, tuple(self.view.row_shape))
        if axis is None:
            own = whole.flatten(1).shape[1] - torch.Size(self.view.row_shape).numel()
            return whole.flatten(1)[:, own:].reshape(len(whole), *self.view.row_shape)
        return whole.narrow(axis, self.own_row[axis - 1], self.view.row_shape[axis - 1])


def seam(first: tuple[int, ...], second: tuple[int, ...]) -> int | None:
    """The axis of a batch along which two maps make one, width before height; None where they do not fit together."""
    if len(first) == len(second) == 3:
        for axis in (3, 2):
            if all(a == b for place, (a, b) in enumerate(zip(first, second, strict=True)) if place != axis - 1):
                return axis
    return None


def joined(first: Tensor, second: Tensor) -> Tensor:
    """Both beside each other, the first left or above; as vectors where they are no maps that fit together."""
    axis = seam(tuple(first.shape[1:]), tuple(second.shape[1:]))
    return torch.cat([first.flatten(1), second.flatten(1)], 1) if axis is None else torch.cat([first, second], axis)


def joined_shape(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(joined(torch.empty(1, *first), torch.empty(1, *second)).shape[1:])
