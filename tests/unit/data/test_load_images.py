"""Pictures split between parties."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from veracausa.data.load import load, load_new
from veracausa.errors import InputError


def storage(tensor):
    return tensor.untyped_storage().data_ptr()


def test_a_run_holds_one_copy(make_job, mnist_files):
    data = load(make_job({"name": "mnist", "validation": 0.25}, partition={"active_has_features": True}))
    for split in ("train", "test"):
        assert len({storage(party.part(split).features) for party in data.parties.values()}) == 1
    assert storage(data.parties["active"].train.features) == storage(data.parties["passive_1"].validation.features)


def test_who_holds_what(make_job, mnist_files):
    data = load(make_job({"name": "mnist"}))
    assert list(data.parties) == ["active", "passive_1", "passive_2"]
    assert data.passive == ("passive_1", "passive_2")
    assert data.join == "width"
    active = data.parties["active"]
    assert active.shape == ()
    assert active.train.features is None
    assert active.train.labels.dtype == torch.int64
    for name in data.passive:
        party = data.parties[name]
        assert party.shape == (1, 28, 14)
        assert party.train.labels is None
        assert party.test.labels is None


def test_the_active_party_takes_the_first_part(make_job, mnist_files):
    settings = {
        "partition": {"active_has_features": True, "axis": "height", "parts": [20, 8]},
        "parties": {"passive": ["p"]},
    }
    data = load(make_job({"name": "mnist"}, **settings))
    assert data.parties["active"].shape == (1, 20, 28)
    assert data.parties["p"].shape == (1, 8, 28)
    assert data.join == "height"


def test_validation_is_drawn_from_training_once(make_job, mnist_files):
    full = load(make_job({"name": "mnist"}))
    data = load(make_job({"name": "mnist", "validation": 0.25}))
    again = load(make_job({"name": "mnist", "validation": 0.25}))
    other = load(make_job({"name": "mnist", "validation": 0.25}, seed=1))
    party = data.parties["passive_1"]
    assert (len(party.train), len(party.validation), len(party.test)) == (45, 15, 20)
    assert torch.equal(party.validation.features, again.parties["passive_1"].validation.features)
    assert not torch.equal(party.validation.features, other.parties["passive_1"].validation.features)
    # Pictures are all different here: each row of the whole is found once, with its label.
    labelled = {
        row.numpy().tobytes(): label
        for row, label in zip(
            full.parties["passive_1"].train.features, full.parties["active"].train.labels.tolist(), strict=True
        )
    }
    found = {}
    for split in ("train", "validation"):
        labels = data.parties["active"].part(split).labels.tolist()
        found |= {row.numpy().tobytes(): label for row, label in zip(party.part(split).features, labels, strict=True)}
    assert found == labelled


def test_partial_overlap_leaves_validation_and_test_whole(make_job, mnist_files):
    full = load(make_job({"name": "mnist"})).parties["passive_2"]
    party = load(make_job({"name": "mnist"}, overlap={"fraction": 0.3})).parties["passive_2"]
    assert len(party.train) == 60
    assert len(party.train.features) == 18
    assert party.test.index is None
    positions = torch.arange(60)[party.train.present(torch.arange(60))]
    assert torch.equal(party.train.take(positions), full.train.take(positions))
    assert load(make_job({"name": "mnist"}, overlap={"fraction": 0.3})).parties["passive_1"].train.index is None


def test_random_pixels(make_job, mnist_files):
    data = load(make_job({"name": "mnist"}, partition={"kind": "random"}))
    assert data.join == "features"
    first, second = (data.parties[name] for name in data.passive)
    assert first.shape == second.shape == (392,)
    whole = load(make_job({"name": "mnist"}, parties={"passive": ["p"]})).parties["p"].train.features
    joined = torch.cat([first.train.features, second.train.features], dim=1)
    assert torch.equal(joined.sort(dim=1).values, whole.flatten(1).sort(dim=1).values)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"partition": {"parts": [14, 13]}}, "adds up to 27, but the width is 28"),
        ({"partition": {"kind": "columns"}}, "pictures have no named columns"),
        ({"partition": {"columns": {"passive_1": ["a"]}}}, "pictures have no named columns"),
        ({"party": {"passive_1": {"data": {"path": "x"}}}}, "party.passive_1.data: mnist is split from one source"),
        ({"overlap": {"fraction": 0.5, "parties": ["passiv_1"]}}, "did you mean 'passive_1'"),
    ],
)
def test_wrong_settings_are_one_sentence(make_job, mnist_files, settings, message):
    with pytest.raises(InputError, match=message):
        load(make_job({"name": "mnist"}, **settings))


def test_validation_leaves_rows_to_train_on(make_job, mnist_files):
    with pytest.raises(InputError, match=r"data.validation = 0.9 leaves none"):
        load(make_job({"name": "mnist", "train": 2, "validation": 0.9}))


@pytest.mark.parametrize("layout", ["NHW", "NCHW", "NHWC"])
def test_new_pictures_from_an_array(make_job, tmp_path, layout):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 28, 28)).astype(np.uint8)
    array = {"NHW": pixels, "NCHW": pixels[:, None], "NHWC": pixels[..., None]}[layout]
    np.save(tmp_path / "new.npy", array)
    data = load_new(make_job({"name": "mnist"}), tmp_path / "new.npy", {}, list("0123456789"))
    joined = torch.cat([data.parties[name].test.features for name in data.passive], dim=3)
    assert np.array_equal(joined.numpy()[:, 0], pixels)
    active = data.parties["active"]
    assert active.test.labels is None
    assert active.test.ids == ("1", "2", "3")
    assert (len(active.train), len(active.validation)) == (0, 0)


def test_new_colour_pictures(make_job, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32)).astype(np.uint8)
    for array in (pixels, pixels.transpose(0, 2, 3, 1)):
        np.save(tmp_path / "new.npy", array)
        data = load_new(make_job({"name": "cifar10"}), {"active": tmp_path / "new.npy"}, {}, ["a", "b"])
        assert np.array_equal(data.parties["passive_1"].test.features.numpy(), pixels[..., :16])


def test_new_pictures_from_a_folder(make_job, tmp_path):
    for name in ("0", "7"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (40, 30), (70, 70, 70)).save(tmp_path / name / "a.png")
    data = load_new(make_job({"name": "mnist"}), tmp_path, {}, list("0123456789"))
    assert data.parties["active"].test.labels.tolist() == [0, 7]
    assert data.parties["active"].test.ids == ("0/a.png", "7/a.png")
    assert data.parties["passive_1"].test.features.shape == (2, 1, 28, 14)


def test_wrong_new_pictures(make_job, tmp_path):
    job = make_job({"name": "mnist"})
    for array, message in (
        (np.zeros((2, 28, 28)), "float64"),
        (np.zeros((2, 27, 28), np.uint8), r"shape \(2, 27, 28\) does not fit; the model wants 1 channels of 28x28"),
        (np.zeros((0, 28, 28), np.uint8), "shape"),
    ):
        np.save(tmp_path / "new.npy", array)
        with pytest.raises(InputError, match=message):
            load_new(job, tmp_path / "new.npy", {}, ["0", "1"])
    (tmp_path / "new.npy").write_bytes(b"broken")
    with pytest.raises(InputError, match="cannot be read as a NumPy array"):
        load_new(job, tmp_path / "new.npy", {}, ["0", "1"])
    with pytest.raises(InputError, match="neither a folder"):
        load_new(job, tmp_path / "absent.txt", {}, ["0", "1"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no pictures"):
        load_new(job, tmp_path / "empty", {}, ["0", "1"])
