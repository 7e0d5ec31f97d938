"""A defense that prepares for a while; in a module of its own so that spawned processes find it."""

from __future__ import annotations

import os
import signal
import time
from itertools import count
from typing import Any

import torch

from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.registry import Options


class SlowOptions(Options):
    seconds: float = 0.0
    dies: bool = False
    silent: bool = False


@defenses.register("slow", SlowOptions)
class Slow(Defense):
    """Prepares a number for so many seconds, with a word every 20 ms."""

    options: SlowOptions
    times = 0

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.offset = torch.zeros(())

    def prepare(self, data, progress=lambda share: None):
        Slow.times += 1
        end = time.monotonic() + self.options.seconds
        for number in count():
            left = end - time.monotonic()
            if self.options.dies and number == 60:  # by then it has given a sign of life
                os.kill(os.getpid(), signal.SIGKILL)
            elif left <= 0 and not self.options.dies:
                break
            time.sleep(0.02)
            if not self.options.silent:
                progress(1 - left / self.options.seconds)
        self.offset = data.take(torch.arange(len(data))).mean()

    def prepared(self):
        return {"offset": self.offset}

    def load_prepared(self, kept, data=None):
        self.offset = kept["offset"]

    def quality_checks(self):
        return {"offset": float(self.offset), "structure_lost": False}

    def protect(self, r, x, ids):
        return r + self.offset

    def diagnose(self, x, ids):
        return {"offset": float(self.offset), "mean": float(x.mean()), "broken": float("nan")}


def small_network(shape: tuple[int, ...], outputs: int) -> torch.nn.Module:
    """A network whose module brings the defense with it into a spawned process."""
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.LazyLinear(6), torch.nn.ReLU(), torch.nn.LazyLinear(outputs)
    )
