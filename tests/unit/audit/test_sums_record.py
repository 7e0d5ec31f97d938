"""An audit of a discovery from sums, as a user runs it: cases, table, sentences, page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from refusals import Names

from veracausa.audit.discovery import DiscoveryAudit, attacks_on, audit_discovery
from veracausa.audit.settings import DiscoveryAuditSettings
from veracausa.audit.sums import SumsAudit
from veracausa.audit.sums_verdict import sums_learned, sums_verdict
from veracausa.discovery.job import DiscoveryJob
from veracausa.errors import InputError

PARTIES = {"lab": ("x0", "x1"), "clinic": ("x2", "x3"), "bank": ("x4", "x5")}
FAST = {"curve_sampling": {"sweeps": 2}, "null_space": {"rounds": 1}}


def job(method: str = "moments", mixed: float = 0.34, **settings: Any) -> DiscoveryJob:
    data = {"name": "suite", "attributes": 6, "rows": 300, "mixed": mixed}
    return DiscoveryJob(name="toy", method=method, data=data, parties=PARTIES, settings=settings)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("audit")
    options = DiscoveryAuditSettings(cases=("as run", "epsilon 1"), releases=4)
    return out, audit_discovery(job(), out, settings=FAST, options=options)


def test_every_attack_on_sums_has_an_entry_in_each_situation(audited: tuple[Path, dict[str, Any]]) -> None:
    _, summary = audited
    assert summary["opened"] == "sums"
    plain, noisy = summary["cases"]
    tried = {entry["attack"] for entry in plain["attacks"].values()}
    # There are no rows of other people in a job, so an attack that begins with these has nothing to begin with.
    assert tried == set(attacks_on("sums")) - {"sum_correction"}
    assert plain["attacks"]["indicator_column: checked at home"]["mean"] > 0.9
    assert noisy["noise"] > 0 == plain["noise"]
    assert noisy["attacks"]["indicator_column: checked at home"]["mean"] < 0.2
    assert 0 <= plain["attacks"]["sum_regression"]["cells"] <= 1
    assert set(plain["all_but_one"]["attacks"]) == {"sum_regression", "sum_correction", "curve_sampling"} | {
        "weighted_releases"
    }


def test_one_sentence_a_side_says_what_was_learned(audited: tuple[Path, dict[str, Any]]) -> None:
    out, summary = audited
    said = summary["learned"]
    assert list(said)[:3] == ["a party", "the validator", "a party in league with the validator"]
    assert {"who breaks the protocol", "who knows a row", "with noise"} <= set(said)
    gain = max(summary["cases"][0]["attacks"][name]["gain"] for name in ("sum_regression", "curve_sampling"))
    assert f"the sums tell {max(0.0, gain):.3f}" in said["a party in league with the validator"]
    for name in ("audit.md", "report.html"):
        text = (out / name).read_text(encoding="utf-8")
        assert "sum_regression" in text
        assert "own columns and rows of other people" in text
    assert json.loads((out / "summary.json").read_text(encoding="utf-8"))["headline"] == summary["headline"]


@pytest.mark.parametrize(("gain", "word"), [(-0.2, "little"), (0.09, "little"), (0.1, "part"), (0.5, "most")])
def test_the_verdict_says_how_much_in_a_word(gain: float, word: str, audited: tuple[Path, dict[str, Any]]) -> None:
    case = audited[1]["cases"][0]
    attacks = {name: {**entry, "gain": gain} for name, entry in case["attacks"].items() if "gain" in entry}
    said = sums_verdict([{**case, "attacks": attacks}])
    assert f"learns {word} of a partner's rows from the sums" in said
    assert f"{max(0.0, gain):.3f} in R²" in said
    assert sums_verdict([{**case, "attacks": {}}]) == ""
    assert sums_verdict([]) == ""


def test_a_finished_case_is_kept(audited: tuple[Path, dict[str, Any]]) -> None:
    out, summary = audited
    options = DiscoveryAuditSettings(cases=("as run", "epsilon 1"), releases=4)
    before = (out / "cases" / "as-run.json").stat().st_mtime_ns
    again = audit_discovery(job(), out, settings=FAST, options=options, resume=True)
    assert (out / "cases" / "as-run.json").stat().st_mtime_ns == before
    assert again["cases"] == summary["cases"]


def test_attacks_on_features_and_on_sums_do_not_mix() -> None:
    options = DiscoveryAuditSettings()
    with pytest.raises(InputError, check=Names("ica", "sums")):
        DiscoveryAudit.of(job(), ["ica"], {}, options)
    with pytest.raises(InputError, check=Names("sum_regression", "features")):
        DiscoveryAudit.of(job("vfedcd"), ["sum_regression"], {}, options)
    assert type(DiscoveryAudit.of(job("vfedcd"), [], {}, options)) is DiscoveryAudit
    assert not set(attacks_on("sums")) & set(attacks_on("features"))


def test_networks_beside_the_sums_are_named_and_not_passed_over(audited: tuple[Path, dict[str, Any]]) -> None:
    _, summary = audited
    assert "who runs the networks too" not in summary["learned"]
    audit = DiscoveryAudit.of(job("auto", networks=True), ["sum_regression"], {}, DiscoveryAuditSettings())
    assert isinstance(audit, SumsAudit)
    assert "vfedcd" in sums_learned([audit.run(audit.cases()[0])])["who runs the networks too"]
    with pytest.raises(InputError, check=Names("pc")):
        DiscoveryAudit.of(job("pc"), [], {}, DiscoveryAuditSettings())


def test_cases_follow_from_the_job() -> None:
    def names(**settings: Any) -> list[str]:
        audit = DiscoveryAudit.of(job(**settings), [], {}, DiscoveryAuditSettings())
        assert isinstance(audit, SumsAudit)
        return [case.name for case in audit.cases()]

    assert names(mixed=0.0) == ["as run", "opened to all", "epsilon 4", "epsilon 1", "few rows"]
    # Of so few rows no category is held by enough.
    assert names()[-1] == "epsilon 1"
    assert names(epsilon=4.0, receiver="all")[:4] == ["as run", "to a validator", "exact", "epsilon 1"]
