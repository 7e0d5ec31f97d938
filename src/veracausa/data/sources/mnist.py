"""MNIST: gzipped IDX files under MNIST/raw, as published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from veracausa.data.files import Remote, find, subset_note
from veracausa.data.images import ImageOptions, Images
from veracausa.data.picture_files import read_idx
from veracausa.data.sources import datasets
from veracausa.errors import InputError

if TYPE_CHECKING:
    from veracausa.config import Job

_SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist"
_MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}


class MnistOptions(ImageOptions):
    def picture(self) -> tuple[int, int | None]:
        return 1, 28


@datasets.register("mnist", MnistOptions)
def mnist(options: MnistOptions, job: Job) -> Images:
    """60,000 and 10,000 handwritten digits of 28x28 pixels."""
    train, train_labels, train_rows = _half("train", options.train)
    test, test_labels, test_rows = _half("t10k", options.test)
    folder = find(f"MNIST/raw/{next(iter(_MD5))}", _remote(next(iter(_MD5)))).parent
    return Images(
        train,
        train_labels,
        test,
        test_labels,
        tuple(str(digit) for digit in range(10)),
        (train_rows, test_rows),
        subset_note("mnist", folder, train_rows),
    )


def _half(prefix: str, limit: int | None) -> tuple[Tensor, Tensor, int]:
    names = f"{prefix}-images-idx3-ubyte.gz", f"{prefix}-labels-idx1-ubyte.gz"
    images_path, labels_path = (find(f"MNIST/raw/{name}", _remote(name)) for name in names)
    images, rows = read_idx(images_path, 3, limit)
    labels, label_rows = read_idx(labels_path, 1, limit)
    if rows != label_rows:
        raise InputError(f"{labels_path}: {label_rows} labels for {rows} pictures; fetch both files again")
    return images.unsqueeze(1), labels, rows


def _remote(name: str) -> Remote:
    return Remote(f"{_SOURCE}/{name}", _MD5[name])
