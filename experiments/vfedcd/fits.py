"""Time whole fits of 15 attributes in one place, and as three parties in threads and in processes.

python experiments/vfedcd/fits.py fits.jsonl [CASE ...]

One search of 300 epochs and a refit of 200 are 500 epochs; the recommended profile's three searches are 1300.
"""

import json
import os
import resource
import sys
import time

import polars as pl

from veracausa.data.causal import load_causal
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.metrics.graphs import graph_scores

CASES = {
    "one search, 500 epochs": {"searches": [], "epochs": 300},
    "three searches, 1300 epochs": {},
}


def computed() -> float:
    """Seconds of the processor, of this process and of those that it has started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main(path: str, *cases: str) -> None:
    data = load_causal("synthetic", attributes=15, rows=1000, seed=200)
    parties = {f"party_{at}": list(data.names[at::3]) for at in range(3)}
    frame = pl.DataFrame(dict(zip(data.names, data.values.T, strict=True)))
    places = {
        "in one place": ({}, {}),
        "as three parties in threads": ({}, {"parties": parties}),
        "as three parties in processes": ({"link": "processes"}, {"parties": parties}),
    }
    for case in cases or CASES:
        for place, (link, how) in places.items():
            load, started, before = os.getloadavg()[0], time.perf_counter(), computed()
            fitted = VFedCD(**CASES[case], **link).fit(frame, **how)
            seconds, processor = time.perf_counter() - started, computed() - before
            scores = graph_scores(data.truth, fitted.adjacency_matrix_)
            row = {
                "case": case,
                "place": place,
                "seconds": round(seconds, 1),
                "processor_seconds": round(processor, 1),
                "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),  # of the process so far
                "load_before": round(load, 2),
                "load_after": round(os.getloadavg()[0], 2),
                "f1": round(float(scores["f1"]), 3),
                "shd": int(scores["shd"]),
                "messages": sum(sent["messages"] for sent in fitted.sent_.values()),
                "bytes": sum(sent["bytes_sent"] for sent in fitted.sent_.values()),
            }
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
