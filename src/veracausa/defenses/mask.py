"""The base of defenses that send only some values of a representation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from veracausa.defenses.base import Context, Defense
from veracausa.defenses.protocols import Diagnoses
from veracausa.defenses.risk_map import NotDifferentiable
from veracausa.models.runner import eval_mode


@dataclass
class _Masked(Context):
    """A context with the mask of what was sent."""

    mask: Tensor


class MaskDefense(Defense, Diagnoses):
    """Sends `r` times a mask of zeros and ones; the gradient reaches only what was sent."""

    def mask(self, r: Tensor, x: Tensor) -> Tensor:
        """Ones for what is sent, in the shape of `r` or of one row of it; never differentiated."""
        raise NotImplementedError

    def protect(self, r: Tensor, x: Tensor, ids: Tensor) -> Tensor:
        return r * self._held_mask(r, x)

    def forward(self, x: Tensor, ids: Tensor, step: int) -> tuple[Tensor, Context]:
        r = self.run_bottom(x)
        mask = self._held_mask(r, x)
        payload = r.detach() * mask
        return payload, _Masked(x, ids, step, r, payload, mask)

    def backward(self, context: Context, grad: Tensor, local_steps: int = 1) -> None:
        """Update the bottom by the gradient of what was sent; all local steps keep the mask of the exchange."""
        assert isinstance(context, _Masked)
        for local in range(local_steps):
            r = self.run_bottom(context.x) if local else context.representation
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(r, grad * context.mask)
            self.optimizer.step()

    def risk_map(self, x: Tensor, ids: Tensor) -> NotDifferentiable:
        return NotDifferentiable(
            "which values are sent depends on the row and changes by jumps; what is sent has no Jacobian"
        )

    def diagnose(self, x: Tensor, ids: Tensor) -> dict[str, float]:
        """How much of these rows' payloads is not zero, and how much of the representation's power that carries."""
        with eval_mode(self.bottom), torch.no_grad():
            r = self.bottom(x)
            sent = self.protect(r, x, ids).float()
        power = r.float().square().flatten(1).sum(1)
        return {
            "sent_values": float((sent != 0).float().mean()),
            "sent_power": float((sent.square().flatten(1).sum(1) / power.clamp_min(1e-30)).mean()),
        }

    def _held_mask(self, r: Tensor, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.mask(r.detach(), x.detach()).to(r.dtype)


def largest(values: Tensor, fraction: float) -> Tensor:
    """A mask of ones at each row's largest values, all but `fraction` of them; one at least. Ties: the first come."""
    flat = values.flatten(1)
    kept = max(1, flat.shape[1] - int(fraction * flat.shape[1] + 1e-9))
    chosen = flat.topk(kept, dim=1, sorted=False).indices
    return torch.zeros_like(flat).scatter(1, chosen, 1.0).view_as(values)
