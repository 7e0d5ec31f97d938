"""A run is a folder: it can be run again from its own config, resumed after a crash, and read without any server."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veracausa.atomic import atomic_write
from veracausa.errors import InputError, RunError, VeracausaError
from veracausa.escaping import escaped
from veracausa.runs.machine import describe_machine

if TYPE_CHECKING:
    from veracausa.config import Job

_log = logging.getLogger(__name__)


class Run:
    """A run by its folder: what `train` and `audit` return, and what can be opened again later.

    path: the folder.
    allow_model: the `package.module:factory` that the caller trusts. A folder can come from anybody, so its config
    alone is no reason to run code.

    >>> run = veracausa.Run("runs/mine")
    >>> run.summary["test"]["accuracy"]     # the finished run's numbers
    >>> run.metrics[-1]["epoch"]            # every record of metrics.jsonl
    >>> run.predict("new.csv").labels       # joint predictions for new rows
    >>> run.report()                        # the path of its page, report.html
    """

    def __init__(self, path: str | Path, allow_model: str | None = None) -> None:
        self.path, self.allow_model = Path(path), allow_model
        found_folder(self.path)
        if not (self.path / "config.toml").is_file():
            raise InputError(f"{self.path}: not a run folder (it has no config.toml)")

    @property
    def job(self) -> Job:
        import tomllib

        from veracausa.config import load_job

        config = self.path / "config.toml"
        with suppress(OSError, ValueError):  # what is broken is said below
            if tomllib.loads(config.read_text(encoding="utf-8")).get("kind") == "discovery":
                raise InputError(f"{self.path}: is the folder of a discovery; name that of a training")
        return load_job(config, allow_model=self.allow_model)

    @property
    def summary(self) -> dict[str, Any]:
        """The finished run's numbers; empty while there are none."""
        return self._json("summary.json")

    @property
    def status(self) -> dict[str, Any]:
        return self._json("status.json")

    @property
    def to_finish(self) -> str:
        """What to do with a run that is not finished."""
        site = self.path.parent
        across = (site / "federation.toml").is_file()
        return f"start `veracausa federation run {site}` again" if across else "finish it with --resume"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """All records of `metrics.jsonl`."""
        return list(read_lines(self.path / "metrics.jsonl"))

    def predict(self, data: Any = None, out: Path | None = None, raw: bool = False) -> Any:
        """Joint predictions for new rows, or for the run's own test rows, as `veracausa.predict` makes them.

        data: new rows, as one file or frame for all parties, or party -> its file, frame or array.
        """
        from veracausa.training.predict import predict

        return predict(self, data, out, raw)

    def report(self) -> Path:
        """Write `report.html` and say where it is."""
        from veracausa.report.run_page import write_report

        return write_report(self.path)

    def _json(self, name: str) -> dict[str, Any]:
        try:
            loaded: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError):
            raise RunError(f"{self.path / name}: is damaged; go on with --resume, which writes it anew") from None
        return loaded

    def __repr__(self) -> str:
        from veracausa.runs.record import figures_in_words

        status, summary = self._if_whole("status.json"), self._if_whole("summary.json")
        told = [str(status.get("state") or ("done" if summary else "unknown")), *figures_in_words(summary)]
        return escaped(f"{type(self).__name__}({str(self.path)!r}: {', '.join(told)})")

    def _repr_html_(self) -> str | None:
        """What a notebook shows; None, and with it the plain text, where the folder cannot be read."""
        from veracausa.report.notebook import run_html

        with suppress(VeracausaError, OSError, ValueError, TypeError, KeyError):
            return run_html(self.path)
        return None

    def _if_whole(self, name: str) -> dict[str, Any]:
        with suppress(VeracausaError, OSError):
            found = self._json(name)
            return found if isinstance(found, dict) else {}
        return {}


