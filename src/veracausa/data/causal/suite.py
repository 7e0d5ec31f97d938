"""Random graphs and rows of twelve kinds of mechanism, to tell what a method of discovery can do away from its own.

A seed gives one graph, and every generator draws rows of that same graph. Graphs 0 to 19 are for tuning, graphs from
1000 on for reporting: a setting chosen on a graph says nothing about how good it is there.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from veracausa.arrays import Array
from veracausa.data.causal import CausalData, CausalOptions, causal_data, topological_order
from veracausa.data.causal.columns import standardised
from veracausa.data.causal.mechanisms import Generator, Noise, effect, noise_deviation, unit_noise
from veracausa.data.causal.synthetic import random_dag
from veracausa.seeding import derive

SPREAD = 0.7
"""Deviation of the logarithm of a count's rate; it bounds how far one cause can carry a rate."""
LARGEST = 3.0
"""So many deviations at most enter a count's rate, so that no count explodes."""
CATEGORY_SHARE = 0.8
"""What the causes of a categorical column explain of its latent scores where nothing else is said."""
GUMBEL = np.pi**2 / 6
"""Variance of Gumbel's distribution."""


class SuiteOptions(CausalOptions):
    generator: Generator = "gp_additive"
    graph: Literal["er", "scale_free"] = "er"
    """Pairs drawn uniformly, or preferential attachment (Barabási and Albert); both directed by a random order."""
    noise: Noise = "gaussian"
    attributes: int = Field(15, ge=1)
    edges: int | None = Field(None, ge=0)
    """Exactly so many in an `er` graph; default: two an attribute. A `scale_free` graph has about so many."""
    rows: int = Field(1000, ge=2)
    explained: float | None = Field(None, gt=0, lt=1)
    """The share of each column's variance that its causes explain; default: as the generator's noise has it."""
    internal_standardisation: bool = False
    """Each column is standardised as it is generated, before its effects see it (iSCM, Ormaniec et al. 2025)."""
    mixed: float = Field(0, ge=0, le=1)
    """The share of columns that are binary or nominal, by turns; nominal ones have three to five categories."""
    standardise: bool = True
    """Numbers of mean 0 and deviation 1 at the end. Categories stay 0, 1, 2."""

    @model_validator(mode="after")
    def _possible(self) -> SuiteOptions:
        pairs = self.attributes * (self.attributes - 1) // 2
        if self.edges is not None and self.edges > pairs:
            raise ValueError(f"edges: {self.attributes} attributes have {pairs} pairs; ask for no more edges")
        if self.generator == "counts" and self.noise != "gaussian":
            raise ValueError("noise: counts are Poisson and take no other noise; leave it out")
        return self


