"""Damage of every kind to a run folder, then a resume: the weights, ledgers and metrics of an undisturbed run."""

from __future__ import annotations

import errno
import json
import shutil
import sys
import threading
from pathlib import Path

import pytest
import torch

import veracausa
from veracausa.cli import main as cli
from veracausa.data.sources import datasets
from veracausa.errors import InputError, RunError
from veracausa.runs import store as store_module
from veracausa.runs.store import Store, common_step, deserialize_state, same

OWN = "trainings:own_network"
TREE = {
    "name": "torn",
    "seed": 3,
    "data": {"name": "digits", "train": 160, "test": 40},
    "model": {"name": OWN, "cut": 4},
    "training": {"epochs": 3, "batch_size": 32, "optimizer": {"lr": 0.01}, "schedule": {"name": "cosine"}},
    "checkpoints": {"every_steps": 2, "keep": 3},
    "runtime": {"device": "cpu", "cpu_threads": 1, "timeout": 20},
}
JOB = veracausa.load_job(TREE, allow_model=OWN)
PARTIES = ("active", "passive_1", "passive_2")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    return veracausa.train(JOB, tmp_path_factory.mktemp("undisturbed") / "run").path


@pytest.fixture
def run(undisturbed, tmp_path) -> Path:
    """A copy of the finished run to damage."""
    shutil.copytree(undisturbed, tmp_path / "run")
    return tmp_path / "run"


def outcome(run: Path) -> dict:
    """What must not depend on what happened on the way."""
    kept = {}
    for party in PARTIES:
        folder = run / "parties" / party
        newest = max((folder / "checkpoints").glob("step-*.safetensors"))
        kept[party] = {
            "model": deserialize_state((folder / "model.safetensors").read_bytes()),
            "checkpoint": without_clock(deserialize_state(newest.read_bytes())["state"]),
            "ledger": [line for line in ledger(run, party) if line["kind"] not in ("hello", "ready")],
        }
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    # Passive parties log at the same time, in no certain order.
    kept["metrics"] = sorted((without_clock(record) for record in records), key=lambda r: (r["step"], r["party"]))
    summary = json.loads((run / "summary.json").read_text())
    kept["summary"] = {key: summary[key] for key in ("accuracy", "rounds", "epochs", "test", "train")}
    return kept


def without_clock(record: dict) -> dict:
    return {key: value for key, value in record.items() if key != "seconds"}


def ledger(run: Path, party: str) -> list[dict]:
    return [json.loads(line) for line in (run / "parties" / party / "ledger.jsonl").read_text().splitlines()]


def checkpoints(run: Path, party: str) -> list[Path]:
    return sorted((run / "parties" / party / "checkpoints").glob("step-*.safetensors"))


def forget_the_end(run: Path) -> None:
    (run / "summary.json").unlink()
    for model in run.glob("parties/*/model.safetensors"):
        model.unlink()


def truncated(run: Path) -> None:
    path = checkpoints(run, "passive_2")[-1]
    path.write_bytes(path.read_bytes()[:-7])


