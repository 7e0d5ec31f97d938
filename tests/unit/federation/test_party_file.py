"""What cannot be used of a party's own data is said where it joins, and again before it waits for anybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from veracausa.errors import InputError
from veracausa.federation.party_file import check_own_data
from veracausa.federation.site_program import party_program

TRAINING: dict[str, Any] = {
    "data": {"name": "csv", "label": "y"},
    "model": {"name": "mlp"},
    "parties": {"active": "bank", "passive": ["lab"]},
    "runtime": {"device": "cpu"},
}
DISCOVERY: dict[str, Any] = {
    "kind": "discovery",
    "method": "vfedcd",
    "data": {},
    "parties": {"bank": [], "lab": []},
    "settings": {"encryption": "none"},
    "simulation": True,
}
GOOD = "id,age,y\n1,20,no\n2,30,yes\n3,40,no\n"
WORDS = "id,age,name\n" + "".join(f"{n},{n},person {n}\n" for n in range(300))


def folder_of(tmp_path: Path, job: dict[str, Any], table: str, id: str = "id") -> Path:
    (tmp_path / "job.toml").write_text(tomli_w.dumps(job))
    (tmp_path / "own.csv").write_text(table)
    (tmp_path / "party.toml").write_text(tomli_w.dumps({"data": {"path": str(tmp_path / "own.csv"), "id": id}}))
    return tmp_path


CASES = [
    (TRAINING, "bank", GOOD, "nope", r"own\.csv: no column 'nope' for the id"),
    (TRAINING, "bank", GOOD + "2,50,no\n", "id", r"own\.csv: id '2' stands in rows 2 and 4; keep one row an id"),
    (TRAINING, "lab", "id,age\n1,1\n1,2\n", "id", r"own\.csv: id '1' stands in rows 1 and 2"),
    (TRAINING, "lab", "id,age\n1,1\n,2\n", "id", r"own\.csv: row 2: the id \('id'\) is missing"),
    (TRAINING, "bank", GOOD.replace("y", "z", 1), "id", r"own\.csv: no column 'y' for the label"),
    (TRAINING, "lab", "id,age\n1,1\n2,1e999\n", "id", "age"),
    (
        {**DISCOVERY, "parties": {"bank": [], "lab": ["age", "name"]}},
        "lab",
        WORDS,
        "id",
        "name .*300 different words",
    ),
    (DISCOVERY, "lab", GOOD, "nope", r"own\.csv: no column 'nope' for the id"),
    (DISCOVERY, "lab", "id,a\n1,1\n1,2\n", "id", r"own\.csv: id '1' stands in rows 1 and 2"),
]


@pytest.mark.parametrize(("job", "me", "table", "id", "sentence"), CASES)
@pytest.mark.parametrize("look", [check_own_data, party_program], ids=["join", "run"])
def test_it_is_said_before_anybody_waits(look, job, me, table, id, sentence, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, job, table, id)
    with pytest.raises(InputError, match=sentence):
        look(folder, me)
    assert not (folder / "run").exists()


@pytest.mark.parametrize(("job", "me"), [(TRAINING, "bank"), (DISCOVERY, "lab"), (DISCOVERY, "validator")])
def test_good_data_pass_and_nothing_is_kept(job, me, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, job, GOOD)
    before = sorted(folder.iterdir())
    check_own_data(folder, me)
    assert sorted(folder.iterdir()) == before


def test_who_says_later_where_its_data_lie_may_join(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, TRAINING, GOOD)
    (folder / "party.toml").write_text("")
    check_own_data(folder, "bank")
