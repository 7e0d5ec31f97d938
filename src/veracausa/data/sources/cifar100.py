"""CIFAR-100: the binary files under cifar-100-binary, as published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from veracausa.data.files import Remote, data_folder, find, subset_note
from veracausa.data.images import ImageOptions, Images
from veracausa.data.picture_files import count_records, read_records
from veracausa.data.sources import datasets

if TYPE_CHECKING:
    from veracausa.config import Job

_FOLDER = "cifar-100-binary"
_REMOTE = Remote(
    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", f"{_FOLDER}/*"
)
_COARSE, _FINE = 20, 100


class Cifar100Options(ImageOptions):
    labels: Literal["fine", "coarse"] = "fine"
    """The 100 classes, or the 20 groups they form."""

    def picture(self) -> tuple[int, int | None]:
        return 3, 32


@datasets.register("cifar100", Cifar100Options)
def cifar100(options: Cifar100Options, job: Job) -> Images:
    """50,000 and 10,000 colour photographs of 32x32 pixels, in 100 classes or 20 groups."""
    column, count = (0, _COARSE) if options.labels == "coarse" else (1, _FINE)
    paths = find(f"{_FOLDER}/train.bin", _REMOTE), find(f"{_FOLDER}/test.bin", _REMOTE)
    rows = count_records(paths[0], 2), count_records(paths[1], 2)
    train_labels, train = read_records(paths[0], 2, (_COARSE, _FINE), options.train)
    test_labels, test = read_records(paths[1], 2, (_COARSE, _FINE), options.test)
    folder = data_folder() / _FOLDER
    return Images(
        train,
        train_labels[:, column],
        test,
        test_labels[:, column],
        _class_names(options.labels, count),
        rows,
        subset_note("cifar100", folder, rows[0]),
    )


def _class_names(labels: str, count: int) -> tuple[str, ...]:
    """The published names; without their file, which nothing else needs, the numbers."""
    path = data_folder() / _FOLDER / f"{labels}_label_names.txt"
    names = tuple(path.read_text(encoding="utf-8").split()) if path.is_file() else ()
    return names if len(names) == count else tuple(str(label) for label in range(count))
