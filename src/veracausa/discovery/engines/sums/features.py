"""What a party sums up: functions of its own columns, none of which tells single rows.

A party looks at its own columns before anything leaves. A column that tells fewer than `LEAST` rows from the others
takes no part, because its sums would be those rows' values at a partner. Gaps of so few rows are filled at home. A row
that the party's features single out by a combination of them is drawn towards the mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.crypto.moments import column_support
from veracausa.discovery.engines.sums.plan import LIMIT, SumsPlan
from veracausa.discovery.methods.moments.expansion import (
    LEAST,
    POWERS,
    ColumnKind,
    NodeLayout,
    column_kinds,
    expand,
)
from veracausa.errors import InputError

POWER_SCALES = (math.sqrt(2), math.sqrt(15))
"""The deviations of the square and the cube of a normal number: both are summed up in these units."""
HEAVY = 3.0
"""No row has more than so many times the mean leverage, or 1 / `LEAST` where that is more."""
ROUNDS = 8
SMALLEST_EIGENVALUE = 1e-11


@dataclass(frozen=True)
class OwnFeatures:
    """A party's features and which column each belongs to."""

    features: Array
    """(n, width), within the plan's limit."""
    nodes: tuple[NodeLayout | None, ...]
    """By the party's columns; None: it takes no part."""
    scales: Array
    """(d,): what one unit of each column's first function is in the column's own unit; nan where there is none."""
    notes: tuple[str, ...]

    @property
    def width(self) -> int:
        return int(self.features.shape[1])


def own_features(plan: SumsPlan, party: str, values: Array, kinds: Sequence[ColumnKind] | None = None) -> OwnFeatures:
    """The features of one party's columns, in the plan's order."""
    names = plan.columns[party]
    if values.shape != (plan.rows, len(names)):
        raise InputError(
            f"party {party!r}: {values.shape[0]} rows of {values.shape[1]} columns are given, the plan says "
            f"{plan.rows} of {len(names)}; align them again"
        )
    kinds = kinds or column_kinds(values, names)
    careful = not plan.settings.allow_small_n
    filled, kept, notes = _usable(values, names, kinds, careful)
    if not kept:
        raise InputError(f"party {party!r}: none of its columns can be summed up ({'; '.join(notes)})")
    functions, powers = plan.functions, True
    most = plan.most_features(party)
    while True:
        merged, said = _merged(filled, names, kinds, kept, most)
        made = expand(merged[:, kept], [names[at] for at in kept], [kinds[at] for at in kept], functions, powers=powers)
        features = made.features
        fits = made.width <= most
        if fits and careful:
            features, fits = _light(features, made.nodes)
        if fits:
            break
        if functions > 1:
            functions -= 1
        elif powers:
            powers = False
        elif len(kept) > 1:
            gone = _heaviest(made.features, made.nodes)
            notes.append(f"{names[kept[gone]]}: with other columns it tells single rows, takes no part")
            kept = [at for at in kept if at != kept[gone]]
            functions, powers = plan.functions, True
        else:
            raise InputError(f"party {party!r}: its columns tell single rows; give others, or set epsilon")
    notes += said
    if functions < plan.functions:
        notes.append(f"{party}: {functions} in place of {plan.functions} functions of a number, so that no row is told")
    if not powers:
        notes.append(f"{party}: no squares and cubes are summed up, rows are too few; tails tell no directions")
    nodes: list[NodeLayout | None] = [None] * len(names)
    scales = np.full(len(names), np.nan)
    for at, node, scale in zip(kept, made.nodes, made.scales, strict=True):
        nodes[at], scales[at] = node, scale
    return OwnFeatures(
        np.clip(features / _units(made.nodes), -LIMIT, LIMIT), tuple(nodes), scales, (*notes, *made.notes)
    )


def _units(nodes: Sequence[NodeLayout]) -> Array:
    """(width,): what 1 of each feature stands for."""
    parts = [[1.0] * node.functions + list(POWER_SCALES[: node.powers]) + [1.0] * node.mask for node in nodes]
    return np.array([unit for part in parts for unit in part])


def in_units(gram: Array, nodes: Sequence[NodeLayout]) -> Array:
    """Sums of products of features as they were before they were scaled to be sent."""
    units = _units(nodes)
    return np.asarray(gram * units[:, None] * units)


def _usable(
    values: Array, names: Sequence[str], kinds: Sequence[ColumnKind], careful: bool
) -> tuple[Array, list[int], list[str]]:
    """The columns with few gaps filled, which of them take part, and what was done."""
    filled, kept, notes = values.astype(np.float64, copy=True), [], []
    for at, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        column = filled[:, at]
        if np.isinf(column).any():
            raise InputError(f"column {name!r} holds an infinite value; correct it or leave the column out")
        gaps = np.isnan(column)
        if gaps.all():
            notes.append(f"{name}: holds no value at all, takes no part and stays without edges")
            continue
        few = 0 < gaps.sum() < LEAST or (gaps.any() and (~gaps).sum() < LEAST)
        if few and careful:
            column[gaps], what = _usual(column[~gaps], kind)
            notes.append(f"{name}: {int(gaps.sum())} missing values set to {what}")
        here = column[~np.isnan(column)]
        counts = np.unique(here, return_counts=True)[1]
        if len(counts) < 2:
            notes.append(f"{name}: constant, takes no part and stays without edges")
        elif careful and _thin(here, counts, kind):
            notes.append(
                f"{name}: tells fewer than {LEAST} rows from the others, takes no part and stays without edges"
            )
        else:
            kept.append(at)
    return filled, kept, notes


