"""Random graphs and data with nonlinear mechanisms and additive noise, and four ways to violate that."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from veracausa.arrays import Array
from veracausa.data.causal import CausalData, CausalOptions, causal_data, topological_order
from veracausa.data.causal.columns import standardised
from veracausa.seeding import derive

NOISE = 0.5
"""Standard deviation of the noise, and of a root."""
UNITS = 100

Violation = Literal["none", "multiplicative", "poisson", "non_iid"]


class SyntheticOptions(CausalOptions):
    attributes: int = Field(15, ge=1)
    edges: int | None = Field(None, ge=0)
    """Exactly so many; default: four an attribute, or all pairs where those are fewer."""
    rows: int = Field(1000, ge=2)
    violation: Violation = "none"
    latent: int = Field(0, ge=0)
    """So many columns, drawn at random, are generated and then hidden."""
    standardise: bool = True
    """Columns of mean 0 and deviation 1; off: as generated, where the scale gives the causal order away."""
    train: float = Field(0.8, gt=0, le=1)
    """The share of the rows, the first ones, whose mean and deviation standardise all."""

    @model_validator(mode="after")
    def _possible(self) -> SyntheticOptions:
        pairs = self.attributes * (self.attributes - 1) // 2
        if self.edges is not None and self.edges > pairs:
            raise ValueError(f"edges: {self.attributes} attributes have {pairs} pairs; ask for no more edges")
        if self.latent >= self.attributes:
            raise ValueError(f"latent: of {self.attributes} attributes at least one must stay; hide fewer")
        return self


@causal_data.register("synthetic", SyntheticOptions)
def synthetic(options: SyntheticOptions) -> CausalData:
    """A graph with exactly the edges asked for, and rows drawn from it; the same seed, the same bits."""
    d = options.attributes
    wanted = min(4 * d, d * (d - 1) // 2) if options.edges is None else options.edges
    rng = np.random.default_rng(derive(options.seed, "synthetic", "graph"))
    truth = random_dag(d, wanted, rng)
    rng = np.random.default_rng(derive(options.seed, "synthetic", "rows"))
    values = simulate(truth, options.rows, rng, options.violation)
    data = CausalData(values, tuple(f"x{at}" for at in range(d)), truth, _notes(options, d, wanted))
    if options.latent:
        hidden = np.random.default_rng(derive(options.seed, "synthetic", "latent")).permutation(d)[: options.latent]
        kept = [at for at in range(d) if at not in hidden]
        data = data.columns(
            kept, f"{options.latent} columns are hidden; the true graph is the one induced on the {len(kept)} others"
        )
    if not options.standardise:
        return data
    train_rows = max(2, round(options.train * options.rows))
    note = f"columns standardised with the statistics of the first {train_rows} rows"
    return CausalData(standardised(data.values, train_rows)[0], data.names, data.truth, (*data.notes, note))


def random_dag(d: int, edges: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Pairs drawn uniformly without replacement, each directed by one random order of the nodes."""
    rows, columns = np.triu_indices(d, 1)
    drawn = rng.choice(len(rows), size=edges, replace=False) if edges else np.zeros(0, dtype=int)
    order = rng.permutation(d)
    dag = np.zeros((d, d), dtype=bool)
    dag[order[rows[drawn]], order[columns[drawn]]] = True
    return dag


def simulate(truth: NDArray[np.bool_], rows: int, rng: np.random.Generator, violation: Violation = "none") -> Array:
    """Rows of the graph: roots N(0, 0.5²), other nodes a random network of their standardised parents, and noise."""
    order = topological_order(truth)
    assert order is not None, "a generator's graph is acyclic"
    values = np.zeros((rows, len(truth)))
    for node in order:
        parents = np.flatnonzero(truth[:, node])
        if not len(parents):
            values[:, node] = rng.normal(0, NOISE, rows)
            continue
        causes, _, _ = standardised(values[:, parents], rows)
        values[:, node] = _observe(_mechanism(causes, rng), causes[:, 0], rng, violation)
    return values


def _mechanism(causes: Array, rng: np.random.Generator) -> Array:
    inner = _weights((causes.shape[1], UNITS), rng)
    outer = _weights((UNITS,), rng)
    return np.asarray(1 / (1 + np.exp(-(causes @ inner))) @ outer)


def _weights(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Uniform in [-2, -0.5] and [0.5, 2]: no parent is without effect."""
    return np.asarray(rng.uniform(0.5, 2, shape) * rng.choice([-1.0, 1.0], shape))


def _observe(mean: Array, cause: Array, rng: np.random.Generator, violation: Violation) -> Array:
    if violation == "poisson":
        return rng.poisson(np.logaddexp(0, mean)).astype(float)
    noise = rng.normal(0, NOISE, len(mean))
    if violation == "multiplicative":
        return np.asarray(mean * (1 + noise))
    if violation == "non_iid":
        noise = noise * np.logaddexp(0, cause) / np.log(2)
    return np.asarray(mean + noise)


def _notes(options: SyntheticOptions, d: int, edges: int) -> tuple[str, ...]:
    noise = {
        "none": "additive noise N(0, 0.5²)",
        "multiplicative": "multiplicative noise, x = f · (1 + e), e of N(0, 0.5²)",
        "poisson": "counts, Poisson with rate softplus(f); roots stay N(0, 0.5²)",
        "non_iid": "noise whose deviation grows with a parent, 0.5 · softplus(parent) / log 2",
    }
    return (f"synthetic: {d} attributes, {edges} edges, seed {options.seed}, {noise[options.violation]}",)
