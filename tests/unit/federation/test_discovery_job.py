"""A discovery across organisations sends no column in the clear, unless its job says that none is real."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from veracausa.errors import InputError
from veracausa.federation import membership
from veracausa.federation.discovery_job import read_agreed
from veracausa.federation.discovery_terms import SOLVABLE
from veracausa.federation.site_program import party_program

JOB: dict[str, Any] = {
    "kind": "discovery",
    "method": "vfedcd",
    "data": {"on": "id"},
    "parties": {"bank": [], "lab": []},
    "settings": {"epochs": 2, "refit_epochs": 0, "threshold": 0.1, "searches": []},
}


def written(folder: Path, settings: dict[str, Any] | None = None, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    job = {**JOB, **changes, "settings": {**JOB["settings"], **(settings or {})}}
    (folder / "job.toml").write_text(tomli_w.dumps(job))
    (folder / "bank.csv").write_text("id,a,b\n" + "".join(f"p{n},{n % 5},{n % 3}\n" for n in range(30)))
    (folder / "party.toml").write_text('[data]\npath = "bank.csv"\n')
    return folder / "job.toml"


def rows(site: Any) -> dict[str, str]:
    return {sent.kind: sent.shape for sent in site.declared}


def test_where_a_job_names_no_encryption_it_is_bfv_for_everybody(tmp_path: Path) -> None:
    pytest.importorskip("seal")
    path = written(tmp_path / "bank")
    job, method = read_agreed(path)
    assert (job.settings["encryption"], method.encryption) == ("bfv", "bfv")
    for member in ("bank", "validator"):
        site = party_program(path.parent, member)
        assert site.method.encryption == "bfv"  # type: ignore[attr-defined]
        assert dict(site.described)["encryption"] == "bfv: columns leave encrypted"
        assert site.warnings == (() if member == "validator" else (SOLVABLE,))
        solving = dict(site.described)["opened"].lower()
        assert "can solve for " + ("each other's" if member == "validator" else "your") + " columns" in solving
        assert ("can solve for your columns" in site.question) == (member == "bank")
        (path.parent / "run" / "config.toml").unlink()
    site = party_program(path.parent, "bank")
    assert rows(site)["columns"] == "its 2 columns, encrypted (bfv)"


def test_no_encryption_is_refused_where_it_is_founded_and_where_it_is_run(tmp_path: Path) -> None:
    path = written(tmp_path / "bank", {"encryption": "none"})
    for refused in (lambda: membership.parties_of(path), lambda: party_program(path.parent, "bank")):
        with pytest.raises(InputError, match=r"encryption = 'none': every partner.*bfv.*simulation = true") as error:
            refused()
        assert error.value.exit_code == 2
    assert not (path.parent / "run").exists()


def test_a_simulation_says_in_capitals_that_columns_leave(tmp_path: Path) -> None:
    path = written(tmp_path / "bank", {"encryption": "none"}, simulation=True)
    assert membership.parties_of(path) == ("bank", "lab", "validator")
    site = party_program(path.parent, "bank")
    assert dict(site.described)["encryption"] == "NONE: COLUMNS LEAVE UNENCRYPTED (simulation = true)"
    assert "COLUMNS LEAVE UNENCRYPTED" in " ".join(site.warnings)
    assert rows(site)["columns"] == "its 2 columns, UNENCRYPTED"
    assert rows(site)["triples"] == "masked products, UNENCRYPTED"
    assert "(none)" not in str(site.declared)


def test_the_strong_mode_sends_shares_and_needs_no_encryption(tmp_path: Path) -> None:
    path = written(tmp_path / "bank", {"strong": True})
    site = party_program(path.parent, "bank")
    assert "columns" not in rows(site)
    assert "none is needed" in dict(site.described)["encryption"]
    assert "solve" not in dict(site.described)["opened"]
    assert site.question == "Do you agree?"


def test_a_missing_library_is_one_sentence_before_anybody_is_dialled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "bank")
    monkeypatch.setitem(sys.modules, "seal", None)
    for name in [name for name in sys.modules if name.startswith("veracausa.crypto.backends.bfv")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(InputError, match=r"encryption = 'bfv'.*pip install \"veracausa\[he\]\""):
        party_program(path.parent, "bank")
    assert party_program(path.parent, "validator").peers == ("bank", "lab")  # it holds no key
