"""Digits: 1,797 handwritten digits of 8x8 pixels, inside scikit-learn; no file needed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from veracausa.data.images import ImageOptions, Images
from veracausa.data.sources import datasets

if TYPE_CHECKING:
    from veracausa.config import Job


class DigitsOptions(ImageOptions):
    def picture(self) -> tuple[int, int | None]:
        return 1, 8


@cache
def _read() -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures and labels, once a process: scikit-learn keeps them as text."""
    from sklearn.datasets import load_digits

    bundle = load_digits()
    # scikit-learn gives 17 grey levels, 0 … 16.
    pictures = torch.from_numpy(np.rint(bundle.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    return pictures, torch.from_numpy(bundle.target.astype(np.int64))


@datasets.register("digits", DigitsOptions)
def digits(options: DigitsOptions, job: Job) -> Images:
    """All digits; the last fifth, in their own order, is the test set."""
    pictures, labels = (tensor.clone() for tensor in _read())
    cut = len(pictures) - round(0.2 * len(pictures))
    return Images(
        pictures[:cut],
        labels[:cut],
        pictures[cut:],
        labels[cut:],
        tuple(str(digit) for digit in range(10)),
        (cut, len(pictures) - cut),
    )
