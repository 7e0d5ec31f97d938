"""The bench times every defense, puts forward and backward where they belong, and says what it only reckons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from veracausa.bench.causshield import run
from veracausa.bench.rows import Row, print_rows, write_rows
from veracausa.defenses import defenses
from veracausa.defenses.base import Context, Defense
from veracausa.errors import InputError
from veracausa.experiments import defense_times as bench
from veracausa.experiments.defense_times import OFFLINE, VARIANTS, Effort, Variant, defense_rows, variants_of
from veracausa.registry import Options
from veracausa.testing.synthetic import BATCH, toy_data, toy_job

SHORT = Effort(repeats=1, warm_up=0, enough=0.0, rows=2, offline_rows=4, long=False)
PLAIN = 1.0


class Clock:
    """Time that passes only where somebody says so: a busy machine must not decide a test."""

    now = 0.0

    def perf_counter(self) -> float:
        return Clock.now


class Sleeps(Defense):
    """Takes its time: in forward an eighth of a second a row, in backward two seconds."""

    def protect(self, r: torch.Tensor, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        Clock.now += len(r) / 8
        return r

    def backward(self, context: Context, grad: torch.Tensor, local_steps: int = 1) -> None:
        Clock.now += 2
        super().backward(context, grad, local_steps)


class Adapts(Defense):
    """Six seconds at the first exchange of an epoch."""

    adapted_epoch = -1

    def protect(self, r: torch.Tensor, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        Clock.now += 6 if self.adapted_epoch < 0 else 0
        self.adapted_epoch = 0
        return r


class Prepares(Defense):
    def prepare(self, data: Any, progress: Any = None) -> None:
        Clock.now += 5 + 0.5 * len(data)


@pytest.fixture
def sleepy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(bench, "time", Clock())
    usual = Defense.forward

    def forward(self: Defense, x: torch.Tensor, ids: torch.Tensor, step: int) -> Any:
        Clock.now += PLAIN
        return usual(self, x, ids, step)

    monkeypatch.setattr(Defense, "forward", forward)
    defenses.names()
    defenses.register("sleeps", Options)(Sleeps)
    defenses.register("prepares", Options)(Prepares)
    defenses.register("adapts", Options)(Adapts)
    yield
    for name in ("sleeps", "prepares", "adapts"):
        del defenses._entries[name]


def rows_for(*names: str, effort: Effort = SHORT) -> list[Row]:
    return defense_rows(toy_job("colour pictures", {"name": "none"}), toy_data("colour pictures"), effort, names)


def test_the_time_is_put_where_it_was_taken(sleepy: None) -> None:
    (row,) = rows_for("sleeps")
    assert (row.against, row.against_seconds) == ("no defense", PLAIN)
    assert row.extra["extra forward ms"] == 2000
    assert row.extra["extra backward ms"] == 2000
    assert row.seconds == PLAIN + 4
    assert row.extra["extra s an epoch"] == 3 * 4  # 40 rows in batches of 16


def test_a_batch_reckoned_from_a_few_rows_says_so(sleepy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "VARIANTS", {"sleeps": {"slow": Variant(rows=True)}})
    (row,) = rows_for("sleeps")
    assert f"reckoned from 2 of {BATCH} rows" in row.case
    assert row.extra["extra forward ms"] == 2000
    assert row.extra["extra backward ms"] == 0


def test_what_is_done_once_an_epoch_falls_on_all_its_exchanges(sleepy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "VARIANTS", {"adapts": {"": Variant(once_an_epoch=True)}})
    (row,) = rows_for("adapts")
    assert row.extra["once an epoch ms"] == 6000
    assert row.extra["extra forward ms"] == 6000 / 3
    assert row.extra["extra s an epoch"] == 6


def test_what_is_made_once_is_reckoned_for_all_rows_and_epochs(sleepy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "OFFLINE", {"prepares": {"something": bench.Once({}, 3)}})
    *_, row = rows_for("prepares")
    assert row.case == "once: prepares, something, 40 rows (reckoned from 8)"
    assert row.seconds == 3 * (5 + 0.5 * 40)
    assert row.against_seconds == 3 * PLAIN


def test_every_way_to_run_a_defense_is_one_it_knows() -> None:
    assert set(VARIANTS) | set(OFFLINE) <= set(defenses.names())
    for name in defenses.names():
        for variant in variants_of(name).values():
            defenses.options(name).model_validate({"name": name, **variant.settings})
        for once in OFFLINE.get(name, {}).values():
            defenses.options(name).model_validate({"name": name, **once.settings})
    assert {"estimated", "exact"} <= set(VARIANTS["soteria"])
    assert {"one product", "SVD"} <= set(VARIANTS["invl_enp"])


@pytest.mark.slow
def test_every_registered_defense_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "OFFLINE", {})
    found = rows_for(*defenses.names())
    for name in defenses.names():
        assert name == "none" or any(row.case.startswith(f"defense {name}") for row in found), name
    assert all(row.seconds >= row.against_seconds > 0 for row in found)


def test_an_unknown_defense_is_refused_before_anything_is_timed() -> None:
    with pytest.raises(InputError, match="soteria"):
        run(names=["sotera"])


def test_tables_hold_only_columns_that_have_something_to_say(tmp_path: Any, capsys: Any) -> None:
    rows = [Row("a", 2.0, "b", 1.0), Row("c", 3.0, "b", 1.0, {"extra forward ms": 5.0})]
    write_rows("toy", rows, tmp_path)
    first, second = (tmp_path / "toy.md").read_text(encoding="utf-8").split("\n\n")[1:3]
    assert "extra forward" not in first
    assert "extra forward ms" in second
    print_rows("toy", rows, json=True)
    assert capsys.readouterr().out.count("\n") == 1
