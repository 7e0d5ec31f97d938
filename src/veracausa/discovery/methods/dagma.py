"""DAGMA (Bello et al. 2022), by its authors' package: the log-determinant constraint, linear or with networks.

No extra installs that package, because it needs igraph, which is GPL. Who wants to compare installs it by hand.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from veracausa import seeding
from veracausa.arrays import Array
from veracausa.data.causal.columns import PreparedColumns
from veracausa.discovery.acyclicity import TimeLimitReached
from veracausa.discovery.base import CausalDiscovery
from veracausa.discovery.methods import method
from veracausa.errors import InputError


def _package(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(
            "method dagma: the package `dagma` is missing, which no extra brings because it needs igraph (GPL); "
            "install it by hand (pip install dagma), or take another method"
        ) from None


@method("dagma")
@dataclass(kw_only=True, eq=False, repr=False)
class Dagma(CausalDiscovery):
    """Strength = |coefficient|."""

    sparsity: float = 0.03
    warm_iterations: int = 30_000
    iterations: int = 60_000

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> Array:
        linear = _package("dagma.linear").DagmaLinear

        class Timed(linear):  # type: ignore[misc, valid-type]
            def _adam_update(self, *arguments: Any) -> Any:
                if time_is_up():
                    raise TimeLimitReached
                return super()._adam_update(*arguments)

        model = Timed(loss_type="l2")
        with _no_progress_bar("dagma.linear"):
            try:
                # The package centres the array it is given in place.
                model.fit(
                    data.values.copy(),
                    lambda1=self.sparsity,
                    w_threshold=0.0,
                    warm_iter=self.warm_iterations,
                    max_iter=self.iterations,
                )
            except TimeLimitReached:
                self.notes_ += ("dagma: out of time; the graph of the last stage that was finished",)
        return np.asarray(model.W_est)


@method("dagma_mlp")
@dataclass(kw_only=True, eq=False, repr=False)
class DagmaMLP(CausalDiscovery):
    """Strength = the norm of a column's weights into the other's hidden units. Slow: hours where n or d are large."""

    fast_settings: ClassVar[Mapping[str, Any]] = {"warm_iterations": 1000, "iterations": 2000}

    hidden: int = 10
    sparsity: float = 0.02
    decay: float = 0.005
    warm_iterations: int = 50_000
    iterations: int = 80_000

    def learn(self, data: PreparedColumns, time_is_up: Callable[[], bool]) -> Array:
        package = _package("dagma.nonlinear")
        # Its constructors draw from torch's default generator and change torch's default type.
        before = torch.get_default_dtype()
        try:
            with seeding.drawing_from(seeding.generator(self.seed, "dagma-mlp")):
                network = package.DagmaMLP(dims=[data.values.shape[1], self.hidden, 1], bias=True, dtype=torch.double)

            class Timed(package.DagmaNonlinear):  # type: ignore[misc, name-defined]
                def log_mse_loss(self, *arguments: Any) -> Any:
                    if time_is_up():
                        raise TimeLimitReached
                    return super().log_mse_loss(*arguments)

            with _no_progress_bar("dagma.nonlinear"):
                try:
                    Timed(network, dtype=torch.double).fit(
                        data.values.copy(),
                        lambda1=self.sparsity,
                        lambda2=self.decay,
                        w_threshold=0.0,
                        warm_iter=self.warm_iterations,
                        max_iter=self.iterations,
                    )
                except TimeLimitReached:
                    self.notes_ += ("dagma-mlp: out of time; the graph as it was then",)
        finally:
            torch.set_default_dtype(before)
        return np.asarray(network.fc1_to_adj())


@contextmanager
def _no_progress_bar(module: str) -> Iterator[None]:
    """The package draws a bar on the user's terminal; give it one that is silent."""
    package: Any = importlib.import_module(module)
    drawn = package.tqdm

    def silent(*arguments: Any, **settings: Any) -> Any:
        return drawn(*arguments, **{**settings, "disable": True})

    package.tqdm = silent
    try:
        yield
    finally:
        package.tqdm = drawn