def found_folder(path: Path) -> None:
    """Refuse a folder that is not there, before anybody says what it lacks."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file; name the folder of a run")
    if not path.exists():
        raise InputError(f"{path}: no such folder; `veracausa list runs` shows the runs that are here")


def create(path: Path, job: Job, parties: Mapping[str, str]) -> Run:
    """A new run folder with its resolved config; `parties` maps names to roles."""
    import tomli_w

    make(path)
    atomic_write(path / "config.toml", job.to_toml().encode())  # first: from here on the run can be resumed
    for name, role in parties.items():
        folder = path / "parties" / name
        folder.mkdir(parents=True, exist_ok=True)
        own = job.party.get(name)
        defense = job.defense_of(name).model_dump(mode="json", exclude_none=True) if role == "passive" else {}
        party = {"name": name, "role": role, "data": dict(own.data) if own else {}, "defense": defense}
        atomic_write(folder / "party.toml", tomli_w.dumps(party).encode())
    write_json(path / "environment.json", environment(job))
    _log.info("run folder %s: job %s, parties %s", path, job.name, ", ".join(parties))
    return Run(path, job.model.allowed)


def numbered(base: Path) -> tuple[list[Path], Path]:
    """Those of BASE, BASE-2, BASE-3, … that are there, and the next one, which is free."""
    taken: list[Path] = []
    path = base
    while path.exists():
        taken.append(path)
        path = base.with_name(f"{base.name}-{len(taken) + 1}")
    return taken, path


def check_free(path: Path) -> None:
    """Refuse a folder that cannot be written, or holds anything but what a kill at the very start leaves."""
    above = next((parent for parent in path.parents if parent.exists()), Path("/"))
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file; name a folder with --out")
    if not above.is_dir():
        raise InputError(f"{path}: {above} is a file; name another folder with --out")
    place = path if path.exists() else above
    if not os.access(place, os.W_OK | os.X_OK):
        raise InputError(f"{path}: {place} cannot be written to; name another folder with --out")
    if path.exists() and any(entry.suffix != ".tmp" for entry in path.iterdir()):
        raise InputError(f"{path}: already there; go on with --resume, or name another folder with --out")


def make(path: Path) -> None:
    """Make a free folder; one that cannot be made is the user's to choose anew."""
    check_free(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be made ({error.strerror}); name another folder with --out") from None


def set_status(path: Path, **fields: Any) -> None:
    """Lay these fields over `status.json`."""
    target = path / "status.json"
    before: dict[str, Any] = {"started": _now(), "error": None}
    with suppress(FileNotFoundError, ValueError, RecursionError):  # there is none, or a damaged one: it begins anew
        before = json.loads(target.read_text(encoding="utf-8"))
    write_json(target, {**before, **fields, "updated": _now(), "pid": os.getpid()})


def set_ended(path: Path, error: BaseException) -> None:
    """Say in `status.json` that a run ended early, and why."""
    state, message = how_it_ended(error)
    set_status(path, state=state, error=message)


def how_it_ended(error: BaseException) -> tuple[str, str]:
    """The state and the reason to write down: somebody stopped it, or it failed."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped", "stopped by its operator"
    return "failed", str(error) if isinstance(error, VeracausaError) else f"{type(error).__name__}: {error}"


def write_json(path: Path, value: Any) -> None:
    atomic_write(path, (json.dumps(value, indent=2) + "\n").encode())


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON records of a file of lines; a last line torn by a crash is passed over."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                return


def keep_metrics_until(path: Path, step: int) -> None:
    """Forget the metrics that were written after the checkpoint of `step`, and those that only the end writes."""
    target = path / "metrics.jsonl"
    if target.exists():
        before = (record for record in read_lines(target) if record.get("step", 0) <= step)
        kept = [record for record in before if record.get("event") != "risk"]
        atomic_write(target, "".join(json.dumps(record) + "\n" for record in kept).encode())


def refuse_links(path: Path) -> None:
    """Refuse a run folder with a link in it: what is written there would land somewhere else."""
    for place, folders, files in os.walk(path):
        for name in (*folders, *files):
            if os.path.islink(os.path.join(place, name)):
                raise InputError(
                    f"{os.path.join(place, name)}: is a link, and what a run writes stays in its own folder; remove it"
                )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep a second process out of the same run folder; the lock goes with the process that holds it."""
    refuse_links(path)
    with (path / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"{path}: another process is working on this run") from None
        yield


def environment(job: Job) -> dict[str, Any]:
    """What the numbers were measured on."""
    from veracausa import __version__

    return {
        "veracausa": __version__,
        **describe_machine(cuda=job.runtime.device != "cpu"),
        "link": job.runtime.link,
        "precision": job.runtime.precision,
        "seed": job.seed,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
