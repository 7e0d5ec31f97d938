"""Which scikit-learn estimators a job may name, how they are made, and how they are kept without pickle."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.registry import did_you_mean

Role = Literal["transformer", "predictor"]

TRANSFORMERS = {
    "FastICA": "sklearn.decomposition",
    "KBinsDiscretizer": "sklearn.preprocessing",
    "Nystroem": "sklearn.kernel_approximation",
    "PCA": "sklearn.decomposition",
    "PolynomialFeatures": "sklearn.preprocessing",
    "QuantileTransformer": "sklearn.preprocessing",
    "RBFSampler": "sklearn.kernel_approximation",
    "RandomTreesEmbedding": "sklearn.ensemble",
    "SplineTransformer": "sklearn.preprocessing",
    "StandardScaler": "sklearn.preprocessing",
    "TruncatedSVD": "sklearn.decomposition",
}
PREDICTORS = {
    "ExtraTreesClassifier": "sklearn.ensemble",
    "HistGradientBoostingClassifier": "sklearn.ensemble",
    "HistGradientBoostingRegressor": "sklearn.ensemble",
    "LogisticRegression": "sklearn.linear_model",
    "RandomForestClassifier": "sklearn.ensemble",
    "RandomForestRegressor": "sklearn.ensemble",
    "Ridge": "sklearn.linear_model",
}
TRUSTED = ("sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor", "sklearn.tree._tree.Tree")
"""Types of scikit-learn that skops asks about and that are read here. A file is the party's own, never a peer's."""


def make_estimator(name: str, role: Role, settings: Mapping[str, Any], rng: torch.Generator) -> Any:
    """An estimator of the list, with these settings; its random numbers come from `rng`."""
    allowed = TRANSFORMERS if role == "transformer" else PREDICTORS
    if name not in allowed:
        raise InputError(f"features.estimator: {name!r} is no {role} that a job can name{did_you_mean(name, allowed)}")
    kind = getattr(importlib.import_module(allowed[name]), name)
    try:
        made = kind(**settings)
    except TypeError as error:
        raise InputError(f"features.settings: {name} does not take them ({error})") from None
    return with_seed(made, rng, fixed="random_state" in settings)


def with_seed(estimator: Any, rng: torch.Generator, fixed: bool = False) -> Any:
    """The estimator, with a `random_state` drawn from `rng` where it takes one."""
    if not fixed and "random_state" in estimator.get_params():
        estimator.set_params(random_state=int(torch.randint(2**31 - 1, (), generator=rng)))
    return estimator


def require_skops() -> Any:
    """`skops.io`; where it is not installed, the sentence that says how."""
    try:
        import skops.io
    except ImportError:
        raise InputError(
            "features: an estimator of scikit-learn is kept by skops, which is not installed; "
            'pip install "veracausa[estimators]"'
        ) from None
    return skops.io


def kept_estimator(estimator: Any) -> Tensor:
    """The fitted estimator as bytes, in skops' format; one with a type that is not trusted is refused."""
    content: bytes = require_skops().dumps(estimator)
    _require_trusted(content)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def read_estimator(kept: Any) -> Any:
    """What `kept_estimator` kept."""
    if not isinstance(kept, Tensor) or kept.dtype != torch.uint8 or kept.ndim != 1:
        raise InputError("the saved estimator is no sequence of bytes; put an intact copy in its place")
    content = kept.cpu().numpy().tobytes()
    skops = require_skops()
    try:
        _require_trusted(content)
        return skops.loads(content, trusted=list(TRUSTED))
    except InputError:
        raise
    except Exception as error:  # a file that is not intact can fail in any way
        raise InputError(f"the saved estimator cannot be read ({error}); put an intact copy in its place") from None


def _require_trusted(content: bytes) -> None:
    unknown = sorted(set(require_skops().get_untrusted_types(data=content)) - set(TRUSTED))
    if unknown:
        raise InputError(
            f"features: the estimator holds objects of type {unknown[0]}, which is not trusted; "
            "take one whose parts are scikit-learn's own, or write a feature map"
        )


def dense(values: Any, rows: int, what: str) -> Array:
    """(rows, width) finite float64 of what an estimator gave, sparse or not."""
    plain = np.asarray(values.toarray() if hasattr(values, "toarray") else values, np.float64).reshape(rows, -1)
    if not np.isfinite(plain).all():
        raise InputError(f"features: {what} gave values that are not finite; take other settings")
    return plain
