"""Processor time of a step of VFedCD as three parties in threads, without set-up: 15 attributes, 800 rows to train on.

PYTHONPATH=OTHER/src python experiments/vfedcd/pace.py [EPOCHS]

Of all epochs the quarter that took least says it: on a machine that others use, too, the others only add to it.
"""

import json
import sys
import time

import numpy as np

from veracausa.data.causal import load_causal
from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.methods.vfedcd.settings import Settings


def main(epochs: int) -> None:
    data = load_causal("synthetic", attributes=15, rows=1000, seed=200)
    values = (data.values - data.values.mean(0)) / data.values.std(0)
    columns = {f"party_{at}": values[:, at::3] for at in range(3)}
    names = [name for at in range(3) for name in data.names[at::3]]
    marks: list[float] = []

    def hear(event: dict) -> None:
        if event["event"] == "epoch":
            marks.append(time.process_time())

    settings = Settings(epochs=epochs, refit_epochs=epochs, searches=[])
    found = run_federation(columns, names, settings, seed=0, observer=hear)
    steps = 800 // settings.batch
    told = 1e3 * np.diff(marks) / steps
    row = {
        "processor_ms_a_step": round(float(np.quantile(told, 0.25)), 3),
        "median": round(float(np.median(told)), 3),
        "epochs": 2 * epochs,
        "kB_a_step": round(sum(sent["bytes"] for sent in found.sent.values()) / 1e3 / (2 * epochs * steps), 1),
        "strengths": round(float(found.strengths.sum()), 12),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