def _usual(column: Array, kind: ColumnKind) -> tuple[float, str]:
    if kind == "number":
        return float(np.median(column)), "the median"
    values, counts = np.unique(column, return_counts=True)
    return float(values[counts.argmax()]), "the most frequent value"


def _thin(column: Array, counts: NDArray[np.int_], kind: ColumnKind) -> bool:
    """Whether so few rows differ from the most frequent value, or from the merged categories, that sums tell them."""
    if kind == "nominal":
        common = counts >= LEAST
        groups = int(common.sum()) + int(counts[~common].sum() >= LEAST)
        return groups < 2
    return bool(column_support([column[:, None]], LEAST).thin(LEAST))


def _merged(
    values: Array, names: Sequence[str], kinds: Sequence[ColumnKind], kept: Sequence[int], most: int
) -> tuple[Array, list[str]]:
    """Nominal columns with their rarest categories merged where they would need more features than there is room."""
    left = max(2, most // max(1, len(kept)))
    merged, notes = values, []
    for at in kept:
        if kinds[at] != "nominal":
            continue
        here = values[:, at][~np.isnan(values[:, at])]
        codes, counts = np.unique(here, return_counts=True)
        if len(codes) - 1 <= left:
            continue
        order = np.argsort(-counts, kind="stable")
        rest = codes[order[left:]]
        merged = merged.copy() if merged is values else merged
        merged[np.isin(values[:, at], rest), at] = rest[0]
        notes.append(f"{names[at]}: the {len(rest)} rarest categories are merged, so that no row is told")
    return merged, notes


# ---- rows that a combination of features singles out -----------------------------------------------------------------


def leverages(features: Array) -> Array:
    """(n,): the largest share that a row can have in a combination of the features and a constant, squared."""
    whole = np.column_stack([np.ones(len(features)), features])
    gram = whole.T @ whole
    norms = np.sqrt(np.diag(gram))
    scale = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    values, vectors = np.linalg.eigh(gram * scale[:, None] * scale)
    kept = values > SMALLEST_EIGENVALUE * values[-1]
    turned = whole @ (scale[:, None] * vectors[:, kept] / np.sqrt(values[kept]))
    return np.asarray(np.square(turned).sum(axis=1))


def most_leverage(features: Array) -> float:
    """What no row's leverage may exceed: a row's leverage is the share of its other values that sums can tell."""
    return max(1 / LEAST, HEAVY * float(features.shape[1] + 1) / len(features))


def _light(features: Array, nodes: Sequence[NodeLayout]) -> tuple[Array, bool]:
    """The features with heavy rows drawn towards the mean, and whether that was enough."""
    bound = most_leverage(features)
    masks = _masks(nodes)
    there = np.ones(features.shape, dtype=bool)
    start = 0
    for node in nodes:
        if node.mask:
            there[:, start : start + node.width - 1] = features[:, [start + node.width - 1]] > 0
        start += node.width
    before = leverages(features)
    if before.max() <= bound:
        return features, True
    light = features.copy()
    now = before
    for _ in range(ROUNDS):
        factor = np.sqrt(np.minimum(1.0, 0.9 * bound / np.maximum(now, 1e-12)))
        factor = np.where(now > bound, factor, 1.0)
        light[:, ~masks] *= factor[:, None]
        light = _standardised(light, there, masks, features)
        now = leverages(light)
        if now.max() <= bound * (1 + 1e-9):
            return light, True
    return light, False


def _standardised(light: Array, there: Mask, masks: Mask, before: Array) -> Array:
    """Mean and mean square of each feature over the rows that have a value, as they were before."""
    out = light.copy()
    for at in np.flatnonzero(~masks):
        rows = there[:, at]
        column = out[rows, at]
        was = before[rows, at]
        spread = column.std()
        out[rows, at] = (column - column.mean()) * (was.std() / spread if spread > 0 else 0.0) + was.mean()
    return out


def _masks(nodes: Sequence[NodeLayout]) -> Mask:
    """(width,): which features are masks."""
    return np.array([k == node.width - 1 and bool(node.mask) for node in nodes for k in range(node.width)])


def _heaviest(features: Array, nodes: Sequence[NodeLayout]) -> int:
    """The column without which the largest leverage is least."""
    ends = np.cumsum([node.width for node in nodes])
    most = []
    for end, node in zip(ends.tolist(), nodes, strict=True):
        rest = np.delete(features, np.s_[end - node.width : end], axis=1)
        most.append(float(leverages(rest).max()))
    return int(np.argmin(most))


__all__ = ["POWERS", "POWER_SCALES", "OwnFeatures", "in_units", "leverages", "most_leverage", "own_features"]
