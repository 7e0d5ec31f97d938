"""Blind training of tables: AUC by feature map, labels and noise, beside split training and trees on all columns.

    VERACAUSA_DATA=... python experiments/blind/tables.py --seeds 0 1 2 --out results/blind

Adult and Bank (UCI), three parties each: the active party has labels and columns of its own. `blind` and `split` cells
are the product's own training. Blind sums are plain here: the encrypted ones are the same integers. `joint trees` is
scikit-learn's HistGradientBoosting on all columns in one place, `active trees` the same on the active party's alone.
results/blind/README.md says which settings were compared on test rows. Each cell is kept in `tables.json` and is not
measured again while it is there. `tables.md` is the table.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import veracausa
from veracausa.config import load_job
from veracausa.data.files import data_folder
from veracausa.data.load import load
from veracausa.runs.folder import write_json
from veracausa.runs.machine import describe_machine
from veracausa.training.evaluate import area_under_roc

COLUMNS = {
    "adult": {
        "bank": ["workclass", "occupation", "hours-per-week"],
        "registry": ["age", "education", "education-num", "race", "sex", "native-country"],
        "tax": ["marital-status", "relationship", "capital-gain", "capital-loss", "fnlwgt"],
    },
    "bank": {
        "bank": ["balance", "default", "housing", "loan"],
        "registry": ["age", "job", "marital", "education"],
        "calls": ["contact", "day", "month", "duration", "campaign", "pdays", "previous", "poutcome"],
    },
}
SPLIT = {"epochs": 10, "batch_size": 256, "optimizer": {"name": "adam", "lr": 1e-3}}
TREES = {"name": "scores"}
LANDMARKS = {"name": "estimator", "estimator": "Nystroem", "settings": {"n_components": 200, "gamma": 0.004}}


def blind(features: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return {
        "training": {"protocol": "blind"},
        "features": features,
        "blind": {"encryption": "none", **settings},
    }


CELLS: dict[str, dict[str, Any]] = {
    "split": {"training": SPLIT, "risk": {"every": 0}},
    "blind, none, plain": blind({"name": "plain"}),
    "blind, none, splines": blind({"name": "splines"}),
    "blind, none, 20 splines": blind({"name": "splines", "functions": 20}),
    "blind, none, fourier": blind({"name": "fourier"}),
    "blind, none, leaves": blind({"name": "leaves"}),
    "blind, none, leaves at one party": {**blind({"name": "splines"}), "last_party": {"name": "leaves"}},
    "blind, none, scarf": blind({"name": "scarf"}),
    "blind, none, landmarks": blind(LANDMARKS),
    "blind, label ε = 1, trees": blind(TREES, labels="private", label_epsilon=1.0),
    "blind, label ε = 3, trees": blind(TREES, labels="private", label_epsilon=3.0),
    "blind, shared labels, trees": blind(TREES, labels="shared"),
    "blind, none, splines, sums at ε = 4": blind({"name": "splines"}, epsilon=4.0),
    "blind, none, splines, sums at ε = 1": blind({"name": "splines"}, epsilon=1.0),
    "joint trees": {},
    "active trees": {},
}


def job_of(data: str, seed: int, cell: dict[str, Any]) -> dict[str, Any]:
    """The job of a cell: three parties, all columns in one file."""
    active, *passive = COLUMNS[data]
    source: dict[str, Any] = {"name": "adult"}
    if data == "bank":
        source = {"name": "csv", "path": str(data_folder() / "tabular" / "bank_full.csv"), "label": "y"}
    job: dict[str, Any] = {
        "seed": seed,
        "data": source,
        "parties": {"active": active, "passive": passive},
        "partition": {"kind": "columns", "columns": COLUMNS[data]},
        "model": {"name": "mlp", "hidden": [64, 32], "cut": 2},
        "runtime": {"device": "cpu", "cpu_threads": 1},
        **cell,
    }
    party: dict[str, Any] = {name: {"data": {"separator": ";"}} for name in COLUMNS[data]} if data == "bank" else {}
    if (own := job.pop("last_party", None)) is not None:
        party[passive[-1]] = {**party.get(passive[-1], {}), "features": own}
    return {**job, "party": party} if party else job


def trees(data: str, seed: int, parties: tuple[str, ...]) -> dict[str, Any]:
    """Trees on these parties' columns, with all labels, in one place."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    whole = load(load_job(job_of(data, seed, {})))
    labels = whole.parties[whole.active]
    assert labels.train.labels is not None
    assert labels.test.labels is not None
    rows = {
        split: np.concatenate([whole.parties[name].part(split).features for name in parties], axis=1)
        for split in ("train", "test")
    }
    started = time.perf_counter()
    model = HistGradientBoostingClassifier(random_state=seed).fit(rows["train"], labels.train.labels.numpy())
    scores = torch.from_numpy(model.predict_proba(rows["test"])[:, 1])
    auc = area_under_roc(scores, labels.test.labels == 1)
    accuracy = float(((scores > 0.5) == (labels.test.labels == 1)).float().mean())
    return {"auc": auc, "accuracy": accuracy, "seconds": time.perf_counter() - started}


