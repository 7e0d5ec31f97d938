"""Processor time of a step of VFedCD as three parties in threads, without set-up: 15 attributes, 800 rows to train on.

PYTHONPATH=OTHER/src python experiments/vfedcd/pace.py [EPOCHS [SEARCHES]]

SEARCHES (1 or 3) are those of the recommended profile, each of so many epochs and a refit of as many. A step is one
batch of one search. Of all epochs the quarter that took least says it: on a machine that others use, too, the others
only add to it. With several searches the mean says more, because some codes train them side by side.
"""

import json
import sys
import time

import numpy as np

from veracausa.data.causal import load_causal
from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.methods.vfedcd.settings import Settings


def main(epochs: int, searches: int) -> None:
    data = load_causal("synthetic", attributes=15, rows=1000, seed=200)
    values = (data.values - data.values.mean(0)) / data.values.std(0)
    columns = {f"party_{at}": values[:, at::3] for at in range(3)}
    names = [name for at in range(3) for name in data.names[at::3]]
    marks: list[float] = []

    def hear(event: dict) -> None:
        if event["event"] == "epoch":
            marks.append(time.process_time())

    each = {"epochs": epochs, "refit_epochs": epochs}
    settings = Settings(**each, **({"searches": []} if searches == 1 else {}))
    assert len(settings.each) == searches
    started = time.perf_counter()
    found = run_federation(columns, names, settings, seed=0, observer=hear)
    clock = time.perf_counter() - started
    steps = 800 // settings.batch
    told = 1e3 * np.diff(marks) / steps
    row = {
        "processor_ms_a_step": round(float(np.quantile(told, 0.25)), 3) if searches == 1 else None,
        "mean": round(float(told.mean()), 3),
        "epochs": settings.total_epochs,
        "searches": searches,
        "seconds": round(clock, 1),
        "messages": sum(sent["messages"] for sent in found.sent.values()),
        "kB_a_step": round(
            sum(sent["bytes"] for sent in found.sent.values()) / 1e3 / (settings.total_epochs * steps), 1
        ),
        "strengths": round(float(found.strengths.sum()), 12),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
