"""Differencing, against noise that is drawn once for each id: it cancels between two payloads of the same id.

While the bottom model trains, what is left of a difference is f_t(x) − f_s(x), free of noise. Several such differences,
stacked as channels, go into an oracle decoder. Meant against noise, offsets or masks that are fixed for an id; fresh
noise it makes worse. Granted what the inverse network is, the victim's model at several moments of the training, and a
transcript.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, FeatureAttack
from veracausa.attacks.decoding import DecoderAttack, DecoderOptions
from veracausa.attacks.transcript import aligned, nearest_payloads
from veracausa.errors import InputError


class DifferencingOptions(DecoderOptions):
    average: int | None = None
    """Payloads in one draw of the victim's model, where the defense is random."""


@attacks.register("differencing", DifferencingOptions)
class Differencing(DecoderAttack):
    """Subtracts payloads of one id from different exchanges and decodes the differences: against noise fixed by id."""

    uses_transcript = True
    options: DifferencingOptions

    def begin(self, view: AdversaryView) -> None:
        FeatureAttack.begin(self, view)
        moments = dict(view.oracle_at) if hasattr(view, "oracle_at") else {}
        if len(moments) < 2:
            raise InputError(
                "attack 'differencing' needs auxiliary rows and the victim's payloads for them at two moments of the "
                f"training at least (`oracle_at` has {len(moments)}); let the job keep models at moments, and record a "
                "transcript"
            )
        self.view, self.moments = view, moments
        source = self._auxiliary if view.fresh else self._auxiliary()
        self.like = self._auxiliary().float().cpu()
        self.learn(source, view)

    def reconstruct(self, payload: Tensor, ids: Tensor | None = None) -> Tensor:
        """From what crossed for these ids nearest to the moments, or from what is given moment by moment, (n, k, …)."""
        if payload.ndim == len(self.view.payload_shape) + 2:
            if payload.shape[1] != len(self.moments):
                raise InputError(
                    f"attack 'differencing' learnt from {len(self.moments)} moments ({', '.join(self.moments)}), "
                    f"and is given {payload.shape[1]}"
                )
            return super().reconstruct(differences(payload.float()), ids)
        if ids is None or not hasattr(self.view, "transcript"):
            raise InputError("attack 'differencing' needs payloads of several exchanges: record a transcript")
        transcript = self.view.transcript
        steps = [transcript.step_of(moment) for moment in self.moments]
        found, known = nearest_payloads(transcript, ids, steps)
        # Of somebody who never crossed nothing is known: the decoder is shown the mean difference.
        crossed = self.like.mean(0, keepdim=True).repeat(len(found), *[1] * (self.like.ndim - 1))
        crossed[known] = aligned(differences(found[known]), self.like)
        return super().reconstruct(crossed, ids)

    def notes(self) -> Mapping[str, float]:
        return {**super().notes(), "moments_used": float(len(self.moments))}

    def _auxiliary(self) -> Tensor:
        return differences(torch.stack([draw().float() for draw in self.moments.values()], 1))


def differences(payloads: Tensor) -> Tensor:
    """(n, (k − 1)·c, …) of (n, k, c, …): each moment less the one before; any other difference is a sum of these."""
    return payloads.diff(dim=1).flatten(1, 2)
