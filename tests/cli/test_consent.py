"""What a party sees before it says yes, and how it stops: one sentence, and what to type to go on."""

from __future__ import annotations

import errno
import io
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from refusals import Names

pytest.importorskip("nvflare")

from typer.testing import CliRunner

from veracausa.cli import console
from veracausa.cli import main as cli
from veracausa.cli.federation.site import _take_part, show_terms
from veracausa.errors import InputError
from veracausa.federation import session_attempt as attempt
from veracausa.federation.consent import Agreement, Terms
from veracausa.federation.site_program import SiteProgram, party_program
from veracausa.wire.link import closing_reason
from veracausa.wire.message import Declared

TRAINING: dict[str, Any] = {
    "name": "risk",
    "data": {"name": "csv", "label": "y", "id": "id", "match": "active"},
    "model": {"name": "mlp", "cut": 2},
    "training": {"epochs": 7, "batch_size": 16},
    "parties": {"active": "bank", "passive": ["lab"]},
    "runtime": {"device": "cpu"},
}
DISCOVERY: dict[str, Any] = {
    "kind": "discovery",
    "method": "vfedcd",
    "name": "causes",
    "data": {"on": "id"},
    "parties": {"bank": [], "lab": []},
    "settings": {"epochs": 9, "refit_epochs": 3, "searches": [], "encryption": "none"},
    "simulation": True,
}
NETS = """
from torch import nn

def small(shape, outputs):
    return nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(outputs))
"""


MOMENTS: dict[str, Any] = {
    "kind": "discovery",
    "name": "causes",
    "data": {"on": "id"},
    "parties": {"bank": ["dose", "ward"], "lab": []},
}


def site(folder: Path, job: dict[str, Any], me: str = "lab", rows: int = 20, **own: Any) -> SiteProgram:
    folder.mkdir()
    (folder / "job.toml").write_text(tomli_w.dumps(job))
    (folder / "own.csv").write_text("id,age,y\n" + "".join(f"{n},{n * 7 % 11},{n % 2}\n" for n in range(rows)))
    data = {"path": str(folder / "own.csv"), "columns": ["age"]}
    (folder / "party.toml").write_text(tomli_w.dumps({"data": data, **own}))
    return party_program(folder, me)


def screen(prepared: SiteProgram, monkeypatch: pytest.MonkeyPatch, version: str = "0.1") -> str:
    """What is printed before the question."""
    printed = io.StringIO()
    monkeypatch.setattr(console.err, "_file", printed)  # `file` itself gives what stands for it now
    monkeypatch.setattr(console.err, "_width", 200)
    own = Terms(b"", prepared.job_text, prepared.declared, prepared.data_digest)
    others = {"bank": Terms(b"", prepared.job_text, (Declared("x", (), "", "run", 1),), "digest")}
    show_terms(Agreement(prepared.me, own, others, {"bank": "AB CD"}, {"bank": version}), prepared)
    return printed.getvalue()


def row(printed: str, name: str) -> str:
    (found,) = [line for line in printed.splitlines() if line.split("  ")[0] == name]
    return found.removeprefix(name).strip()


def test_the_terms_of_a_training(tmp_path, monkeypatch):
    defense = {"name": "laplace", "epsilon": 2.5}
    printed = screen(site(tmp_path / "lab", TRAINING, defense=defense), monkeypatch)
    assert row(printed, "model") == "mlp, of the registry, cut after unit 2"
    assert row(printed, "epochs") == "7, in batches of 16"
    assert row(printed, "defense") == "laplace (epsilon = 2.5), by your party.toml"
    assert row(printed, "encryption").startswith("of the connection only; bank reads the payloads")
    assert row(printed, "matching").startswith("active: every row of the active party's")
    plain = screen(site(tmp_path / "plain", TRAINING), monkeypatch)
    assert row(plain, "defense") == "none, by the job: what you send is not defended"
    active = screen(site(tmp_path / "bank", {**TRAINING, "name": "other"}, "bank"), monkeypatch)
    assert row(active, "defense") == "each passive party's own; where it has none, none"


