"""A whole encrypted training and its twin: the same integers, and how long each takes.

python results/dispatch/whole-training/measure.py SEARCH_EPOCHS REFIT_EPOCHS [ATTRIBUTES PARTIES]
"""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np

from veracausa.discovery.data import load_causal
from veracausa.discovery.federated.run import discover
from veracausa.discovery.settings import Settings


def main() -> None:
    search, refit = int(sys.argv[1]), int(sys.argv[2])
    attributes, parties = (int(text) for text in sys.argv[3:5] or ("15", "3"))
    data = load_causal("synthetic", attributes=attributes, rows=1000, seed=200)
    values = data.values  # standardised by the training rows
    blocks = np.split(values, parties, axis=1)
    columns = {f"party_{k + 1}": block for k, block in enumerate(blocks)}
    settings = Settings(epochs=search, refit_epochs=refit)
    fits = {}
    for encryption in ("none", "bfv"):
        before, started = os.times(), time.perf_counter()
        how = {"encryption": encryption, "link": "processes", "timeout": 600.0}
        fits[encryption] = fit = discover(columns, data.names, settings, train_rows=800, seed=0, **how)
        after = os.times()
        cpu = sum(after[:4]) - sum(before[:4])
        said = {"encryption": encryption, "epochs": search + refit, "wall": time.perf_counter() - started, "cpu": cpu}
        print(json.dumps(said | {"load": os.getloadavg(), "sent": fit.sent}), flush=True)
    none, bfv = fits["none"], fits["bfv"]
    same = [np.array_equal(getattr(none, what), getattr(bfv, what)) for what in ("strengths", "allowed")]
    print(json.dumps({"same": same, "threshold": [none.threshold, bfv.threshold]}))


if __name__ == "__main__":
    main()
