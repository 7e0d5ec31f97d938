"""An audit of a small discovery, from the parties' own programs to the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from veracausa.audit.column_scores import attacked, make_attack
from veracausa.audit.discovery import train
from veracausa.audit.discovery_recorder import DiscoveryRecording
from veracausa.audit.discovery_views import all_but_one, single
from veracausa.cli.main import app
from veracausa.crypto import ring
from veracausa.crypto.fixed_point import WEIGHT_BITS, decode
from veracausa.crypto.shares import NORM_BITS
from veracausa.data.causal import CausalData
from veracausa.discovery.job import DiscoveryJob
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.errors import InputError

pytestmark = pytest.mark.xdist_group("watched_discovery")  # what its tests share is made once, not once a worker

NAMES = [f"x{at}" for at in range(6)]
PARTIES = {"a": NAMES[:2], "b": NAMES[2:4], "c": NAMES[4:]}


def table() -> np.ndarray:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((90, 6))
    for at in range(2, 6):
        values[:, at] += np.sin(values[:, at - 1]) + 0.5 * values[:, at - 2]
    return (values - values.mean(0)) / values.std(0)


@pytest.fixture(scope="module")
def watched() -> Any:
    """Each way to run it, trained once."""
    import polars as pl

    kept: dict[tuple[Any, ...], tuple[VFedCD, DiscoveryRecording]] = {}

    def run(**changes: Any) -> tuple[VFedCD, DiscoveryRecording]:
        key = tuple(sorted(changes.items()))
        if key not in kept:
            recording = DiscoveryRecording()
            how = {
                "epochs": 3,
                "refit_epochs": 3,
                "width": 4,
                "batch": 12,
                "candidates": 20,
                "held_out": 0.2,
                "searches": [],
            }
            method = VFedCD(**{**how, **changes}, engine="federated", seed=3)
            method.fit(pl.DataFrame(table(), schema=NAMES), parties=PARTIES, watch=recording.watch)
            kept[key] = method, recording
        return kept[key]

    return run


def reached(recording: DiscoveryRecording, name: str) -> float:
    found = attacked(single(recording, 12, 0), make_attack(name, {}))
    assert found is not None
    return found.mean


def test_watching_changes_nothing(watched: Any) -> None:
    import polars as pl

    method, _ = watched()
    again = VFedCD(**{name: value for name, value in method.get_params().items() if name != "timer"})
    again.fit(pl.DataFrame(table(), schema=NAMES), parties=PARTIES)
    assert (again.strengths_ == method.strengths_).all()


def test_a_sum_is_the_sum_of_the_parts_and_no_part_of_it_is_opened(watched: Any) -> None:
    (one, sums), (other, parts) = watched(), watched(reveal_per_source=True)
    assert (one.strengths_ == other.strengths_).all()
    for name in PARTIES:
        together, apart = sums.parties[name], parts.parties[name]
        assert (len(together.last), len(apart.last)) == (1, 2)
        assert together.last[0] == pytest.approx(apart.last.sum(0), abs=1e-9)


def test_of_several_searches_an_attacker_has_all_features_side_by_side(watched: Any) -> None:
    import polars as pl

    _, alone = watched()
    how = {"epochs": 3, "refit_epochs": 3, "width": 4, "batch": 12, "candidates": 20}
    recording = DiscoveryRecording()
    method = VFedCD(**how, searches=[{}, {"epochs": 1}], engine="federated", seed=3)
    method.fit(pl.DataFrame(table(), schema=NAMES), parties=PARTIES, watch=recording.watch)
    first, second = (seen["a"] for seen in recording.searches)
    assert (first.last == alone.parties["a"].last).all(), "what a search opens does not depend on those beside it"
    assert (first.mean == alone.parties["a"].mean).all()
    assert (first.epochs, second.epochs) == (6, 4)
    view = single(recording, 12, 0)[0].view
    assert view.last.shape == (72, 4, 4)
    assert (view.last[:, :2].reshape(72, -1) == first.last[0]).all()
    assert (view.last[:, 2:].reshape(72, -1) == second.last[0]).all()
    assert view.strengths.shape == (4, 4)
    assert reached(recording, "known_start") > 0.9999, "the first steps are those of the first search"
    assert len(view.openings) == 2, "and each search has its own"
    assert view.openings[0] == view.first
    assert [len(opened) for opened in view.openings] == [12, 12]
    assert reached(recording, "known_rows") > reached(alone, "known_rows") - 0.02


def test_first_weights_are_worth_all_columns_and_only_their_owner_has_them(watched: Any) -> None:
    _, recording = watched()
    assert reached(recording, "known_start") > 0.9999
    assert reached(recording, "guessed_start") < 0.95


def test_the_validator_has_weights_to_give_in_mode_m1_only(watched: Any) -> None:
    _, sends_weights = watched(validator="M1")
    _, sends_norms = watched()
    assert reached(sends_weights, "party_and_validator") > 0.999
    assert attacked(single(sends_norms, 12, 0), make_attack("party_and_validator", {})) is None


def test_factors_of_the_refit_tell_the_strengths_that_the_validator_opened(watched: Any) -> None:
    method, recording = watched()
    plan = recording.parties["a"].plan
    order = [NAMES.index(name) for name in plan.names]
    final = method.strengths_[np.ix_(order, order)]
    for name, recorder in recording.parties.items():
        assert recorder.strengths is not None
        found = recorder.strengths[plan.foreign(name)]
        # After the last look steps may follow: what is compared is nearly the end.
        assert found == pytest.approx(final[plan.foreign(name)][:, plan.own(name)], abs=0.05)
        squares = decode(
            ring.add(recorder.last_look[0], np.concatenate([
                recording.parties[peer].last_look[1][:, plan.among_foreign(peer, name)] for peer in plan.peers(name)
            ])), 2 * (WEIGHT_BITS + NORM_BITS),
        )  # fmt: skip
        opened = np.sqrt(np.maximum(squares, 0))
        assert opened == pytest.approx(final[plan.foreign(name)][:, plan.own(name)], abs=1e-3)


def test_candidate_graphs_open_single_causes_and_rows_opened_once_do_not(watched: Any) -> None:
    _, compared = watched(threshold="held_out_graphs")
    attack = make_attack("candidate_differencing", {})
    before = attacked(single(compared, 12, 0), attack)
    assert before is not None
    assert before.most > 0.9999
    assert before.read > 0.6
    for how in ({}, {"threshold": "mixture"}):
        _, opened_once = watched(**how)
        after = attacked(single(opened_once, 12, 0), attack)
        assert after is not None
        # Left are attributes whose only foreign cause in the order that was found is the one they copy.
        plan = opened_once.parties["a"].plan
        copied = set()
        for name, recorder in opened_once.parties.items():
            order = recorder.order[plan.foreign(name)]
            copied |= {(name, int(np.flatnonzero(cause)[0])) for cause in order.T if cause.sum() == 1}
            assert len(recorder.candidates) == 1
        assert after.read <= len(copied) / 12 < before.read


def test_all_epochs_make_up_for_a_bottleneck_and_noise_keeps_known_rows_from_reading(watched: Any) -> None:
    _, narrow = watched(bottleneck=1)
    _, noisy = watched(row_noise=2.0)
    _, plain = watched()
    assert next(iter(narrow.parties.values())).last.shape[2] == 2
    assert reached(plain, "stacking") > 0.99
    assert reached(narrow, "known_rows") < reached(narrow, "stacking")
    assert reached(noisy, "known_rows") < 0.6


def test_all_parties_but_one_look_at_it_together(watched: Any) -> None:
    _, parts = watched(reveal_per_source=True)
    scenes = all_but_one(parts, 12, 0)
    assert [scene.victims for scene in scenes] == [("a",), ("b",), ("c",)]
    assert scenes[0].view.last.shape == (72, 4, 4)
    assert scenes[0].view.own.shape == (72, 4)


def job(tmp_path: Path, **changes: Any) -> Path:
    rows = "\n".join(",".join(f"{value:.6f}" for value in row) for row in table())
    (tmp_path / "table.csv").write_text(",".join(NAMES) + "\n" + rows + "\n")
    how = {"epochs": 2, "refit_epochs": 2, "width": 4, "batch": 12}
    data = {"name": "table", "path": str(tmp_path / "table.csv")}
    given = {"method": "vfedcd", "data": data, "parties": PARTIES, "settings": how}
    (tmp_path / "job.toml").write_text(DiscoveryJob.model_validate({**given, **changes}).to_toml())
    return tmp_path / "job.toml"


def audit(*arguments: Any) -> None:
    done = CliRunner().invoke(app, ["audit", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output


def test_an_audit_leaves_numbers_a_table_and_a_page(tmp_path: Path) -> None:
    attacks = "candidate-differencing,known-rows,stacking"
    cases = 'audit.cases=["as run"]'
    out = tmp_path / "found"
    audit(job(tmp_path), "--attacks", attacks, "--set", cases, "--out", out)
    summary = json.loads((out / "summary.json").read_text())
    assert [case["name"] for case in summary["cases"]] == ["as run"]
    assert 0 <= summary["cases"][0]["attacks"]["known_rows"]["mean"] <= 1
    assert "| known_rows | known rows |" in (out / "audit.md").read_text()
    page = (out / "report.html").read_text()
    assert "What each party learns" in page
    assert "<svg" in page
    assert "://" not in page
    with pytest.raises(InputError, match="--resume"):
        audit(tmp_path / "job.toml", "--attacks", attacks, "--set", cases, "--out", out)
    kept = (out / "cases" / "as-run.json").stat().st_mtime_ns
    audit(tmp_path / "job.toml", "--attacks", attacks, "--set", cases, "--out", out, "--resume")
    assert (out / "cases" / "as-run.json").stat().st_mtime_ns == kept


@pytest.mark.parametrize(
    ("changes", "arguments", "said"),
    [
        ({"parties": {}}, (), "name two at least"),
        ({"method": "notears", "settings": {}}, (), "'vfedcd'"),
        ({}, ("--attacks", "unsplt"), "unsplit"),
        ({}, ("--set", "audit.cases=[\"bottle\"]"), "bottleneck"),
        ({}, ("--set", "unsplit.turn=3"), "turn"),
        ({}, ("--double",), "split models"),
    ],
)  # fmt: skip
def test_what_can_not_be_audited_is_refused(
    tmp_path: Path, changes: dict[str, Any], arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        audit(job(tmp_path, **changes), "--out", tmp_path / "found", *arguments)
    assert not (tmp_path / "found").exists()


def test_a_discovery_with_noise_on_strengths_is_watched_as_any_other() -> None:
    """Besides its progress such a fit says how much noise it adds."""
    how: Any = {"epochs": 2, "refit_epochs": 1, "width": 3, "batch": 12, "engine": "federated", "laplace": 64.0}
    heard: list[float] = []
    data = CausalData(table(), tuple(NAMES))
    recording = train(VFedCD(**how, seed=3), data, PARTIES, heard.append)
    assert sorted(recording.parties) == ["a", "b", "c"]
    assert heard[-1] == 1.0
