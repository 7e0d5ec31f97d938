"""Joint predictions with a trained run: the numbers that the saved models give by hand."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import Names

import veracausa
from veracausa.config import load_job
from veracausa.data import preprocessing
from veracausa.data.load import load
from veracausa.data.table_files import read_table
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.defenses.protocols import Prepares
from veracausa.errors import InputError
from veracausa.models.cut import build_bottom, build_top, join, payload_shape
from veracausa.registry import Options
from veracausa.runs.folder import Run
from veracausa.runs.store import deserialize_state

pytestmark = pytest.mark.xdist_group("predict")  # what its tests share is made once, not once a worker

ROWS = 60
HEADER = ["key", "age", "job", "income", "colour", "ill"]
BANK, SHOP = ["age", "job"], ["income", "colour"]


def people(rows: int, seed: int) -> list[dict[str, str]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "key": f"p{seed}-{i:03d}",
            "age": f"{rng.normal(40, 12):.2f}" if i % 9 else "",
            "job": str(rng.choice(["nurse", "clerk", "cook"])),
            "income": f"{rng.normal(3e4, 9e3):.1f}",
            "colour": str(rng.choice(["red", "blue"])) if i % 7 else "",
            "ill": str(rng.choice(["no", "yes"])),
        }
        for i in range(rows)
    ]


def write(path: Path, rows: list[dict[str, str]], columns: list[str]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


COMMON = {
    "model": {"name": "mlp", "cut": 2, "hidden": [6, 5]},
    "parties": {"active": "clinic", "passive": ["bank", "shop"]},
    "training": {"epochs": 2, "batch_size": 16},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


@pytest.fixture(scope="module")
def one_file(tmp_path_factory) -> Run:
    """Trained on one file, its columns split between two passive parties."""
    folder = tmp_path_factory.mktemp("one")
    path = write(folder / "people.csv", people(ROWS, 1), HEADER)
    job = {
        **COMMON,
        "data": {"name": "csv", "label": "ill", "id": "key", "path": path},
        "partition": {"columns": {"bank": BANK, "shop": SHOP}},
    }
    return veracausa.train(job, folder / "run")


@pytest.fixture(scope="module")
def own_files(tmp_path_factory) -> Run:
    """Trained on a file of each party's own, the rows of each in another order."""
    folder = tmp_path_factory.mktemp("own")
    rows = people(ROWS, 2)
    clinic = write(folder / "clinic.csv", rows, ["key", "ill"])
    bank = write(folder / "bank.csv", rows[::-1], ["key", *BANK])
    shop = write(folder / "shop.csv", sorted(rows, key=lambda row: row["income"]), [*SHOP, "key"])
    job = {
        **COMMON,
        "data": {"name": "csv", "label": "ill", "id": "key"},
        "party": {
            "clinic": {"data": {"path": clinic}},
            "bank": {"data": {"path": bank}},
            "shop": {"data": {"path": shop}},
        },
    }
    return veracausa.train(job, folder / "run")


def by_hand(run: Run, files: dict[str, Path], order: list[str]) -> torch.Tensor:
    """Probabilities from the saved files alone: preprocessing, bottoms, join, top."""
    models = {
        name: deserialize_state((run.path / f"parties/{name}/model.safetensors").read_bytes())
        for name in ("clinic", "bank", "shop")
    }
    rng, payloads, shapes = torch.Generator(), [], []
    for name in ("bank", "shop"):
        frame = read_table(files[name], text=("key",))
        at = {key: row for row, key in enumerate(frame["key"].to_list())}
        table = preprocessing.apply(models[name]["preprocessing"], frame[[at[key] for key in order]])
        bottom = build_bottom(run.job.model, tuple(models[name]["shape"]), 2, rng).eval()
        bottom.load_state_dict(models[name]["bottom"])
        payloads.append(bottom(table))
        shapes.append(payload_shape(bottom, tuple(models[name]["shape"])))
    top = build_top(run.job.model, shapes, "features", 2, rng).eval()
    top.load_state_dict(models["clinic"]["top"])
    return top(join(payloads, "features")).softmax(1).detach()


