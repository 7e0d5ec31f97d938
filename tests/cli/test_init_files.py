"""`veracausa init` with files of one's own: the job that it writes trains as it is, whatever the files are."""

from __future__ import annotations

import gzip
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from veracausa.cli.main import app
from veracausa.config import load_job
from veracausa.data.load import load
from veracausa.errors import InputError

ROWS = 60
IDS = [f"p{row}" for row in range(ROWS)]
INCOME, AGE, SPENT = np.random.default_rng(0).integers(0, 99, (3, ROWS))


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"{id};{value};{'yes' if value > 50 else 'no'}" for id, value in zip(IDS, INCOME, strict=True)]
    Path("bank.csv").write_text("\n".join(["customer;income;good", *lines]) + "\n")
    lines = [f"{id},{age},{spent}" for id, age, spent in zip(IDS, AGE, SPENT, strict=True)]
    with gzip.open("shop.csv.gz", "wt") as file:
        file.write("\n".join(["customer,age,spent", *lines]) + "\n")
    np.savez("shop.npz", customer=np.array(IDS), age=AGE, spent=SPENT)
    np.save("all.npy", np.stack([INCOME, AGE, SPENT, INCOME > 50], axis=1))
    pictures = np.random.default_rng(0).integers(0, 256, (ROWS, 8, 8)).astype(np.uint8)
    np.savez("digits.npz", images=pictures, labels=np.arange(ROWS) % 2)
    for at, picture in enumerate(pictures):
        place = Path("pictures") / "ab"[at % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(place / f"{at}.png")


def init(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["init", "job.toml", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("protocol", ["blind", "split"])
@pytest.mark.parametrize(
    ("given", "parties"),
    [
        (["bank=bank.csv", "shop=shop.csv.gz", "--label", "good"], ["bank", "shop"]),
        (["shop=shop.npz", "bank=bank.csv", "--label", "good", "--id", "customer"], ["bank", "shop"]),
        (["all.npy", "--label", "x3"], ["active", "passive_1", "passive_2"]),
        (["digits.npz"], ["active", "passive_1", "passive_2"]),
        (["pictures"], ["active", "passive_1", "passive_2"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_job_loads_its_rows(given: list[str], parties: list[str], protocol: str) -> None:
    init(*given, "--protocol", protocol)
    data = load(load_job("job.toml"))
    assert list(data.parties) == parties
    assert data.active == parties[0]
    assert len(data.parties[parties[0]].train) + len(data.parties[parties[0]].validation) == 48


def test_what_was_chosen_is_said_and_written() -> None:
    said = init("bank=bank.csv", "shop=shop.csv.gz", "--label", "good")
    assert "Rows are matched by the column customer" in said
    job: dict[str, Any] = tomllib.loads(Path("job.toml").read_text())
    assert job["party"]["bank"]["data"] == {"path": "bank.csv", "separator": ";"}
    assert job["parties"] == {"active": "bank", "passive": ["shop"]}
    assert job["name"] == "job"


def test_a_party_with_labels_alone_has_no_features() -> None:
    Path("labels.csv").write_text("customer,good\n" + "".join(f"{id},{at % 2}\n" for at, id in enumerate(IDS)))
    init("bank=labels.csv", "shop=shop.npz", "--label", "good")
    assert tomllib.loads(Path("job.toml").read_text())["partition"]["active_has_features"] is False
    assert load(load_job("job.toml")).parties["bank"].train.features is None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["bank=bank.csv", "shop=shop.npz"], "there are: customer, income, good, age, spent"),
        (["bank=bank.csv", "shop=shop.npz", "--label", "god"], "did you mean 'good'?"),
        (["bank=bank.csv", "shop=shop.npz", "--label", "customer"], "bank and shop"),
        (["bank=bank.csv", "shop=shop.npz", "--label", "good", "--id", "custmer"], "did you mean 'customer'?"),
        (["bank=bank.csv", "shop=all.npy", "--label", "good"], "no column is common"),
        (["bank=bank.csv", "--label", "good"], "two parties"),
        (["bank.csv", "shop=shop.npz"], "two parties"),
        (["bank.csv", "shop.npz"], "PARTY=shop.npz"),
        (["bank=bank.csv", "bank=shop.npz"], "'bank' has a file already"),
        (["=bank.csv"], "PARTY=FILE"),
        (["bank=nope.csv", "shop=shop.npz", "--label", "good"], "nope.csv: no such file"),
        (["pictures", "--label", "good"], "leave --label and --id out"),
        (["bank.csv", "--data", "csv"], "--data csv"),
        (["--label", "good"], "files given"),
    ],
)
def test_what_cannot_be_used_is_one_sentence_and_writes_nothing(given: list[str], named: str) -> None:
    with pytest.raises(InputError) as refused:
        init(*given)
    assert named in str(refused.value)
    assert not Path("job.toml").exists()


@pytest.mark.parametrize("first", ["bank.csv", "bank=bank.csv", "shop.npz"])
def test_data_in_the_place_of_the_job_is_never_written_over(first: str) -> None:
    before = Path("bank.csv").read_bytes()
    done = CliRunner().invoke(app, ["init", first, "--force"])
    assert isinstance(done.exception, InputError)
    assert "job.toml" in str(done.exception)
    assert Path("bank.csv").read_bytes() == before
