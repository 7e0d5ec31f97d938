"""Labels that leave the active party: told once, through randomised response, with an exact account.

A told label is a pure function of (secret key, id, label, classes, epsilon). The same row is told alike to every party
and in every later job with that key, so nothing averages out. The label and epsilon enter the draw as well. A corrected
label, or another epsilon, is a fresh draw, and the two epsilons add up. With one shared coin they would tell more than
their sum: a told label that moves with the true one gives it away.

The guarantee is label differential privacy (Ghazi et al., 2021). It holds for one row's label, given everything else
that the receiver knows. It does not hide what the receiver's own columns tell about the label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.crypto.randomness import subkey
from veracausa.errors import InputError
from veracausa.features.label_noise import forward_corrected_loss

Labels = NDArray[np.int64]
Ids = Sequence[str | int]

FEWEST_KEY_BYTES = 16
EDGE_SHARE = 0.05
"""The share of a regression's epsilon that draws the edges of its bins."""
EDGE_CELLS = 128

__all__ = [
    "LabelAccount",
    "TargetBins",
    "Told",
    "best_guess",
    "forward_corrected_loss",
    "posterior",
    "randomised_labels",
    "response_matrix",
    "target_bins",
    "two_stage_labels",
]


@dataclass(frozen=True)
class LabelAccount:
    """What telling the labels once costs, as numbers and as a sentence."""

    epsilon: float
    classes: int
    kept: float
    """The share of rows that are told truly; with a prior, if the prior is right."""
    text: str

    def state(self) -> dict[str, Any]:
        return asdict(self)


class Told(NamedTuple):
    """What leaves the active party, and what a receiver must know to learn from it."""

    told: Labels
    transition: Array
    """(classes, classes), or (n, classes, classes) with priors that differ by row: true class to told class."""
    account: LabelAccount


def keep_chance(classes: int, epsilon: float) -> float:
    """The chance that k-ary randomised response tells the truth: exp(ε) / (exp(ε) + k − 1)."""
    return 1 / (1 + (classes - 1) * math.exp(-epsilon))


def response_matrix(classes: int, epsilon: float, prior: Sequence[float] | Array | None = None) -> Array:
    """(classes, classes): the chance that a row of class i is told as j, with ratio exp(ε) at most in a column.

    With a prior it is RRWithPrior (Ghazi et al., 2021, Algorithm 3): the response goes among the k most likely classes,
    k being the number that makes a true answer most likely, and a row of another class is told as any of them.
    """
    if classes < 2:
        raise InputError("blind.labels: there is one class only, and it tells nothing; check the label column")
    if prior is None:
        other = (1 - keep_chance(classes, epsilon)) / (classes - 1)
        return np.where(np.eye(classes, dtype=bool), keep_chance(classes, epsilon), other)
    prior = np.asarray(prior, np.float64)
    if prior.shape != (classes,) or not np.isfinite(prior).all() or (prior < 0).any() or prior.sum() <= 0:
        raise InputError(f"the prior of the labels needs {classes} shares, none negative and not all 0")
    order = np.argsort(-prior, kind="stable")
    covered = np.cumsum(prior[order]) / prior.sum()
    chances = [keep_chance(k, epsilon) * covered[k - 1] for k in range(1, classes + 1)]
    k = 1 + int(np.argmax(chances))
    top = order[:k]
    matrix = np.zeros((classes, classes))
    matrix[:, top] = 1 / k
    kept = keep_chance(k, epsilon)
    matrix[np.ix_(top, top)] = np.where(np.eye(k, dtype=bool), kept, (1 - kept) / max(k - 1, 1))
    return matrix


def randomised_labels(
    labels: Sequence[int] | Labels,
    ids: Ids,
    classes: int,
    epsilon: float,
    key: bytes,
    prior: Array | None = None,
) -> Told:
    """Each label through randomised response, drawn from the key and the row's id, and the account of it.

    A `prior` of shape (classes,) holds for all rows, one of shape (n, classes) gives each row its own. It must follow
    from nothing but public facts and labels that were already told, or ε does not hold. A row's own prior tells the
    receiver what it was made from. A class outside all priors' most likely ones is never told, so nobody learns it.
    """
    values = _checked(labels, ids, classes, epsilon, key)
    if prior is None or np.ndim(prior) == 1:
        transition = response_matrix(classes, epsilon, prior)
        rows = transition[values]
    else:
        if len(prior) != len(values):
            raise InputError(f"the labels' prior has {len(prior)} rows for {len(values)} labels")
        transition = np.stack([response_matrix(classes, epsilon, row) for row in prior]).reshape(-1, classes, classes)
        rows = transition[np.arange(len(values)), values]
    told = _drawn(rows, _uniforms(key, ids, values, classes, epsilon))
    return Told(told, transition, _account(epsilon, classes, _kept(transition, prior), prior is not None))