def measured(data: str, name: str, seed: int) -> dict[str, Any]:
    if name == "joint trees":
        return trees(data, seed, tuple(COLUMNS[data]))
    if name == "active trees":
        return trees(data, seed, tuple(COLUMNS[data])[:1])
    with tempfile.TemporaryDirectory() as folder:
        summary = veracausa.train(job_of(data, seed, CELLS[name]), out=Path(folder) / "run").summary
    found = {key: summary["test"][key] for key in ("auc", "accuracy", "loss")}
    found |= {"seconds": summary["seconds"], "bytes_sent": summary["bytes_sent"]}
    if (own := summary.get("blind_training")) is not None:
        found["features"] = {party: facts["width"] for party, facts in own["features"].items()}
        found["ridge"], found["rows"] = own["ridge"], own["rows"]
    return found


def table(cells: dict[str, dict[str, Any]]) -> str:
    """Mean and standard deviation over seeds, as Markdown."""
    lines = ["| cell | Adult, AUC | Bank, AUC | features (Adult / Bank) | seconds |", "|---|---|---|---|---|"]
    for name in CELLS:
        row, widths, seconds = [], [], []
        for data in COLUMNS:
            found = [cell for key, cell in cells.items() if key.startswith(f"{data}: {name}: ")]
            aucs = [cell["auc"] for cell in found]
            row.append(f"{np.mean(aucs):.4f} ± {np.std(aucs):.4f} ({len(aucs)})" if aucs else "–")
            widths += [str(sum(found[0]["features"].values()))] if found and "features" in found[0] else []
            seconds += [cell["seconds"] for cell in found]
        spent = f"{np.mean(seconds):.0f}" if seconds else "–"
        lines.append(f"| {name} | {' | '.join(row)} | {' / '.join(widths) or '–'} | {spent} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given.add_argument("--cells", nargs="*", default=list(CELLS))
    given.add_argument("--data", nargs="*", default=list(COLUMNS))
    given.add_argument("--out", type=Path, required=True)
    options = given.parse_args()
    path = options.out / "tables.json"
    kept: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"cells": {}}
    kept["machine"] = describe_machine()
    for seed in options.seeds:
        for data in options.data:
            for name in options.cells:
                key = f"{data}: {name}: {seed}"
                if key in kept["cells"]:
                    continue
                kept["cells"][key] = measured(data, name, seed)
                print(key, kept["cells"][key], flush=True)
                options.out.mkdir(parents=True, exist_ok=True)
                write_json(path, kept)
    (options.out / "tables.md").write_text(table(kept["cells"]), encoding="utf-8")


if __name__ == "__main__":
    main()
