"""Runs with noise and with masks: broken off and resumed, on tables, with three parties, in mixed precision."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from trainings import JOB, assert_resumes

import veracausa
from veracausa.defenses.noise import PerRowNoise
from veracausa.testing.defense import check_defense

pytestmark = pytest.mark.xdist_group("noise_and_masks")  # what its tests share is made once, not once a worker

NOISE_AND_MASKS: dict[str, dict[str, Any]] = {
    "laplace": {"name": "laplace"},
    "laplace fixed clip": {"name": "laplace", "noise": "fixed", "reading": "clip"},
    "laplace norm": {"name": "laplace", "reading": "norm", "epsilon": 20.0},
    "prune": {"name": "prune", "fraction": 0.9},
    "soteria": {"name": "soteria", "fraction": 0.5, "norms": "hutchinson", "probes": 4},
    "soteria batch": {"name": "soteria", "fraction": 0.5, "mask_scope": "batch"},
    "invl_dnp": {"name": "invl_dnp", "norms": "hutchinson", "probes": 4},
    "invl_enp": {"name": "invl_enp"},
    "invl_enp svd": {"name": "invl_enp", "form": "svd", "k_max": 4},
    "invl_enp data adaptive": {"name": "invl_enp", "space": "data", "adaptive": "per_sample_risk", "k_max": 4},
}


def besides(*names: str) -> list[Any]:
    """All variants, those besides the named ones in the slow suite."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.slow) for name in NOISE_AND_MASKS]


@pytest.mark.parametrize("name", besides("laplace fixed clip", "soteria batch", "invl_enp data adaptive"))
def test_every_variant_keeps_the_contract(name):
    check_defense(NOISE_AND_MASKS[name]["name"], {key: v for key, v in NOISE_AND_MASKS[name].items() if key != "name"})


@pytest.mark.parametrize("name", besides("laplace", "soteria", "invl_enp"))
def test_a_run_that_was_broken_off_ends_as_one_that_was_not(name, tmp_path):
    assert_resumes(NOISE_AND_MASKS[name], tmp_path)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """90 rows with numbers and words; the label follows two of the columns."""
    path = tmp_path_factory.mktemp("table") / "people.csv"
    lines = ["id,age,debt,job,loans,rate,town,good"]
    for row in range(90):
        numbers = [math.sin(row), math.cos(1.7 * row), math.sin(2.3 * row), math.cos(0.4 * row)]
        age, debt, loans, rate = (f"{number:.3f}" for number in numbers)
        good = int(numbers[0] + numbers[2] > 0)
        lines.append(f"p{row},{age},{debt},{'uvw'[row % 3]},{loans},{rate},{'ab'[row % 2]},{good}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("name", besides("prune", "invl_enp"))
@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.slow)])
def test_three_parties_with_columns_that_not_all_of_them_have(name, precision, table, tmp_path):
    columns = {"a": ["age", "job"], "b": ["debt", "loans"], "c": ["rate", "town"]}
    run = veracausa.train(
        {
            "data": {"name": "csv", "path": str(table), "label": "good", "id": "id"},
            "parties": {"active": "bank", "passive": list(columns)},
            "partition": {"columns": columns},
            "model": {"name": "mlp"},
            "training": {"epochs": 2, "batch_size": 16, "local_steps": 2},
            "overlap": {"fraction": 0.6},
            "risk": {"samples": 2, "exact": 2},
            "runtime": {"device": "cpu", "cpu_threads": 1, "precision": precision},
            "defense": NOISE_AND_MASKS[name],
        },
        out=tmp_path / "run",
    )
    found = [line for line in run.metrics if line["event"] == "defense" and line["epoch"] == 2]
    assert {line["party"] for line in found} == set(columns)
    for line in found:
        assert all(value is not None for value in line["diagnostics"].values())
        if NOISE_AND_MASKS[name]["name"] in ("prune", "soteria"):  # the row chooses what is sent
            assert line["risk"]["invre"] is None
            assert "changes by jumps" in line["risk"]["unavailable"]
        else:
            assert 0 <= line["risk"]["invre"] <= 1
    assert 0 <= run.summary["accuracy"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["laplace", "invl_enp"])
def test_parties_in_processes_send_what_parties_in_threads_send(name, tmp_path):
    runs = []
    for link in ("threads", "processes"):
        job = {key: value for key, value in JOB.items() if key != "overlap"}
        job |= {"runtime": {**JOB["runtime"], "link": link}, "defense": NOISE_AND_MASKS[name]}
        runs.append(veracausa.train(job, out=tmp_path / link))
    first, second = ({p.parent.name: p.read_bytes() for p in run.path.glob("parties/*/model.*")} for run in runs)
    assert len(first) == 3
    assert first == second


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", NOISE_AND_MASKS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_on_a_gpu_measures_itself(name, precision, tmp_path):
    runtime = {"device": "cuda", "precision": precision, "channels_last": precision == "bf16"}
    run = veracausa.train({**JOB, "runtime": runtime, "defense": NOISE_AND_MASKS[name]}, out=tmp_path / "run")
    found = [line for line in run.metrics if line["event"] == "defense"]
    assert found
    for line in found:
        assert all(value is not None for value in line["diagnostics"].values())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_rows_noise_is_the_same_on_a_gpu():
    x = torch.rand(32, 3, 8, 4, generator=torch.Generator().manual_seed(0))
    here, there = PerRowNoise(bytes(32), x), PerRowNoise(bytes(32), x.cuda())
    torch.testing.assert_close(here.normal(32, 100), there.normal(32, 100).cpu(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(here.laplace(32, 100), there.laplace(32, 100).cpu(), rtol=1e-4, atol=1e-4)
