"""Settings and scores of a run for TensorBoard and MLflow: observers of its events. Both are extras.

What is told is named here: a few settings of the job, scores of epochs and of the end, what attacks read, bytes and
seconds. Names of parties and columns, paths, ids, rows, payloads and keys are never told.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from veracausa.errors import InputError
from veracausa.escaping import escaped
from veracausa.events import Event
from veracausa.registry import did_you_mean
from veracausa.runs.record import RunRecord, mapping, number, numbers, read_run

_log = logging.getLogger(__name__)

SETTINGS = (
    *("name", "kind", "seed", "method", "data.name", "model.name", "model.cut", "defense.name", "features.name"),
    *("training.protocol", "training.epochs", "training.batch_size", "training.class_weights"),
    *("training.optimizer.name", "training.optimizer.lr", "training.schedule.name"),
    *("blind.encryption", "blind.epsilon", "blind.labels", "blind.ridge"),
    *("runtime.precision", "settings.engine", "settings.encryption", "settings.epsilon", "settings.bootstrap"),
)
"""What is told of a job. All else stays out, and so does whatever a later version may add."""
AT_THE_END = (
    *("seconds", "rounds", "bytes_sent", "edges", "attributes", "rows", "shd", "f1", "skeleton_f1", "partial_f1"),
    "held_out_log_likelihood",
)
EXPERIMENT = "veracausa"
LONGEST = 250


class ScoreStore(Protocol):
    """Where settings and scores go."""

    def begin(self, name: str, folder: Path) -> None: ...

    def settings(self, told: Mapping[str, str]) -> None: ...

    def score(self, name: str, value: float, step: int) -> None: ...

    def end(self, done: bool) -> None: ...


class TensorBoardScores:
    """Event files in the folder `tensorboard` of the run: `tensorboard --logdir runs` shows all runs."""

    def __init__(self) -> None:
        from tensorboard.summary import Writer

        self._make = Writer
        self._writer: Any = None

    def begin(self, name: str, folder: Path) -> None:
        self._writer = self._make(str(folder / "tensorboard"))

    def settings(self, told: Mapping[str, str]) -> None:
        """Settings are in the run's config.toml, beside the event files."""

    def score(self, name: str, value: float, step: int) -> None:
        self._writer.add_scalar(name, value, step)

    def end(self, done: bool) -> None:
        if self._writer is not None:
            self._writer.close()


class MlflowScores:
    """A run in MLflow's store: where MLFLOW_TRACKING_URI says, else `mlflow.db` in the working folder.

    The experiment is MLFLOW_EXPERIMENT_NAME, else `veracausa`. MLflow's own reports of how it is used are turned off,
    unless the user has set MLFLOW_DISABLE_TELEMETRY.
    """

    def __init__(self) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.tracking import MlflowClient

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        try:
            self._client = MlflowClient()
            found = self._client.get_experiment_by_name(name)
            self._experiment = found.experiment_id if found is not None else self._client.create_experiment(name)
        except Exception as error:  # a server, a database or a file system: each has errors of its own
            raise InputError(
                f"--track mlflow: its store cannot be opened ({_first_line(error)}); correct MLFLOW_TRACKING_URI"
            ) from None
        self._run = ""

    def begin(self, name: str, folder: Path) -> None:
        self._run = self._client.create_run(self._experiment, run_name=name).info.run_id

    def settings(self, told: Mapping[str, str]) -> None:
        for name, value in told.items():
            self._client.log_param(self._run, name, value)

    def score(self, name: str, value: float, step: int) -> None:
        self._client.log_metric(self._run, name, value, step=step)

    def end(self, done: bool) -> None:
        if self._run:
            self._client.set_terminated(self._run, "FINISHED" if done else "FAILED")


STORES: Mapping[str, Callable[[], ScoreStore]] = {"tensorboard": TensorBoardScores, "mlflow": MlflowScores}