def assert_by_hand(predictions, run: Run, files: dict[str, Path], keys: list[str]) -> None:
    assert list(predictions.ids) == keys
    # The same float32 products; a batch of another shape may be summed in another order.
    torch.testing.assert_close(predictions.outputs, by_hand(run, files, keys), rtol=1e-5, atol=1e-6)
    assert predictions.classes == ("no", "yes")
    assert predictions.labels == ["yes" if row[1] > row[0] else "no" for row in predictions.outputs.tolist()]


NEW = people(25, 7)
NEW[3]["job"] = "astronaut"  # never seen in training
NEW[4]["age"] = NEW[5]["colour"] = ""


@pytest.mark.parametrize("fixture", ["one_file", "own_files"])
@pytest.mark.parametrize("labelled", [True, False])
def test_one_new_file_for_all(fixture, labelled, tmp_path, request):
    run = request.getfixturevalue(fixture)
    path = write(tmp_path / "new.csv", NEW, HEADER if labelled else HEADER[:-1])
    predictions = run.predict(path)
    keys = [row["key"] for row in NEW]
    assert_by_hand(predictions, run, {"bank": path, "shop": path}, keys)
    if not labelled:
        assert predictions.scores == {}
        return
    right = [label == row["ill"] for label, row in zip(predictions.labels, NEW, strict=True)]
    assert predictions.scores["accuracy"] == sum(right) / len(NEW)


@pytest.mark.parametrize("fixture", ["one_file", "own_files"])
@pytest.mark.parametrize("labelled", [True, False])
def test_a_new_file_a_party_in_any_order(fixture, labelled, tmp_path, request):
    run = request.getfixturevalue(fixture)
    files = {
        "bank": write(tmp_path / "bank.csv", NEW[::-1], ["key", *BANK]),
        "shop": write(tmp_path / "shop.csv", NEW[2:], [*SHOP, "key"]),
    }
    if labelled:
        files["clinic"] = write(tmp_path / "clinic.csv", NEW, ["ill", "key"])
    predictions = run.predict(files)
    kept = [row["key"] for row in NEW[2:]]
    # In the order of the active party's file, else of the first passive party's.
    assert_by_hand(predictions, run, files, kept if labelled else kept[::-1])
    assert bool(predictions.scores) == labelled


def test_the_rows_of_the_test_set_score_as_in_training(one_file, own_files):
    for run in (one_file, own_files):
        predictions = run.predict()
        assert len(predictions.ids) == 12
        assert predictions.scores == pytest.approx(run.summary["test"])
        data = load(run.job)
        assert predictions.ids == data.parties["clinic"].test.ids


