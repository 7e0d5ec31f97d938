"""A name in somebody else's file runs no code: not in a job, an invitation, a trained part or a run folder."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from refusals import Names

import veracausa
from veracausa.cli import main as cli
from veracausa.config import load_job
from veracausa.errors import InputError
from veracausa.runs.folder import Run

TREE: dict[str, Any] = {
    "name": "tiny",
    "data": {"name": "digits", "train": 48, "test": 16},
    "model": {"name": "honest_nets:small", "cut": 2},
    "training": {"epochs": 1, "batch_size": 32},
    "risk": {"every": 0},
    "runtime": {"device": "cpu", "cpu_threads": 1},
}
HONEST = """
from torch import nn

def small(shape, outputs):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(outputs))
"""
PLANTED = """
open("PWNED", "w").close()

def make(shape, outputs):
    raise RuntimeError("called")
"""
SYMPY = "sympy.utilities.autowrap:ufuncify"


def evil(name: str) -> dict[str, Any]:
    """A model that writes a file where it is built, or at its import already."""
    if name == SYMPY:
        # It comes with torch, and hands what it is given to eval.
        return {"name": name, "cut": 1, "args": {"helpers": [["h", "__import__('os').system('touch PWNED')", []]]}}
    return {"name": name, "cut": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a model of the user's own."""
    place = tmp_path_factory.mktemp("trained")
    (place / "honest_nets.py").write_text(HONEST)
    sys.path.insert(0, str(place))
    try:
        yield veracausa.train(TREE, place / "run", allow_model="honest_nets:small").path  # type: ignore[misc]
    finally:
        sys.path.remove(str(place))
        sys.modules.pop("honest_nets", None)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "sympy.utilities.autowrap", raising=False)
    Path("planted.py").write_text(PLANTED)
    return tmp_path


