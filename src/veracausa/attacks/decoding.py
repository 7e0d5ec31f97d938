"""A decoder from payloads to rows at a fixed strength, and the label that the active party knows beside a payload.

The decoder learns from payloads that the victim's own trained model and defense give for auxiliary rows. A linear
reader stands beside the network; with few pairs it reads more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from pydantic import Field
from torch import Tensor, nn

from veracausa.attacks.base import AdversaryView, FeatureAttack, Grant
from veracausa.attacks.fitting import FitOptions, Fitted, LinearReader, fit_decoder
from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.models.decoders import strong_decoder
from veracausa.models.layers import RobustInputScaling
from veracausa.seeding import drawing_from

_ROWS_AT_ONCE = 512
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_AFFORDABLE = 3e10
_MOST_PLANES = 8


@dataclass(frozen=True)
class LabelCode:
    """Labels as (n, width) numbers: one-hot classes, or the target of a regression, standardised."""

    classes: int
    """0 in a regression."""
    unknown: Tensor
    """(width,) What stands for a label that nobody knows: the mean code of the rows it was made of."""
    mean: float = 0.0
    scale: float = 1.0

    @classmethod
    def of(cls, labels: Tensor, classes: int) -> LabelCode:
        """The code of such labels; the scale of a target is that of these."""
        if classes and not labels.is_floating_point():
            code = cls(classes, labels.new_zeros(classes, dtype=torch.float32))
            return cls(classes, code(labels).mean(0))
        target = labels.float()
        scale = float(target.std(correction=0))
        return cls(0, target.new_zeros(1), float(target.mean()), scale if scale > 0 else 1.0)

    @property
    def width(self) -> int:
        return len(self.unknown)

    def __call__(self, labels: Tensor) -> Tensor:
        """(n, width); a class below 0, or a target that is not finite, is not known."""
        unknown = self.unknown.to(labels.device)
        if not self.classes:
            known = labels.float().isfinite()
            coded = ((labels.float() - self.mean) / self.scale).unsqueeze(1)
        else:
            known = labels >= 0
            coded = nn.functional.one_hot(labels.long().clamp(0, self.classes - 1), self.classes).float()
        return torch.where(known.unsqueeze(1), coded, unknown)

    def nothing(self, count: int) -> Tensor:
        """The code of rows whose labels nobody knows."""
        return self.unknown.expand(count, -1)


class LabelledDecoder(nn.Module):
    """The strong decoder, told the label's code too: as more values of a vector, or as a few more planes of a map.

    Weights come from PyTorch's default generator: build it inside `seeding.drawing_from`.
    """

    def __init__(self, payload: Sequence[int], row: Sequence[int], width: int, blocks: int, channels: int) -> None:
        super().__init__()
        maps = len(payload) == 3 and len(row) == 3
        shape = tuple(payload) if maps else (math.prod(payload),)
        # The first module of its kind: the training fits it to the payloads, without the label.
        self.level = RobustInputScaling(shape[0])
        self.planes = (min(width, _MOST_PLANES), *shape[1:]) if maps else (width,)
        self.spread = nn.Linear(width, math.prod(self.planes)) if maps else nn.Identity()
        self.body = strong_decoder((shape[0] + self.planes[0], *shape[1:]), row, blocks, channels)
        self.row = tuple(row)

    def forward(self, payload: Tensor, code: Tensor) -> Tensor:
        x = self.level(payload if len(self.planes) == 3 else payload.flatten(1))
        known = self.spread(code).view(len(x), *self.planes)
        row: Tensor = self.body(torch.cat([x, known.to(x.dtype)], 1))
        return row.view(len(x), *self.row)


class DecoderOptions(FitOptions):
    channels: int = Field(128, ge=1)
    blocks: int = Field(4, ge=0)
    average: int | None = Field(None, ge=1)
    """Payloads of one id to average where the defense is random; unset: as many as training showed, up to 32."""
    labels: bool = True
    """Whether it is told each row's label, where the active party's labels are at hand."""


class DecoderAttack(FeatureAttack):
    """An attack that decodes payloads with what it learnt from the victim's own payloads of auxiliary rows."""

    needs = Grant.AUXILIARY | Grant.WEIGHTS | Grant.DEFENSE
    uses = Grant.LABELS | Grant.LABELLED_AUXILIARY
    until_converged = "epochs"
    options: DecoderOptions

    def __init__(self, options: DecoderOptions) -> None:
        super().__init__(options)
        self.code: LabelCode | None = None
        self.labels: Tensor | None = None
        self.victims_labels: Tensor | None = None

    def draws(self, seen: int) -> int:
        return self.options.average or seen

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        self.learn(view.oracle if view.fresh or view.redrawn else view.oracle(), view)

    def learn(self, payloads: Tensor | Callable[[], Tensor], view: AdversaryView) -> None:
        """Fit to such payloads of the view's auxiliary rows, with their labels where the view has them."""
        told = self.options.labels and self.uses in view.grants
        labels = getattr(view, "auxiliary_labels", None) if told else None
        self.labels = getattr(view, "labels", None) if told else None
        self.fit(payloads, view.auxiliary, view.rng, view.progress, view.pixels, labels, view.classes)

    def fit(
        self,
        payloads: Tensor | Callable[[], Tensor],
        rows: Tensor,
        rng: torch.Generator,
        progress: ProgressCallback = lambda share: None,
        pixels: bool = True,
        labels: Tensor | None = None,
        classes: int = 0,
    ) -> Self:
        """Train on pairs; a callable gives fresh payloads of all `rows` for every epoch. On the device of `rows`.

        `labels` are those of the rows: of so many `classes`, or of a regression where there are none.
        """
        if len(rows) < 4:
            raise InputError(
                f"attack {self.options.name!r} needs at least 4 auxiliary rows to learn from, there are {len(rows)}"
            )
        self.pixels, self.device = pixels, rows.device
        first = payloads() if callable(payloads) else payloads
        if not first.isfinite().all():
            raise InputError("some payloads are not finite: no decoder can be trained on them")
        self.code = None if labels is None else LabelCode.of(labels.to(self.device), classes)
        known = None if labels is None or self.code is None else self.code(labels.to(self.device))
        shapes, sizes = (first.shape[1:], rows.shape[1:]), (self.options.blocks, self.options.channels)
        with drawing_from(rng):
            told = None if self.code is None else LabelledDecoder(*shapes, self.code.width, *sizes)
            decoder = told or strong_decoder(*shapes, *sizes)
        self.decoder: nn.Module = decoder.to(self.device)
        source = payloads if callable(payloads) else None
        self.fitted: Fitted = fit_decoder(self.decoder, first, rows, self.options, rng, progress, source, known)
        self.linear: LinearReader | None = None
        self.linear_share, self.held_out_mse = 0.0, self.fitted.held_out_mse
        affordable = linear_is_affordable(len(rows), first[0].numel())
        if affordable or known is not None:
            other = source() if source is not None else first
            self._add_linear(first.to(self.device, torch.float32), other.to(self.device), rows, known, affordable)
        return self

    def told(self, labels: Tensor | None) -> None:
        self.victims_labels = labels

    def reconstruct(self, payload: Tensor, ids: Tensor | None = None) -> Tensor:
        """The rows behind these payloads; pixels in [0, 1]."""
        known = self._known(len(payload), ids)
        parts = []
        for first in range(0, len(payload), _ROWS_AT_ONCE):
            part = payload[first : first + _ROWS_AT_ONCE].to(self.device, torch.float32)
            code = None if known is None else known[first : first + _ROWS_AT_ONCE]
            guess = self._decoded(part, code)
            if self.linear is not None and self.linear_share:
                guess = torch.lerp(guess, self._bounded(self.linear(self._level(part), code)), self.linear_share)
            parts.append(guess)
        return torch.cat(parts)

    def _known(self, count: int, ids: Tensor | None) -> Tensor | None:
        """The codes of the victims' labels: as told, else as the ids say, else of nobody in particular."""
        if self.code is None:
            return None
        told = self.victims_labels
        if told is not None and len(told) == count:
            return self.code(told.to(self.device))
        if self.labels is None or ids is None:
            return self.code.nothing(count).to(self.device)
        ids = ids.to(self.labels.device)
        code = self.code(self.labels[ids.clamp(min=0)])
        return torch.where((ids >= 0).unsqueeze(1), code, self.code.nothing(count).to(code)).to(self.device)

    def notes(self) -> Mapping[str, float]:
        return {
            "held_out_mse": self.held_out_mse,
            "best_epoch": float(self.fitted.best_epoch),
            "linear_share": self.linear_share,
            "labels_told": float(self.code is not None),
        }

    def _add_linear(
        self, payloads: Tensor, other: Tensor, rows: Tensor, known: Tensor | None, affordable: bool
    ) -> None:
        """A linear reader beside the network, in the share that does best on the held-out pairs.

        With a few hundred pairs it reads more than any network does; with thousands its share is nearly nothing. Where
        it would take too long to fit it to the payloads, it has the labels alone.
        """
        learnt, held = self.fitted.learnt, self.fitted.held
        of_learnt, of_held = (None, None) if known is None else (known[learnt], known[held])
        other_held = other[held].float()
        decoded = self._decoded(other_held, of_held)
        read_held = self._level(other_held)
        read_learnt = self._level(payloads[learnt]) if affordable else None
        beside = (read_held if affordable else None, of_held, rows[held])
        self.linear = LinearReader.fit(read_learnt, of_learnt, rows[learnt], beside)
        read = self._bounded(self.linear(read_held, of_held))
        errors = {share: float((torch.lerp(decoded, read, share) - rows[held]).square().mean()) for share in _SHARES}
        self.linear_share = min(errors, key=lambda share: errors[share])
        self.held_out_mse = errors[self.linear_share]

    def _level(self, payloads: Tensor) -> Tensor:
        level = RobustInputScaling.of(self.decoder)
        assert level is not None
        with torch.no_grad():
            levelled: Tensor = level(level.shaped(payloads))
        return levelled

    def _decoded(self, payloads: Tensor, code: Tensor | None) -> Tensor:
        with torch.no_grad():
            told = () if code is None else (code,)
            return self._bounded(self.decoder(payloads, *told).float())

    def _bounded(self, guess: Tensor) -> Tensor:
        return guess.clamp(0, 1) if self.pixels else guess


def linear_is_affordable(rows: int, features: int) -> bool:
    """Whether a closed-form fit is a matter of seconds: its cost is min² · max of the two."""
    return min(rows, features) ** 2 * max(rows, features) <= _AFFORDABLE