def flipped(run: Path) -> None:
    path = checkpoints(run, "active")[-1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def missing(run: Path) -> None:
    checkpoints(run, "passive_1")[-1].unlink()


def two_of_three(run: Path) -> None:
    missing(run)
    checkpoints(run, "passive_2")[-2].write_bytes(b"")


def all_lost(run: Path) -> None:
    for path in checkpoints(run, "passive_1"):
        path.unlink()


def half_written(run: Path) -> None:
    newest = checkpoints(run, "active")[-1]
    newest.rename(newest.with_name(f".{newest.name}.123.tmp"))
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"party": "active", "epo')
    with (run / "parties/active/ledger.jsonl").open("a") as file:
        file.write('{"step":9')


def nothing(run: Path) -> None:
    pass


@pytest.mark.parametrize("damage", [truncated, flipped, missing, two_of_three, all_lost, half_written, nothing])
def test_a_damaged_run_ends_like_an_undisturbed_one(damage, run, undisturbed):
    forget_the_end(run)
    damage(run)
    resumed = veracausa.train(JOB, run, resume=True)
    assert resumed.status["state"] == "done"
    assert same(outcome(run), outcome(undisturbed))
    # Who comes back introduces itself again, and that left it, too; but for that nothing more was sent.
    again = 0 if damage is all_lost else 1
    for party in PARTIES:
        kinds = [line["kind"] for line in ledger(run, party)]
        assert kinds.count("hello") == (0 if party == "active" else 1 + again)
        assert kinds.count("ready") == (2 if party == "active" else 1) * (1 + again)
    sent = sum(line["bytes"] for party in PARTIES for line in ledger(run, party))
    assert json.loads((run / "summary.json").read_text())["bytes_sent"] == sent
    assert not list(run.rglob("*.tmp"))


def test_the_comparison_can_fail(tmp_path, undisturbed):
    other = veracausa.train(JOB, tmp_path / "run", overrides=["seed=4"])
    assert not same(outcome(other.path), outcome(undisturbed))


def test_a_resumed_run_does_go_on_from_its_checkpoint(run):
    """Not from the beginning: that would end alike, too."""
    forget_the_end(run)
    truncated(run)
    steps = []
    veracausa.train(JOB, run, resume=True, observer=lambda e: steps.append(e["step"]) if e["event"] == "step" else None)
    assert steps == [15]


@pytest.mark.parametrize(
    ("setting", "difference"),
    [
        ("seed=4", "seed was 3, is 4"),
        ("training.optimizer.lr=0.5", "training.optimizer.lr was 0.01, is 0.5"),
        ("training.epochs=4", "training.epochs was 3, is 4"),
        ("party.passive_1.defense.name=none", "party.passive_1 was None"),
    ],
)
def test_another_job_is_refused_and_the_difference_named(setting, difference, run, undisturbed):
    with pytest.raises(InputError) as refused:
        veracausa.train(JOB, run, resume=True, overrides=[setting])
    assert f"this run was started with another job: {difference}" in str(refused.value)
    assert same(outcome(run), outcome(undisturbed))


def test_a_longer_time_out_is_no_other_job(run, undisturbed):
    missing(run)
    veracausa.train(JOB, run, resume=True, overrides=["runtime.timeout=30", "checkpoints.every_steps=4"])
    assert same(outcome(run)["passive_1"]["model"], outcome(undisturbed)["passive_1"]["model"])


def test_a_folder_in_use_or_taken_is_refused(run, tmp_path):
    with pytest.raises(InputError, match="--resume"):
        veracausa.train(JOB, run)
    with pytest.raises(InputError, match="no such folder"):
        veracausa.train(JOB, tmp_path / "nowhere", resume=True)
    from veracausa.runs.folder import locked

    forget_the_end(run)
    with locked(run), pytest.raises(RunError, match="another process"):
        veracausa.train(JOB, run, resume=True)


@pytest.mark.parametrize("call", [1, 2, 8, 22])
def test_a_full_disk_ends_the_run_and_a_resume_finishes_it(call, tmp_path, monkeypatch, undisturbed):
    """Three parties write nine checkpoints each; the disk is full from the given one on."""
    write, calls, guard = store_module.atomic_write, [], threading.Lock()

    def until_full(path, content):
        with guard:
            calls.append(path)
            full = len(calls) >= call
        if full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, content)

    run = tmp_path / "run"
    monkeypatch.setattr(store_module, "atomic_write", until_full)
    with pytest.raises(RunError, match="No space left on device; mend that, then go on with --resume") as failure:
        veracausa.train(JOB, run)
    assert failure.value.exit_code == 1
    status = json.loads((run / "status.json").read_text())
    assert status["state"] == "failed"
    assert "No space left on device" in status["error"]
    assert not (run / "summary.json").exists()
    stores = [Store(run, party) for party in PARTIES]
    assert all(store.steps() == store.whole_steps() for store in stores)
    # Before the fourth save nobody can have completed one; with 7 saves done, two are whole everywhere.
    common = common_step(stores)
    assert (common is None) if call <= 3 else (common is not None and common >= 2)
    monkeypatch.setattr(store_module, "atomic_write", write)
    veracausa.train(JOB, run, resume=True)
    assert same(outcome(run), outcome(undisturbed))


def test_a_full_disk_is_exit_code_1_and_one_sentence(tmp_path, monkeypatch, capsys):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(store_module, "atomic_write", full)
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    job = tmp_path / "job.toml"
    job.write_text(JOB.to_toml())
    command = ["veracausa", "train", str(job), "--out", str(tmp_path / "run"), "--allow-model", OWN]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("veracausa: ")
    assert "No space left on device" in last


def test_a_wrong_job_loads_no_data_and_writes_nothing(tmp_path, monkeypatch):
    def loader(options, job):
        raise AssertionError("data was loaded")

    datasets.names()
    monkeypatch.setattr(datasets, "_entries", {name: (loader, kept[1]) for name, kept in datasets._entries.items()})
    with pytest.raises(InputError, match=r"training\.epoch"):
        veracausa.train(JOB, tmp_path / "run", overrides=["training.epoch=3"])
    assert not (tmp_path / "run").exists()


def test_two_runs_of_one_seed_send_the_same(tmp_path, undisturbed):
    """One seed, the same payloads; the global random state is neither used nor changed."""
    torch.manual_seed(99)
    before = torch.get_rng_state()
    again = veracausa.train(JOB, tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), before)
    assert same(outcome(again.path), outcome(undisturbed))


def test_a_finished_run_is_left_as_it_is(run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert veracausa.train(JOB, run, resume=True).summary
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
