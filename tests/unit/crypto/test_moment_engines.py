"""Work on blocks that is done elsewhere gives the integers of the work in place, also where a worker dies half-way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moment_runs import Run, plan_of, rows_of
from veracausa.crypto.moments import cut, moments_of
from veracausa.crypto.moments.engines import DaskEngine, EngineHere, ProcessEngine, make_engine
from veracausa.errors import InputError, RunError, WireError

ENCRYPTIONS = ["none", pytest.param("bfv", marks=pytest.mark.skipif(not find_spec("seal"), reason="needs seal"))]


def assert_same_integers(engine: Any, encryption: str, rows: int = 700) -> None:
    plan = plan_of((3, 4, 2), rows, encryption, block_rows=128)
    own = rows_of(plan)
    opened = Run(plan, own).start(engine=engine)
    expected = moments_of({party: cut(own[party], plan.block_rows) for party in plan.parties}, plan)
    assert opened is not None
    assert np.array_equal(opened.integers, expected.integers)


def double(task: int) -> int:
    return 2 * task


def pid(task: int) -> int:
    return os.getpid()


def dies_once(path: str) -> str:
    """The first worker that takes the task is killed while it works on it."""
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return path


def always_dies(task: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return task


def refuses(task: str) -> str:
    if task == "wire":
        raise WireError("moment_query.rows", "holds a number that is too large")
    if task == "input":
        raise InputError("data.path: no such file; correct it")
    raise ZeroDivisionError("by nothing")


def ended(process: int) -> bool:
    """Whether it is gone, or dead and not yet buried by whoever started it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def wait_until(done: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def two() -> Iterator[ProcessEngine]:
    with make_engine("processes", 2) as engine:
        assert isinstance(engine, ProcessEngine)
        yield engine


@pytest.mark.parametrize("encryption", ENCRYPTIONS)
def test_processes_give_the_integers_of_one_place(two: ProcessEngine, encryption: str) -> None:
    assert_same_integers(EngineHere(), encryption)
    assert_same_integers(two, encryption)


def test_results_come_in_order_and_tasks_are_taken_as_needed(two: ProcessEngine) -> None:
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for number in range(50):
            taken.append(number)
            yield number

    results = two.map(double, tasks())
    assert next(results) == 0
    # A block is in memory only if a worker has it, or will have it next.
    assert len(taken) <= 3
    assert list(results) == [2 * number for number in range(1, 50)]
    assert len(set(two.map(pid, range(50)))) == 2


@pytest.mark.slow
def test_a_task_survives_its_worker(two: ProcessEngine, tmp_path: Path) -> None:
    paths = [str(tmp_path / str(number)) for number in range(4)]
    assert list(two.map(dies_once, paths)) == paths


@pytest.mark.slow
def test_a_task_that_ends_every_worker_ends_the_run(two: ProcessEngine) -> None:
    with pytest.raises(RunError, match="ended 3 times"):
        list(two.map(always_dies, [1]))
    assert list(two.map(double, [4])) == [8]


def test_errors_come_back_as_they_were(two: ProcessEngine) -> None:
    with pytest.raises(WireError) as refused:
        list(two.map(refuses, ["wire"]))
    assert (refused.value.field, str(refused.value)) == (
        "moment_query.rows",
        "message refused: moment_query.rows: holds a number that is too large",
    )
    with pytest.raises(InputError, match=r"data.path: no such file; correct it"):
        list(two.map(refuses, ["input"]))
    with pytest.raises(RunError, match="ZeroDivisionError: by nothing"):
        list(two.map(refuses, ["other"]))


@pytest.mark.slow
def test_workers_end_with_the_engine_and_with_their_party(tmp_path: Path) -> None:
    with ProcessEngine(2) as engine:
        workers = set(engine.map(pid, range(20)))
    assert all(ended(worker) for worker in workers)
    assert list(engine.map(double, [3])) == [6]  # left, it can be entered again
    engine.__exit__(None, None, None)
    party = f"""
import sys, time
sys.path[:0] = {sys.path!r}
from veracausa.crypto.moments.engines import ProcessEngine
engine = ProcessEngine(1)
list(engine.map(abs, [1]))
print(engine._all[0].process.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", party], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        assert not ended(worker)
        process.kill()
    wait_until(lambda: ended(worker))


def test_what_is_missing_is_said() -> None:
    assert isinstance(make_engine(), EngineHere)
    with pytest.raises(InputError, match=r"runtime\.scheduler is missing"):
        make_engine("dask")


class Interfering(DaskEngine):
    """Does something to the cluster after some results."""

    after, do = 0, staticmethod(lambda: None)

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        for result in super().map(function, tasks):
            self.after -= 1
            if self.after == 0:
                self.do()
            yield result


@contextmanager
def cluster(workers: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and its workers as a user starts them."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    dask = [sys.executable, "-m", "dask"]
    started: list[subprocess.Popen[bytes]] = []
    file = Path(os.environ.get("TMPDIR", "/tmp")) / f"veracausa-scheduler-{os.getpid()}.json"
    try:
        started.append(
            subprocess.Popen(
                [*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file],
                **quiet,
            )
        )
        wait_until(file.exists, 60)
        address = json.loads(file.read_text())["address"]
        started += [
            subprocess.Popen([*dask, "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"], **quiet)
            for _ in range(workers)
        ]
        yield address, started[1:]
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()
        with suppress(OSError):
            file.unlink()


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("distributed"), reason="needs distributed")
def test_a_cluster_gives_the_same_integers_while_it_loses_a_worker() -> None:
    with cluster(2) as (address, workers), Interfering(address) as engine:
        engine._client.wait_for_workers(2, timeout=60)
        assert list(engine.map(double, range(20))) == [2 * number for number in range(20)]
        assert len(set(engine.map(pid, range(20)))) == 2
        with pytest.raises(WireError, match="too large"):
            list(engine.map(refuses, ["wire"]))
        engine.after, engine.do = 3, workers[0].kill
        for encryption in ("none", *(["bfv"] if find_spec("seal") else [])):
            assert_same_integers(engine, encryption, rows=1000)
        assert workers[0].poll() is not None
        assert set(engine.map(pid, range(6))) == {workers[1].pid}


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("distributed"), reason="needs distributed")
def test_a_cluster_without_workers_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veracausa.crypto.moments.engines.PATIENCE", 1.0)
    missing = pytest.raises(RunError, match="no worker is left; start one, `dask worker tcp://")
    with cluster(0) as (address, _), DaskEngine(address) as engine, missing:
        list(engine.map(double, [1]))


@pytest.mark.skipif(not find_spec("distributed"), reason="needs distributed")
def test_a_scheduler_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veracausa.crypto.moments.engines.CONNECT", 1.0)
    with pytest.raises(InputError, match=r"runtime.scheduler = 'tcp://127.0.0.1:9': no scheduler answers"):
        make_engine("dask", scheduler="tcp://127.0.0.1:9")