def test_the_terms_say_that_a_model_is_code(tmp_path, monkeypatch):
    (tmp_path / "terms_nets.py").write_text(NETS)
    monkeypatch.syspath_prepend(str(tmp_path))
    job = {**TRAINING, "model": {"name": "terms_nets:small", "cut": 1}}
    allowed = site(tmp_path / "lab", job, model={"allow": "terms_nets:small"})
    printed = screen(allowed, monkeypatch)
    assert row(printed, "model").startswith("terms_nets:small: CODE OUTSIDE THE REGISTRY")
    assert "allow =" not in (tmp_path / "lab/run/config.toml").read_text()
    sys.modules.pop("terms_nets")


def test_the_terms_of_a_discovery(tmp_path, monkeypatch):
    printed = screen(site(tmp_path / "lab", DISCOVERY), monkeypatch)
    assert row(printed, "model") == "vfedcd, of the registry; profile recommended"
    assert row(printed, "epochs") == "9, then 3 to refit"
    assert row(printed, "opened").startswith("PARTNERS CAN SOLVE FOR YOUR COLUMNS")
    assert row(printed, "defense").startswith("none: partners can solve for columns")
    assert row(printed, "encryption") == "NONE: COLUMNS LEAVE UNENCRYPTED (simulation = true)"
    assert row(printed, "matching").startswith("all: the rows that every party has")
    assert "its 1 columns, UNENCRYPTED" in printed
    assert "encrypted (none)" not in printed


def test_the_terms_of_a_discovery_from_sums(tmp_path, monkeypatch):
    pytest.importorskip("seal")
    printed = screen(site(tmp_path / "lab", MOMENTS, rows=400), monkeypatch)
    said = " ".join(printed.split())
    assert (
        "sums over up to 400 rows of products of your column's functions (up to 6 each, squares and cubes) with those "
        "of 2 columns of others, opened to the validator; no noise (exact sums, no differential privacy); no row "
        "leaves; result: the whole graph"
    ) in said
    assert row(printed, "columns") == "age; their names and kinds are told to all"
    assert row(printed, "encryption").startswith("bfv")
    assert "SOLVE" not in printed


@pytest.mark.parametrize(("job", "asked"), [(DISCOVERY, "Partners can solve for your columns. "), (TRAINING, "")])
def test_what_a_person_is_asked_in_the_end(tmp_path, monkeypatch, job, asked):
    """The question itself says it, where a yes lets partners solve for columns."""
    import typer

    site(tmp_path / "lab", job)
    questions = []

    class Credentials:
        def expires_soon(self) -> None:
            return None

    class Here:
        me, credentials = "lab", Credentials()

    def run_site(site: Any, program: SiteProgram, approve: Any, notify: Any) -> None:
        own = Terms(b"", program.job_text, program.declared, program.data_digest)
        assert approve(Agreement("lab", own, {"bank": own}, {"bank": "AB"})) is True

    def confirm(question: str, err: bool) -> bool:
        questions.append(question)
        return True

    monkeypatch.setattr(attempt.Site, "read", lambda *_: Here())
    monkeypatch.setattr(attempt, "run_site", run_site)
    monkeypatch.setattr(typer, "confirm", confirm)
    monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    _take_part(tmp_path / "lab", False, False, None, None, (False, None), None)
    assert questions == [f"{asked}Do you agree?"]


def test_a_partner_cannot_write_over_the_fingerprints(tmp_path, monkeypatch):
    version = "0.1.0\x1b[1A\x1b[2K[link=http://evil.example]ok[/link]\nforged"
    printed = screen(site(tmp_path / "lab", TRAINING), monkeypatch, version)
    assert "\x1b" not in printed
    assert "AB CD" in printed
    assert "0.1.0\\x1b[1A\\x1b[2K[link=http://evil.example]ok[/link]\\nforged" in printed


def left(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: BaseException) -> tuple[int, str]:
    """How `federation run` ends where the run ends with this error."""

    def read(*_: object) -> object:
        raise error

    monkeypatch.setattr(attempt.Site, "read", read)
    monkeypatch.setattr(sys, "argv", ["veracausa", "federation", "run", "folder"])
    monkeypatch.setenv("VERACAUSA_DEBUG", "0")
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code, capsys.readouterr().err


