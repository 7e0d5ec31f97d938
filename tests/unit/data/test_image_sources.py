"""Sources of pictures: IDX files, binary records and folders, and what is refused in each."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from refusals import Names

from veracausa.data.load import load
from veracausa.data.picture_files import read_idx
from veracausa.errors import InputError


def whole(data, split="train"):
    parts = [data.parties[name].part(split) for name in data.passive]
    return torch.cat([part.features for part in parts], dim=3)


def labels(data, split="train"):
    return data.parties[data.active].part(split).labels


def test_digits(make_job):
    from sklearn.datasets import load_digits

    data = load(make_job({"name": "digits"}))
    bundle = load_digits()
    assert whole(data).shape == (1438, 1, 8, 8)
    assert whole(data, "test").shape == (359, 1, 8, 8)
    assert np.allclose(whole(data).numpy()[:, 0] / 255 * 16, bundle.images[:1438], atol=16 / 255)
    assert labels(data, "test").tolist() == bundle.target[1438:].tolist()
    assert data.classes == tuple("0123456789")


def test_clothing_is_bundled_with_its_licence(make_job):
    from importlib.resources import files

    data = load(make_job({"name": "clothing"}))
    assert whole(data).shape == (2000, 1, 28, 28)
    assert whole(data, "test").shape == (500, 1, 28, 28)
    # Every kind is there, and the first training picture is the boot that Fashion-MNIST begins with.
    assert labels(data).unique().tolist() == labels(data, "test").unique().tolist() == list(range(10))
    assert data.classes[int(labels(data)[0])] == "ankle boot"
    licence = (files("veracausa.data") / "bundled" / "clothing" / "LICENSE").read_text()
    assert "The MIT License" in licence
    assert "Zalando SE" in licence


def test_mnist(make_job, mnist_files):
    from veracausa.data.picture_files import read_idx

    data = load(make_job({"name": "mnist"}))
    pixels, _ = read_idx(mnist_files / "MNIST/raw/train-images-idx3-ubyte.gz", 3)
    assert torch.equal(whole(data)[:, 0], pixels)
    assert labels(data).tolist() == [row % 10 for row in range(60)]
    assert data.notes == ()


def test_limits_are_noted(make_job, mnist_files):
    data = load(make_job({"name": "mnist", "train": 7, "test": 100}))
    assert len(whole(data)) == 7
    assert len(whole(data, "test")) == 20
    assert data.notes == ("mnist: the first 7 of 60 training rows",)


def test_mnist_labels_for_other_pictures(make_job, mnist_files, write_idx):
    write_idx(mnist_files / "MNIST/raw/train-labels-idx1-ubyte.gz", np.zeros(59))
    with pytest.raises(InputError, check=Names("train-labels-idx1-ubyte.gz", "59", "60")):
        load(make_job({"name": "mnist"}))


def test_a_label_outside_the_classes(make_job, mnist_files, write_idx):
    write_idx(mnist_files / "MNIST/raw/train-labels-idx1-ubyte.gz", np.array([0] * 4 + [10] + [1] * 55))
    with pytest.raises(InputError, check=Names("mnist", "5", "10")):
        load(make_job({"name": "mnist"}))


def test_emnist_stands_upright_and_counts_from_0(make_job, data_folder, write_idx):
    raw = data_folder / "EMNIST/raw"
    pictures = np.random.default_rng(0).integers(0, 256, (26, 28, 28))
    for split in ("train", "test"):
        write_idx(raw / f"emnist-letters-{split}-images-idx3-ubyte.gz", pictures.transpose(0, 2, 1))
        write_idx(raw / f"emnist-letters-{split}-labels-idx1-ubyte.gz", np.arange(1, 27))
    (raw / "README.txt").write_text("SUBSET of EMNIST")
    data = load(make_job({"name": "emnist"}))
    assert np.array_equal(whole(data).numpy()[:, 0], pictures)
    assert labels(data).tolist() == list(range(26))
    assert data.classes[0] == "A"
    assert data.notes == ("emnist: a subset (26 training rows)",)
    with pytest.raises(InputError, match=r"emnist-balanced-train-images-idx3-ubyte\.gz is missing"):
        load(make_job({"name": "emnist", "variant": "balanced"}))


def cifar(path: Path, label_columns: list[list[int]], pictures: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    flat = pictures.reshape(len(pictures), -1)
    np.concatenate([np.array(label_columns).T, flat], axis=1).astype(np.uint8).tofile(path)


@pytest.fixture
def cifar10_files(data_folder):
    folder = data_folder / "cifar-10-batches-bin"
    pictures = np.random.default_rng(0).integers(0, 256, (6, 10, 3, 32, 32))
    for number, batch in enumerate(pictures[:5], start=1):
        cifar(folder / f"data_batch_{number}.bin", [list(range(10))], batch)
    cifar(folder / "test_batch.bin", [list(range(10))], pictures[5])
    return folder, pictures


def test_cifar10(make_job, cifar10_files):
    _, pictures = cifar10_files
    data = load(make_job({"name": "cifar10"}))
    assert np.array_equal(whole(data).numpy(), pictures[:5].reshape(50, 3, 32, 32))
    assert np.array_equal(whole(data, "test").numpy(), pictures[5])
    assert labels(data).tolist() == list(range(10)) * 5
    assert data.notes == ()


def test_cifar10_opens_only_the_batches_it_needs(make_job, cifar10_files):
    folder, pictures = cifar10_files
    for number in (3, 4, 5):
        (folder / f"data_batch_{number}.bin").unlink()
    data = load(make_job({"name": "cifar10", "train": 15, "test": 3}))
    assert np.array_equal(whole(data).numpy(), pictures[:2].reshape(20, 3, 32, 32)[:15])
    assert len(data.notes) == 2
    with pytest.raises(InputError, match=r"data_batch_3.bin is missing.*cifar-10-binary.tar.gz"):
        load(make_job({"name": "cifar10", "train": 25}))


def test_a_cut_batch_is_refused_with_its_place(make_job, cifar10_files):
    folder, _ = cifar10_files
    path = folder / "data_batch_1.bin"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, check=Names("data_batch_1.bin", "10", "27657")):
        load(make_job({"name": "cifar10"}))
    path.write_bytes(b"")
    with pytest.raises(InputError, match="is empty"):
        load(make_job({"name": "cifar10"}))


def test_a_wrong_cifar_label_is_refused_with_its_place(make_job, cifar10_files):
    folder, pictures = cifar10_files
    cifar(folder / "data_batch_1.bin", [[0, 1, 77, *range(7)]], pictures[0])
    with pytest.raises(InputError, check=Names("data_batch_1.bin", "3", "6146", "77")):
        load(make_job({"name": "cifar10"}))


def test_cifar100_fine_and_coarse(make_job, data_folder):
    folder = data_folder / "cifar-100-binary"
    pictures = np.random.default_rng(0).integers(0, 256, (4, 3, 32, 32))
    for name in ("train", "test"):
        cifar(folder / f"{name}.bin", [[19, 3, 0, 1], [99, 5, 0, 7]], pictures)
    (folder / "README.txt").write_text("SUBSET of CIFAR-100")
    (folder / "coarse_label_names.txt").write_text("\n".join(f"group{n}" for n in range(20)) + "\n")
    fine = load(make_job({"name": "cifar100"}))
    coarse = load(make_job({"name": "cifar100", "labels": "coarse"}))
    assert labels(fine).tolist() == [99, 5, 0, 7]
    assert labels(coarse).tolist() == [19, 3, 0, 1]
    assert (len(fine.classes), coarse.classes[19]) == (100, "group19")
    assert fine.notes == ("cifar100: a subset (4 training rows)",)


def pictures_in(folder: Path, classes: dict[str, int], size=(6, 4), mode="RGB"):
    for number, (name, count) in enumerate(classes.items()):
        (folder / name).mkdir(parents=True)
        for row in range(count):
            Image.new(mode, size, (10 * number + row,) * len(mode)).save(folder / name / f"{row}.png")


def test_images_with_a_test_folder(make_job, tmp_path):
    pictures_in(tmp_path / "train", {"cat": 3, "dog": 2})
    pictures_in(tmp_path / "val", {"cat": 1})
    data = load(make_job({"name": "images", "path": str(tmp_path)}))
    # One of each class in turn, so that a limit leaves a fair sample.
    assert labels(data).tolist() == [0, 1, 0, 1, 0]
    assert whole(data)[:, 0, 0, 0].tolist() == [0, 10, 1, 11, 2]
    assert whole(data).shape == (5, 3, 4, 6)
    assert labels(data, "test").tolist() == [0]
    assert data.classes == ("cat", "dog")


def test_tiny_imagenet_as_published(make_job, tmp_path):
    for wnid in ("n01", "n02"):
        pictures_in(tmp_path / "train" / wnid, {"images": 2})
    pictures_in(tmp_path / "val", {"images": 3})
    pictures_in(tmp_path / "test", {"images": 1})
    listing = tmp_path / "val" / "val_annotations.txt"
    listing.write_text("0.png\tn02\t0\t0\t9\t9\n1.png\tn01\t0\t0\t9\t9\n2.png\tn02\t0\t0\t9\t9\n")
    data = load(make_job({"name": "images", "path": str(tmp_path)}))
    assert data.classes == ("n01", "n02")
    assert labels(data).tolist() == [0, 1, 0, 1]
    assert labels(data, "test").tolist() == [0, 1, 1]
    listing.write_text("gone.png\tn02\n")
    with pytest.raises(InputError, match=r"val_annotations\.txt, line 1: there is no .*gone\.png"):
        load(make_job({"name": "images", "path": str(tmp_path)}))


def test_images_with_a_hold_out(make_job, tmp_path):
    pictures_in(tmp_path, {"cat": 6, "dog": 4})
    jobs = [
        make_job({"name": "images", "path": str(tmp_path), "size": 5, "grey": True}, seed=seed) for seed in (0, 0, 1)
    ]
    first, again, other = (load(job) for job in jobs)
    assert whole(first).shape == (8, 1, 5, 5)
    assert torch.equal(whole(first), whole(again))
    assert not torch.equal(whole(first), whole(other))
    seen = torch.cat([whole(first), whole(first, "test")])[:, 0, 0, 0].tolist()
    assert sorted(seen) == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13]


def test_wrong_image_folders(make_job, tmp_path):
    job = make_job({"name": "images", "path": str(tmp_path)})
    with pytest.raises(InputError, match="holds no class folders"):
        load(job)
    pictures_in(tmp_path, {"cat": 2})
    with pytest.raises(InputError, match="1 class"):
        load(job)
    (tmp_path / "dog").mkdir()
    with pytest.raises(InputError, match="dog: a class folder without pictures"):
        load(job)
    Image.new("RGB", (5, 5)).save(tmp_path / "dog/a.png")
    with pytest.raises(InputError, match=r"pixels, while .*; set data.size"):
        load(job)
    (tmp_path / "dog/a.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"a\.png: cannot be read as a picture"):
        load(job)
    pictures_in(tmp_path / "train", {"cat": 1, "dog": 1})
    with pytest.raises(InputError, match="neither test/ nor val/"):
        load(job)
    pictures_in(tmp_path / "test", {"cats": 1})
    with pytest.raises(InputError, match="did you mean 'cat'"):
        load(job)


@pytest.mark.parametrize(
    ("source", "file", "rows", "shape"),
    [
        ({"name": "mnist"}, "MNIST/raw/train-images-idx3-ubyte.gz", 60_000, (1, 28, 28)),
        ({"name": "cifar10", "train": 500, "test": 100}, "cifar-10-batches-bin/data_batch_1.bin", 500, (3, 32, 32)),
        ({"name": "cifar100", "train": 500}, "cifar-100-binary/train.bin", 500, (3, 32, 32)),
        ({"name": "emnist", "train": 500}, "EMNIST/raw/emnist-letters-train-images-idx3-ubyte.gz", 500, (1, 28, 28)),
    ],
)
def test_the_real_files(make_job, source, file, rows, shape):
    folder = os.environ.get("VERACAUSA_DATA")
    if not folder or not (Path(folder) / file).is_file():
        pytest.skip(f"needs {file} under VERACAUSA_DATA")
    data = load(make_job(source))
    assert whole(data).shape == (rows, *shape)
    assert len(labels(data).unique()) == len(data.classes)
    # Both halves of real pictures have ink: a strip of zeros would mean that the format was misread.
    assert all(data.parties[name].train.features.float().mean() > 5 for name in data.passive)


def test_grey_pictures_read_as_coloured_ones_get_a_note(make_job, tmp_path):
    rng = np.random.default_rng(0)
    for n in range(8):
        (tmp_path / f"class{n % 2}").mkdir(exist_ok=True)
        picture = Image.fromarray(rng.integers(0, 256, (6, 6), dtype=np.uint8))
        picture.save(tmp_path / f"class{n % 2}" / f"{n}.png")
    source = {"name": "images", "path": str(tmp_path)}
    assert any(
        "all 8 pictures are grey" in note and "data.grey = true" in note for note in load(make_job(source)).notes
    )
    assert load(make_job({**source, "grey": True})).notes == ()
    coloured = np.zeros((6, 6, 3), dtype=np.uint8)
    coloured[0, 0, 0] = 255
    Image.fromarray(coloured).save(tmp_path / "class1" / "7.png")
    assert load(make_job(source)).notes == ()


@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=3), limit=st.one_of(st.none(), st.integers(1, 7)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reads_what_was_written(tmp_path, write_idx, shape, limit):
    array = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    write_idx(tmp_path / "a.gz", array)
    values, total = read_idx(tmp_path / "a.gz", len(shape), limit)
    assert total == shape[0]
    assert np.array_equal(values.numpy(), array[:limit])


@pytest.fixture
def intact(tmp_path, write_idx):
    path = tmp_path / "a.gz"
    write_idx(path, np.random.default_rng(0).integers(0, 256, (50, 28, 28)))
    return path


def test_a_cut_gzip_is_refused_with_its_place(intact):
    whole = intact.read_bytes()
    intact.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        InputError, match=r"a\.gz: the gzip data is broken at record \d+ of 50, byte \d+.*fetched again"
    ):
        read_idx(intact, 3)


def test_too_few_or_too_many_records_are_refused(intact):
    plain = gzip.decompress(intact.read_bytes())
    intact.write_bytes(gzip.compress(plain[:-1]))
    with pytest.raises(InputError, match="ends inside record 50 of 50"):
        read_idx(intact, 3)
    intact.write_bytes(gzip.compress(plain + b"x"))
    with pytest.raises(InputError, match="goes on after its 50 records"):
        read_idx(intact, 3)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not gzip at all",
        gzip.compress(b""),
        gzip.compress(b"\0\0\x09\x03" + bytes(12)),
        gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12),
    ],
    ids=["empty", "not gzip", "nothing inside", "another type", "sizes beyond the file"],
)
def test_no_idx_file_is_refused(tmp_path, content):
    (tmp_path / "a.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.gz: .*(fetched again|intact)"):
        read_idx(tmp_path / "a.gz", 3)


def test_flipped_bytes_are_refused(intact):
    content = bytearray(intact.read_bytes())
    content[len(content) // 2] ^= 0xFF
    intact.write_bytes(bytes(content))
    with pytest.raises(InputError):
        read_idx(intact, 3)