def test_what_is_written_is_what_was_predicted(one_file, tmp_path):
    path = write(tmp_path / "new.csv", NEW, HEADER)
    predictions = one_file.predict(path, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["id", "prediction", "p_no", "p_yes"]
    assert [row[:2] for row in rows[1:]] == [[*pair] for pair in zip(predictions.ids, predictions.labels, strict=True)]
    assert [float(row[3]) for row in rows[1:]] == pytest.approx(predictions.outputs[:, 1].tolist(), abs=1e-6)
    with pytest.raises(InputError, match="no such folder"):
        one_file.predict(path, tmp_path / "nowhere/out.csv")


def test_wrong_files_are_refused(one_file, own_files, tmp_path):
    short = write(tmp_path / "short.csv", NEW, ["key", "age", "job", "income"])
    with pytest.raises(InputError, match="'colour'"):
        one_file.predict(short)
    with pytest.raises(InputError, check=Names("nothing.csv")):
        one_file.predict(tmp_path / "nothing.csv")
    bank = write(tmp_path / "bank.csv", NEW, ["key", *BANK])
    with pytest.raises(InputError, match="'shop'"):
        own_files.predict({"bank": bank})
    with pytest.raises(InputError, match=r"'shpo'.*'shop'"):
        own_files.predict({"bank": bank, "shpo": bank})
    others = write(tmp_path / "others.csv", people(5, 9), [*SHOP, "key"])
    with pytest.raises(InputError, match="no row"):
        own_files.predict({"bank": bank, "shop": others})
    unknown = [{**row, "ill": "perhaps"} for row in NEW]
    with pytest.raises(InputError, match="'perhaps'"):
        one_file.predict(write(tmp_path / "unknown.csv", unknown, HEADER))
    text = [{**NEW[0], "age": "old"}]
    with pytest.raises(InputError, match="'old'"):
        one_file.predict(write(tmp_path / "text.csv", text, HEADER))


def test_an_unfinished_run_cannot_predict(one_file, tmp_path):
    import shutil

    shutil.copytree(one_file.path, tmp_path / "run")
    (tmp_path / "run/parties/shop/model.safetensors").unlink()
    with pytest.raises(InputError, match=r"shop.*--resume"):
        Run(tmp_path / "run").predict(write(tmp_path / "new.csv", NEW, HEADER))


def test_regression_gives_numbers(tmp_path):
    rows = [{"x": str(i), "z": str(i % 5), "y": str(0.5 * i)} for i in range(40)]
    path = write(tmp_path / "train.csv", rows, ["x", "z", "y"])
    job = {
        **COMMON,
        "parties": {"passive": ["a", "b"]},
        "data": {"name": "csv", "label": "y", "path": path},
        "partition": {"columns": {"a": ["x"], "b": ["z"]}},
    }
    run = veracausa.train(job, tmp_path / "run")
    predictions = run.predict(write(tmp_path / "new.csv", rows[:4], ["x", "z", "y"]), tmp_path / "out.csv")
    assert predictions.outputs.shape == (4,)
    assert predictions.classes == ()
    targets = torch.tensor([0.0, 0.5, 1.0, 1.5])
    assert predictions.scores["mae"] == pytest.approx(float((predictions.outputs - targets).abs().mean()), rel=1e-5)
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == "id,prediction"


DIGITS = {
    "data": {"name": "digits", "train": 300, "test": 80},
    "model": {"name": "resnet18", "cut": 4, "width": 4},
    "training": {"epochs": 1, "batch_size": 50},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}


def test_pictures_score_as_in_the_last_epoch(tmp_path):
    run = veracausa.train(DIGITS, tmp_path / "run")
    scores = run.predict().scores
    last = [event for event in run.metrics if event["event"] == "epoch"][-1]
    assert scores["accuracy"] == last["test"]["accuracy"]
    assert scores == pytest.approx(run.summary["test"], rel=1e-6)
    whole = load(load_job(DIGITS))
    strips = [whole.parties[name].test.features for name in ("passive_1", "passive_2")]
    np.save(tmp_path / "new.npy", torch.cat(strips, dim=3)[:7, 0].numpy())
    again = run.predict(tmp_path / "new.npy")
    torch.testing.assert_close(again.outputs, run.predict().outputs[:7], rtol=1e-5, atol=1e-6)


class Offset(Defense, Prepares):
    """Learns a number in `prepare`, and adds it to what it sends."""

    times = 0

    def __init__(self, options):
        super().__init__(options)
        self.offset = torch.zeros(())

    def prepare(self, data, progress=None):
        Offset.times += 1
        self.offset = self.offset + 5.0

    def protect(self, r, x, ids):
        return r + self.offset

    def state(self):
        return {"offset": self.offset}

    def load_state(self, state):
        self.offset = state["offset"]


def test_a_defense_answers_as_it_was_trained(tmp_path, monkeypatch):
    """What it prepared in training comes from its state; it is not prepared again on the run's own rows."""
    defenses.names()
    monkeypatch.setattr(defenses, "_entries", {**defenses._entries, "offset": (Offset, Options)})
    run = veracausa.train(DIGITS, tmp_path / "run", overrides=["defense.name=offset", "model.name=convnet"])
    assert Offset.times == 2
    assert run.predict().scores == pytest.approx(run.summary["test"], rel=1e-6)
    assert Offset.times == 2
