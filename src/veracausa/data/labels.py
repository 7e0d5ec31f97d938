"""Labels of a table: the task they pose, their classes, and their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from veracausa.data.number_words import numbers_or_words
from veracausa.errors import InputError
from veracausa.registry import did_you_mean

if TYPE_CHECKING:
    import polars as pl

Task = Literal["classification", "regression"]

# Whole numbers with more different values than this are taken for amounts, unless the job says otherwise.
MOST_CLASSES = 20


def task_of(labels: pl.Series) -> Task:
    """Regression for fractions and for numbers of many different values, else classification."""
    known = labels.drop_nulls()
    if not known.dtype.is_numeric():
        return "classification"
    fractional = known.dtype.is_float() and bool((known != known.round(0)).any())
    return "regression" if fractional or known.n_unique() > MOST_CLASSES else "classification"


def check_amounts(labels: pl.Series, where: str) -> None:
    """Refuse labels that are amounts but for a stray word: they would become as many classes as there are amounts."""
    import polars as pl

    if labels.dtype == pl.String and labels.n_unique() > MOST_CLASSES:
        numbers_or_words(labels, where, None, "or set data.task = 'classification' if the labels are classes")


def classes_of(labels: pl.Series, where: str) -> tuple[str, ...]:
    """The class names in order: of size for numbers, else of the alphabet."""
    names = set(_names(labels, where))
    if len(names) < 2:
        only = f"the one value {names.pop()!r}" if names else "no value"
        raise InputError(f"{where}: label column {labels.name!r} has {only}; a class label needs at least 2")
    return tuple(sorted(names, key=float) if labels.dtype.is_numeric() else sorted(names))


def encode(labels: pl.Series, task: Task, classes: Sequence[str], where: str) -> Tensor:
    """(rows,) int64 class numbers, or float32 targets."""
    if task == "regression":
        return torch.from_numpy(_targets(labels, where))
    number = {name: label for label, name in enumerate(classes)}
    names = _names(labels, where)
    for row, name in enumerate(names):
        if name not in number:
            raise InputError(
                f"{where}: label column {labels.name!r}, row {row + 1}: "
                f"{name!r} is no known class{did_you_mean(name, classes)}"
            )
    return torch.tensor([number[name] for name in names], dtype=torch.int64)


def _names(labels: pl.Series, where: str) -> list[str]:
    import polars as pl

    _check_present(labels, where)
    # 1.0 and 1 are the same class: a file with a gap elsewhere may have had its integers turned into fractions.
    if labels.dtype.is_float() and bool((labels == labels.round(0)).all()):
        labels = labels.cast(pl.Int64)
    return labels.cast(pl.String).to_list()


def _targets(labels: pl.Series, where: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    import polars as pl

    _check_present(labels, where)
    numbers = labels.cast(pl.Float64, strict=False)
    with np.errstate(over="ignore"):
        values = numbers.fill_null(float("inf")).to_numpy().astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        at = int(wrong[0])
        raise InputError(
            f"{where}: label column {labels.name!r}, row {at + 1}: {labels[at]!r} is no number to predict; "
            "correct it, or set data.task = 'classification'"
        )
    return values


def _check_present(labels: pl.Series, where: str) -> None:
    absent = labels.is_null()
    if labels.dtype.is_float():
        absent = absent | labels.is_nan().fill_null(True)
    missing = absent.arg_true()
    if len(missing):
        raise InputError(
            f"{where}: label column {labels.name!r}, row {int(missing[0]) + 1}: "
            "the label is missing; fill it in or remove the row"
        )
