"""What a sweep leaves in its folder: `frontier.csv`, `.parquet`, `.md` and `.html`, and the same for a terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from veracausa.audit.snapshots import WHOLE
from veracausa.audit.verdict import WORKS_FROM
from veracausa.experiments.frontier.budget import written_budget
from veracausa.experiments.frontier.matched import Matched, compare_at
from veracausa.experiments.frontier.pareto import (
    FrontierPoint,
    equal_trials,
    pareto_front,
    points_of,
    trials_by_defense,
)
from veracausa.experiments.frontier.plan import Setting
from veracausa.experiments.frontier.recommend import (
    SCORES,
    Constraint,
    Recommendation,
    nothing_to_compare,
    recommend,
    snippet,
    written_score,
)
from veracausa.experiments.frontier.sweep import UNDEFENDED, Sweep
from veracausa.experiments.frontier.trial import SCORES as ATTACK_SCORES
from veracausa.experiments.frontier.trial import TASK_SCORES, TrialResult
from veracausa.metrics.advantage import is_unbalanced
from veracausa.runs.atomic import atomic_write, safe


@dataclass(frozen=True)
class Frontier:
    """A sweep as it is shown: points, front, the comparison at the wish, the recommendation, and what to be wary of."""

    sweep: Sweep
    wanted: Constraint | None = None
    quick: bool = False

    @cached_property
    def points(self) -> list[FrontierPoint]:
        """By defense, in the order they were tried, the most accurate setting of each first."""
        points = points_of(self.sweep.trials)
        order = list(dict.fromkeys(point.defense for point in points))
        return sorted(points, key=lambda point: (order.index(point.defense), -point.accuracy))

    @cached_property
    def front(self) -> list[FrontierPoint]:
        return pareto_front(self.points)

    @cached_property
    def wish(self) -> Constraint:
        """What was asked for; else within two points of the job undefended, at its own cut where that was tried."""
        if self.wanted is not None:
            return self.wanted
        sweep = self.sweep
        undefended = [tried for tried in sweep.tried if tried.setting.defense == UNDEFENDED]
        own = [tried.score(sweep.score) for tried in undefended if tried.setting.cut == sweep.job.model.cut]
        scores = own or [tried.score(sweep.score) for tried in undefended]
        return Constraint.near(sum(scores) / len(scores), sweep.score)

    @cached_property
    def matched(self) -> dict[str, Matched]:
        """Every defense at the wish, by interpolation between what was measured; the best first."""
        return compare_at(self.points, accuracy=self.wish.accuracy, leakage=self.wish.leakage)

    @cached_property
    def recommendation(self) -> Recommendation:
        sweep = self.sweep
        if all(point.defense == UNDEFENDED for point in self.points):
            needed = written_budget(sweep.seconds_of_a_first_round)
            return nothing_to_compare(len(sweep.named), len(sweep.able), written_budget(sweep.budget), needed)
        return recommend(self.points, self.wish)

    @cached_property
    def snippet(self) -> str | None:
        """The recommended setting as TOML."""
        point = self.recommendation.point
        return None if point is None else snippet(self.setting_of(point), self.sweep.job)

    def setting_of(self, point: FrontierPoint) -> Setting:
        several = len(self.sweep.cuts) > 1
        return next(
            tried.setting
            for tried in self.sweep.tried
            if (tried.setting.defense, tried.setting.written(several)) == (point.defense, point.setting)
        )

    @cached_property
    def warnings(self) -> list[str]:
        """What a reader must know before trusting the figures."""
        sweep, said = self.sweep, []
        unread = [
            tried.setting.written(len(sweep.cuts) > 1)
            for tried in sweep.tried
            if tried.setting.defense == UNDEFENDED and not _read(tried)
        ]
        if unread:
            where = " and ".join(dict.fromkeys(setting for setting in unread if setting))
            said.append(
                f"These attacks read nothing even without a defense{f' ({where})' if where else ''}: "
                "low leakage there says nothing about a defense."
            )
        said += self._not_attacked()
        if self.quick:
            said.append("Quick: weaker attackers. What they could not read, others may; do not compare these figures.")
        tuned = {
            name: count
            for name, count in trials_by_defense(sweep.trials).items()
            if any(tried.setting.values for tried in sweep.tried if tried.setting.defense == name)
        }
        untuned = set(trials_by_defense(sweep.trials)) - set(tuned)
        if not equal_trials(sweep.trials, untuned):
            counts = ", ".join(f"{name} {count}" for name, count in tuned.items())
            said.append(f"Not every defense was tried equally often ({counts}): more trials alone look better.")
        if sweep.score != "accuracy":
            common = f"{100 * sweep.commonest:.1f} % of the test rows are of one class"
            said.append(f"{common}, so defenses are weighed by {SCORES[sweep.score]}, not by accuracy.")
        elif is_unbalanced(sweep.commonest, sweep.classes):
            common = f"{100 * sweep.commonest:.1f} % of the test rows are of one class"
            said.append(f"{common}: whoever guesses it has this accuracy. --score auc or balanced_accuracy says more.")
        if max(point.seeds for point in self.points) == 1:
            said.append("One seed: a difference of a point or two may be chance.")
        if not sweep.complete:
            said.append("The time was up before everything planned was tried; --resume with more goes on from here.")
        return said

    def _not_attacked(self) -> list[str]:
        """What the leakage is not of: earlier snapshots, other parties."""
        said, sweep = [], self.sweep
        partly = sum(tried.coverage != WHOLE for tried in sweep.tried)
        if partly:
            whose = "Leakage" if partly == len(sweep.tried) else f"The leakage of {partly} of {len(sweep.tried)} trials"
            said.append(f"{whose} is of the last model only: what crossed earlier in the training may tell more.")
        left_out = [party for party in sweep.job.parties.passive if party not in (sweep.attackers.parties or (party,))]
        if left_out:
            said.append(f"Not attacked: {', '.join(left_out)}.")
        return said

    @property
    def passed(self) -> dict[str, list[str]]:
        """Why settings were not tried -> which."""
        reasons: dict[str, list[str]] = {}
        for passed in self.sweep.passed:
            words = passed.setting.written(len(self.sweep.cuts) > 1)
            reasons.setdefault(passed.why, []).append(f"{passed.setting.defense} {words}".strip())
        return reasons

    @property
    def tried_equally(self) -> str:
        """How many settings each defense got, in words."""
        counts = {n: c for n, c in trials_by_defense(self.sweep.trials).items() if n != UNDEFENDED}
        if not counts:
            return "no defense tried"
        if len(set(counts.values())) == 1:
            count = next(iter(counts.values()))
            return f"{count} setting{'' if count == 1 else 's'} of every defense tried"
        return "settings tried: " + ", ".join(f"{name} {count}" for name, count in counts.items())


def frontier_rows(frontier: Frontier) -> list[dict[str, Any]]:
    """A row a trial, as the CSV and Parquet files hold it."""
    several = len(frontier.sweep.cuts) > 1
    front = {(point.defense, point.setting) for point in frontier.front}
    rows = []
    for tried in frontier.sweep.tried:
        trial = tried.trial(several)
        rows.append(
            {
                "defense": trial.defense,
                "setting": trial.setting,
                "cut": tried.setting.cut,
                "seed": trial.seed,
                "accuracy": tried.accuracy,
                **{name: tried.task.get(name) for name in TASK_SCORES if name != "accuracy"},
                "leakage": trial.leakage[trial.strongest],
                "strongest": trial.strongest,
                "coverage": tried.coverage,
                "party": tried.party,
                "when": tried.at,
                "leakage_last_model": tried.end_leakage,
                **{f"leakage_{name}": trial.leakage.get(name) for name in ("inverse", "averaging")},
                **{name: tried.scores.get(name) for name in ATTACK_SCORES},
                "front": (trial.defense, trial.setting) in front,
                "seconds": tried.seconds,
                "run": f"trials/{tried.run.name}",
            }
        )
    return rows


def write_frontier(frontier: Frontier, out: Path) -> Path:
    """Write tables and page into the folder, and return the page's path."""
    import polars as pl

    from veracausa.experiments.frontier.page import write_page

    rows = frontier_rows(frontier)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: safe(value) for name, value in row.items()} for row in rows)
    atomic_write(out / "frontier.csv", text.getvalue().encode())
    file = io.BytesIO()
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(file)
    atomic_write(out / "frontier.parquet", file.getvalue())
    atomic_write(out / "frontier.md", markdown(frontier).encode())
    return write_page(frontier, out)


