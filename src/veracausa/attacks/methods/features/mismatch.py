"""Generator against bottom: the server never sees the bottom's own output, and estimates it from an id's history.

An adaptive defense sends G(x), near to f(x) only late in the training, when it adapts little. The attacker learns, on
ids of the transcript, a linear map from an id's early payloads to its last ones, and decodes what that map says of an
id: the part of its history that agrees with the end. Meant against CausShield, where iterations decay, and against
any defense whose disturbance differs from epoch to epoch. Granted what the inverse network is, and a transcript.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView
from veracausa.attacks.decoding import DecoderAttack, DecoderOptions
from veracausa.attacks.transcript import aligned, nearest_payloads
from veracausa.errors import InputError
from veracausa.metrics.leakage import Ridge, best_penalty, fit_ridge

_POSITIONS = 20_000
_HELD = 5


class MismatchOptions(DecoderOptions):
    early: int = Field(3, ge=1)
    """Payloads of an id that the estimate is made of, spread over the training before its end."""
    learnt: int = Field(512, ge=8)
    """Ids of the transcript that the map is learnt on."""


@attacks.register("mismatch", MismatchOptions)
class Mismatch(DecoderAttack):
    """Estimates the bottom's undisturbed output from an id's early payloads, and decodes the estimate."""

    uses_transcript = True
    options: MismatchOptions

    def begin(self, view: AdversaryView) -> None:
        if not hasattr(view, "transcript"):
            raise InputError("attack 'mismatch' needs what crossed while the victim trained: record a transcript")
        super().begin(view)
        self.view, self.transcript = view, view.transcript
        self.like = view.oracle().float().cpu()
        seen, last = set[int](), 1
        for exchange in self.transcript:
            last = exchange.step
            if len(seen) < self.options.learnt:
                seen.update(exchange.ids.tolist())
        parts = self.options.early + 1
        self.steps = [max(1, round(last * number / parts)) for number in range(1, parts)]
        self.last = last
        ids = torch.tensor(sorted(seen))
        ids = ids[torch.randperm(len(ids), generator=view.rng)][: self.options.learnt]
        history, _ = nearest_payloads(self.transcript, ids, [*self.steps, last])
        self.map = late_from_early(history[:, :-1], history[:, -1], view.rng)
        told = self._estimated(history[:, :-1])
        self.explained = 1 - float((told - history[:, -1]).square().mean() / history[:, -1].var().clamp(min=1e-12))

    def reconstruct(self, payload: Tensor, ids: Tensor | None = None) -> Tensor:
        """From the estimate of these ids' late payloads; who took no part is read from the payload given."""
        if ids is None:
            raise InputError("attack 'mismatch' reads ids of the transcript: say which")
        payload = payload.float().cpu().clone()
        early, known = nearest_payloads(self.transcript, ids, self.steps)
        if known.any():
            payload[known] = aligned(self._estimated(early[known]), self.like)
        return super().reconstruct(payload, ids)

    def notes(self) -> Mapping[str, float]:
        return {**super().notes(), "explained": self.explained}

    def _estimated(self, early: Tensor) -> Tensor:
        inputs = samples(early.flatten(1, 2))
        shape = (len(early), *early.shape[3:], early.shape[2])
        return self.map(inputs).view(shape).movedim(-1, 1)


def samples(payloads: Tensor) -> Tensor:
    """(n·positions, channels): every place of a map is a sample; a vector is one."""
    return payloads.movedim(1, -1).reshape(-1, payloads.shape[1])


def late_from_early(early: Tensor, late: Tensor, rng: torch.Generator) -> Ridge:
    """The ridge regression of late payloads (n, c, …) on early ones (n, k, c, …), the same at every place of a map."""
    inputs, outputs = samples(early.flatten(1, 2)), samples(late)
    chosen = torch.randperm(len(inputs), generator=rng)[:_POSITIONS]
    held, learnt = chosen[: max(1, len(chosen) // _HELD)], chosen[len(chosen) // _HELD :]
    penalty, _ = best_penalty(inputs[learnt], outputs[learnt], inputs[held], outputs[held])
    return fit_ridge(inputs[chosen], outputs[chosen], penalty)