def two_stage_labels(
    labels: Sequence[int] | Labels,
    ids: Ids,
    classes: int,
    epsilon: float,
    key: bytes,
    learn_prior: Callable[[Mask, Told], Array],
) -> Told:
    """Half of the labels told plainly, the others with a prior learnt from the first half (Ghazi et al., 2021, LP-2ST).

    The key and the id decide a row's half. `learn_prior(first, told)` gets the mask of the first half and what was
    told of it, and returns (rows of the second half, classes) priors. Each label is told once, so ε is that of one.
    A prior from the active party's own columns lets the receiver see which classes these columns make likely.
    """
    values = _checked(labels, ids, classes, epsilon, key)
    # Its own key: the half must say nothing about the draw.
    halves = subkey(key, "blind label halves")
    first = np.array([subkey(halves, _tagged(id))[0] & 1 == 0 for id in ids], dtype=bool)
    early = _chosen(ids, first)
    told_first = randomised_labels(values[first], early, classes, epsilon, key)
    prior = np.asarray(learn_prior(first, told_first), np.float64)
    told_second = randomised_labels(values[~first], _chosen(ids, ~first), classes, epsilon, key, prior)
    told = np.empty(len(values), np.int64)
    told[first], told[~first] = told_first.told, told_second.told
    transition = np.empty((len(values), classes, classes))
    transition[first], transition[~first] = told_first.transition, told_second.transition
    share = float(first.mean()) if len(first) else 1.0
    kept = share * told_first.account.kept + (1 - share) * told_second.account.kept
    return Told(told, transition, _account(epsilon, classes, kept, True))


def posterior(transition: Array, prior: Sequence[float] | Array) -> Array:
    """(told, true): how likely each class is to somebody who heard the told label and knew `prior` before."""
    joint = np.asarray(prior, np.float64)[:, None] * transition
    told = joint.sum(0)
    shares: Array = np.divide(joint, told, out=np.zeros_like(joint), where=told > 0).T
    return shares


def best_guess(transition: Array, prior: Sequence[float] | Array) -> float:
    """The chance to name a row's class from what was told, at best, for somebody who knew `prior` before.

    `prior` may be (n, classes), what a receiver's own columns tell of each row: then it is the mean over rows. No
    receiver guesses more labels than that, whatever it does.
    """
    known = np.atleast_2d(np.asarray(prior, np.float64))
    by_row = transition if transition.ndim == 3 else transition[None]
    return float((known[:, :, None] * by_row).max(1).sum(1).mean())


@dataclass(frozen=True)
class TargetBins:
    """A regression's target as classes. The edges stay at the active party: only told bins leave it."""

    edges: Array
    """(bins − 1,), rising."""
    epsilon: float
    """What drawing the edges cost: part of the account, beside the told labels."""
    range_public: bool
    """Whether the target's range was given. Otherwise it is that of the rows, and ε does not cover it."""

    @property
    def classes(self) -> int:
        return len(self.edges) + 1

    def of(self, target: Array) -> Labels:
        """The bin of each value."""
        return np.searchsorted(self.edges, np.asarray(target, np.float64), side="right").astype(np.int64)


def target_bins(
    target: Array,
    bins: int,
    epsilon: float | None,
    key: bytes,
    bounds: tuple[float, float] | None = None,
    rule: Literal["quantiles", "equal"] = "quantiles",
) -> TargetBins:
    """Bins of about as many rows each, or of equal width, and what their edges cost.

    Edges at exact quantiles depend on every row, so changing one label could move other rows' bins, and the ε of the
    told labels would not be the whole account. Quantiles are therefore taken from a histogram with Laplace noise: one
    label moves two of its cells by one, which costs `EDGE_SHARE` of `epsilon`. None: the labels are shared, and the
    edges are exact. The noise follows from the key and the counts, so that it does not average out.
    """
    target = np.asarray(target, np.float64)
    if not len(target) or not np.isfinite(target).all():
        raise InputError("blind.labels: the target has missing or infinite values; correct or remove these rows")
    low, high = bounds or (float(target.min()), float(target.max()))
    if not high > low:
        raise InputError("blind.labels: all targets are the same; there is nothing to predict")
    cost = 0.0
    if rule == "equal":
        edges = np.linspace(low, high, bins + 1)[1:-1]
    elif epsilon is None:
        edges = np.quantile(target, np.arange(1, bins) / bins)
    else:
        cost = EDGE_SHARE * epsilon
        edges = _noisy_quantiles(target, bins, cost, key, low, high)
    edges = np.unique(edges[(edges > low) & (edges < high)])
    if not len(edges):
        raise InputError("blind.label_bins: nearly all targets are the same, so bins tell nothing; use labels = 'none'")
    return TargetBins(edges, cost, bounds is not None)


