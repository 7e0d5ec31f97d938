"""Engines that take the work on blocks of rows elsewhere: processes of this machine, or a party's own Dask cluster.

A task holds a party's own rows as integers, and what a peer sent, which is encrypted unless nothing is. It holds no
secret key. Tasks and results cross as pickles between machines of ONE party, which may see its rows anyway. Between
parties there is nothing but the link. A task is a pure function of what it holds, so one that was lost with its worker
is done again and gives the same integers.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Literal, Protocol, TypeVar

from veracausa import errors
from veracausa.crypto.moments.engine import BlockEngine, InPlaceEngine
from veracausa.errors import InputError, RunError, VeracausaError, WireError

Result = TypeVar("Result")
EngineName = Literal["here", "processes", "dask"]
LIVES = 3
"""How often a task is tried whose worker died."""
CONNECT = 10.0
"""Seconds that a scheduler has to answer."""
PATIENCE = 60.0
"""Seconds without any worker after which a run ends."""

Outcome = tuple[bool, Any]
"""Whether a task failed, and its result or the words of its error."""


class ClosingEngine(BlockEngine, Protocol):
    """An engine that holds workers until it is left."""

    def __enter__(self) -> ClosingEngine: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class EngineHere(InPlaceEngine):
    """The party's own thread does all the work."""

    def __enter__(self) -> EngineHere:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return


def make_engine(name: EngineName = "here", workers: int | None = None, scheduler: str | None = None) -> ClosingEngine:
    """The engine of this name; `workers` are processes of this machine, `scheduler` is the address of a Dask one."""
    if name == "processes":
        return ProcessEngine(workers or available_cores())
    if name == "dask":
        return DaskEngine(scheduler)
    return EngineHere()


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def outcome(function: Callable[[Any], Any], task: Any) -> Outcome:
    """What a worker sends back: the result, or the class, field and words of an error. Errors have many forms."""
    try:
        return False, function(task)
    except Exception as error:  # its party must hear of it, whatever it was
        return True, (type(error).__name__, getattr(error, "field", ""), str(error))


def result_of(met: Outcome) -> Any:
    """The result, or the error raised again."""
    failed, result = met
    if failed:
        raise _rebuilt(*result)
    return result


def _rebuilt(kind: str, field: str, message: str) -> VeracausaError:
    if kind == "WireError":
        return WireError(field, message.removeprefix(f"message refused: {field}: "))
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, VeracausaError):
        return known(message)
    return RunError(f"the work on a block failed: {kind}: {message}")


