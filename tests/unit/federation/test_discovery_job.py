"""A discovery across organisations sends no column in the clear, unless its job says that none is real."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from veracausa.discovery.methods.moments.estimator import MomentSearch
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
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


@pytest.mark.parametrize(
    ("strong", "told"),
    [
        (True, "bank, lab and validator compute on shares: each alone opens nothing, and ANY TWO OF THEM TOGETHER"),
        ("dealer", "the validator deals all masks: WITH ANY ONE PARTY IT CAN OPEN EVERY COLUMN"),
    ],
)
def test_the_strong_mode_sends_shares_and_says_who_must_not_collude(tmp_path: Path, strong: Any, told: str) -> None:
    path = written(tmp_path / "bank", {"strong": strong})
    for member in ("bank", "validator"):
        site = party_program(path.parent, member)
        assert "columns" not in rows(site)
        assert told in dict(site.described)["collusion"]
        assert "none is needed" in dict(site.described)["encryption"]
        assert "solve" not in dict(site.described)["opened"]
        assert site.question == "Do you agree?"
        (path.parent / "run" / "config.toml").unlink()


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        (["bank", "lab"], "replicated shares take three"),
        (["bank", "lab", "clinic"], r"'clinic' is no member; name parties \(bank, lab\) or 'validator'"),
    ],
)
def test_servers_that_are_not_there_are_refused_before_anybody_is_dialled(
    tmp_path: Path, servers: list[str], problem: str
) -> None:
    path = written(tmp_path / "bank", {"strong": True, "servers": servers})
    with pytest.raises(InputError, match=problem):
        party_program(path.parent, "bank")
    assert not (path.parent / "run").exists()


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


MOMENTS: dict[str, Any] = {"kind": "discovery", "data": {"on": "id"}, "parties": {"bank": ["a"], "lab": ["b"]}}


def agreed(folder: Path, **changes: Any) -> Any:
    path = folder / "job.toml"
    path.write_text(tomli_w.dumps({**MOMENTS, **changes}))
    return read_agreed(path)


@pytest.mark.parametrize("said", [{}, {"method": "auto"}, {"method": "moments"}])
def test_between_organisations_only_sums_are_opened_unless_networks_are_named(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    job, method = agreed(tmp_path, **said)
    assert job.method == "moments"
    assert isinstance(method, MomentSearch)
    assert method.settings().encryption == job.settings["encryption"] == "bfv"
    assert membership.parties_of(tmp_path / "job.toml") == ("bank", "lab", "validator")
    assert isinstance(agreed(tmp_path, method="vfedcd")[1], VFedCD)


@pytest.mark.parametrize("setting", [{"epochs": 5}, {"strong": True}, {"networks": True}])
@pytest.mark.parametrize("said", [{}, {"method": "auto"}])
def test_settings_of_networks_need_their_name(tmp_path: Path, said: dict[str, Any], setting: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r'method = "vfedcd", by which partners can solve') as error:
        agreed(tmp_path, settings=setting, **said)
    assert f"settings.{next(iter(setting))}" in str(error.value)


def test_sums_that_all_open_need_no_validator(tmp_path: Path) -> None:
    agreed(tmp_path, settings={"receiver": "all"})
    assert membership.parties_of(tmp_path / "job.toml") == ("bank", "lab")
    with pytest.raises(InputError, match="'validator' has no part"):
        party_program(tmp_path, "validator")


def test_sums_leave_unencrypted_in_a_simulation_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"encryption = 'none': every partner .* row by row.*simulation = true"):
        agreed(tmp_path, settings={"encryption": "none"})
    assert agreed(tmp_path, settings={"encryption": "none"}, simulation=True)[1].settings().encryption == "none"


def test_resamples_of_rows_are_releases(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"resampling = 'rows'.*another exact release"):
        agreed(tmp_path, settings={"bootstrap": 5, "resampling": "rows"})
    agreed(tmp_path, settings={"bootstrap": 5})
    agreed(tmp_path, settings={"bootstrap": 5, "resampling": "rows", "epsilon": 4.0})


def test_how_a_file_is_written_is_a_partys_own(tmp_path: Path) -> None:
    written(tmp_path / "bank", method="moments", settings={}, data={"on": "id", "separator": ";"})
    job = {**MOMENTS, "parties": {"bank": [], "lab": []}, "data": {"on": "id", "separator": ";"}}
    (tmp_path / "bank" / "job.toml").write_text(tomli_w.dumps(job))
    with pytest.raises(InputError, match=r"data\.separator: how a file is written is its party's own"):
        party_program(tmp_path / "bank", "bank")


@pytest.mark.parametrize("settings", [{"encryption": "none"}, {"encryption": "paillier", "strong": True}])
def test_the_published_protocol_stays_in_one_place(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = written(tmp_path / "bank", settings | {"protocol": "literal", "profile": "literal"}, simulation=True)
    with pytest.raises(InputError, match=r"protocol = 'literal' is .* for simulations in one place"):
        read_agreed(path)
