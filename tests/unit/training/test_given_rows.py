"""Frames and arrays of Python in `train`, `audit` and `predict`: the rows of a run that has no files of its own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from refusals import Names

import veracausa
from veracausa.errors import InputError
from veracausa.training.given_rows import GivenRows

JOB: dict[str, Any] = {
    "name": "walk",
    "training": {"protocol": "split", "epochs": 1, "batch_size": 16},
    "model": {"name": "mlp", "cut": 2, "hidden": [4, 4]},
    "runtime": {"device": "cpu", "cpu_threads": 1},
    "risk": {"every": 0},
}
ROWS = 60
INCOME, AGE, WEIGHT = np.random.default_rng(0).integers(20, 90, (3, ROWS))
IDS = [f"p{row}" for row in range(ROWS)]
BANK = pl.DataFrame({"id": IDS, "income": INCOME, "good": np.where(INCOME > 50, "yes", "no")})
CLINIC = pl.DataFrame({"id": IDS, "age": AGE, "weight": WEIGHT, "ward": ["4", "7", None] * 20})[4:].reverse()
BOTH = {"bank": BANK, "clinic": CLINIC}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(out: str = "one", job: dict[str, Any] = JOB, **more: Any) -> veracausa.Run:
    return veracausa.train(job, out, **{"data": BOTH, "label": "good", "id": "id", **more})


def test_frames_train_the_bits_that_their_files_train() -> None:
    run = trained()
    for party, frame in BOTH.items():
        frame.write_parquet(f"{party}.parquet")
    files = {
        **JOB,
        "data": {"name": "parquet", "label": "good", "id": "id"},
        "parties": {"active": "bank", "passive": ["clinic"]},
        "partition": {"active_has_features": True},
        "party": {party: {"data": {"path": f"{party}.parquet"}} for party in BOTH},
    }
    other = veracausa.train(files, "other")
    assert run.summary["test"] == other.summary["test"]
    assert run.predict().outputs.equal(other.predict().outputs)
    assert run.predict().ids == other.predict().ids
    assert [note for note in run.summary["notes"] if "rows/" in note]
    assert not [note for note in other.summary["notes"] if "rows/" in note]


def test_pandas_and_polars_are_the_same_rows() -> None:
    pandas = pytest.importorskip("pandas")
    bank = pandas.DataFrame({name: BANK[name].to_list() for name in BANK.columns}).set_index("id")
    clinic = pandas.DataFrame({name: CLINIC[name].to_list() for name in CLINIC.columns}).sample(frac=1, random_state=3)
    run, other = trained("one", data={"bank": bank, "clinic": clinic}), trained("other")
    assert run.predict().outputs.equal(other.predict().outputs), "the order of rows at home is nobody's business"
    new = run.predict({"bank": bank.drop(columns="good").head(9), "clinic": clinic})
    assert new.ids == tuple(IDS[4:9])
    assert new.outputs.equal(other.predict(BOTH).outputs[:5])
    assert run.predict(BOTH).scores["accuracy"] >= 0


def test_rows_are_kept_for_their_owner_and_found_after_a_move() -> None:
    run = trained()
    kept = sorted(Path("one/rows").iterdir())
    assert [path.name.split("-")[0] for path in kept] == ["bank", "clinic"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)
    before = run.predict().outputs
    Path("one").rename("moved")
    moved = veracausa.Run("moved")
    assert moved.predict().outputs.equal(before)
    assert moved.job.party["bank"].data["path"] == str(Path("moved").absolute() / "rows" / kept[0].name)
    shutil.copytree("moved", "copy")
    shutil.rmtree("moved/rows")
    assert veracausa.Run("copy").predict().outputs.equal(before)
    with pytest.raises(InputError, check=Names(f"moved/rows/{kept[0].name}", "train again")):
        moved.predict()
    assert moved.report().is_file(), "a page needs no rows"
    assert moved.predict(BOTH).outputs.shape[0] == ROWS - 4


def test_a_resume_wants_the_same_rows() -> None:
    trained()
    assert trained(resume=True).path == Path("one")
    with pytest.raises(InputError, check=Names("one", "other rows", "--out")):
        trained(resume=True, data={"bank": BANK, "clinic": CLINIC[1:]})
    assert veracausa.train("one/config.toml", "one", resume=True).summary
    again = veracausa.train(veracausa.Run("one").job, "two", data=BOTH)
    assert again.summary["test"] == veracausa.Run("one").summary["test"]


def test_one_frame_is_dealt_out_by_its_columns() -> None:
    whole = BANK.join(CLINIC, on="id")
    run = veracausa.train(
        JOB, "one", data=whole, label="good", columns={"shop": ["age", "ward"], "bank": ["income", "good"]}
    )
    job = run.job
    assert (job.parties.active, job.parties.passive) == ("bank", ("shop",))
    assert job.partition.columns == {"shop": ("age", "ward"), "bank": ("income",)}
    assert len(run.predict(whole.drop("good")).labels) == whole.height
    dealt = veracausa.train(JOB, "two", data=whole, label="good", id="id")
    assert dealt.job.parties.passive == ("passive_1", "passive_2")
    first = veracausa.train(JOB, "three", data=whole, label="good", columns={"a": [], "b": ["age", "income"]})
    assert first.job.parties.active == "a"
    assert not first.job.partition.active_has_features


def test_arrays_are_matched_row_by_row() -> None:
    labels = np.where(INCOME > 50, 1, 0)
    parts = {"bank": INCOME[:, None], "clinic": np.column_stack([AGE, WEIGHT])}
    run = veracausa.train(JOB, "one", data=parts, label=labels)
    assert run.job.parties.active == "bank"
    new = run.predict({"bank": parts["bank"][:5], "clinic": parts["clinic"][:5]})
    assert new.ids == ("1", "2", "3", "4", "5")
    with pytest.raises(InputError, check=Names("bank 5", "clinic 4")):
        run.predict({"bank": parts["bank"][:5], "clinic": parts["clinic"][:4]})
    columns = {"bank": [0], "clinic": [1, 2]}
    whole = veracausa.train(JOB, "two", data=np.column_stack([INCOME, AGE, WEIGHT]), label=labels, columns=columns)
    assert whole.job.partition.columns == {"bank": ("x0",), "clinic": ("x1", "x2")}
    assert whole.summary["test"] == run.summary["test"]


def test_labels_may_be_values() -> None:
    run = trained(data={"bank": BANK.drop("good"), "clinic": CLINIC}, label=BANK["good"])
    assert run.job.data.label == "good"  # type: ignore[attr-defined]
    assert run.summary["class_names"] == ["no", "yes"]


def test_an_audit_takes_frames() -> None:
    job = {**JOB, "defense": {"name": "laplace"}}
    small = {"attacks": ["inverse"], "overrides": ["inverse.epochs=1"], "auxiliary": 20, "victims": 5, "labels": False}
    given = {"data": BOTH, "label": "good", "id": "id"}
    run = veracausa.audit(job, out="one", **small, **given)
    assert run.summary["verdict"]
    assert not Path("one/twin/rows").exists(), "the baseline uses the run's own rows"
    Path("one").rename("moved")
    assert veracausa.Run("moved/twin").predict().ids
    shared = veracausa.audit(job, out="two", baseline="moved/twin", **small, **given)
    assert shared.summary["attacks"]["inverse"]["undefended"]
    with pytest.raises(InputError, check=Names("moved/twin", "not the baseline")):
        veracausa.audit(
            job, out="three", baseline="moved/twin", **small, **given | {"data": {**BOTH, "bank": BANK[1:]}}
        )


REFUSED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"data": {"bank": BANK}}, ("'bank' alone",)),
    ({"data": {}}, ("data:", "frame")),
    ({"data": {**BOTH, "clinic": "clinic.csv"}}, ("data['clinic']", "is a path")),
    ({"data": {**BOTH, "clinic": {"age": [1]}}}, ("data['clinic']", "dict")),
    ({"data": {**BOTH, "clinic": 7}}, ("data['clinic']", "int")),
    ({"data": {**BOTH, "clinic": CLINIC.lazy()}}, ("data['clinic']", "collect()")),
    ({"data": {**BOTH, "clinic": CLINIC["age"]}}, ("data['clinic']", "shape (56,)")),
    ({"data": {**BOTH, "clinic": CLINIC[:0]}}, ("data['clinic']", "no rows")),
    ({"data": {**BOTH, "clinic": pl.DataFrame()}}, ("data['clinic']", "no columns")),
    ({"data": {**BOTH, "clinic": CLINIC.with_columns(many=[[1]] * 56)}}, ("data['clinic']", "'many'")),
    ({"data": {**BOTH, "clinic": CLINIC.drop("id")}}, ("data['clinic']", "no column 'id'")),
    ({"data": {**BOTH, "clinic": pl.concat([CLINIC, CLINIC[:1]])}}, ("data['clinic']", "rows 1 and 57")),
    ({"data": {**BOTH, "clinic": np.ones((60, 2))}, "id": "id"}, ("id:", "array")),
    ({"data": {**BOTH, "clinic": CLINIC.rename({"age": "good"})}}, ("'good'", "bank and clinic")),
    ({"label": "god"}, ("'god'", "did you mean 'good'")),
    ({"label": None}, ("label:", "is missing")),
    ({"label": 3}, ("label:", "shape ()")),
    ({"label": ["yes"] * 59}, ("59 values", "60 rows")),
    ({"id": None}, ("id:", "is missing")),
    ({"id": {"bank": "id"}}, ("id:", "is missing")),
    ({"columns": {"clinik": ["age"]}}, ("columns['clinik']", "did you mean 'clinic'")),
    ({"columns": {"clinic": ["aged"]}}, ("data['clinic']", "'aged'", "did you mean 'age'")),
    ({"columns": {"clinic": "age"}}, ("columns", "list")),
    ({"data": None}, ("label:", "data=")),
    ({"data": BANK, "columns": {"bank": ["income"]}}, ("columns", "'bank' alone")),
    ({"job": {**JOB, "data": {"name": "digits"}}}, ("'digits'", "data=")),
    ({"job": {**JOB, "data": {"name": "csv", "path": "a.csv"}}}, ("data.path", "data=")),
    ({"job": {**JOB, "data": {"name": "csv", "stream": True}}}, ("data.stream",)),
    ({"job": {**JOB, "party": {"bank": {"data": {"path": "a.csv"}}}}}, ("party.bank.data.path", "data=")),
    ({"job": {**JOB, "parties": {"active": "bank", "passive": ["shop"]}}}, ("'clinic'", "no such party")),
    ({"job": {**JOB, "parties": {"active": "bank", "passive": ["clinic", "lab"]}}}, ("'lab'",)),
    ({"job": {**JOB, "data": {"name": "csv", "path": BANK}}}, ("DataFrame", "data=")),
    ({"job": BANK}, ("DataFrame", "is no job")),
]


@pytest.mark.parametrize(("change", "named"), REFUSED, ids=lambda value: value[0] if isinstance(value, tuple) else "")
def test_bad_rows_are_one_sentence_and_nothing_is_written(
    change: dict[str, Any], named: tuple[str, ...], here: Path
) -> None:
    with pytest.raises(InputError, check=Names(*named)) as refusal:
        trained(**change)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 250
    assert not list(here.iterdir())


def test_settings_of_the_job_hold() -> None:
    given = GivenRows.of(BOTH, None, "id", {"bank": ["good"]})
    job = given.job({**JOB, "data": {"label": "good", "holdout": 0.5, "categorical": ["age"]}}, ["seed=7"])
    assert (job.seed, job.data.name, job.partition.active_has_features) == (7, "parquet", False)
    assert job.party["bank"].data["columns"] == []


def test_labels_with_another_index_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    bank = pandas.DataFrame({"income": INCOME}, index=pandas.Index(IDS, name="id"))
    clinic = pandas.DataFrame({name: CLINIC[name].to_list() for name in CLINIC.columns})
    good = pandas.Series(np.where(INCOME > 50, "yes", "no"), index=bank.index, name="good")
    both = {"bank": bank, "clinic": clinic}
    kept = GivenRows.of(both, good, "id", None).tables["bank"]["good"].to_list()
    assert kept == good.to_list()
    assert GivenRows.of(both, good.reset_index(drop=True), "id", None).tables["bank"]["good"].to_list() == kept
    for wrong in (good.sample(frac=1, random_state=0), good.set_axis([f"q{row}" for row in range(ROWS)])):
        with pytest.raises(InputError, match=r"label: .*reindex"):
            GivenRows.of(both, wrong, "id", None)
    with pytest.raises(InputError, match=r"rename_axis\('id'\)"):
        GivenRows.of({**both, "bank": bank.rename_axis(None)}, good, "id", None)


def test_time_spans_are_numbers_as_dates_are() -> None:
    spans = CLINIC.with_columns(stay=pl.duration(hours=pl.col("age")))
    run = trained(data={"bank": BANK, "clinic": spans})
    assert ("stay", "date") in {(told["name"], told["type"]) for told in run.summary["parties"]["clinic"]["columns"]}
    same = GivenRows.of({"bank": BANK, "clinic": spans}, "good", "id", None)
    other = GivenRows.of({"bank": BANK, "clinic": spans.with_columns(stay=pl.col("stay") * 2)}, "good", "id", None)
    assert not same.are_others(run)
    assert other.are_others(run)


def test_a_job_without_a_model_has_that_of_tables() -> None:
    given = GivenRows.of(BOTH, "good", "id", None)
    for training in ({}, {"training": {"protocol": "split"}}):
        model = given.job({"name": "walk", **training}).model
        assert (model.name, model.cut) == ("mlp", 2)
    assert given.job({"training": {"protocol": "blind"}}).model.name == "convnet", "no table uses it"


def test_a_prediction_refuses_what_is_no_table() -> None:
    run = trained()
    for wrong, named in (
        ({"bank": BANK, "clinic": 3}, ("data['clinic']", "int")),
        ({"bank": BANK, "clinik": CLINIC}, ("data['clinik']", "did you mean 'clinic'")),
        ({"bank": BANK, "clinic": CLINIC.drop("age")}, ("data['clinic']", "no column 'age'")),
        (7, ("data", "int")),
    ):
        with pytest.raises(InputError, check=Names(*named)):
            run.predict(wrong)


def test_pictures_may_be_an_array() -> None:
    run = veracausa.train(
        {
            "data": {"name": "digits", "train": 64, "test": 16},
            "model": {"name": "convnet", "cut": 3},
            "training": {"epochs": 1},
            "runtime": {"device": "cpu"},
            "risk": {"every": 0},
        },
        "pictures",
    )
    some = np.zeros((3, 8, 8), dtype=np.uint8)
    np.save("some.npy", some)
    assert run.predict(some).outputs.equal(run.predict("some.npy").outputs)
    with pytest.raises(InputError, check=Names("DataFrame", "pictures")):
        run.predict(BANK)
    with pytest.raises(InputError, check=Names("data", "float64")):
        run.predict(some.astype(float))
