"""The attacker that reads lightness and guesses colour, against defenses that disguise colour.

A decoder trained on the victim's own payloads for auxiliary rows predicts CIELAB's L alone; a and b are the mean of the
auxiliary rows of the victim's class, whose label the active party knows. Where a defense has made colour unreadable
or misleading, a decoder of all three channels spends itself on it; this one does not.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor, nn

from veracausa.attacks import attacks
from veracausa.attacks.base import AdversaryView, FeatureAttack, Grant
from veracausa.attacks.fitting import FitOptions, Fitted, fit_decoder
from veracausa.data.colour import lab_to_rgb, rgb_to_lab
from veracausa.errors import InputError
from veracausa.models.decoders import strong_decoder
from veracausa.seeding import drawing_from

_ROWS_AT_ONCE = 512
_WHITE = 100.0


class ColourPriorOptions(FitOptions):
    channels: int = Field(128, ge=1)
    blocks: int = Field(4, ge=0)
    average: int | None = Field(None, ge=1)
    """Payloads of one id to average where the defense is random; unset: as many as training showed, up to 32."""


@attacks.register("colour_prior", ColourPriorOptions)
class ColourPrior(FeatureAttack):
    """A decoder of lightness alone, trained on the victim's own payloads; colours are the mean of the class."""

    needs = Grant.AUXILIARY | Grant.LABELLED_AUXILIARY | Grant.LABELS | Grant.WEIGHTS | Grant.DEFENSE
    until_converged = "epochs"
    options: ColourPriorOptions

    def draws(self, seen: int) -> int:
        return self.options.average or seen

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        rows = view.auxiliary
        if not view.pixels or len(view.row_shape) != 3 or view.row_shape[0] != 3:
            raise InputError(
                f"attack 'colour_prior' fills in colours, and the rows of {view.victim} have none: "
                "use it for pictures of three channels"
            )
        if len(rows) < 4:
            raise InputError(f"attack 'colour_prior' needs at least 4 auxiliary rows, there are {len(rows)}")
        self.device, self.labels = view.device, view.labels.to(view.device)
        lab = rgb_to_lab(rows.to(self.device, torch.float32))
        self.colours = class_colours(lab[:, 1:], view.auxiliary_labels.to(self.device), view.classes)
        payloads = view.oracle()
        if not payloads.isfinite().all():
            raise InputError("attack 'colour_prior': some payloads are not finite: no decoder can be trained on them")
        shape = (1, *view.row_shape[1:])
        with drawing_from(view.rng):
            decoder = strong_decoder(payloads.shape[1:], shape, self.options.blocks, self.options.channels)
        self.decoder: nn.Module = decoder.to(self.device)
        fresh = view.oracle if view.fresh or view.redrawn else None
        self.fitted: Fitted = fit_decoder(
            self.decoder, payloads, lab[:, :1] / _WHITE, self.options, view.rng, view.progress, fresh
        )

    def reconstruct(self, payload: Tensor, ids: Tensor | None = None) -> Tensor:
        """Pictures in [0, 1].

        `ids` are positions in the training split. One out of its range, such as −1, has no label that the attacker
        could know, and gets the mean colour of all classes.
        """
        colours = self.colours[self._classes(len(payload), ids)]
        parts = []
        with torch.no_grad():
            for some, ab in zip(
                torch.split(payload.to(self.device, torch.float32), _ROWS_AT_ONCE),
                torch.split(colours, _ROWS_AT_ONCE),
                strict=True,
            ):
                parts.append(lab_to_rgb(torch.cat([_WHITE * self.decoder(some).float(), ab], 1)))
        return torch.cat(parts)

    def notes(self) -> Mapping[str, float]:
        return {"held_out_luminance_mse": self.fitted.held_out_mse, "best_epoch": float(self.fitted.best_epoch)}

    def _classes(self, count: int, ids: Tensor | None) -> Tensor:
        """For each payload the number of its class, or the number after the last where that is not known."""
        unknown = len(self.colours) - 1
        if ids is None or self.labels.is_floating_point():
            return torch.full((count,), unknown, device=self.device)
        ids = ids.to(self.device)
        known = (ids >= 0) & (ids < len(self.labels))
        found = self.labels[ids.clamp(0, len(self.labels) - 1)].long()
        return torch.where(known & (found >= 0) & (found < unknown), found, unknown)


def class_colours(ab: Tensor, labels: Tensor, classes: int) -> Tensor:
    """(classes + 1, 2, h, w): the mean a and b of every class, pixel by pixel, and last the mean over classes.

    A class without rows gets that mean too; in a regression, where `classes` is 0, it is the mean of all rows.
    """
    found = [ab[labels == label].mean(0) for label in range(classes) if (labels == label).any()]
    overall = torch.stack(found).mean(0) if found else ab.mean(0)
    means = overall.expand(classes + 1, *overall.shape).clone()
    for label in range(classes):
        if (same := labels == label).any():
            means[label] = ab[same].mean(0)
    return means
