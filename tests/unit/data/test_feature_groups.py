"""Which column of a table each feature came from: known wherever a part is."""

from __future__ import annotations

import polars as pl
import pytest
import torch

from veracausa.data import overlap, preprocessing
from veracausa.data.load import load, load_new

COLUMNS = {"passive_1": ["a"], "passive_2": ["b", "c"]}


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "people.csv"
    lines = [f"p{n},{n},{100 + n},{'uvw'[n % 3]},{'yes' if n % 4 else 'no'}" for n in range(40)]
    path.write_text("id,a,b,c,y\n" + "\n".join(lines) + "\n")
    return path


def test_a_column_gives_as_many_features_as_are_named_after_it():
    frame = pl.DataFrame({"age": [1.0, None, 3.0], "job": ["a", "b", None], "size": [1, 2, 3]})
    fitted = preprocessing.fit(frame, ["age", "job", "size"])
    groups = preprocessing.feature_groups(fitted)
    assert groups == (0, 0, 1, 1, 1, 2)
    assert len(groups) == len(preprocessing.feature_names(fitted)) == preprocessing.apply(fitted, frame).shape[1]


def test_rare_values_put_together_belong_to_their_column():
    frame = pl.DataFrame({"name": [f"n{row}" for row in range(100)], "size": list(range(100))})
    fitted = preprocessing.fit(frame, ["name", "size"])
    assert preprocessing.feature_groups(fitted) == (0,) * preprocessing.MAX_VALUES + (1,)


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_every_part_of_a_table_knows_its_groups(make_job, people, fraction):
    data = load(
        make_job(
            {"name": "csv", "path": str(people), "label": "y", "id": "id", "validation": 0.25},
            partition={"columns": COLUMNS},
            overlap={"fraction": fraction},
        )
    )
    assert data.parties["active"].train.groups is None
    for split in ("train", "validation", "test"):
        assert data.parties["passive_1"].part(split).groups == (0,)
        part = data.parties["passive_2"].part(split)
        assert part.groups == (0, 1, 1, 1)
        assert part.to(torch.device("cpu")).groups == part.none().groups == part.groups
        assert overlap.restrict(part, torch.tensor([0, 2])).groups == part.groups


def test_new_rows_have_the_groups_of_training(make_job, people):
    job = make_job({"name": "csv", "path": str(people), "label": "y", "id": "id"}, partition={"columns": COLUMNS})
    data = load(job)
    fitted = {name: party.preprocessing for name, party in data.parties.items() if party.preprocessing is not None}
    new = load_new(job, people, fitted, data.classes)
    assert new.parties["passive_2"].test.groups == (0, 1, 1, 1)