def test_an_interrupt_is_one_sentence_with_what_to_type(capsys, monkeypatch):
    code, said = left(capsys, monkeypatch, KeyboardInterrupt())
    assert code == 130
    assert said.startswith("veracausa: stopped by Ctrl-C")
    assert said.endswith("go on with: veracausa federation run folder\n")


@pytest.mark.parametrize(("number", "code", "words"), [
    (errno.ENOSPC, 1, "the disk is full (run/x); free some space and start the same command again"),
    (errno.EROFS, 2, "run/x: the file system is read-only; name a folder that can be written to"),
])  # fmt: skip
def test_a_full_disk_does_not_advise_an_option_that_is_not_there(number, code, words, capsys, monkeypatch):
    import os

    ended, said = left(capsys, monkeypatch, OSError(number, os.strerror(number), "run/x"))
    assert (ended, said) == (code, f"veracausa: {words}\n")


@pytest.mark.parametrize(("error", "words"), [
    (KeyboardInterrupt(), "stopped by its operator"),
    (OSError(errno.ENOSPC, "No space left on device", "/home/lab/secret"), "its disk is full"),
    (OSError(errno.EROFS, "Read-only file system", "/home/lab/secret"), "its machine failed (Read-only file system)"),
    (ZeroDivisionError("rows of lab"), "its program failed (ZeroDivisionError)"),
    (InputError("no id is held by every party"), "no id is held by every party"),
])  # fmt: skip
def test_what_a_partner_is_told(error, words):
    assert closing_reason(error) == words


def call(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, ["federation", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_bad_data_and_limits_are_refused_where_one_founds_and_joins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(tomli_w.dumps(TRAINING))
    Path("bank.csv").write_text("id,age,y\n1,2,0\n2,3,1\n")
    Path("lab.csv").write_text("id,pulse\n1,60\n1,70\n")
    founding = ("init", "job.toml", "--server", "bank@localhost:8002", "--out", "coordinator", "--as", "bank")
    with pytest.raises(InputError, check=Names("--wire max_message_mib", "8192")):
        call(*founding, "--wire", "max_message_mib=99999999999")
    with pytest.raises(InputError, check=Names("bank.csv", "nope")):
        call(*founding, "--data", "bank.csv", "--id", "nope")
    with pytest.raises(InputError, check=Names("--allow-model os:system", "mlp")):
        call(*founding, "--allow-model", "os:system")
    assert not Path("coordinator").exists()
    call(*founding, "--data", "bank.csv")
    joining = ("join", "coordinator/invitation.zip", "--party", "lab", "--out", "lab", "--data", "lab.csv")
    with pytest.raises(InputError, check=Names("lab.csv", "1", "2")):
        call(*joining)
    with pytest.raises(InputError, check=Names("lab.csv", "nope")):
        call(*joining, "--id", "nope")
    assert not Path("lab").exists()
    network = Path("coordinator/federation.toml").read_text()
    _invite(Path("evil.zip"), network.replace("max_message_mib = 1024", "max_message_mib = 99999999999"))
    with pytest.raises(InputError, check=Names("wire.max_message_mib")):
        call("join", "evil.zip", "--party", "lab", "--out", "lab")
    assert not Path("lab").exists()


def _invite(path: Path, network: str) -> None:
    import zipfile

    with zipfile.ZipFile("coordinator/invitation.zip") as good, zipfile.ZipFile(path, "w") as archive:
        for name in good.namelist():
            archive.writestr(name, network if name == "federation.toml" else good.read(name))


def test_a_job_with_code_is_announced_where_one_joins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(tomli_w.dumps({**TRAINING, "model": {"name": "terms_nets:small", "cut": 1}}))
    founding = ("init", "job.toml", "--server", "bank@localhost:8002", "--out", "coordinator")
    assert "the job's model is 'terms_nets:small', code outside the registry" in call(*founding)
    join = ("join", "coordinator/invitation.zip", "--party", "lab", "--out")
    assert '[model] allow = "terms_nets:small"' in call(*join, "lab")
    assert "[model]" not in Path("lab/party.toml").read_text()
    assert "code outside" not in call(*join, "other", "--allow-model", "terms_nets:small")
    assert '[model]\nallow = "terms_nets:small"' in Path("other/party.toml").read_text()
