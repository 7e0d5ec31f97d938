"""Linear regressions that several methods share: coefficients of a DAG, and an adaptive lasso along an order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.errors import InputError


def covariance_of(values: Array) -> Array:
    """(d, d), of one column, too."""
    centred = values - values.mean(axis=0)
    return np.asarray(centred.T @ centred / len(values))


def coefficients(covariance: Array, dag: Mask) -> Array:
    """Each column's coefficients on its causes by least squares, (d, d) with row = cause."""
    found = np.zeros_like(covariance)
    for node in np.flatnonzero(dag.any(axis=0)):
        causes = np.flatnonzero(dag[:, node])
        inside = covariance[np.ix_(causes, causes)]
        found[causes, node] = np.linalg.lstsq(inside, covariance[causes, node], rcond=None)[0]
    return found


def adaptive_lasso(values: Array, earlier: NDArray[np.intp], target: int) -> Array:
    """Coefficients of one centred column on others, the lasso weighted by least squares and chosen by BIC."""
    from sklearn.linear_model import LassoLarsIC, LinearRegression

    plain = np.abs(LinearRegression().fit(values[:, earlier], values[:, target]).coef_)
    lasso = LassoLarsIC(criterion="bic").fit(values[:, earlier] * plain, values[:, target])
    return np.asarray(lasso.coef_ * plain)


def along_order(values: Array, order: Sequence[int] | NDArray[np.intp], time_is_up: Callable[[], bool]) -> Array:
    """The strength of every edge by an adaptive lasso of each column on those before it."""
    centred = values - values.mean(axis=0)
    places = np.asarray(order, dtype=np.intp)
    if len(values) <= len(places):
        raise InputError(
            f"{len(values)} rows are too few for {len(places)} columns: this method fits each column on all before it; "
            "give more rows or fewer columns"
        )
    strengths = np.zeros((len(places), len(places)))
    for place in range(1, len(places)):
        if time_is_up():
            break
        target, earlier = int(places[place]), places[:place]
        strengths[earlier, target] = np.abs(adaptive_lasso(centred, earlier, target))
    return strengths
