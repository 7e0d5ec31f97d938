"""Blind training of rows that never lie in memory as a whole: its time and each party's peak memory, by rows.

    python experiments/blind/scale.py write --rows 1000000 2500000 5000000 10000000 --out FOLDER
    python experiments/blind/scale.py train --rows 1000000 2500000 5000000 10000000 --data FOLDER

`write` makes three parties' Parquet files of 10 columns each, block by block; smaller ones are the beginning of the
largest. `train` runs the twin (`--encryption bfv` for the real one) with one process a party, and prints a line a run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from veracausa.runs.machine import describe_machine
from veracausa.training.train import train

PARTIES = ("active", "passive_1", "passive_2")
COLUMNS = 10
BLOCK = 1 << 18
HELD_OUT = 20_000
"""Rows for the test."""


Values = np.ndarray[Any, Any]


def block(start: int, party: int) -> Values:
    """A party's columns of some rows; what all parties' columns have in common is drawn alike for each."""
    common = np.random.default_rng([20, start]).normal(size=(BLOCK, 3))
    mixed = 0.6 * common @ np.random.default_rng([7, party]).normal(size=(3, COLUMNS))
    values: Values = mixed + np.random.default_rng([20, start, party + 1]).normal(size=(BLOCK, COLUMNS))
    values[:, 7] = np.exp(values[:, 7])
    return values


def labels(start: int) -> Values:
    """An additive effect of all parties' columns, and chance."""
    score = np.zeros(BLOCK)
    for party in range(len(PARTIES)):
        values = block(start, party)
        score += np.sin(1.5 * values[:, 0]) + 0.5 * values[:, 1] ** 2 - 0.8 * values[:, 2] - 0.5
    chance = np.random.default_rng([20, start, 0]).random(BLOCK)
    return (chance < 1 / (1 + np.exp(-score))).astype(np.uint32)


def schema_of(party: str) -> dict[str, Any]:
    """The id, nine numbers and a word; the label at the active party."""
    numbers = {f"{party}_{n}": pl.Float32 for n in range(COLUMNS - 1)}
    label = {"y": pl.String} if party == PARTIES[0] else {}
    return {"id": pl.Int64} | numbers | {f"{party}_word": pl.String} | label


def frames(party: str, rows: int) -> Iterator[pl.DataFrame]:
    """A party's table, block by block."""
    levels, classes = pl.Series(["low", "middle", "high", "top"]), pl.Series(["no", "yes"])
    for start in range(0, rows, BLOCK):
        values = block(start, PARTIES.index(party))
        data: dict[str, Any] = {"id": np.arange(start, start + BLOCK)}
        data |= {f"{party}_{n}": values[:, n].astype(np.float32) for n in range(COLUMNS - 1)}
        data[f"{party}_word"] = levels.gather(np.digitize(values[:, COLUMNS - 1], [-1, 0, 1]))
        if party == PARTIES[0]:
            data["y"] = classes.gather(labels(start))
        yield pl.DataFrame(data)[: rows - start]


def write(rows: list[int], out: Path) -> None:
    """One file a party for each number of rows; none of them is ever in memory as a whole."""
    for party in PARTIES:

        def source(
            with_columns: Any, predicate: Any, n_rows: Any, batch_size: Any, party: str = party
        ) -> Iterator[pl.DataFrame]:
            for frame in frames(party, max(rows)):
                yield frame if with_columns is None else frame.select(with_columns)

        largest = out / str(max(rows)) / f"{party}.parquet"
        largest.parent.mkdir(parents=True, exist_ok=True)
        register_io_source(source, schema=schema_of(party)).sink_parquet(largest, row_group_size=BLOCK)
        print(f"{largest}: {largest.stat().st_size / 1e6:.0f} MB", flush=True)
        for fewer in set(rows) - {max(rows)}:
            part = out / str(fewer) / f"{party}.parquet"
            part.parent.mkdir(parents=True, exist_ok=True)
            pl.scan_parquet(largest).head(fewer).sink_parquet(part, row_group_size=BLOCK)


