"""The run folder: created once, one process at a time, no links, metrics that go back with a resume."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from veracausa.config import load_job
from veracausa.errors import InputError, RunError
from veracausa.report.run_page import write_report
from veracausa.runs import folder
from veracausa.runs.folder import Run, locked

JOB = load_job(
    {
        "data": {"name": "digits"},
        "model": {"name": "convnet"},
        "party": {"passive_1": {"defense": {"name": "none"}}},
    }
)
ROLES = {"active": "active", "passive_1": "passive", "passive_2": "passive"}


@pytest.fixture
def run(tmp_path) -> Run:
    return folder.create(tmp_path / "run", JOB, ROLES)


def test_a_run_can_be_read_from_its_own_folder(run):
    assert Run(run.path).job == JOB
    assert (run.path / "parties/passive_2/party.toml").read_text().startswith('name = "passive_2"\nrole = "passive"\n')
    assert json.loads((run.path / "environment.json").read_text())["seed"] == 0
    assert run.summary == run.status == {}
    assert run.metrics == []


def test_a_folder_that_is_taken_is_refused(run, tmp_path):
    with pytest.raises(InputError, match="already there; go on with --resume"):
        folder.create(run.path, JOB, ROLES)
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file/below"):
        with pytest.raises(InputError, match="is a file; name"):
            folder.create(place, JOB, ROLES)
    (tmp_path / "empty").mkdir()
    folder.create(tmp_path / "empty", JOB, ROLES)


def test_a_folder_that_cannot_be_made_is_refused_and_nothing_is_said_of_checkpoints(tmp_path):
    with pytest.raises(InputError, match=r"cannot be (made|written).*name another folder with --out") as refused:
        folder.create(Path("/proc/veracausa/run"), JOB, ROLES)
    assert "checkpoint" not in str(refused.value)
    assert refused.value.exit_code == 2


def test_a_run_that_somebody_stopped_has_not_failed(run):
    folder.set_ended(run.path, KeyboardInterrupt())
    assert run.status["state"] == "stopped"
    folder.set_ended(run.path, ValueError("x"))
    assert (run.status["state"], run.status["error"]) == ("failed", "ValueError: x")


def test_a_folder_without_a_config_is_no_run(tmp_path):
    with pytest.raises(InputError, match=r"not a run folder \(it has no config.toml\)"):
        Run(tmp_path)


def test_a_discovery_is_no_training(tmp_path):
    (tmp_path / "config.toml").write_text('kind = "discovery"\n[parties]\nlab = ["crp"]\n')
    with pytest.raises(InputError, match="is the folder of a discovery"):
        _ = Run(tmp_path).job


def test_status_is_laid_over_what_was_there(run):
    folder.set_status(run.path, state="running", epoch=1)
    started = run.status["started"]
    folder.set_status(run.path, epoch=2)
    assert run.status["state"] == "running"
    assert run.status["epoch"] == 2
    assert run.status["started"] == started


def test_metrics_go_back_with_a_resume(run):
    lines = [{"party": "active", "epoch": epoch, "step": 10 * epoch} for epoch in (1, 2, 3)]
    target = run.path / "metrics.jsonl"
    folder.keep_metrics_until(run.path, 20)
    assert not target.exists()
    target.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"party": "act')
    assert run.metrics == lines  # the line a crash tore is passed over
    folder.keep_metrics_until(run.path, 25)
    assert target.read_text() == "".join(json.dumps(line) + "\n" for line in lines[:2])
    folder.keep_metrics_until(run.path, 0)
    assert run.metrics == []


def test_one_process_at_a_time(run):
    with folder.locked(run.path):
        assert fails_to_lock(run)
    # A process without torch, which would take seconds to start.
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('in', flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(run.path / ".lock")]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "in\n"
    assert fails_to_lock(run)
    other.kill()
    other.communicate()
    with folder.locked(run.path):  # the lock went with its process
        pass


def fails_to_lock(run: Run) -> bool:
    with pytest.raises(RunError, match="another process is working on this run"), folder.locked(run.path):
        pass
    return True


EXAMPLE = Path(__file__).parents[2] / "cli" / "example_run"


@pytest.mark.parametrize("name", ["images", "parties/passive_1", ".lock"])
def test_a_link_is_refused_and_what_it_leads_to_stays_as_it_was(name: str, tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(EXAMPLE, run)
    if name == ".lock":
        outside.write_text("keep me")
    else:
        outside.mkdir()
    place = run / name
    if place.is_dir():
        shutil.rmtree(place)
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(outside)
    for write in (write_report, _lock):
        with pytest.raises(InputError, match=f"{name}: is a link, and what a run writes stays in its own folder"):
            write(run)
    assert outside.read_text() == "keep me" if name == ".lock" else not list(outside.iterdir())


def _lock(run: Path) -> None:
    with locked(run):
        pass
