"""Joint predictions across sites are those of one place."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import Names

from veracausa.errors import InputError
from veracausa.federation.inference import SitePrediction
from veracausa.training.train import train

COLUMNS = {"bank": ("y",), "lab": ("a", "b"), "clinic": ("kind", "c")}


@pytest.fixture
def trained(tmp_path, organisations, table_job):
    """Three organisations that have trained together, and the same run in one place."""
    sites = organisations(table_job(defense={"name": "laplace"}, training={"epochs": 1, "batch_size": 16}), rows=40)
    sites.run()
    return sites, train({**sites.job, "party": dict(sites.owned)}, tmp_path / "whole")


def together(sites, data):
    found = {}
    parties = {name: SitePrediction(sites.root / name, name, data.get(name)) for name in sites.names}

    def program(name, link):
        found[name] = parties[name](link, lambda event: None)

    sites.each(program)
    return found


def test_new_rows(tmp_path, trained, people):
    sites, whole = trained
    news = {"bank": range(100, 130), "lab": range(95, 128), "clinic": [n for n in range(100, 140) if n % 5]}
    files = {name: people(tmp_path / f"new-{name}.csv", news[name], COLUMNS[name], 7) for name in sites.names}
    expected = whole.predict(files)
    found = together(sites, files)
    assert found["lab"] is None
    assert found["clinic"] is None
    assert (found["bank"].ids, found["bank"].scores) == (expected.ids, expected.scores)
    found["bank"].to_csv(tmp_path / "across.csv")
    expected.to_csv(tmp_path / "whole.csv")
    assert (tmp_path / "across.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert (sites.root / "lab/run/parties/lab/inference.jsonl").read_text()


def test_the_test_rows_without_new_ones(tmp_path, trained):
    sites, whole = trained
    found, expected = together(sites, {})["bank"], whole.predict()
    assert (found.ids, found.scores) == (expected.ids, expected.scores)
    assert found.outputs.equal(expected.outputs)


def test_pictures_that_every_site_has(tmp_path, organisations):
    job = {
        "data": {"name": "digits", "train": 64, "test": 20},
        "model": {"name": "mlp"},
        "parties": {"active": "bank", "passive": ["lab"]},
        "training": {"epochs": 1, "batch_size": 32},
        "runtime": {"device": "cpu", "cpu_threads": 1},
        "risk": {"every": 0},
    }
    sites = organisations(job, ("lab",))
    for name in sites.names:
        (sites.root / name / "party.toml").unlink()
    sites.run()
    whole = train(job, tmp_path / "whole")
    pictures = tmp_path / "new.npy"
    np.save(pictures, np.random.default_rng(0).integers(0, 256, (9, 8, 8), dtype=np.uint8))
    found, expected = together(sites, dict.fromkeys(sites.names, pictures))["bank"], whole.predict(pictures)
    assert (found.ids, found.labels) == (expected.ids, expected.labels)
    assert found.outputs.equal(expected.outputs)


def test_what_is_wrong_is_said_at_home(tmp_path, trained, people):
    sites, _ = trained
    lab = sites.root / "lab"
    with pytest.raises(InputError, check=Names("nothing.csv")):
        SitePrediction(lab, "lab", tmp_path / "nothing.csv")
    nameless = tmp_path / "nameless.csv"
    nameless.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, check=Names("nameless.csv", "id")):
        SitePrediction(lab, "lab", nameless)
    (lab / "run/parties/lab/model.safetensors").unlink()
    with pytest.raises(InputError, match="no trained model"):
        SitePrediction(lab, "lab", people(tmp_path / "new.csv", range(5), COLUMNS["lab"], 1))
