"""A defense with layers of its own; in a module of its own so that spawned processes find it."""

from __future__ import annotations

from torch import nn

from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.registry import Options


class LayeredOptions(Options):
    channels: int = 3
    pool: int = 2


class Layered(Defense):
    """Fewer channels on a coarser map, or fewer values; nothing else."""

    options: LayeredOptions
    Options = LayeredOptions

    def layers(self, shape):
        if len(shape) == 1:
            return nn.Linear(shape[0], self.options.channels)
        pool = self.options.pool
        return nn.Sequential(nn.AvgPool2d(pool, ceil_mode=True), nn.Conv2d(shape[0], self.options.channels, 1))


def registered(monkeypatch) -> None:
    """`layered` can be chosen by a job until the test ends."""
    defenses.names()
    monkeypatch.setitem(defenses._entries, "layered", (Layered, LayeredOptions))
