"""Pictures of your own: folders named after their classes, with or without a test folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from pydantic import Field
from torch import Tensor

from veracausa import seeding
from veracausa.data.array_files import class_names, in_order, picture_arrays
from veracausa.data.files import given_path, subset_note
from veracausa.data.images import ImageOptions, Images
from veracausa.data.overlap import hold_out
from veracausa.data.picture_files import ANNOTATIONS, annotated, as_pictures, class_folders, in_turn, read_pictures
from veracausa.data.sources import datasets
from veracausa.errors import InputError
from veracausa.registry import did_you_mean

if TYPE_CHECKING:
    from veracausa.config import Job


class ImageFolderOptions(ImageOptions):
    path: str
    """A folder of class folders, or with train/ and test/ (or val/) of class folders; Tiny-ImageNet as published. Or a
    .npz file of pictures and their labels."""
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
    if folder.suffix.lower() == ".npz" and folder.is_file():
        return _of_arrays(folder, options, job)
    if not folder.is_dir():
        raise InputError(
            f"data.path = {options.path!r}: is a file; name the folder that holds the pictures, or a .npz file"
        )
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


def _of_arrays(path: Path, options: ImageFolderOptions, job: Job) -> Images:
    """The pictures of a .npz file, with a test part of its own or one that is drawn."""
    (array, told), test = picture_arrays(path)
    channels, side = options.picture()
    pictures = as_pictures(array, str(path), channels, side, scale=True)
    names = class_names(told, len(array), str(path))
    classes = in_order(set(names))
    labels = torch.tensor([classes.index(name) for name in names])
    if test is None:
        held_out = hold_out(len(pictures), options.holdout, seeding.generator(job.seed, "holdout"), "data.holdout")
        kept = (pictures[~held_out], labels[~held_out], pictures[held_out], labels[held_out])
    else:
        others = class_names(test[1], len(test[0]), str(path))
        for name in others:
            if name not in classes:
                raise InputError(f"{path}: test class {name!r} is no training class{did_you_mean(name, classes)}")
        theirs = torch.tensor([classes.index(name) for name in others])
        kept = (pictures, labels, as_pictures(test[0], str(path), channels, side, scale=True), theirs)
    sizes = len(kept[0]), len(kept[2])
    limits = (options.train, options.train, options.test, options.test)
    train, train_labels, test_pictures, test_labels = (part[:most] for part, most in zip(kept, limits, strict=True))
    notes = _grey_note(options, train, test_pictures)
    return Images(train, train_labels, test_pictures, test_labels, classes, sizes, notes)


def _grey_note(options: ImageFolderOptions, *parts: Tensor) -> tuple[str, ...]:
    """What is to be said of grey pictures that are read as coloured ones: three times the same."""
    # A few first: coloured ones are known by them, and the others need not be looked at.
    count = sum(map(len, parts))
    if options.grey or not count or not all(_is_grey(part[:64]) and _is_grey(part) for part in parts):
        return ()
    return (
        f"images: all {count} pictures are grey, and each is read as three equal channels; "
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