class Tracker(AbstractContextManager["Tracker"]):
    """Hears the events of a run and tells a store of it; give it as `observer`, in a `with` block.

    A store that fails is told once in the log, and the run goes on without it.
    """

    def __init__(self, name: str, store: ScoreStore, folder: Path | None = None) -> None:
        self.name, self._store, self._folder = name, store, folder
        self._begun = self._failed = False
        self._step = 0
        if folder is not None:
            self._safely(self._begin)

    def __call__(self, event: Event) -> None:
        """Take note of an event. Those that it does not know change nothing."""
        match event["event"]:
            case "folder" if self._folder is None:
                self._folder = Path(event["path"])
            case "epoch":
                self._safely(lambda: self._epoch(event))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            self._safely(lambda: self._last(kind is None))

    def _begin(self) -> None:
        """Begin as late as possible: a run that is refused leaves nothing in the store."""
        if not self._begun and self._folder is not None:
            self._begun = True
            self._store.begin(escaped(self._folder.name)[:LONGEST], self._folder)
            self._store.settings(settings_told(self._folder))

    def _epoch(self, event: Event) -> None:
        self._begin()
        before = "baseline/" if event.get("baseline") else ""
        epoch = int(number(event.get("epoch")) or 0)
        for split in ("train", "validation", "test"):
            for name, value in numbers(dict(mapping(event.get(split)))).items():
                self._store.score(f"{before}{split}/{name}", value, epoch)
        self._step = max(self._step, epoch)

    def _last(self, done: bool) -> None:
        assert self._folder is not None
        if not (self._folder / "config.toml").is_file():
            return
        self._begin()
        if done:
            for name, value in scores_at_the_end(read_run(self._folder)):
                self._store.score(name, value, self._step)
        self._store.end(done)

    def _safely(self, tell: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            tell()
        except Exception as error:  # whatever a store does, the run is worth more
            self._failed = True
            _log.warning(
                "--track %s: failed and was given up (%s); the run goes on without it", self.name, _first_line(error)
            )


def track(name: str, folder: str | Path | None = None) -> Tracker:
    """An observer that tells TensorBoard or MLflow the scores of a run.

    name: `tensorboard` or `mlflow`, each an extra of veracausa.
    folder: the run's, where no event will name it.

    >>> with veracausa.track("mlflow") as observer:  # doctest: +SKIP
    ...     run = veracausa.train("job.toml", observer=observer)
    """
    if name not in STORES:
        raise InputError(f"--track {name}: no such store{did_you_mean(name, STORES)}")
    try:
        store = STORES[name]()
    except ImportError as error:
        missing = error.name or name
        raise InputError(f'--track {name}: {missing} is not installed; run: pip install "veracausa[{name}]"') from None
    return Tracker(name, store, None if folder is None else Path(folder))


def settings_told(folder: Path) -> dict[str, str]:
    """The settings of a run that may be told, as text."""
    config: Any = {}
    with suppress(OSError, ValueError):
        config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    told = {}
    for name in SETTINGS:
        value = config
        for part in name.split("."):
            value = mapping(value).get(part)
        if isinstance(value, str | int | float):
            told[name] = escaped(str(value))[:LONGEST]
    return told


def scores_at_the_end(run: RunRecord) -> Iterator[tuple[str, float]]:
    """What a finished run says of itself in numbers, by name."""
    summary = run.summary
    yield from ((name, value) for name in AT_THE_END if (value := number(summary.get(name))) is not None)
    for split in ("validation", "test"):
        yield from ((f"{split}/{name}", value) for name, value in numbers(summary.get(split)).items())
    for name, scores in mapping(summary.get("baselines")).items():
        if name in ("active_only", "joint", "unsplit"):
            yield from ((f"baselines/{name}/{score}", value) for score, value in numbers(scores).items())
    if run.leakage is not None:
        yield "leakage", run.leakage
    for name, entry in mapping(summary.get("attacks")).items():
        if (leakage := number(mapping(entry).get("leakage"))) is not None and name.isidentifier():
            yield f"attacks/{name}/leakage", leakage


def _first_line(error: BaseException) -> str:
    lines: Sequence[str] = str(error).strip().splitlines() or [type(error).__name__]
    return escaped(lines[0])[:LONGEST]
