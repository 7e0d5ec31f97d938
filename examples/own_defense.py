"""A defense of one's own: clip and round what leaves a passive party. It may leak less; it is not private."""

from pydantic import Field
from torch import Tensor

import veracausa
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.defenses.risk_map import NotDifferentiable
from veracausa.registry import Options


class CoarseOptions(Options):
    limit: float = Field(4.0, gt=0)
    levels: int = Field(16, ge=2)


@defenses.register("coarse", CoarseOptions)
class Coarse(Defense):
    """Clips every value to [-limit, limit] and rounds it to so many levels."""

    options: CoarseOptions

    def protect(self, r: Tensor, x: Tensor, ids: Tensor) -> Tensor:
        clipped = r.clamp(-self.options.limit, self.options.limit)
        size = 2 * self.options.limit / (self.options.levels - 1)
        # Rounding has no gradient. Training takes that of the clipped value; the risk meter must not (see risk_map).
        return clipped + ((clipped / size).round() * size - clipped).detach()

    def risk_map(self, x: Tensor, ids: Tensor) -> NotDifferentiable:
        return NotDifferentiable("it rounds, so what is sent changes by jumps")


if __name__ == "__main__":
    job = {"data": {"name": "digits"}, "model": {"name": "convnet"}, "training": {"epochs": 3, "batch_size": 64}}
    plain = veracausa.train({**job, "name": "plain"})
    coarse = veracausa.train({**job, "name": "coarse", "defense": {"name": "coarse", "levels": 8}})
    for run in (plain, coarse):
        print(f"{run.job.name}: test accuracy {run.summary['accuracy']:.3f}")
