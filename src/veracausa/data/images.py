"""Whole pictures from a source, and the same pictures split between parties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from veracausa import seeding
from veracausa.data import overlap, partition
from veracausa.data.options import DataOptions
from veracausa.data.overlap import hold_out, limit_notes
from veracausa.data.vertical import Part, PartyData, VerticalDataset
from veracausa.errors import InputError

if TYPE_CHECKING:
    from veracausa.config import Job


class ImageOptions(DataOptions):
    """What every source of pictures takes."""

    def picture(self) -> tuple[int, int | None]:
        """Channels, and the side in pixels of the square pictures; None: as the files have it."""
        return 3, None


@dataclass(frozen=True)
class Images:
    """A whole data set of pictures, before any party is thought of."""

    train: Tensor
    """(rows, channels, height, width) uint8; at least the first rows that the job's limit asks for."""
    train_labels: Tensor
    """(rows,) integers from 0."""
    test: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    rows: tuple[int, int]
    """How many training and test rows there are in all."""
    notes: tuple[str, ...] = field(default_factory=tuple)


def split_images(whole: Images, job: Job) -> VerticalDataset:
    """The pictures as each party holds them: views of one array, unless the pixels are drawn at random."""
    for name, own in job.party.items():
        if own.data:
            raise InputError(f"party.{name}.data: {job.data.name} is split from one source; remove this setting")
    if len(whole.classes) < 2:
        raise InputError(f"data: {job.data.name} holds {len(whole.classes)} class; training needs at least 2")
    options = job.data
    train, train_labels = whole.train[: options.train], whole.train_labels[: options.train].long()
    test, test_labels = whole.test[: options.test], whole.test_labels[: options.test].long()
    for labels, split in ((train_labels, "training"), (test_labels, "test")):
        _check_labels(labels, len(whole.classes), f"{options.name}: {split} row")
    held_out = hold_out(len(train), options.validation, seeding.generator(job.seed, "validation"), "data.validation")
    if held_out.any():
        # One array in the order train, validation: each split stays a view, in its source's order.
        order = torch.cat([(~held_out).nonzero().flatten(), held_out.nonzero().flatten()])
        train, train_labels = train[order], train_labels[order]
    cut = len(train) - int(held_out.sum())
    names, join, pieces = _pieces(torch.Size(train.shape[1:]), job)
    views = {"train": pieces(train), "test": pieces(test)}
    lacking = overlap.parties_lacking(job.overlap, job.parties.passive)
    parties: dict[str, PartyData] = {}
    for name in (job.parties.active, *job.parties.passive):
        at = names.index(name) if name in names else None
        active = name == job.parties.active

        def part(rows: slice, split: str, targets: Tensor, at: int | None = at, active: bool = active) -> Part:
            features = None if at is None else views[split][at][rows]
            return Part(len(targets[rows]), features, labels=targets[rows] if active else None)

        own_train = part(slice(0, cut), "train", train_labels)
        if name in lacking:
            own_train = overlap.restrict(own_train, overlap.held(cut, job.overlap.fraction, job.seed, name))
        validation = part(slice(cut, None), "train", train_labels)
        shape = () if at is None else tuple(views["train"][at].shape[1:])
        parties[name] = PartyData(name, shape, own_train, validation, part(slice(None), "test", test_labels))
    notes = (*whole.notes, *limit_notes(options, whole.rows))
    return VerticalDataset(options.name, job.parties.active, parties, "classification", whole.classes, join, notes)


def split_new_images(
    pictures: Tensor, labels: Tensor | None, ids: tuple[str, ...], classes: tuple[str, ...], job: Job
) -> VerticalDataset:
    """New pictures as each party holds them, all in `test`."""
    names, join, pieces = _pieces(torch.Size(pictures.shape[1:]), job)
    views = pieces(pictures)
    parties = {}
    for name in (job.parties.active, *job.parties.passive):
        own = views[names.index(name)] if name in names else None
        targets = labels if name == job.parties.active else None
        test = Part(len(pictures), own, labels=targets, ids=ids)
        nobody = test.none()
        parties[name] = PartyData(name, () if own is None else tuple(own.shape[1:]), nobody, nobody, test)
    return VerticalDataset(job.data.name, job.parties.active, parties, "classification", classes, join)


def _pieces(
    shape: torch.Size, job: Job
) -> tuple[tuple[str, ...], Literal["width", "height", "features"], Callable[[Tensor], list[Tensor]]]:
    """Who holds features, along which axis they join, and the function that cuts an array into their pieces."""
    names = partition.holders(job.partition, job.parties.active, job.parties.passive)
    kind = job.partition.kind
    if kind == "columns" or job.partition.columns:
        raise InputError("partition.columns: pictures have no named columns; use partition.kind = 'strips' or 'random'")
    if kind == "random":
        rng = seeding.generator(job.seed, "partition")
        groups = partition.random_groups(shape[1] * shape[2], len(names), job.partition.parts, rng, "pixels")
        return names, "features", lambda images: [partition.pixels(images, group) for group in groups]
    axis = job.partition.axis
    sizes = partition.strip_sizes(shape[2] if axis == "width" else shape[1], len(names), job.partition.parts, axis)
    return names, axis, lambda images: partition.strips(images, sizes, axis)


def _check_labels(labels: Tensor, classes: int, row: str) -> None:
    wrong = ((labels < 0) | (labels >= classes)).nonzero().flatten()
    if len(wrong):
        at = int(wrong[0])
        raise InputError(
            f"{row} {at + 1}: label {int(labels[at])} is outside the {classes} classes; replace the label file"
        )
