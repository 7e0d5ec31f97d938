"""Do residuals depend on the causes? A test of additive noise, the assumption that directions rest on (E.2 of VFedCD).

If an effect is a function of its causes and noise that knows nothing of them, the residuals of a good regression are
independent of the causes. Where noise is multiplied, a cause is missing or an edge points the wrong way, they usually
are not. So a rejection says that the graph or the assumption is wrong. No rejection says little: a straight line with
normal noise has independent residuals both ways.

The regression is a Gaussian process of all causes together, whatever found the graph, and the test is HSIC. Both need
rows in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from veracausa.arrays import Array, Mask
from veracausa.events import ProgressCallback
from veracausa.metrics.independence import hsic
from veracausa.seeding import derive

LEVEL = 0.01
"""Of all tests of a graph together: of true graphs with added noise one in a hundred has a warning, or fewer."""
FIT_ROWS = 1000
"""Of more rows a sample is regressed on, and of these TEST_ROWS are tested."""
TEST_ROWS = 400
FEWEST = 100
"""With fewer rows the regression follows the noise."""
MOST_COLUMNS = 100
"""Of more columns with causes the first so many are tested."""
MOST_CAUSES = 20
"""A kernel over more columns at once sees nothing."""
NAMED = 6
NOT_HERE = (
    "residuals were not tested against causes: rows are in no one place, and a test would have to open them to somebody"
)
"""Of every discovery between parties."""


@dataclass(frozen=True)
class ResidualTest:
    """What became of one column: a chance, or why there is none."""

    column: str
    causes: tuple[str, ...]
    p_value: float | None = None
    """How likely independent residuals depend on the causes as much as these do."""
    rejected: bool = False
    """At LEVEL over all columns together (Bonferroni)."""
    why_not: str | None = None

    def record(self) -> dict[str, Any]:
        """For `summary.json`."""
        p_value = None if self.p_value is None else float(f"{self.p_value:.3g}")
        told = {"causes": list(self.causes), "p_value": p_value, "rejected": self.rejected}
        return told | ({} if self.why_not is None else {"not_tested": self.why_not})


def residual_tests(
    values: Array,
    names: Sequence[str],
    graph: Mask,
    seed: int,
    nominal: Sequence[str] = (),
    time_is_up: Callable[[], bool] = lambda: False,
    progress: ProgressCallback = lambda share: None,
) -> list[ResidualTest]:
    """A test of every column that has causes in the graph; rows with a gap in it or its causes take no part in it."""
    found: list[ResidualTest] = []
    tried = 0
    effects = np.flatnonzero(graph.any(axis=0)).tolist()
    for done, effect in enumerate(effects):
        progress(done / len(effects))
        causes = np.flatnonzero(graph[:, effect]).tolist()
        named = names[effect], tuple(names[at] for at in causes)
        rows = values[np.isfinite(values[:, [effect, *causes]]).all(axis=1)]
        why_not = _unsuited(rows, names, effect, causes, nominal)
        if why_not is None and (tried == MOST_COLUMNS or time_is_up()):
            why_not = "there was no time for it" if time_is_up() else f"{MOST_COLUMNS} others were tested"
        if why_not is not None:
            found.append(ResidualTest(*named, why_not=why_not))
            continue
        tried += 1
        rng = np.random.default_rng(derive(seed, "discovery", "residuals", effect))
        found.append(
            ResidualTest(*named, p_value=_p_value(rows, effect, causes, rng, [names.index(n) for n in nominal]))
        )
    progress(1.0)
    tested = sum(one.p_value is not None for one in found)
    return [
        one if one.p_value is None else ResidualTest(one.column, one.causes, one.p_value, one.p_value * tested < LEVEL)
        for one in found
    ]


def _unsuited(rows: Array, names: Sequence[str], effect: int, causes: list[int], nominal: Sequence[str]) -> str | None:
    """Why this column is not tested; None: it is."""
    if names[effect] in nominal:
        return "it has categories"
    if len(rows) < FEWEST:
        return f"{len(rows)} rows are too few"
    if len(np.unique(rows[:, effect])) <= 2:
        return "it has two values, and noise is not added to these"
    if len(causes) > MOST_CAUSES:
        return f"{len(causes)} causes are too many to test together"
    return None


def _p_value(rows: Array, effect: int, causes: list[int], rng: np.random.Generator, nominal: list[int]) -> float:
    from veracausa.discovery.gaussian_processes import process_residuals

    rows = rows[np.sort(rng.permutation(len(rows))[:FIT_ROWS])]
    inputs = np.column_stack([_coded(rows[:, at], at in nominal) for at in causes])
    residuals, inputs = process_residuals(rows[:, effect], inputs, rng)
    tested = np.sort(rng.permutation(len(rows))[:TEST_ROWS])
    return hsic(residuals[tested, None], inputs[tested])[1]


def _coded(column: Array, categories: bool) -> Array:
    """(n, any): a number, or a column for each category but one."""
    if not categories:
        return column[:, None]
    kinds = np.unique(column)
    return np.asarray(column[:, None] == kinds[: max(1, len(kinds) - 1)], dtype=float)


def rejections(tests: Sequence[ResidualTest]) -> tuple[str, ...]:
    """What a rejection says against the graph, in words; nothing where nothing was rejected."""
    rejected = [one for one in tests if one.rejected]
    if not rejected:
        return ()
    tested = sum(one.p_value is not None for one in tests)
    shown = sorted(rejected, key=lambda one: one.p_value or 0.0)[:NAMED]
    listed = ", ".join(f"{one.column} (p = {_chance(one.p_value)})" for one in shown)
    more = f" and {len(rejected) - NAMED} more" if len(rejected) > NAMED else ""
    return (
        f"residuals depend on the causes in {len(rejected)} of {tested} tested columns: {listed}{more}; noise is not "
        "added there (it may be multiplied), a cause is missing, or an edge points the wrong way: do not trust "
        "directions at these columns",
    )


def _chance(p_value: float | None) -> str:
    return "?" if p_value is None else "below 0.0001" if p_value < 1e-4 else f"{p_value:.2g}"


def summary_of(tests: Sequence[ResidualTest] | None) -> dict[str, Any]:
    """For `summary.json`; None: rows were in no one place."""
    if tests is None:
        return {"computed": False, "why": NOT_HERE}
    return {"computed": True, "level": LEVEL, "columns": {one.column: one.record() for one in tests}}
