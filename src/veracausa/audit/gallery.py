"""Pictures of an attack, kept small: originals, what the attack made of them, and the blind guess beside them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from veracausa.runs.atomic import atomic_write

MOST_BYTES = 8 << 20
_SHOWN = 12
_HEIGHT = 64


@dataclass(frozen=True)
class Gallery:
    """Training victims as bytes, in the order the audit drew them."""

    positions: Tensor
    truth: Tensor
    guess: Tensor
    blind: Tensor
    mse: Tensor

    @classmethod
    def of(cls, positions: Tensor, truth: Tensor, guess: Tensor, blind: Tensor, mse: Tensor) -> Gallery:
        """As many as fit into a few megabytes; the audit draws victims at random, so the first are as good as any."""
        count = max(1, min(len(truth), MOST_BYTES // max(1, 3 * truth[0].numel())))
        truth, guess, blind = (_bytes(pictures[:count]) for pictures in (truth, guess, blind))
        return cls(positions[:count].cpu(), truth, guess, blind, mse[:count].float().cpu())

    def write(self, path: Path) -> None:
        """As one safetensors file that a report reads without torch."""
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {name: value.contiguous() for name, value in vars(self).items()}
        atomic_write(path, save(tensors))

    def write_sheet(self, path: Path) -> None:
        """Originals above, what the attack made of them below, as a PNG; from the best read to the worst."""
        try:
            from PIL import Image
        except ImportError:
            return
        if not len(self.truth) or self.truth.shape[1] not in (1, 3):
            return
        # Evenly: the first alone would flatter the attack.
        order = self.mse.argsort()
        shown = order[torch.linspace(0, len(order) - 1, min(_SHOWN, len(order))).round().long()]
        scale = max(1, _HEIGHT // self.truth.shape[2])
        rows = [
            torch.cat([*torch.nn.functional.pad(pictures[shown], (1, 1, 1, 1), value=255)], 2)
            for pictures in (self.truth, self.guess)
        ]
        grid = torch.cat(rows, 1).repeat_interleave(scale, 1).repeat_interleave(scale, 2)
        pixels = grid[0].numpy() if grid.shape[0] == 1 else grid.permute(1, 2, 0).contiguous().numpy()
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)


def _bytes(pictures: Tensor) -> Tensor:
    return pictures.detach().clamp(0, 1).mul(255).round().to("cpu", torch.uint8)
