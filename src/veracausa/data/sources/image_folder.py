"""Pictures of your own: folders named after their classes, with or without a test folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from pydantic import Field
from torch import Tensor

from veracausa import seeding
from veracausa.data.files import given_path, subset_note
from veracausa.data.images import ImageOptions, Images
from veracausa.data.overlap import hold_out
from veracausa.data.picture_files import ANNOTATIONS, annotated, class_folders, in_turn, read_pictures
from veracausa.data.sources import datasets
from veracausa.errors import InputError
from veracausa.registry import did_you_mean

if TYPE_CHECKING:
    from veracausa.config import Job


class ImageFolderOptions(ImageOptions):
    path: str
    """A folder of class folders, or with train/ and test/ (or val/) of class folders; Tiny-ImageNet as published."""
    size: int | None = Field(None, ge=1)
    """Scale and crop every picture to this square; default: they all have one size already."""
    grey: bool = False
    """Read one channel in place of three. Grey pictures that are read as coloured ones get a note."""
    holdout: float = Field(0.2, gt=0, lt=1)
    """The share held out for the test where there is no test folder, drawn with the job's seed."""

    def picture(self) -> tuple[int, int | None]:
        return 1 if self.grey else 3, self.size


@datasets.register("images", ImageFolderOptions)
def images(options: ImageFolderOptions, job: Job) -> Images:
    """The pictures below a folder, one class in turn with the others; only those that a limit asks for are opened."""
    folder = given_path(options.path, "data.path")
    if not folder.is_dir():
        raise InputError(f"data.path = {options.path!r}: is a file; name the folder that holds the pictures")
    if (folder / "train").is_dir():
        train_classes, test_classes = class_folders(folder / "train"), _test_classes(_test_folder(folder))
        names = tuple(train_classes)
        for name in test_classes:
            if name not in names:
                raise InputError(f"{_test_folder(folder) / name}: no training class{did_you_mean(name, names)}")
        train, train_labels = in_turn(train_classes, names)
        test, test_labels = in_turn(test_classes, names)
    else:
        classes = class_folders(folder)
        names = tuple(classes)
        paths, labels = in_turn(classes, names)
        held_out = hold_out(len(paths), options.holdout, seeding.generator(job.seed, "holdout"), "data.holdout")
        train, train_labels = [paths[row] for row in (~held_out).nonzero().flatten().tolist()], labels[~held_out]
        test, test_labels = [paths[row] for row in held_out.nonzero().flatten().tolist()], labels[held_out]
    channels, side = options.picture()
    pictures = read_pictures([*train[: options.train], *test[: options.test]], channels, side)
    cut = len(train[: options.train])
    return Images(
        pictures[:cut],
        train_labels[: options.train],
        pictures[cut:],
        test_labels[: options.test],
        names,
        (len(train), len(test)),
        (*subset_note("images", folder, len(train)), *_grey_note(options, pictures)),
    )


def _grey_note(options: ImageFolderOptions, pictures: Tensor) -> tuple[str, ...]:
    """What is to be said of grey pictures that are read as coloured ones: three times the same."""
    # A few first: coloured ones are known by them, and the others need not be looked at.
    if options.grey or not len(pictures) or not (_is_grey(pictures[:64]) and _is_grey(pictures)):
        return ()
    return (
        f"images: all {len(pictures)} pictures are grey, and each is read as three equal channels; "
        "set data.grey = true to read one",
    )


def _is_grey(pictures: Tensor) -> bool:
    return all(torch.equal(pictures[:, 0], pictures[:, channel]) for channel in (1, 2))


def _test_classes(folder: Path) -> dict[str, list[Path]]:
    return annotated(folder) if (folder / ANNOTATIONS).is_file() else class_folders(folder)


def _test_folder(folder: Path) -> Path:
    if (folder / "val" / ANNOTATIONS).is_file():
        return folder / "val"  # Tiny-ImageNet: its test pictures have no labels
    for name in ("test", "val"):
        if (folder / name).is_dir():
            return folder / name
    raise InputError(f"{folder}: has train/ but neither test/ nor val/; add one of them")