def as_json(frontier: Frontier) -> dict[str, Any]:
    """What a program may want to know."""
    chosen = frontier.recommendation.point
    return {
        "trials": frontier_rows(frontier),
        "score": frontier.sweep.score,
        "wish": {frontier.sweep.score: frontier.wish.accuracy, "leakage": frontier.wish.leakage},
        "matched": {
            name: {"value": found.value, "bound": found.bound, "spread": found.spread}
            for name, found in frontier.matched.items()
        },
        "recommendation": {
            "sentence": f"{frontier.recommendation.sentence} {frontier.recommendation.why}",
            "defense": None if chosen is None else frontier.setting_of(chosen).options.model_dump(mode="json"),
            "cut": None if chosen is None else frontier.setting_of(chosen).cut,
            "toml": frontier.snippet,
        },
        "passed": {", ".join(which): why for why, which in frontier.passed.items()},
        "warnings": frontier.warnings,
        "complete": frontier.sweep.complete,
        "seconds": frontier.sweep.seconds,
    }


def cells_of(point: FrontierPoint, frontier: Frontier) -> list[str]:
    """A point under `TITLES`."""
    name = defense_name(point.defense)
    accuracy = _score(point, frontier.sweep.score)
    leaked = _percent(point.leakage, point.leakage_spread)
    return [name, point.setting, accuracy, leaked, point.attack, "front" if point in frontier.front else ""]


