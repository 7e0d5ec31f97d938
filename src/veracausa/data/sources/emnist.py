"""EMNIST: gzipped IDX files under EMNIST/raw, whose pictures are published transposed."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from veracausa.data.files import Remote, data_folder, find, subset_note
from veracausa.data.images import ImageOptions, Images
from veracausa.data.picture_files import read_idx
from veracausa.data.sources import datasets
from veracausa.errors import InputError

if TYPE_CHECKING:
    from veracausa.config import Job

Variant = Literal["letters", "balanced", "digits", "mnist", "byclass", "bymerge"]

# The merged variants keep only those small letters that do not look like their capitals.
_MERGED = string.digits + string.ascii_uppercase + "abdefghnqrt"
_CLASSES: dict[Variant, str] = {
    "letters": string.ascii_uppercase,
    "balanced": _MERGED,
    "bymerge": _MERGED,
    "byclass": string.digits + string.ascii_uppercase + string.ascii_lowercase,
    "digits": string.digits,
    "mnist": string.digits,
}


class EmnistOptions(ImageOptions):
    variant: Variant = "letters"

    def picture(self) -> tuple[int, int | None]:
        return 1, 28


@datasets.register("emnist", EmnistOptions)
def emnist(options: EmnistOptions, job: Job) -> Images:
    """Handwritten letters and digits of 28x28 pixels, upright; labels from 0."""
    train, train_labels, train_rows = _half(options.variant, "train", options.train)
    test, test_labels, test_rows = _half(options.variant, "test", options.test)
    return Images(
        train,
        train_labels,
        test,
        test_labels,
        tuple(_CLASSES[options.variant]),
        (train_rows, test_rows),
        subset_note("emnist", data_folder() / "EMNIST/raw", train_rows),
    )


def _half(variant: Variant, split: str, limit: int | None) -> tuple[Tensor, Tensor, int]:
    remote = Remote(
        "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        "58c8d27c78d21e728a6bc7b3cc06412e",
        f"gzip/emnist-{variant}-*.gz",
    )
    images_path = find(f"EMNIST/raw/emnist-{variant}-{split}-images-idx3-ubyte.gz", remote)
    labels_path = find(f"EMNIST/raw/emnist-{variant}-{split}-labels-idx1-ubyte.gz", remote)
    images, rows = read_idx(images_path, 3, limit)
    labels, label_rows = read_idx(labels_path, 1, limit)
    if rows != label_rows:
        raise InputError(f"{labels_path}: {label_rows} labels for {rows} pictures; fetch both files again")
    # Only `letters` counts from 1.
    first = 1 if variant == "letters" else 0
    return images.transpose(1, 2).contiguous().unsqueeze(1), labels.long() - first, rows
