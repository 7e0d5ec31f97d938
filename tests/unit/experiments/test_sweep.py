"""A sweep gives everybody equally many trials, keeps to its time, and does not repeat what is there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import Field

from veracausa.config import load_job
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.defenses.protocols import Stochastic
from veracausa.errors import InputError, RunError
from veracausa.experiments import sweep as sweeping
from veracausa.experiments.advice import Frontier
from veracausa.experiments.find_frontier import frontier
from veracausa.experiments.frontier_page import frontier_rows, markdown
from veracausa.experiments.schedule import Budget, OutOfTime, read_seconds, written_seconds
from veracausa.experiments.sweep import fitting_score as fitting
from veracausa.experiments.sweep import rounds_of, settings_of
from veracausa.experiments.trial import Attackers, TrialCell, TrialStore, plan_trial
from veracausa.registry import Options


class StrongOptions(Options):
    swept: ClassVar[tuple[str, ...]] = ("size",)
    sweep: ClassVar[Mapping[str, tuple[Any, ...]]] = {"size": (1, 2, 3, 4, 5)}

    size: int = Field(3, ge=1)
    other: float = 0.0


class WeakOptions(Options):
    swept: ClassVar[tuple[str, ...]] = ("share", "depth")
    sweep: ClassVar[Mapping[str, tuple[Any, ...]]] = {"share": (0.1, 0.9), "depth": (1, 2)}

    share: float = 0.1
    depth: int = 1


class Random(Defense, Stochastic):
    pass


class Slow(Defense):
    def check(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 1:
            raise InputError("it is for tables")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Only while a test runs: other tests go over everything that is registered."""
    defenses.names()
    own = {"strong": (Defense, StrongOptions), "weak": (Random, WeakOptions), "for_tables": (Slow, Options)}
    for name, (defense, options) in own.items():
        defenses.register(name, options)(defense)
    yield
    for name in own:
        del defenses._entries[name]


@pytest.fixture
def job() -> Any:
    tree = {
        "data": {"name": "digits"},
        "model": {"name": "convnet", "cut": 3},
        "training": {"epochs": 1},
        "defense": {"name": "strong", "other": 7.0},
        "party": {"passive_1": {"defense": {"name": "weak"}}},
        "runtime": {"device": "cpu"},
    }
    return load_job(tree)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[TrialCell]:
    """Trials that take no time but pretend to; each is noted."""
    done: list[TrialCell] = []

    def measure(self: TrialCell, path: Path, observer: Any) -> dict[str, Any]:
        observer({"event": "step"})
        done.append(self)
        return {"accuracy": 0.9, "leakage": dict.fromkeys(self.attacks, 0.5), "seconds": 10.0, "scores": {}, "task": {}}

    monkeypatch.setattr(TrialCell, "measure", measure)
    return done


def tried(done: list[TrialCell]) -> list[str]:
    return [f"{trial.setting.defense} {trial.setting.describe()}".strip() for trial in done]


def test_times_are_read_as_people_write_them() -> None:
    assert [read_seconds(text) for text in ("20m", "1h30m", "90s")] == [1200, 5400, 90]


