"""Time what each member of a fit computes where parties hold unequal shares of 15 attributes.

python experiments/vfedcd/partitions.py partitions.jsonl [none|bfv|literal ...]

The paper says that training takes 82 % longer where one party holds 13 of 15 attributes than where each holds five.
Parties that wait for each other take as long as the one with the most to do. So the seconds of the processor are
counted for each member apart, and beside them stand the encrypted multiplications of the paper's Appendix B.4.
"""

import json
import sys
import threading
import time
from typing import ClassVar

import polars as pl

from veracausa.data.causal import load_causal
from veracausa.discovery.methods.vfedcd.estimator import VFedCD

PARTITIONS = ((5, 5, 5), (3, 3, 9), (1, 1, 13))
CASES = {
    "none": {"rows": 1000, "epochs": 20, "refit_epochs": 20, "searches": []},
    "bfv": {"rows": 1000, "epochs": 4, "refit_epochs": 4, "searches": [], "encryption": "bfv"},
    # The published protocol number by number, so few rows, a narrow network and a short key.
    "literal": {
        "rows": 20,
        "epochs": 1,
        "width": 2,
        "profile": "literal",
        "protocol": "literal",
        "encryption": "paillier",
        "key_bits": 1024,
    },
}
TRAINED = 0.8


class TimedThread(threading.Thread):
    """A thread that says what it computed; every member of a fit is one."""

    seconds: ClassVar[dict[str, float]] = {}

    def run(self) -> None:
        started = time.thread_time()
        super().run()
        self.seconds[self.name] = time.thread_time() - started


def multiplications(sizes: tuple[int, ...], rows: int, width: int) -> int:
    """Of the busiest party in one epoch: (K-1)·n·d_k·d·h forward, n·d_k·d·h backward."""
    return round(len(sizes) * TRAINED * rows) * max(sizes) * sum(sizes) * width


def main(path: str, *cases: str) -> None:
    threading.Thread = TimedThread
    for case in cases or CASES:
        settings = dict(CASES[case])
        rows = settings.pop("rows")
        data = load_causal("synthetic", attributes=15, rows=rows, seed=200)
        frame = pl.DataFrame(dict(zip(data.names, data.values.T, strict=True)))
        for sizes in PARTITIONS:
            ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
            held = [list(data.names[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
            parties = {f"party_{at}": names for at, names in enumerate(held)}
            TimedThread.seconds.clear()
            started, computed = time.perf_counter(), time.process_time()
            fitted = VFedCD(**settings).fit(frame, parties=parties)
            row = {
                "case": case,
                "parties": sizes,
                "rows": rows,
                "settings": settings,
                "clock": round(time.perf_counter() - started, 2),
                "processor": round(time.process_time() - computed, 2),
                "members": {name: round(seconds, 2) for name, seconds in TimedThread.seconds.items()},
                "megabytes": {name: round(sent["bytes_sent"] / 1e6, 1) for name, sent in fitted.sent_.items()},
                "multiplications_of_the_busiest": multiplications(sizes, rows, settings.get("width", 10)),
            }
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