def _noisy_quantiles(target: Array, bins: int, epsilon: float, key: bytes, low: float, high: float) -> Array:
    grid = np.linspace(low, high, EDGE_CELLS + 1)
    counts = np.histogram(np.clip(target, low, high), grid)[0]
    seed = subkey(_checked_key(key), "blind label edges", memoryview(counts.astype("<i8").tobytes()), repr(epsilon))
    rng = np.random.default_rng(int.from_bytes(seed, "big"))
    noisy = np.maximum(counts + rng.laplace(0, 2 / epsilon, EDGE_CELLS), 0)
    if noisy.sum() <= 0:
        return np.linspace(low, high, bins + 1)[1:-1]
    reached = np.concatenate([[0.0], np.cumsum(noisy) / noisy.sum()])
    edges: Array = np.interp(np.arange(1, bins) / bins, reached, grid)
    return edges


def _checked(labels: Sequence[int] | Labels, ids: Ids, classes: int, epsilon: float, key: bytes) -> Labels:
    values = np.asarray(labels, np.int64).reshape(-1)
    _checked_key(key)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InputError(f"blind.label_epsilon: must be a number above 0, not {epsilon}; say labels = 'none' for none")
    if len(values) != len(ids):
        raise InputError(f"{len(values)} labels for {len(ids)} ids; each label needs the id of its row")
    if len(values) and (values.min() < 0 or values.max() >= classes):
        raise InputError(f"labels must be 0 to {classes - 1}; correct the label column")
    if len(set(map(_tagged, ids))) < len(ids):
        raise InputError("two rows have the same id, so one's label would be told with the other's; keep one row an id")
    return values


def _checked_key(key: bytes) -> bytes:
    if len(key) < FEWEST_KEY_BYTES:
        raise InputError(f"the key of the labels has {len(key)} bytes; draw {FEWEST_KEY_BYTES} or more at random")
    return key


def _tagged(id: str | int) -> str:
    """Text and numbers apart: 7 is not '7'."""
    return f"s{id}" if isinstance(id, str) else f"i{int(id)}"


def _chosen(ids: Ids, mask: Mask) -> list[Any]:
    return [id for id, chosen in zip(ids, mask, strict=True) if chosen]


def _uniforms(key: bytes, ids: Ids, labels: Labels, classes: int, epsilon: float) -> Array:
    """(n,) in [0, 1), 53 bits each, by keyed BLAKE2b."""
    rows = subkey(key, "blind labels 1", classes, repr(float(epsilon)))
    digests = b"".join(
        subkey(rows, _tagged(id), int(label))[:8] for id, label in zip(ids, labels.tolist(), strict=True)
    )
    words = np.frombuffer(digests, dtype="<u8") >> np.uint64(11)
    return words.astype(np.float64) * 2.0**-53


def _drawn(chances: Array, uniforms: Array) -> Labels:
    """One class a row, by inverting the distribution function."""
    reached = np.cumsum(chances, axis=1)
    reached /= reached[:, -1:]
    # A class of chance 0 is never drawn: its distribution function does not rise, and uniforms stay below 1.
    drawn: Labels = (uniforms[:, None] >= reached).sum(1).astype(np.int64)
    return drawn


def _kept(transition: Array, prior: Array | None) -> float:
    """From the prior and not from the labels: the account may be shown to everybody."""
    true = np.diagonal(transition, axis1=-2, axis2=-1)
    if prior is None or not np.size(prior):
        return float(true.mean()) if true.size else 1.0
    return float((true * prior).sum(-1).mean() / np.sum(prior, axis=-1).mean())


def _account(epsilon: float, classes: int, kept: float, prior: bool) -> LabelAccount:
    among = "two-stage prior, on average " if prior else ""
    text = f"each label is told once with epsilon = {epsilon:g}: {among}true with probability {kept:.2f}"
    return LabelAccount(float(epsilon), classes, kept, text)