@pytest.mark.parametrize("wrong", ["20", "m", "20 minutes", "0s", "-5m", ""])
def test_a_time_that_is_none_is_refused_before_anything_is_written(wrong: str, job: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--budget"):
        frontier(job, ["strong"], wrong, out=tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_values_begin_in_the_middle_and_the_jobs_own_settings_stay(job: Any) -> None:
    settings = settings_of("strong", job, (3,))
    assert [setting.options.size for setting in settings] == [3, 1, 5, 2, 4]  # type: ignore[attr-defined]
    assert all(setting.options.other == 7.0 for setting in settings)  # type: ignore[attr-defined]
    weak = [setting.describe(True) for setting in settings_of("weak", job, (3, 6))]
    assert weak[:2] == ["share = 0.9, depth = 1, cut 3", "share = 0.9, depth = 1, cut 6"]
    assert len(weak) == len(set(weak)) == 6  # share 0.1 with depth 1 comes up twice, and is tried once


def test_a_trial_has_one_defense_at_every_party_and_its_cut(job: Any) -> None:
    setting = settings_of("strong", job, (6,))[0]
    made = setting.job(job, 4)
    assert {made.defense_of(party).name for party in made.parties.passive} == {"strong"}
    assert (made.model.cut, made.seed) == (6, 4)


def test_all_that_can_be_tuned_get_as_many_rounds(job: Any) -> None:
    own = {name: settings_of(name, job, (3,)) for name in ("strong", "weak", "none")}
    rounds = rounds_of(own)
    assert [[setting.defense for setting in planned] for planned in rounds] == [
        ["strong", "weak", "none"],
        ["strong", "weak"],
        ["strong", "weak"],
    ]


def test_the_undefended_job_first_then_everybody_once_before_anybody_twice(
    job: Any, ran: list[TrialCell], tmp_path: Path
) -> None:
    found = sweeping.sweep(job, ["strong", "weak", "for_tables"], tmp_path, Budget(1000, Clock()), seeds=2)
    assert tried(ran)[:4] == ["none", "strong size = 3", "weak share = 0.9, depth = 1", "strong size = 1"]
    assert len(ran) == 2 * (1 + 3 + 3)
    assert found.complete
    assert {skipped.setting.defense: skipped.why for skipped in found.skipped}["for_tables"].endswith(
        "it is for tables"
    )
    assert {trial.seed for trial in ran} == {0, 1}
    assert all(trial.attacks == ("inverse",) for trial in ran if trial.setting.defense != "weak")
    random = [trial for trial in ran if trial.setting.defense == "weak"]
    assert all(trial.attacks == ("inverse", "averaging") and trial.job.transcript.record for trial in random)
    shown = Frontier(found)
    assert "Not every defense" not in " ".join(shown.warnings)
    assert shown.tried_equally == "3 settings of every defense tried"
    assert "for_tables" in markdown(shown)
    assert len(frontier_rows(shown)) == len(ran)


def test_a_round_that_does_not_fit_is_the_last_and_nobody_gets_ahead(
    job: Any, ran: list[TrialCell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    seconds = {"none": 10.0, "strong": 10.0, "weak": 60.0}
    quick = TrialCell.measure

    def measure(self: TrialCell, path: Path, observer: Any) -> dict[str, Any]:
        found = quick(self, path, observer)
        clock.now += seconds[self.setting.defense]
        return {**found, "seconds": seconds[self.setting.defense]}

    monkeypatch.setattr(TrialCell, "measure", measure)
    found = sweeping.sweep(job, ["weak", "strong"], tmp_path, Budget(130, clock))
    assert tried(ran) == ["none", "weak share = 0.9, depth = 1", "strong size = 3", "strong size = 1"]
    assert not found.complete
    assert "no time" in found.skipped[-1].why
    warnings = " ".join(Frontier(found).warnings)
    assert "weak 1, strong 2" in warnings
    assert "--resume" in warnings


def test_a_budget_for_the_undefended_job_alone_recommends_nothing(
    job: Any, ran: list[TrialCell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    quick = TrialCell.measure

    def measure(self: TrialCell, path: Path, observer: Any) -> dict[str, Any]:
        clock.now += 100
        return {**quick(self, path, observer), "seconds": 100.0}

    monkeypatch.setattr(TrialCell, "measure", measure)
    found = sweeping.sweep(job, ["weak", "strong"], tmp_path, Budget(110, clock))
    assert tried(ran) == ["none"]
    shown = Frontier(found)
    assert shown.recommendation.point is None
    assert shown.snippet is None
    assert "No defense was tried" in shown.recommendation.sentence
    # Three trials of 100 s, and half as much again to be sure.
    assert shown.recommendation.why.endswith("--resume --budget 8m.")
    assert "Take" not in markdown(shown)
    assert "settings tried: ." not in markdown(shown)


def test_unbalanced_classes_are_weighed_by_what_guessing_does_not_raise(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accuracy prefers the defense that has learnt nothing: it guesses the commonest class."""
    aucs = {"none": 0.78, "strong": 0.77, "weak": 0.5}
    leaked = {"none": 0.9, "strong": 0.5, "weak": 0.1}

    def measure(self: TrialCell, path: Path, observer: Any) -> dict[str, Any]:
        learnt = aucs[self.setting.defense]
        task = {"accuracy": 0.776, "balanced_accuracy": learnt, "auc": learnt}
        leakage = dict.fromkeys(self.attacks, leaked[self.setting.defense])
        return {"accuracy": 0.776, "leakage": leakage, "seconds": 1.0, "scores": {}, "task": task}

    monkeypatch.setattr(TrialCell, "measure", measure)
    monkeypatch.setattr(sweeping, "_commonest", lambda dataset: 0.776)
    monkeypatch.setattr(sweeping, "fitting_score", lambda commonest, classes: fitting(commonest, 2))
    by_auc = Frontier(sweeping.sweep(job, ["strong", "weak"], tmp_path, Budget(1000, Clock())))
    assert by_auc.sweep.score == "auc"
    assert by_auc.recommendation.point is not None
    assert by_auc.recommendation.point.defense == "strong"
    assert "77.6 % of the test rows are of one class" in " ".join(by_auc.warnings)
    assert "0.770" in markdown(by_auc)
    plain = Frontier(sweeping.sweep(job, ["strong", "weak"], tmp_path, Budget(1000, Clock()), score="accuracy"))
    assert plain.recommendation.point is not None
    assert plain.recommendation.point.defense == "weak"
    assert "whoever guesses it has this accuracy" in " ".join(plain.warnings)


def test_the_score_that_fits_the_classes() -> None:
    assert fitting(0.103, 10) == "accuracy"
    assert fitting(0.55, 2) == "accuracy"
    assert fitting(0.776, 2) == "auc"
    assert fitting(0.5, 3) == "balanced_accuracy"


def test_a_needed_budget_is_one_that_is_taken() -> None:
    assert [written_seconds(seconds) for seconds in (0.2, 45, 91, 3600, 5400)] == ["1s", "45s", "2m", "1h", "1h30m"]
    for seconds in (0.2, 45, 91, 3600, 5401):
        assert read_seconds(written_seconds(seconds)) >= seconds


def test_a_trial_that_outruns_the_budget_is_stopped(job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def measure(self: TrialCell, path: Path, observer: Any) -> dict[str, Any]:
        for _ in range(100):
            clock.now += 1
            observer({"event": "step"})
        raise AssertionError("it was not stopped")

    monkeypatch.setattr(TrialCell, "measure", measure)
    with pytest.raises(RunError, match="before a single trial"):
        sweeping.sweep(job, ["strong"], tmp_path, Budget(50, clock))
    assert clock.now < 55


def test_a_defense_that_fails_is_passed_over_and_an_undefended_job_that_fails_is_not(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[TrialCell]
) -> None:
    quick = TrialCell.measure

    def measure(self: TrialCell, path: Path, observer: Any) -> dict[str, Any]:
        if self.setting.defense == failing:
            raise RunError("it fell over")
        return quick(self, path, observer)

    monkeypatch.setattr(TrialCell, "measure", measure)
    failing = "strong"
    found = sweeping.sweep(job, ["strong", "weak"], tmp_path, Budget(1000, Clock()))
    assert all("it fell over" in skipped.why for skipped in found.skipped)
    assert {trial.setting.defense for trial in ran} == {"none", "weak"}
    failing = "none"
    with pytest.raises(RunError, match="fell over"):
        sweeping.sweep(job, ["weak"], tmp_path / "other", Budget(1000, Clock()))


def test_a_trial_lies_under_what_was_asked(job: Any, tmp_path: Path) -> None:
    settings = settings_of("strong", job, (3, 6))
    plain, quick = Attackers(), Attackers(overrides=("epochs=2",))
    places = {plan_trial(setting, seed, job, plain).key for setting in settings for seed in (0, 1)}
    assert len(places) == 2 * len(settings)
    assert plan_trial(settings[0], 0, job, plain).key in places
    # Another attacker reads the same run, unless it needs what crossed, which is not kept.
    assert plan_trial(settings[0], 0, job, quick).key in places
    noisy = settings_of("weak", job, (3,))[0]
    paths = [plan_trial(noisy, 0, job, attackers).key for attackers in (plain, quick)]
    assert paths[0] != paths[1]


def test_a_trial_keeps_the_snapshots_that_are_attacked(job: Any, tmp_path: Path) -> None:
    setting = settings_of("strong", job, (3,))[0]
    assert plan_trial(setting, 0, job, Attackers()).job.checkpoints.moments == (0.0, 0.1, 0.5)
    fewer = plan_trial(setting, 0, job, Attackers(snapshots=(0.0,)))
    assert fewer.job.checkpoints.moments == (0.0,)
    # What an earlier sweep kept has only its last model to attack.
    assert fewer.key != plan_trial(setting, 0, job, Attackers()).key


def test_trials_of_the_last_model_alone_are_called_that(job: Any, ran: list[TrialCell], tmp_path: Path) -> None:
    found = Frontier(sweeping.sweep(job, ["strong"], tmp_path, Budget(1000, Clock())))
    assert any(warning.startswith("Leakage is of the last model only") for warning in found.warnings)
    assert {row["coverage"] for row in frontier_rows(found)} == {"last model"}
    assert "last model only" in markdown(found)


def test_estimates_come_from_ones_own_trials_first() -> None:
    clock = Clock()
    budget = Budget(100, clock)
    assert budget.fits("a")
    budget.took("a", 30)
    budget.took("a", 50)
    budget.took("b", 20)
    assert budget.estimate("a") == 50
    assert budget.estimate("c") == 30
    clock.now = 60
    assert (budget.fits("a"), budget.fits("b")) == (False, True)
    clock.now = 101
    with pytest.raises(OutOfTime):
        budget.check()


def test_a_trial_of_before_is_kept_and_another_attackers_is_not(job: Any, ran: list[TrialCell], tmp_path: Path) -> None:
    """The folder of an earlier version: the digest of a trial and its record are what they were."""
    store, base = TrialStore(tmp_path), load_job({"data": {"name": "digits"}, "model": {"name": "convnet", "cut": 3}})
    trial = plan_trial(settings_of("laplace", base, (3,))[0], 0, base, Attackers())
    folder = tmp_path / "trials" / "e62126bdeb16"
    assert store.work(trial) == folder
    folder.mkdir(parents=True)
    asked = {"auxiliary": 4000, "victims": 2000, "parties": [], "overrides": [], "snapshots": [0.0, 0.1, 0.5]}
    found = {"accuracy": 0.9, "leakage": {"inverse": 0.4}, "seconds": 3.0, "scores": {}, "task": {"accuracy": 0.9}}
    (folder / "trial.json").write_text(json.dumps({"attackers": asked, "found": found}))
    assert trial.result(store) == found
    (folder / "trial.json").write_text(json.dumps({"attackers": {**asked, "victims": 3}, "found": found}))
    assert trial.result(store) is None


def test_every_option_that_the_manual_names_is_there() -> None:
    import typer.main

    from veracausa.cli.main import app

    command = typer.main.get_command(app).commands["frontier"]  # type: ignore[attr-defined]
    known = {name for parameter in command.params for name in parameter.opts}
    manual = Path(__file__).parents[3] / "docs" / "frontier.md"
    shown = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", manual.read_text(encoding="utf-8")))
    assert shown <= known, shown - known