@causal_data.register("suite", SuiteOptions)
def suite(options: SuiteOptions) -> CausalData:
    """A random graph and rows drawn from it by one generator; the same settings, the same bits."""
    d = options.attributes
    wanted = min(2 * d, d * (d - 1) // 2) if options.edges is None else options.edges
    rng = np.random.default_rng(derive(options.seed, "suite", "graph"))
    truth = random_dag(d, wanted, rng) if options.graph == "er" else scale_free_dag(d, wanted, rng)
    rng = np.random.default_rng(derive(options.seed, "suite", "kinds"))
    categories = _categories(d, options.mixed, rng)
    rng = np.random.default_rng(derive(options.seed, "suite", "rows"))
    values = rows_of(truth, options, categories, rng)
    names = tuple(f"x{at}" for at in range(d))
    numbers = np.flatnonzero(categories == 0)
    if options.standardise:
        values[:, numbers] = standardised(values[:, numbers])[0]
    nominal = tuple(names[at] for at in np.flatnonzero(categories > 2))
    return CausalData(values, names, truth, (_note(options, int(truth.sum()), categories),), nominal)


def scale_free_dag(d: int, edges: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Each node joins `edges / d` earlier ones, drawn by their degree; a random order then directs all edges."""
    joined = max(1, round(edges / d)) if edges else 0
    degree, near = np.zeros(d), np.zeros((d, d), dtype=bool)
    for node in range(1, d):
        likely = degree[:node] + (degree[:node].sum() == 0)
        few = min(joined, int((likely > 0).sum()))
        chosen = rng.choice(node, size=few, replace=False, p=likely / likely.sum())
        near[chosen, node] = near[node, chosen] = True
        degree = near.sum(axis=0).astype(float)
    rank = rng.permutation(d)
    return near & (rank[:, None] < rank[None, :])


def rows_of(
    truth: NDArray[np.bool_], options: SuiteOptions, categories: NDArray[np.int64], rng: np.random.Generator
) -> Array:
    """Rows of the graph, cause before effect; `categories` has how many each column has, 0 for a number."""
    order = topological_order(truth)
    assert order is not None, "a generator's graph is acyclic"
    values = np.zeros((options.rows, len(truth)))
    for node in order:
        parents = np.flatnonzero(truth[:, node])
        numbers, kinds = parents[categories[parents] == 0], parents[categories[parents] > 0]

        def caused(numbers: NDArray[np.intp] = numbers, kinds: NDArray[np.intp] = kinds) -> Array:
            levels = [_levels(values[:, kind].astype(int), categories[kind], rng) for kind in kinds]
            table = np.column_stack(levels) if levels else np.zeros((options.rows, 0))
            return effect(options.generator, values[:, numbers], table, rng)

        if categories[node]:
            scores = [caused() for _ in range(categories[node])] if len(parents) else []
            values[:, node] = _category(scores, categories[node], options, rng)
            continue
        column = _observed(caused() if len(parents) else None, values[:, parents], options, rng)
        values[:, node] = standardised(column[:, None])[0][:, 0] if options.internal_standardisation else column
    return values


def _observed(mean: Array | None, causes: Array, options: SuiteOptions, rng: np.random.Generator) -> Array:
    """A column of numbers: what its causes do, and noise."""
    if options.generator == "counts":
        return _count(mean, options, rng)
    noise = noise_deviation(options.generator, rng) * unit_noise(options.noise, options.rows, rng)
    if mean is None:
        return noise
    if options.generator == "heteroscedastic":
        noise = noise * np.logaddexp(0, standardised(causes[:, :1])[0][:, 0]) / np.log(2)
    elif options.generator == "multiplied":
        noise = noise * mean
    if options.explained is not None:
        noise = noise * np.sqrt((1 / options.explained - 1) * mean.var() / noise.var())
    return mean + noise


def _count(mean: Array | None, options: SuiteOptions, rng: np.random.Generator) -> Array:
    """Poisson counts whose rate is log-linear in the standardised causes."""
    rate = rng.uniform(2, 6)
    if mean is None:
        return rng.poisson(rate, options.rows).astype(float)
    factor = np.exp(SPREAD * np.clip(standardised(mean[:, None])[0][:, 0], -LARGEST, LARGEST))
    if options.explained is not None and factor.var() > 0:
        # A Poisson column has the variance of its rate, explained, and its mean rate, noise.
        rate = options.explained / (1 - options.explained) * factor.mean() / factor.var()
    return rng.poisson(rate * factor).astype(float)


def _category(scores: list[Array], categories: int, options: SuiteOptions, rng: np.random.Generator) -> Array:
    """Codes 0, 1, 2 by a multinomial logit: the category whose score and Gumbel noise together are largest."""
    if not scores:
        shares = rng.uniform(1, 2, categories)
        return rng.choice(categories, options.rows, p=shares / shares.sum()).astype(float)
    share = CATEGORY_SHARE if options.explained is None else options.explained
    latent = np.sqrt(share / (1 - share) * GUMBEL) * standardised(np.column_stack(scores))[0]
    return np.asarray((latent + rng.gumbel(0, 1, latent.shape)).argmax(axis=1), dtype=np.float64)


def _levels(codes: NDArray[np.int64], categories: int, rng: np.random.Generator) -> Array:
    """What each category stands for in one effect: levels half a step apart at least, in random order."""
    steps = np.cumsum(rng.uniform(0.5, 1.5, categories))
    return np.asarray(standardised(rng.permutation(steps)[codes][:, None])[0][:, 0])


def _categories(d: int, share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """How many categories each column has: 0 for numbers, 2 and 3 to 5 by turns for the share asked for."""
    chosen = rng.permutation(d)[: round(share * d)]
    many = rng.integers(3, 6, len(chosen))
    found = np.zeros(d, dtype=np.int64)
    found[chosen] = np.where(np.arange(len(chosen)) % 2 == 0, 2, many)
    return found


def _note(options: SuiteOptions, edges: int, categories: NDArray[np.int64]) -> str:
    said = [f"suite: {options.generator}, {options.graph.replace('_', '-')} graph {options.seed}"]
    said.append(f"{options.attributes} attributes, {edges} edges, {options.noise} noise")
    if options.explained is not None:
        said.append(f"causes explain {options.explained:.0%}")
    if options.internal_standardisation:
        said.append("standardised while generated")
    if categories.any():
        said.append(f"{(categories == 2).sum()} binary and {(categories > 2).sum()} nominal columns")
    return ", ".join(said)
