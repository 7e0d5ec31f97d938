"""CIFAR-10: the binary batches under cifar-10-batches-bin, as published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from veracausa.data.files import Remote, data_folder, find, subset_note
from veracausa.data.images import ImageOptions, Images
from veracausa.data.picture_files import count_records, read_records
from veracausa.data.sources import datasets

if TYPE_CHECKING:
    from veracausa.config import Job

_FOLDER = "cifar-10-batches-bin"
_REMOTE = Remote(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", f"{_FOLDER}/*"
)
_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_BATCHES = 5
_BATCH_ROWS = 10_000


class Cifar10Options(ImageOptions):
    def picture(self) -> tuple[int, int | None]:
        return 3, 32


@datasets.register("cifar10", Cifar10Options)
def cifar10(options: Cifar10Options, job: Job) -> Images:
    """50,000 and 10,000 colour photographs of 32x32 pixels; with a limit, only the batches it needs are opened."""
    labels, pictures, missing = [], [], options.train
    opened = rows = 0
    while opened < _BATCHES and missing != 0:
        opened += 1
        path = find(f"{_FOLDER}/data_batch_{opened}.bin", _REMOTE)
        batch_labels, batch_pictures = read_records(path, 1, (len(_CLASSES),), missing)
        labels.append(batch_labels.flatten())
        pictures.append(batch_pictures)
        rows += count_records(path, 1)
        missing = None if missing is None else missing - len(batch_labels)
    rows += (_BATCHES - opened) * _BATCH_ROWS
    test_path = find(f"{_FOLDER}/test_batch.bin", _REMOTE)
    test_labels, test = read_records(test_path, 1, (len(_CLASSES),), options.test)
    return Images(
        pictures[0] if opened == 1 else torch.cat(pictures),
        torch.cat(labels),
        test,
        test_labels.flatten(),
        _CLASSES,
        (rows, count_records(test_path, 1)),
        subset_note("cifar10", data_folder() / _FOLDER, rows),
    )
