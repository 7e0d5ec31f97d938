"""Clothing: 2,500 grey pictures of 28x28 pixels, the first rows of Fashion-MNIST, inside this package."""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from torch import Tensor

from veracausa.data.images import ImageOptions, Images
from veracausa.data.picture_files import read_idx
from veracausa.data.sources import datasets

if TYPE_CHECKING:
    from veracausa.config import Job

CLASSES = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


class ClothingOptions(ImageOptions):
    def picture(self) -> tuple[int, int | None]:
        return 1, 28


@cache
def _read(split: str) -> tuple[Tensor, Tensor]:
    """Pictures and labels of `train` or `test`, once a process."""
    folder = files("veracausa.data") / "bundled" / "clothing"
    with as_file(folder / f"{split}-pictures.gz") as pictures, as_file(folder / f"{split}-labels.gz") as labels:
        return read_idx(pictures, 3)[0].unsqueeze(1), read_idx(labels, 1)[0].long()


@datasets.register("clothing", ClothingOptions)
def clothing(options: ClothingOptions, job: Job) -> Images:
    """The first 2,000 training and 500 test pictures of Fashion-MNIST (Zalando SE, MIT licence), bundled."""
    (train, train_labels), (test, test_labels) = ([tensor.clone() for tensor in _read(s)] for s in ("train", "test"))
    return Images(train, train_labels, test, test_labels, CLASSES, (len(train), len(test)))
