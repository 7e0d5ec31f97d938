"""Does this table look like what the method suits? Figures of each attribute on held-out rows, and warnings in words.

A party works its own attributes' figures out at home, from what it has opened of these rows anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.discovery.privacy.mechanism import said

if TYPE_CHECKING:
    from veracausa.discovery.methods.vfedcd.settings import Settings


FIGURES = ("explained", "linear", "skewness", "excess kurtosis")
"""Of an attribute: the share of its variance that its network explains, and a linear fit on the same causes; and how
far from normal its residuals are."""
ROWS_A_CAUSE = 3
"""A linear fit with fewer rows for each of its causes is not made."""
SUITS = (
    "suits columns whose relations are curved, whose causes explain most of their variance, and whose noise is added "
    "and normal; elsewhere edges are missed or point the wrong way"
)
"""What is said of the method with every graph."""
TWO_VALUES = "edges between columns of two values and others may point the wrong way"
"""What is said where a table has both: it was seen on small tables, and is not explained."""
LINEAR = 0.9
"""A linear fit that has this share of the networks' gain in likelihood predicts as well as they do."""
LITTLE = 0.5
"""Causes that explain less than this of an attribute, at the median, explain little."""
SKEWED = 0.4
"""Residuals with this skewness, at the median, are not normal: of 160 normal ones one in twenty has as much."""


def figures(prediction: Array, target: Array, causes: Sequence[Array], binary: Mask, trained: int) -> Array:
    """(m, 4) of attributes (n, m); `causes` has what may enter each of them, (n, any), and `trained` is how many
    other rows the networks learnt from. nan: it can not be said."""
    found = np.full((target.shape[1], len(FIGURES)), np.nan)
    if len(target) < 2:
        return found
    residual = target - prediction
    spread = np.square(target - target.mean(0)).sum(0)
    for at in np.flatnonzero(spread > 0).tolist():
        left = residual[:, at] - residual[:, at].mean()
        scale = np.sqrt(np.square(left).mean())
        found[at, 0] = 1 - np.square(residual[:, at]).sum() / spread[at]
        found[at, 1] = 1 - _left_by_a_line(target[:, at], causes[at], trained) / spread[at]
        if scale > 0 and not binary[at]:
            found[at, 2] = (left**3).mean() / scale**3
            found[at, 3] = (left**4).mean() / scale**4 - 3
    return found


def _left_by_a_line(target: Array, causes: Array, trained: int) -> float:
    """The sum of squared errors that a linear fit to so many other rows would have; nan where rows are too few.

    The networks learnt from other rows than these. So a line fitted to these gets no credit for having seen them.
    """
    basis = np.column_stack([np.ones(len(target)), causes])
    left, values, _ = np.linalg.svd(basis, full_matrices=False)
    left = left[:, values > 1e-7 * values[0]]
    free = len(target) - left.shape[1]
    if len(target) < ROWS_A_CAUSE * left.shape[1]:
        return float("nan")
    variance = np.square(target - left @ (left.T @ target)).sum() / free
    return float(variance * len(target) * (1 + left.shape[1] / trained))


def warnings(found: Array, adjacency: Mask) -> tuple[str, ...]:
    """What in these figures (d, 4) speaks against the graph, in words; nothing where nobody worked them out."""
    explained, linear, skewness, _ = found.T
    # Of attributes with a cause; where the graph is empty, of those that anything explains.
    judged = adjacency.any(axis=0) if adjacency.any() else explained > 1 - LINEAR
    judged = judged & np.isfinite(explained)
    said = []
    both = judged & np.isfinite(linear)
    curved, straight = _gain(explained[both]), _gain(linear[both])
    if curved > 0 and straight >= LINEAR * curved:
        said.append(
            f"relations look linear: a linear fit has {min(straight / curved, 1.0):.0%} of what the networks gain on "
            "held-out rows, and this method tells cause from effect by curvature; read edges as associations, "
            "and their directions as guesses"
        )
    if judged.any() and (median := float(np.median(explained[judged]))) < LITTLE:
        said.append(
            f"causes explain little: {max(median, 0.0):.0%} of an attribute's variance on held-out rows (median over "
            "those with a cause); expect missing and reversed edges"
        )
    known = np.isfinite(skewness)
    if known.any() and (median := float(np.median(np.abs(skewness[known])))) >= SKEWED:
        said.append(
            f"noise looks skewed (skewness {median:.1f}, median over attributes), and this method fits normal noise; "
            "edges can be reversed throughout: a logarithm or ranks of skewed columns may help"
        )
    return tuple(said)


def _gain(explained: Array) -> float:
    """The likelihood that such shares of variance are worth, in nats."""
    return float(-0.5 * np.log(1 - np.clip(explained, 0.0, 0.999)).sum())


OPENED_FEATURES = (
    "no encryption hides this: a party opens the features of its own attributes for every row, which are mixtures of "
    "the other parties' columns, and enough of them can be solved for those columns; strong = true opens only sums"
)
"""Of every discovery between parties but one in the strong mode."""


def protection_in_words(
    settings: Settings, engine: str, parties: int, noise: Mapping[str, Any] | None, resamples_apart: bool
) -> tuple[str, ...]:
    """Notes on a fit of so many parties by this engine."""
    notes = []
    if engine == "federated" and settings.strong:
        alone = "no two of the three that compute collude"
        if settings.strong == "dealer":
            alone = "the validator keeps its masks to itself"
        notes.append(
            f"strong: of rows only sums over batches were opened, if {alone} and links are encrypted; here all "
            "parties ran in one place"
        )
    if engine == "federated" and settings.encryption == "none" and not settings.strong:
        notes.append(
            "encryption none: the parties exchanged the protocol's messages, but nothing in them was encrypted; "
            "this is a simulation and protects nobody"
        )
    if engine == "federated" and not settings.strong:
        notes.append(OPENED_FEATURES)
    if engine == "federated" and settings.validator == "M1":
        notes.append("validator M1: it was sent all weights, and with any one party's help it can read all columns")
    if engine == "federated" and settings.threshold == "held_out_graphs":
        notes.append(
            "threshold held_out_graphs: held-out rows were opened under every candidate graph, and differences "
            "of these show single columns"
        )
    if engine == "floating" and parties > 1:
        notes.append("engine floating: all columns were in one place, and no party was protected from another")
    if noise is not None:
        notes.append(said(noise))
    if engine == "federated" and not resamples_apart:
        notes.append(
            "the resamples were trained with all columns in one place (engine = 'federated' trains them apart)"
        )
    return tuple(notes)