class ProcessEngine:
    """Processes of this machine, each with one thread. A process that dies is started again, and its task with it."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._free: SimpleQueue[_WorkerProcess] = SimpleQueue()
        self._all: list[_WorkerProcess] = []
        self._threads: ThreadPoolExecutor | None = None
        self._closing = False
        self._lock = threading.Lock()

    def map(self, function: Callable[[Any], Result], tasks: Iterable[Any]) -> Iterator[Result]:
        """Each task's result, in the order of the tasks; at most one task more than there are workers is in memory."""
        threads = self._started()
        ahead: deque[Future[Outcome]] = deque()
        try:
            for task in tasks:
                ahead.append(threads.submit(self._done, function, task))
                if len(ahead) > self.workers:
                    yield result_of(ahead.popleft().result())
            while ahead:
                yield result_of(ahead.popleft().result())
        finally:
            for future in ahead:
                future.cancel()

    def _started(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                self._all = [_WorkerProcess() for _ in range(self.workers)]
                for worker in self._all:
                    self._free.put(worker)
                self._threads = ThreadPoolExecutor(self.workers, "blocks")
            return self._threads

    def _done(self, function: Callable[[Any], Any], task: Any) -> Outcome:
        worker = self._free.get()
        try:
            for _ in range(LIVES):
                with suppress(EOFError, OSError):
                    return worker.ask(function, task)
                if self._closing:
                    return True, ("RunError", "", "the engine was left before a block was done")
                worker.restart()
        finally:
            self._free.put(worker)
        raise RunError(f"a process that works on a block ended {LIVES} times; give it more memory, or fewer workers")

    def __enter__(self) -> ProcessEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing = True
        for worker in self._all:
            worker.close()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self._all, self._threads, self._free = [], None, SimpleQueue()
        self._closing = False


class _WorkerProcess:
    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        if hasattr(self, "process"):
            self.close()
        here, there = socket.socketpair()
        # Not by multiprocessing: a party that is itself a child of a run may not have children of that kind.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(there.fileno())],
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        there.close()
        self.pipe = Connection(here.detach())

    def ask(self, function: Callable[[Any], Any], task: Any) -> Outcome:
        self.pipe.send((function, task))
        met: Outcome = self.pipe.recv()
        return met

    def close(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.wait()


def serve(pipe: Connection) -> None:
    """The whole life of a worker: it ends when its party closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its party decides what an interrupt means
    with suppress(EOFError, OSError):
        while True:
            function, task = pipe.recv()
            pipe.send(outcome(function, task))


class DaskEngine:
    """A party's own Dask cluster. Dask gives a task of a lost worker to another one."""

    def __init__(self, scheduler: str | None) -> None:
        if not scheduler:
            raise InputError('runtime.engine = "dask": runtime.scheduler is missing, such as "tcp://10.0.0.5:8786"')
        try:
            from distributed import Client
        except ImportError:
            raise InputError('runtime.engine = "dask": not installed; pip install "veracausa[scale]"') from None
        self.scheduler = scheduler
        try:
            connect: Any = Client
            self._client: Any = connect(scheduler, timeout=CONNECT, set_as_default=False)
        except (OSError, ValueError) as error:
            reason = str(error).split("\n")[0] or type(error).__name__
            raise InputError(
                f"runtime.scheduler = {scheduler!r}: no scheduler answers ({reason}); start one with `dask scheduler`"
            ) from None

    def map(self, function: Callable[[Any], Result], tasks: Iterable[Any]) -> Iterator[Result]:
        """Each task's result, in the order of the tasks; at most twice as many tasks as threads are in memory."""
        import warnings

        ahead: deque[Any] = deque()
        try:
            for task in tasks:
                with warnings.catch_warnings():
                    # A task is megabytes, and stays with the scheduler: that is how it survives its worker.
                    warnings.filterwarnings("ignore", "Sending large graph")
                    ahead.append(self._client.submit(outcome, function, task, pure=False))
                if len(ahead) > 2 * self._threads():
                    yield self._result(ahead.popleft())
            while ahead:
                yield self._result(ahead.popleft())
        finally:
            for future in ahead:
                future.cancel()

    def _threads(self) -> int:
        return max(1, sum(int(worker["nthreads"]) for worker in self._workers().values()))

    def _workers(self) -> dict[str, Any]:
        found: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        return found

    def _result(self, future: Any) -> Any:
        from dask.distributed import TimeoutError as Late
        from distributed.scheduler import KilledWorker

        alone: float | None = None
        while True:
            try:
                met: Outcome = future.result(timeout=1.0)
                return result_of(met)
            except Late:
                if future.done():
                    continue
                alone = None if self._workers() else alone or time.monotonic()
                if alone is not None and time.monotonic() - alone > PATIENCE:
                    raise RunError(
                        f"{self.scheduler}: no worker is left; start one, `dask worker {self.scheduler}`, and resume"
                    ) from None
            except KilledWorker:
                raise RunError(
                    f"{self.scheduler}: a block ended every worker that took it; give workers more memory, or set "
                    "blind.block_rows lower"
                ) from None
            except VeracausaError:
                raise
            except Exception as error:
                raise RunError(f"{self.scheduler}: the cluster failed: {type(error).__name__}: {error}") from error

    def __enter__(self) -> DaskEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.close()


if __name__ == "__main__":
    # Classes of `__main__` have no home that the party could find: what is sent must come from the module itself.
    from veracausa.crypto.moments import engines

    engines.serve(Connection(int(sys.argv[1])))