def titles(frontier: Frontier) -> tuple[str, ...]:
    """Of the table of points."""
    return ("defense", "setting", SCORES[frontier.sweep.score], "leakage", "strongest attack", "note")


def matched_title(wish: Constraint) -> tuple[str, str]:
    """What the comparison holds equal, and what it compares."""
    if wish.accuracy is not None:
        return f"at {SCORES[wish.score]} {written_score(wish.accuracy, wish.score)}", "leakage, %"
    return f"at leakage {100 * (wish.leakage or 0):.1f} %", f"{SCORES[wish.score]}, in hundredths"


def markdown(frontier: Frontier) -> str:
    """The whole result as a page of Markdown."""
    at, what = matched_title(frontier.wish)
    advice = frontier.recommendation
    lines = ["# Accuracy against leakage", "", f"{advice.sentence} {advice.why}", ""]
    if frontier.snippet:
        lines += ["```toml", frontier.snippet.rstrip(), "```", ""]
    lines += [f"- {warning}" for warning in frontier.warnings]
    lines += ["", *_table(titles(frontier), [cells_of(point, frontier) for point in frontier.points])]
    lines += ["", f"Every defense {at}, straight between measured points of its own front, never beyond them:", ""]
    matched = [[defense_name(name), found.written()] for name, found in frontier.matched.items()]
    lines += _table(("defense", what), matched)
    if frontier.passed:
        lines += ["", "Not tried:", ""]
        lines += [f"- {', '.join(which)}: {why}" for why, which in frontier.passed.items()]
    lines += ["", f"{frontier.tried_equally.capitalize()}. {EXPLAINED}", ""]
    return "\n".join(lines)


EXPLAINED = (
    "Leakage is the most that the strongest of the attacks tried reads of training rows, of any party attacked, at any "
    "snapshot of the training attacked: 0 % is no more than a guess without the payload, 100 % a perfect copy. A low "
    "figure says that these attacks failed, not that others must."
)


def _read(undefended: TrialResult) -> bool:
    """Whether the attacks of an undefended trial read something; older records only have how much."""
    return max(undefended.leakage.values()) >= WORKS_FROM if undefended.works is None else undefended.works


def defense_name(defense: str) -> str:
    """As a table shows it."""
    return "undefended" if defense == UNDEFENDED else defense


def _score(point: FrontierPoint, score: str) -> str:
    if score != "auc":
        return _percent(point.accuracy, point.accuracy_spread)
    return f"{point.accuracy:.3f} ± {point.accuracy_spread:.3f}" if point.accuracy_spread else f"{point.accuracy:.3f}"


def _percent(value: float, spread: float) -> str:
    return f"{100 * value:.1f} ± {100 * spread:.1f} %" if spread else f"{100 * value:.1f} %"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (titles, ["---"] * len(titles), *rows)]
