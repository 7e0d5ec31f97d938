"""A job's mistakes are named with their place before any data loads, and its TOML is the job again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veracausa.config import Job, load_job
from veracausa.data.sources import datasets
from veracausa.errors import InputError

DIGITS: dict[str, Any] = {"data": {"name": "digits"}, "model": {"name": "convnet", "cut": 6}}


@pytest.fixture(autouse=True)
def _no_data_loads(monkeypatch):
    """A job is judged without its data: any loader that is called fails the test."""
    datasets.names()

    def loader(options, job):
        raise AssertionError("data was loaded")

    monkeypatch.setattr(datasets, "_entries", {name: (loader, kept[1]) for name, kept in datasets._entries.items()})


def problem(source: Any, *settings: str) -> str:
    with pytest.raises(InputError) as refused:
        load_job(source, settings)
    return str(refused.value)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"trainig": {"epochs": 3}}, "job: trainig: no such setting; did you mean 'training'?"),
        ({"training": {"epoch": 3}}, "job: training.epoch: no such setting; did you mean 'epochs'?"),
        (
            {"training": {"optimizer": {"momentun": 0.5}}},
            "job: training.optimizer.momentun: no such setting; did you mean 'momentum'?",
        ),
        ({"data": {"name": "digits", "trian": 5}}, "job: data.trian: no such setting; did you mean 'train'?"),
        ({"model": {"name": "resnet18", "widht": 8}}, "job: model.widht: no such setting; did you mean 'width'?"),
        ({"defense": {"name": "none", "nois": 1}}, "job: defense.nois: no such setting (there are: name)"),
        (
            {"party": {"passive_1": {"defense": {"name": "none", "nois": 1}}}},
            "job: party.passive_1.defense.nois: no such setting (there are: name)",
        ),
        (
            {"party": {"passive_1": {"defence": {"name": "none"}}}},
            "job: party.passive_1.defence: no such setting; did you mean 'defense'?",
        ),
        ({"data": {"name": "digit"}}, "job: data: no data set is named 'digit'; did you mean 'digits'?"),
        ({"model": {"name": "resnet", "cut": 1}}, "job: model: no model is named 'resnet'; did you mean"),
        ({"defense": {"name": "non"}}, "job: defense: no defense is named 'non'; did you mean 'none'?"),
        ({"data": {"train": 5}}, "job: data: needs a name (there are: adult, "),
        ({"party": {"pasive_1": {}}}, "job: party.pasive_1: no such party; did you mean 'passive_1'?"),
        ({"partition": {"axes": "width"}}, "job: partition.axes: no such setting; did you mean 'axis'?"),
        ({"overlap": {"fractoin": 0.5}}, "job: overlap.fractoin: no such setting; did you mean 'fraction'?"),
    ],
)
def test_a_typo_is_named_with_its_place_and_the_nearest_word(settings, sentence):
    assert problem({**DIGITS, **settings}).startswith(sentence)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("training.epoch=3", "training.epoch: no such setting; did you mean 'epochs'?"),
        ("model.name=convnt", "no model is named 'convnt'; did you mean 'convnet'?"),
        ("training.epochs=many", "training.epochs: must be a whole number"),
        ("training.epochs=1.5", "training.epochs: must be a whole number"),
        ("training.epochs=0", "training.epochs: must be at least 1 (got 0)"),
        ("training.optimizer.lr=-1", "training.optimizer.lr: must be more than 0 (got -1)"),
        ("training.optimizer.lr=inf", "training.optimizer.lr: must be a finite number (got inf)"),
        ("training.optimizer.lr=nan", "training.optimizer.lr: must be a finite number (got nan)"),
        ("training.optimizer.name=sdg", "training.optimizer.name: must be 'sgd' or 'adam' (got 'sdg')"),
        ("training.class_weights=foo", "job: training.class_weights: must be 'none' or 'balanced' (got 'foo')"),
        ("training.class_weights=[1, 'a']", "job: training.class_weights.1: must be a number"),
        ("training.baselines=['joint', 'x']", "training.baselines.1: must be 'active_only', 'joint'"),
        ("checkpoints.keep=1", "checkpoints.keep: must be at least 2 (got 1)"),
        ("overlap.fraction=0.05", "overlap.fraction: must be at least 0.1"),
        ("model.cut=0", "model.cut: must be at least 1 (got 0)"),
        ("data.validation=1", "data.validation: must be less than 1 (got 1)"),
        ("runtime.device=cpuu", "runtime.device: String should match pattern"),
        ("runtime.link=pigeons", "runtime.link: must be 'threads' or 'processes' (got 'pigeons')"),
        ("parties.passive=hospital", "parties.passive: must be a list"),
        ("parties.passive=[]", "parties.passive: Tuple should have at least 1 item"),
        ("parties.passive=['a', 'a']", "parties: party names must differ, got active, a, a"),
        ("parties.passive=['a/b']", "parties: party name 'a/b' is not made of letters"),
        ("seed=-1", "seed: must be at least 0"),
        ("data=digits", "data: needs a name"),
        ("blind.ridge=lots", "blind.ridge: must be 'gcv', or a number (got 'lots')"),
        ("blind.ridge=-1", "blind.ridge: must be 'gcv', or at least 0 (got -1)"),
        ("data.name=csv", "data.label: is missing"),
        ("name=", "name: '' cannot name a folder"),
        ("name=../elsewhere", "name: '../elsewhere' cannot name a folder"),
        ("epochs", "--set epochs: write it as a.b=value"),
        ("=3", "--set =3: write it as a.b=value"),
        ("model.cut.deep=3", "--set model.cut.deep=3: cut is a value, it has no settings of its own"),
        ("party.nobody.defense.name=none", "party.nobody: no such party (there are: active, passive_1, passive_2)"),
    ],
)
def test_a_wrong_setting_is_named(setting, sentence):
    assert sentence in problem(DIGITS, setting)


def test_baselines_go_with_partial_overlap():
    job = load_job(DIGITS, ["overlap.fraction=0.5", "training.baselines=['joint', 'active_only']"])
    assert job.training.baselines == ("joint", "active_only")


def test_what_is_no_job_file_is_refused(tmp_path):
    assert problem(tmp_path / "job.toml") == (
        f"{tmp_path}/job.toml: no such file; `veracausa init {tmp_path}/job.toml` writes one to start from"
    )
    assert problem(tmp_path) == f"{tmp_path}: is a folder, not a job file"
    broken = tmp_path / "broken.toml"
    broken.write_text("[data\nname = 3")
    assert problem(broken).startswith(f"{broken}: not valid TOML: ")
    broken.write_bytes(b"\xff\xfe\x00")
    assert problem(broken).startswith(f"{broken}: is not UTF-8 text (byte 0)")
    broken.write_text("seed = 1\n[model]\nname = 'convnet'\n")
    assert problem(broken).startswith(f"{broken}: data: is missing; write a section [data] with a name")
    assert "model: is missing; write a section [model]" in problem({"data": {"name": "digits"}})


def test_set_takes_the_types_of_toml_and_bare_words():
    job = load_job(
        DIGITS,
        [
            "training.epochs=3",
            "training.optimizer.lr = 0.5",
            "runtime.channels_last=true",
            "parties.passive=['left', \"right\"]",
            "training.optimizer.name=sgd",
            "training.class_weights=[1, 2.5]",
            "training.schedule={ name = 'cosine', warmup = 4 }",
            "party.left.defense.name=none",
            "name=a job with = and #",
        ],
    )
    assert job.training.epochs == 3
    assert job.training.optimizer.lr == 0.5
    assert job.runtime.channels_last is True
    assert job.parties.passive == ("left", "right")
    assert job.training.optimizer.name == "sgd"
    assert job.training.class_weights == (1, 2.5)
    assert job.training.schedule.warmup == 4
    assert job.party["left"].defense is not None
    assert job.name == "a job with = and #"


def test_another_model_drops_the_settings_of_the_one_before():
    source = {"data": {"name": "digits"}, "model": {"name": "resnet18", "cut": 9, "width": 16}}
    assert load_job(source, ["model.name=mlp"]).model.model_dump() == {
        "name": "mlp",
        "cut": 2,
        "cut_convention": "N1",
        "hidden": None,
        "payload": None,
    }
    assert load_job(source, ["model.name=resnet18"]).model.cut == 9


def test_a_setting_for_the_new_model_may_stand_before_its_name():
    settings = ["model.hidden=[5]", "model.name=mlp"]
    assert load_job(DIGITS, settings) == load_job(DIGITS, settings[::-1])
    assert load_job(DIGITS, settings).model.hidden == (5,)


def test_laying_settings_over_leaves_the_source_alone():
    load_job(DIGITS, ["model.cut=3", "seed=9"])
    assert DIGITS == {"data": {"name": "digits"}, "model": {"name": "convnet", "cut": 6}}


def test_a_mapping_may_hold_paths_and_options_but_nothing_odd(tmp_path):
    job = load_job({**DIGITS, "data": {"name": "csv", "label": "y", "path": tmp_path / "a.csv"}})
    assert job.data.path == str(tmp_path / "a.csv")
    assert load_job({"data": job.data, "model": job.model}).data == job.data
    assert "a set" in problem({**DIGITS, "parties": {"passive": {"a"}}})


JOBS: list[dict[str, Any]] = [
    DIGITS,
    {"name": "t", "data": {"name": "csv", "label": "y", "path": "a b.csv", "missing": ["?"]}, "model": {"name": "mlp"}},
    {
        "data": {"name": "parquet", "label": "y", "id": "key", "task": "regression"},
        "model": {"name": "mlp", "hidden": [3, 4, 5], "cut": 4},
        "parties": {"active": "bank", "passive": ["shop-1", "shop_2"]},
        "partition": {"columns": {"shop-1": ["a", "b.c"], "shop_2": ['with "quotes"']}},
        "party": {"shop-1": {"data": {"path": "x.parquet", "columns": ["a"]}, "defense": {"name": "none"}}},
        "overlap": {"fraction": 0.3, "parties": ["shop_2"], "missing": "drop", "keep": "epochs"},
    },
    {
        "data": {"name": "cifar10", "train": 100, "validation": 0.25},
        "model": {"name": "trainings:own_network", "cut": 4, "args": {"depth": 3, "names": ["é", "\u2028"]}},
        "training": {"class_weights": [0.1, 3], "baselines": ["joint"], "schedule": {"name": "step", "milestones": []}},
        "checkpoints": {"every_steps": 7},
        "runtime": {"device": "cuda:1", "precision": "bf16", "cpu_threads": 2, "timeout": 0.5},
    },
]  # fmt: skip


@pytest.mark.parametrize("source", JOBS, ids=[str(i) for i in range(len(JOBS))])
def test_the_toml_of_a_job_is_the_job_again(source, tmp_path):
    job = load_job(source)
    path = tmp_path / "config.toml"
    path.write_text(job.to_toml(), encoding="utf-8")
    assert load_job(path) == job
    assert load_job(job) == job
    assert load_job(path, ["seed=5"]) != job


@settings(deadline=None)
@given(
    name=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\\\0"), min_size=1).filter(
        lambda name: name not in (".", "..")
    ),
    seed=st.integers(0, 2**63),
    lr=st.floats(1e-300, 1e300),
    weights=st.one_of(st.just("balanced"), st.lists(st.floats(0, 1e9), max_size=4)),
    columns=st.dictionaries(st.sampled_from(["passive_1", "passive_2"]), st.lists(st.text(max_size=5), max_size=3)),
    every=st.one_of(st.none(), st.integers(1, 10**9)),
)
def test_any_values_survive_the_toml(tmp_path_factory, name, seed, lr, weights, columns, every):
    columns = {party: [text.encode("utf-8", "ignore").decode() for text in texts] for party, texts in columns.items()}
    job = load_job(
        {
            **DIGITS,
            "name": name,
            "seed": seed,
            "training": {"optimizer": {"lr": lr}, "class_weights": weights},
            "partition": {"columns": columns},
            "checkpoints": {"every_steps": every} if every else {},
        }
    )
    path = Path(tmp_path_factory.getbasetemp()) / f"job-{random.getrandbits(64):x}.toml"
    # As the run folder writes it: bytes, with no change of line ends.
    path.write_bytes(job.to_toml().encode())
    try:
        assert load_job(path) == job
    finally:
        path.unlink()


def test_a_party_has_its_own_defense_or_everybodys():
    job = load_job({**DIGITS, "party": {"passive_2": {"defense": {"name": "none"}}}})
    assert isinstance(job, Job)
    assert job.defense_of("passive_2") is job.party["passive_2"].defense
    assert job.defense_of("passive_1") is job.defense
