"""A discovery of a few rows, as `check_attack` shows it to an attack on columns: every field of the view is there."""

from __future__ import annotations

from typing import Any

import numpy as np

from veracausa.arrays import Array
from veracausa.attacks.base import Grant
from veracausa.attacks.columns import Candidates, ColumnGuess, ColumnView, Opened
from veracausa.attacks.sums import ColumnCurve, ReleasedSums
from veracausa.errors import InputError

ROWS, COLUMNS, WIDTH, SMALLEST = 24, 2, 3, 4
OF_COLUMNS = (
    Grant.KNOWN_ROWS
    | Grant.FIRST_WEIGHTS
    | Grant.VALIDATOR
    | Grant.OTHER_PARTIES
    | Grant.AUXILIARY
    | Grant.WEIGHTS
    | Grant.TAMPER
    | Grant.SECOND_RELEASE
)
"""What an attack on columns can be granted."""


def toy_column_view() -> ColumnView:
    """A source of two columns: what a target with two attributes opened of it, and sums over all its rows."""
    draw = np.random.default_rng(0)
    x, w = draw.standard_normal((ROWS, COLUMNS)), draw.standard_normal((COLUMNS, COLUMNS, WIDTH))
    features = np.einsum("nc,cth->nth", x, w)
    flat, first = features.reshape(ROWS, -1), w.reshape(COLUMNS, -1)
    opened = (Opened(np.arange(ROWS), flat, np.zeros_like(flat), None),)
    own = draw.standard_normal((ROWS, 1))
    return ColumnView(
        grants=OF_COLUMNS,
        columns=COLUMNS,
        own=own,
        last=features,
        mean=features.copy(),
        history=np.stack([flat, flat]),
        rng=np.random.default_rng(1),
        strengths=np.linalg.norm(w, axis=2),
        mean_strengths=np.linalg.norm(w, axis=2),
        candidates=Candidates(np.ones((1, COLUMNS, COLUMNS), dtype=bool), features[None].copy()),
        first=opened,
        first_range=float(np.abs(w).max()),
        first_weights=first,
        known=(np.arange(6), x[:6]),
        looked=(first.copy(), opened),
        **toy_sums(x, own),
    )


def toy_sums(x: Array, own: Array) -> dict[str, Any]:
    """The fields of a view of sums, where a column's functions are itself and its square."""
    functions = np.column_stack([x[:, 0], x[:, 0] ** 2, x[:, 1], x[:, 1] ** 2])
    mine = np.column_stack([own, own**2])

    def released(weights: Any = None) -> ReleasedSums:
        whole = np.column_stack([mine, functions])
        weighted = whole if weights is None else whole * weights[:, None]
        return ReleasedSums(whole.T @ weighted, np.arange(2), np.arange(2, 6), len(whole), weights=weights)

    def second(target: int) -> tuple[ReleasedSums, ReleasedSums]:
        return released(), released((np.arange(len(x)) != target).astype(np.float64))

    def cross_sums(features: Array) -> Array:
        if ((features != 0).sum(axis=0) < SMALLEST).any():
            raise InputError("a feature tells too few rows from the others")
        return features.T @ functions

    grid = np.linspace(-4.0, 4.0, 41)
    curves = tuple(
        ColumnCurve(
            "number",
            np.array([2 * at, 2 * at + 1]),
            grid,
            np.column_stack([grid, grid**2]),
            np.exp(-(grid**2) / 2),
            np.array([at]),
        )
        for at in range(COLUMNS)
    )
    return {
        "own_features": mine,
        "numbers": np.array([0, 2]),
        "positive": np.array([1, 3]),
        "sums": released(),
        "second": second,
        "weighted": lambda: tuple(
            released(np.asarray(np.arange(len(x)) % 3 * number, dtype=np.float64)) for number in (1, 2)
        ),
        "cross_sums": cross_sums,
        "smallest": SMALLEST,
        "targets": np.arange(3),
        "expected": np.zeros_like(x),
        "curves": curves,
        "known_features": functions[:6],
        "people": functions[:8].copy(),
    }


def check_guesses(first: ColumnGuess, second: ColumnGuess) -> None:
    """Two guesses from the same view have the right shape and are the same."""
    if first.membership is not None:
        assert second.membership is not None
        for name, values in first.membership.items():
            assert values.shape == (8,), f"`guess` gives {name!r} of shape {values.shape}, not (people,)"
            assert np.array_equal(values, second.membership[name]), "the same view and generator give another statistic"
        return
    rows = ROWS if first.at is None else len(first.at)
    count = first.values.shape[1] if first.values.ndim == 2 else -1
    assert first.values.shape == (rows, count), (
        f"`guess` gives values of shape {first.values.shape}, not (rows, guesses)"
    )
    assert not first.ordered or count == COLUMNS, "an ordered guess must have one column an attribute"
    assert np.array_equal(first.values, second.values, equal_nan=True), "the same view and generator give other columns"
