"""What a party sums up: functions of its own columns, none of which tells single rows.

A party looks at its own columns before anything leaves. A column that tells fewer than `LEAST` rows from the others
takes no part, because its sums would be those rows' values at a partner. Gaps of so few rows are filled at home. Ends
of curves are evened out, see `leverage`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array
from veracausa.crypto.moments import column_support
from veracausa.data.causal.columns import prepare
from veracausa.discovery.engines.sums.clipping import shortened, units_under_noise
from veracausa.discovery.engines.sums.leverage import heaviest, leverages, tamed
from veracausa.discovery.engines.sums.plan import LIMIT, SumsPlan
from veracausa.discovery.methods.moments.expansion import (
    LEAST,
    ColumnKind,
    Expansion,
    NodeLayout,
    PairLayout,
    column_kinds,
    expand,
)
from veracausa.errors import InputError

POWER_SCALES = (math.sqrt(2), math.sqrt(15))
"""The deviations of the square and the cube of a normal number: both are summed up in these units."""
LEVERAGE = 0.25
"""What no row's leverage may exceed where parties open the sums themselves."""
SINGLED_OUT = 0.5
"""Where a validator opens them, which has no columns, a larger leverage is said: a party that shows it its own columns
lets it read such a row."""


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
    pairs: tuple[PairLayout, ...] = ()
    """Of which two columns products follow behind the features of all columns."""
    warnings: tuple[str, ...] = ()
    """What speaks against any graph of these columns."""

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
    settings = plan.settings
    filled, kept, notes = _usable(values, names, kinds, not settings.allow_small_n)
    if not kept:
        raise InputError(f"party {party!r}: none of its columns can be summed up ({'; '.join(notes)})")
    nominal = [names[at] for at in kept if kinds[at] == "nominal"]
    looked = prepare(filled[:, kept], [names[at] for at in kept], missing="pairwise", nominal=nominal)
    notes += looked.notes
    kept = [kept[at] for at in looked.kept]  # numbers that differ in their last digits alone are constants, too
    most = plan.most_features(party)
    merged, said = _merged(filled, names, kinds, kept, most)
    # Noise covers single rows, and who allows few rows allows them to be told.
    open_to_parties = settings.receiver == "all" and settings.epsilon is None and not settings.allow_small_n
    bound = LEVERAGE if open_to_parties else math.inf
    while (made := _made(plan, merged, names, kinds, kept, most, bound)) is None:
        if len(kept) == 1:
            raise InputError(
                f"party {party!r}: column {names[kept[0]]!r} tells single rows; leave it out, or set epsilon"
            )
        gone = heaviest(expand(merged[:, kept], *_described(names, kinds, kept), 1, powers=False))
        notes.append(f"{names[kept[gone]]}: with other columns it tells single rows, takes no part")
        kept = kept[:gone] + kept[gone + 1 :]
    notes += said
    functions = max((node.functions for node in made.nodes if node.kind == "number"), default=plan.functions)
    if functions < plan.functions:
        notes.append(f"{party}: {functions} in place of {plan.functions} functions of a number, so that no row is told")
    if not any(node.powers for node in made.nodes) and "number" in [node.kind for node in made.nodes]:
        why = "would tell rows" if plan.powers else "need more rows"
        notes.append(f"{party}: squares and cubes {why} and are left out, so skew and tails tell no directions")
    if settings.epsilon is None and (told := int((leverages(made.features) > SINGLED_OUT).sum())):
        rows = "1 row" if told == 1 else f"{told} rows"
        notes.append(f"{party}: its columns single out {rows}, which a validator could read if it knew these columns")
    nodes: list[NodeLayout | None] = [None] * len(names)
    scales = np.full(len(names), np.nan)
    for at, node, scale in zip(kept, made.nodes, made.scales, strict=True):
        nodes[at], scales[at] = node, scale
    features = np.clip(made.features / feature_units(plan, made.nodes, made.pairs), -LIMIT, LIMIT)
    if plan.clip is not None:
        features = shortened(features, made.nodes, plan.clip)
    pairs = tuple(PairLayout(kept[pair.first], kept[pair.second], pair.width) for pair in made.pairs)
    return OwnFeatures(features, tuple(nodes), scales, (*notes, *made.notes), pairs, looked.warnings)


def _described(
    names: Sequence[str], kinds: Sequence[ColumnKind], kept: Sequence[int]
) -> tuple[list[str], list[ColumnKind]]:
    return [names[at] for at in kept], [kinds[at] for at in kept]


def _made(
    plan: SumsPlan,
    values: Array,
    names: Sequence[str],
    kinds: Sequence[ColumnKind],
    kept: Sequence[int],
    most: int,
    bound: float,
) -> Expansion | None:
    """The most functions that fit and whose leverage is within the bound; None: not even straight lines are."""
    own = values[:, kept]

    def light(made: Expansion, first: int = 1) -> Expansion | None:
        for one in tamed(made, own, first) if made.width <= most else ():
            if not math.isfinite(bound) or float(leverages(one.features).max()) <= bound:
                return one
        return None

    for powers, least in ((True, 1 + plan.functions // 2), (False, 1)) if plan.powers else ((False, 1),):
        for functions in range(plan.functions, least - 1, -1):
            # Products last: they are for where rows are many.
            for products in (True, False) if plan.products else (False,):
                described = _described(names, kinds, kept)
                made = expand(own, *described, functions, powers=powers, products=products)
                if (found := light(made)) is not None:
                    return found
    # Straight lines alone tell rows only where a few values lie far outside: then these share one value, too.
    return light(made, first=0)


def feature_units(plan: SumsPlan, nodes: Sequence[NodeLayout], pairs: Sequence[PairLayout] = ()) -> Array:
    """(width,): what 1 of each feature stands for."""
    if plan.settings.epsilon is not None:
        return units_under_noise(nodes, pairs)
    parts = [[1.0] * node.functions + list(POWER_SCALES[: node.powers]) + [1.0] * node.mask for node in nodes]
    return np.array([unit for part in parts for unit in part] + [1.0] * sum(pair.width for pair in pairs))


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