class Peaks(threading.Thread):
    """Of each party's process, and of this one: the largest resident memory and the seconds of processors so far.

    On a machine that is shared, seconds of the clock say little.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.mib: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.2):
            for child in multiprocessing.active_children():
                self.look(child.name, child.pid)
            self.look("starter", "self")

    def look(self, name: str, pid: Any) -> None:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        except OSError:
            return
        self.cpu[name] = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                self.mib[name] = max(self.mib.get(name, 0.0), int(line.split()[1]) / 1024)


def job_of(data: Path, rows: int, encryption: str, engine: str, scheduler: str | None) -> dict[str, Any]:
    return {
        "name": f"scale-{rows}",
        "data": {"name": "parquet", "label": "y", "id": "id", "stream": True, "holdout": HELD_OUT / rows},
        "partition": {"active_has_features": True},
        "party": {party: {"data": {"path": str(data / str(rows) / f"{party}.parquet")}} for party in PARTIES},
        "training": {"protocol": "blind"},
        "blind": {"encryption": encryption},
        "runtime": {
            "link": "processes",
            "device": "cpu",
            "cpu_threads": 1,
            "timeout": 1200,
            "engine": engine,
            **({"scheduler": scheduler} if scheduler else {}),
        },
    }


class Enough(Exception):
    """So much of the sums was made that the rest can be told."""


def run(job: dict[str, Any], out: Path, stop: float) -> dict[str, Any]:
    """One training, measured; with `stop` below 1, up to this share of the sums."""
    shutil.rmtree(out, ignore_errors=True)
    peaks = Peaks()
    peaks.start()
    phases: dict[str, float] = {}
    started = time.perf_counter()

    marks: list[dict[str, Any]] = []

    def hear(event: Any) -> None:
        if event["event"] == "folder":
            phases["opening"] = round(time.perf_counter() - started, 1)
        if event["event"] == "phase" and event["what"] == "moments" and stop < 1:
            marks.append({"party": event["party"], "share": event["share"], "cpu": dict(peaks.cpu)})
            if event["share"] >= stop:
                raise Enough

    try:
        done = train(job, out, observer=hear)
    except Enough:
        peaks.over.set()
        first, last = marks[0], marks[-1]
        return {
            "rows": job["name"],
            "stopped_at": last,
            "sums_began_at": first,
            "peak_mib": {name: round(value) for name, value in sorted(peaks.mib.items())},
            "encryption": job["blind"]["encryption"],
        }
    seconds = time.perf_counter() - started
    peaks.over.set()
    peaks.join()
    summary = done.summary
    facts = summary["blind_training"]
    measured = (*PARTIES, "starter")
    return {
        "rows": facts["rows"],
        "seconds": round(seconds, 1),
        "phases": phases | facts["seconds"],
        "cpu_seconds": {name: round(value, 1) for name, value in sorted(peaks.cpu.items()) if name in measured},
        "peak_mib": {name: round(value) for name, value in sorted(peaks.mib.items()) if name in measured},
        "bytes_sent": summary["bytes_sent"],
        "bytes_a_row": round(summary["bytes_sent"] / facts["rows"], 1),
        "features": {name: party["width"] for name, party in facts["features"].items()},
        "test": {name: round(value, 4) for name, value in summary["test"].items()},
        "encryption": job["blind"]["encryption"],
        "engine": job["runtime"]["engine"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("--rows", type=int, nargs="+", default=[10_000_000])
    writing.add_argument("--out", type=Path, required=True)
    training = commands.add_parser("train")
    training.add_argument("--data", type=Path, required=True)
    training.add_argument("--rows", type=int, nargs="+", required=True)
    training.add_argument("--encryption", choices=["none", "bfv"], default="none")
    training.add_argument("--engine", choices=["here", "processes", "dask"], default="here")
    training.add_argument("--scheduler")
    training.add_argument("--stop", type=float, default=1.0, help="at this share of the sums; 1: never")
    training.add_argument("--runs", type=Path, default=Path("build/scale"))
    training.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.command == "write":
        write(given.rows, given.out)
        return
    lines = []
    for rows in given.rows:
        job = job_of(given.data, rows, given.encryption, given.engine, given.scheduler)
        lines.append(run(job, given.runs / f"{rows}-{given.encryption}-{given.engine}", given.stop))
        print(json.dumps(lines[-1]), flush=True)
        if given.out is not None:
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps({"machine": describe_machine(cuda=False), "runs": lines}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
