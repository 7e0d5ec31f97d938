"""How far a weighted graph is from acyclic, and the gradient of that: the spectral radius and two alternatives.

Each is a function of the strengths B (R, d, d), not negative, row = cause, column = effect.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array

POSITIVE = 1e-6
"""Added to every entry: the dominant eigenvalue of a positive matrix is simple (Perron)."""


NOTHING = 1e-8
"""An edge no stronger than this is none."""


def has_cycle(adjacency: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(R,): whether some path leads back to its start; by squaring, for all replicates at once."""
    paths = adjacency.astype(np.float64)
    for _ in range(int(np.ceil(np.log2(max(2, adjacency.shape[1]))))):
        paths = np.minimum(paths + paths @ paths, 1.0)
    return np.asarray(np.trace(paths, axis1=1, axis2=2) > 0)


class Acyclicity(Protocol):
    def __call__(self, strengths: Array) -> tuple[Array, Array]:
        """Its value, (R,), 0 where the graph is acyclic, and its gradient, (R, d, d)."""
        ...


class Spectral:
    """ρ(B) by power iteration, warm from one call to the next; ∂ρ/∂B = u vᵀ / (uᵀ v), u and v held."""

    def __init__(self, iterations: int = 6, clip: float = 10.0) -> None:
        self.iterations, self.clip = iterations, clip
        self.left: Array | None = None
        self.right: Array | None = None

    def __call__(self, strengths: Array) -> tuple[Array, Array]:
        replicates, d, _ = strengths.shape
        a = strengths + POSITIVE
        if self.left is None or self.right is None or self.left.shape != (replicates, d, 1):
            self.left = np.full((replicates, d, 1), d**-0.5)
            self.right = self.left.copy()
        u, v = self.left, self.right
        # A graph of cycles of even length has −ρ among its eigenvalues too; a shift lets the iteration decide.
        shift = 0.5 * a.sum(2).mean(1)[:, None, None]
        for _ in range(self.iterations):
            u = a.swapaxes(1, 2) @ u + shift * u
            v = a @ v + shift * v
            u = u / np.linalg.norm(u, axis=1, keepdims=True)
            v = v / np.linalg.norm(v, axis=1, keepdims=True)
        self.left, self.right = u, v
        overlap = np.maximum((u * v).sum(1), POSITIVE)
        # Near an acyclic graph the two vectors hardly overlap, and the quotient says nothing.
        gradient = np.minimum(u * v.swapaxes(1, 2) / overlap[:, :, None], self.clip)
        value = (u * (a @ v)).sum((1, 2)) / overlap[:, 0]
        cyclic = has_cycle(strengths > NOTHING)
        return np.where(cyclic, value, 0.0), np.where(cyclic[:, None, None], gradient, 0.0)

    def state(self) -> dict[str, Array]:
        return {} if self.left is None or self.right is None else {"left": self.left, "right": self.right}

    def load_state(self, state: dict[str, Array]) -> None:
        self.left, self.right = state.get("left"), state.get("right")


class SpectralSquares(Spectral):
    """ρ(B∘B): weak edges hardly count, and an edge is pulled the more the stronger it is."""

    def __call__(self, strengths: Array) -> tuple[Array, Array]:
        value, gradient = super().__call__(strengths * strengths)
        return value, 2 * strengths * gradient


class TraceExponential:
    """tr(exp(B∘B)) − d (NO-TEARS)."""

    def __call__(self, strengths: Array) -> tuple[Array, Array]:
        e = _exponential(strengths * strengths)
        return np.trace(e, axis1=1, axis2=2) - strengths.shape[1], e.swapaxes(1, 2) * 2 * strengths

    def state(self) -> dict[str, Array]:
        return {}

    def load_state(self, state: dict[str, Array]) -> None:
        pass


class LogDeterminant:
    """−log det(sI − B∘B) + d log s (DAGMA), with s kept above the spectral radius of B∘B."""

    def __init__(self, s: float = 1.0) -> None:
        self.s = s

    def __call__(self, strengths: Array) -> tuple[Array, Array]:
        squares = strengths * strengths
        d = strengths.shape[1]
        # A norm bounds the spectral radius: beyond it the determinant may change its sign, and the term its meaning.
        s = np.maximum(self.s, 1.01 * squares.sum(2).max(1))[:, None, None]
        matrix = s * np.eye(d) - squares
        value = d * np.log(s[:, 0, 0]) - np.linalg.slogdet(matrix)[1]
        return value, np.linalg.inv(matrix).swapaxes(1, 2) * 2 * strengths

    def state(self) -> dict[str, Array]:
        return {}

    def load_state(self, state: dict[str, Array]) -> None:
        pass


def _exponential(a: Array) -> Array:
    """exp of each matrix, by scaling and squaring of its series."""
    squarings = int(max(0, np.ceil(np.log2(max(1e-30, np.abs(a).sum(2).max()))) + 3))
    a = a / 2**squarings
    total = term = np.broadcast_to(np.eye(a.shape[1]), a.shape)
    for power in range(1, 13):
        term = term @ a / power
        total = total + term
    for _ in range(squarings):
        total = total @ total
    return total


ACYCLICITY = {
    "spectral": Spectral,
    "spectral_squares": SpectralSquares,
    "trace_exponential": TraceExponential,
    "log_determinant": LogDeterminant,
}


State = TypeVar("State")


class TimeLimitReached(Exception):
    """Leaves a minimiser, which knows no clock."""


def augmented_lagrangian(
    solve: Callable[[State, float, float], tuple[State, float]],
    start: State,
    *,
    time_is_up: Callable[[], bool],
    log: Callable[..., None],
    rounds: int = 100,
    tolerance: float = 1e-8,
    penalty_limit: float = 1e16,
) -> State:
    """The state after h has come below the tolerance.

    `solve(state, multiplier, penalty)` minimises loss + multiplier · h + penalty / 2 · h², starting from the state, and
    returns the new one with its h. The penalty grows tenfold until a round has cut h to a quarter.
    """
    state, multiplier, penalty, h = start, 0.0, 1.0, math.inf
    for round_ in range(rounds):
        while True:
            found, new_h = solve(state, multiplier, penalty)
            log(round=round_, h=new_h, penalty=penalty)
            if new_h <= 0.25 * h or penalty >= penalty_limit or time_is_up():
                break
            penalty *= 10
        state, h = found, new_h
        multiplier += penalty * h
        if h <= tolerance or penalty >= penalty_limit or time_is_up():
            break
    return state
