"""From a job to members with identities: init, join, approve, join again; and whatever can go wrong on the way."""

from __future__ import annotations

import json
import shutil
import tomllib
import zipfile
from pathlib import Path

import pytest
from refusals import Names

pytest.importorskip("nvflare")

from provisioned import JOB, free_port
from typer.testing import CliRunner

from veracausa.cli.main import app
from veracausa.config import PartyOwn
from veracausa.errors import InputError
from veracausa.federation.members import read_network
from veracausa.wire.credentials import Credentials


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    monkeypatch.setenv("VERACAUSA_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    Path("job.toml").write_text(JOB)
    Path("bank.csv").write_text("id,age,y\n1,2,0\n2,3,1\n")
    Path("hospital.csv").write_text("id,bmi,pulse\n1,20,60\n2,21,70\n")
    return tmp_path


def call(*arguments: str, code: int = 0, answer: str | None = None) -> str:
    result = CliRunner().invoke(app, ["federation", *arguments], input=answer)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


INIT = ("init", "job.toml", "--server", "bank@bank.example.org:8002", "--as", "bank", "--data", "bank.csv")


def line(printed: str, what: str) -> str:
    """The fingerprint that a command printed."""
    (found,) = [text for text in printed.splitlines() if text.startswith(f"{what} ")]
    return found.removeprefix(what).strip()


def test_the_whole_way(here: Path) -> None:
    Path("bank.csv").write_text("id;age;y\n1;2;0\n2;3;1\n")
    founded = call(*INIT, "--out", "coordinator", "--set", "data.separator=;")
    assert "send coordinator/invitation.zip to hospital and lab" in founded
    options = ("--data", "hospital.csv", "--id", "id", "--columns", "bmi,pulse", "--defense", "laplace")
    joined = call("join", "coordinator/invitation.zip", "--party", "hospital", "--out", "hospital", *options)
    assert line(joined, "root") == line(founded, "root")
    assert "send hospital/hospital.request.zip to the coordinator" in joined
    asked = ("approve", "coordinator", "hospital/hospital.request.zip")
    with pytest.raises(InputError, match="give it with --fingerprint"):
        call(*asked)
    with pytest.raises(InputError, match="another one than hospital read out"):
        call(*asked, "--fingerprint", line(joined, "root"))
    assert not Path("coordinator/hospital.signed.zip").exists()
    spoken = line(joined, "request").lower().replace(" ", ":")
    approved = call(*asked, "--fingerprint", spoken, "--days", "30")
    member = call("join", "hospital", "--signed", "coordinator/hospital.signed.zip")
    assert line(member, "certificate") == line(approved, "certificate")
    assert "veracausa federation run hospital" in member

    bank, hospital = (Credentials.of_folder(Path(name)) for name in ("coordinator", "hospital"))
    bank.check("bank")
    hospital.check("hospital")
    assert bank.fingerprint == line(founded, "bank")
    for name in ("federation.toml", "job.toml"):
        assert Path("coordinator", name).read_bytes() == Path("hospital", name).read_bytes()
    assert Path("coordinator/job.toml").read_bytes() == Path("job.toml").read_bytes()
    assert list(read_network(Path("hospital/federation.toml")).members) == ["bank", "hospital", "lab"]
    own = PartyOwn.model_validate(tomllib.loads(Path("hospital/party.toml").read_text()))
    assert own.data == {"path": str(here / "hospital.csv"), "id": "id", "columns": ["bmi", "pulse"]}
    assert own.defense is not None
    assert own.defense.name == "laplace"
    assert tomllib.loads(Path("coordinator/party.toml").read_text())["data"]["separator"] == ";"

    secrets = [path for path in here.rglob("*") if path.name in ("key.pem", "rootCA.key")]
    assert len(secrets) == 3
    said = founded + joined + approved + member
    for secret in secrets:
        assert secret.stat().st_mode & 0o777 == 0o600
        # A line of its own from the middle of the key: a header is in every key.
        middle = secret.read_bytes().splitlines()[2]
        assert middle.decode() not in said
        assert all(middle not in content for content in _sent(here))
    for word in (b"hospital.csv", b"bmi", b"laplace", b"PRIVATE KEY"):
        assert all(word not in content for content in _sent(here))
    assert not Path("home").exists()


def _sent(here: Path) -> list[bytes]:
    """Every file of every zip."""
    found = []
    for path in here.rglob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            found += [archive.read(name) for name in archive.namelist()]
    assert len(found) >= 3
    return found


def test_wrong_files_and_options_leave_nothing_behind(here: Path) -> None:
    before = sorted(here.iterdir())
    Path("job.toml").write_text(JOB + '[party.lab.data]\npath = "x.csv"\n')
    with pytest.raises(InputError, match=r"party\.toml"):
        call(*INIT, "--out", "coordinator")
    Path("job.toml").write_text(JOB.replace("mlp", "mlq"))
    with pytest.raises(InputError, match="mlp"):
        call(*INIT, "--out", "coordinator")
    Path("job.toml").write_text(JOB)
    for options, sentence in (
        (("--as", "nobody"), "is no member of risk"),
        (("--data", "missing.csv"), "no such file"),
        (("--defense", "laplac"), "laplace"),
        (("--set", "dat.path=1"), r"write it as data\.K=V"),
        (("--set", "data.pfad=1"), r"party\.toml: pfad"),
    ):
        with pytest.raises(InputError, match=sentence):
            call(*INIT, "--out", "coordinator", *options)
    with pytest.raises(InputError, match="say which one with --as"):
        call("init", "job.toml", "--server", "bank@b:1", "--out", "coordinator", "--data", "bank.csv")
    for arguments, sentence in (
        (("join", "job.toml", "--party", "lab", "--out", "lab"), "cannot be read as an invitation"),
        (("join", "job.toml", "--party", "lab"), "--out FOLDER"),
        (("join", "lab", "--signed", "x.zip", "--party", "lab"), "leave the other options out"),
        (("join", "lab", "--signed", "x.zip"), "no such file"),
        (("approve", ".", "x.zip"), "federation.toml: no such file"),
    ):
        with pytest.raises(InputError, match=sentence):
            call(*arguments)
    assert sorted(here.iterdir()) == before


def test_a_member_checks_the_root_it_was_told(here: Path) -> None:
    founded = call(*INIT, "--out", "coordinator")
    shutil.copytree("coordinator", "copy")
    joining = ("join", "coordinator/invitation.zip", "--party", "lab", "--out", "lab")
    with pytest.raises(InputError, match="not the one that was read out"):
        call(*joining, "--fingerprint", line(founded, "bank"))
    with pytest.raises(InputError, check=Names("--party lob")):
        call("join", "coordinator/invitation.zip", "--party", "lob", "--out", "lab")
    assert not Path("lab").exists()
    call(*joining, "--fingerprint", f"SHA256:{line(founded, 'root')}")
    with pytest.raises(InputError, match="name another folder"):
        call(*joining)
    call("approve", "coordinator", "lab/lab.request.zip", "--yes", "--out", "here.zip")
    assert Path("here.zip").exists()
    shutil.rmtree("copy/authority")
    with pytest.raises(InputError, match="only the coordinator"):
        call("approve", "copy", "lab/lab.request.zip", "--yes")


def test_a_port_that_is_closed_proves_nothing(here: Path) -> None:
    """And a certificate that ends soon is said to."""
    port = free_port()
    options = ("--server", f"bank@localhost:{port}", "--as", "bank", "--member-days", "9", "--out", "bank")
    call("init", "job.toml", *options)
    result = CliRunner().invoke(app, ["doctor", "--json", "--wire", "bank"])
    assert result.exit_code == 1
    identity, closed = json.loads(result.stdout)["checks"]
    assert (identity["name"], identity["state"]) == ("identity", "warn")
    assert "approve bank.request.zip again" in identity["fix"]
    assert (closed["name"], closed["state"]) == (f"bank at localhost:{port}", "fail")


def test_without_flare_it_says_what_to_install(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'veracausa\[federation\]'"):
        call(*INIT, "--out", "coordinator")