def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[int, str]:
    """The exit code of the whole program, and the last line that it said."""
    monkeypatch.setattr(sys, "argv", ["veracausa", *map(str, arguments)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        cli.main()
    said = capsys.readouterr()
    lines = (said.err.strip() or said.out.strip()).splitlines()
    assert isinstance(left.value.code, int)
    return left.value.code, lines[-1] if lines else ""


def check_refused(code: int, sentence: str, name: str, place: str) -> None:
    assert not list(Path().rglob("PWNED"))
    assert name.partition(":")[0] not in sys.modules
    assert code == 2
    assert f"{place}: model.name = '{name}': is code" in sentence
    assert f"--allow-model {name}" in sentence
    assert "party.toml" in sentence


def swapped(run: Path, model: dict[str, Any]) -> Path:
    """A run folder that somebody changed on its way."""
    shutil.copytree(run, "swapped")
    config = Path("swapped/config.toml")
    config.write_text(tomli_w.dumps({**tomllib.loads(config.read_text()), "model": model}))
    return Path("swapped")


NAMES = pytest.mark.parametrize("name", [SYMPY, "planted:make"])


@NAMES
@pytest.mark.parametrize("command", ["predict", "audit"])
def test_a_changed_run_folder(command, name, here, trained, capsys, monkeypatch):
    run = swapped(trained, evil(name))
    check_refused(*call(capsys, monkeypatch, command, run), name, "swapped/config.toml")
    # Another one's permission is none.
    said = call(capsys, monkeypatch, command, run, "--allow-model", "honest_nets:small")
    check_refused(*said, name, "swapped/config.toml")


@NAMES
def test_the_report_of_a_changed_run_folder_reads_and_runs_nothing(name, here, trained, capsys, monkeypatch):
    run = swapped(trained, evil(name))
    code, _ = call(capsys, monkeypatch, "report", run)
    assert code == 0
    assert not list(Path().rglob("PWNED"))
    assert name.partition(":")[0] not in sys.modules


@NAMES
@pytest.mark.parametrize("command", [
    ("train",),
    ("audit",),
    ("frontier", "--defenses", "laplace"),
    ("train", "--set", "training.epochs=1"),
])  # fmt: skip
def test_a_job_of_somebody_else(command, name, here, capsys, monkeypatch):
    Path("job.toml").write_text(tomli_w.dumps({**TREE, "model": evil(name)}))
    check_refused(*call(capsys, monkeypatch, command[0], "job.toml", *command[1:]), name, "job.toml")
    assert not Path("runs").exists()


@NAMES
def test_a_resume_of_a_run_folder_that_was_changed_together_with_its_job(name, here, trained, capsys, monkeypatch):
    run = swapped(trained, evil(name))
    (run / "summary.json").unlink()
    shutil.copy(run / "config.toml", "job.toml")
    check_refused(*call(capsys, monkeypatch, "train", "job.toml", "--resume", "--out", run), name, "job.toml")


@NAMES
def test_an_imported_part(name, here, capsys, monkeypatch):
    pytest.importorskip("nvflare")
    check_refused(*call(capsys, monkeypatch, "federation", "import", part(name), "--out", "new"), name, "job")
    assert not Path("new").exists()


def test_a_part_does_not_allow_itself(here, capsys, monkeypatch):
    """It brings what becomes the folder's party.toml."""
    pytest.importorskip("nvflare")
    zipped = part("planted:make", own={"model": {"allow": "planted:make"}})
    code, sentence = call(capsys, monkeypatch, "federation", "import", zipped, "--out", "new")
    assert code == 2
    assert "no such setting" in sentence
    assert not list(Path().rglob("PWNED"))
    assert not Path("new").exists()


def test_a_part_is_tried_where_the_members_own_file_names_its_model(here, capsys, monkeypatch):
    """The refusal is of the name alone: with it, the code runs, and that is what makes the tests above tests."""
    pytest.importorskip("nvflare")
    zipped = part("planted:make")
    Path("joined").mkdir()
    Path("joined/party.toml").write_text('[model]\nallow = "planted:make"\n')
    code, sentence = call(capsys, monkeypatch, "federation", "import", zipped, "--out", "joined")
    assert (code, Path("PWNED").exists()) == (2, True)
    assert "holds no model of this job" in sentence
    sys.modules.pop("planted")


def part(name: str, own: dict[str, Any] | None = None) -> Path:
    """A trained part whose job names this model."""
    from veracausa.runs.store import serialize_state

    job = {**TREE, "model": evil(name), "parties": {"active": "bank", "passive": ["lab"]}}
    model = {"classes": ["0", "1"], "shape": [1, 8, 4], "bottom": {}, "defense": {}, "preprocessing": None}
    files = {"job.toml": tomli_w.dumps(job).encode(), "model.safetensors": serialize_state(model)}
    manifest = {
        "party": "lab",
        "role": "passive",
        "own": own or {},
        "files": {
            file: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for file, content in files.items()
        },
    }
    path = Path("evil.part.zip")
    with zipfile.ZipFile(path, "w") as parcel:
        for file, content in {"manifest.json": json.dumps(manifest).encode(), **files}.items():
            parcel.writestr(file, content)
    return path


@NAMES
def test_an_invitation(name, here, capsys, monkeypatch):
    pytest.importorskip("nvflare")
    Path("bank.csv").write_text("id,age,y\n1,2,0\n2,3,1\n3,4,0\n4,4,1\n")
    job = {
        "name": "risk",
        "data": {"name": "csv", "label": "y", "id": "id"},
        "model": evil(name),
        "parties": {"active": "bank", "passive": ["lab"]},
    }
    Path("job.toml").write_text(tomli_w.dumps(job))
    own = ("--as", "bank", "--data", "bank.csv", "--id", "id")
    init = ("federation", "init", "job.toml", "--server", "bank@localhost:8002", "--out", "bank", *own)
    code, _ = call(capsys, monkeypatch, *init)
    assert code == 0
    check_refused(*call(capsys, monkeypatch, "federation", "run", "bank", "--yes"), name, "bank/job.toml")
    assert not Path("bank/run").exists()
    # Neither the job nor what it becomes in a run folder vouches for itself.
    Path("bank/run").mkdir()
    Path("bank/run/config.toml").write_text(tomli_w.dumps(job))
    check_refused(*call(capsys, monkeypatch, "federation", "predict", "bank"), name, "bank/run/config.toml")


def test_a_folder_that_vouches_for_itself_is_not_audited(here, trained):
    """A party.toml speaks for the member in `federation` alone: beside a run folder that was sent, it was sent too."""
    from veracausa.audit.job import data_of

    Path("site").mkdir()
    shutil.copytree(trained, "site/run")
    for sent in Path("site/run/parties").iterdir():
        if sent.name != "passive_1":
            shutil.rmtree(sent)
    Path("site/federation.toml").write_text("")
    Path("site/party.toml").write_text('[model]\nallow = "planted:make"\n')
    Path("site/job.toml").write_text(tomli_w.dumps({**TREE, "model": evil("planted:make")}))
    run = Run("site/run", "honest_nets:small")
    with pytest.raises(InputError, match=r"site/job\.toml: model\.name = 'planted:make': is code"):
        data_of(run, run.job)
    assert not list(Path().rglob("PWNED"))


def test_what_a_user_allows_runs(here, trained, capsys, monkeypatch):
    config = tomllib.loads((trained / "config.toml").read_text())
    assert config["model"].keys().isdisjoint({"allow", "allowed"})  # a folder cannot vouch for itself
    with pytest.raises(InputError, match="allow_model='honest_nets:small'"):
        Run(trained).predict()
    allowed = Run(trained, allow_model="honest_nets:small")
    assert len(allowed.predict().ids) == 16
    Path("job.toml").write_text(tomli_w.dumps(TREE))
    train = ("train", "job.toml", "--out", "again", "--allow-model", "honest_nets:small")
    assert call(capsys, monkeypatch, *train)[0] == 0
    predict = ("predict", "again", "--allow-model", "honest_nets:small")
    assert call(capsys, monkeypatch, *predict)[0] == 0


@pytest.mark.slow
def test_parties_in_processes_take_the_permission_with_them(here, trained):
    job = load_job(TREE, ["runtime.link=processes", "runtime.timeout=60"], "honest_nets:small")
    run = veracausa.train(job, here / "run")
    assert run.allow_model == "honest_nets:small"
    assert len(run.predict().ids) == 16


def test_a_permission_is_for_one_name_and_is_no_setting(trained):
    job = load_job(TREE, allow_model="honest_nets:small")
    assert job == load_job(TREE)
    assert load_job(job).model.allowed == "honest_nets:small"
    other = load_job(job, ["model.name=planted:make", "model.cut=1"])
    with pytest.raises(InputError, match="planted:make"):
        veracausa.train(other)
    with pytest.raises(InputError, check=Names("model.allowed")):
        load_job({**TREE, "model": {**TREE["model"], "allowed": "honest_nets:small"}})
    with pytest.raises(InputError, check=Names("party.passive_1.model")):
        load_job({**TREE, "party": {"passive_1": {"model": {"allow": "honest_nets:small"}}}})


def test_an_experiment_names_no_code():
    from veracausa.experiments.training_experiment import checked_job

    with pytest.raises(InputError, match="models of the registry alone"):
        checked_job(TREE, (), "experiment.toml")
