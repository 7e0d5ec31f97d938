"""Where blind training must lose: the label is the sign of the product of two parties' columns."""

import random
from pathlib import Path

import veracausa

draw = random.Random(0)
bank, clinic = ["id,balance,good"], ["id,growth"]
for i in range(1500):
    balance, growth = draw.uniform(-1, 1), draw.uniform(-1, 1)
    bank.append(f"p{i},{balance:.4f},{'yes' if balance * growth > 0 else 'no'}")
    clinic.append(f"p{i},{growth:.4f}")
Path("bank.csv").write_text("\n".join(bank))
Path("clinic.csv").write_text("\n".join(clinic))

job = {
    "data": {"name": "csv", "label": "good", "id": "id"},
    "parties": {"active": "bank", "passive": ["clinic"]},
    "party": {"bank": {"data": {"path": "bank.csv"}}, "clinic": {"data": {"path": "clinic.csv"}}},
    "partition": {"active_has_features": True},
    "model": {"name": "mlp", "hidden": [16, 16], "cut": 2},
}
split = {"epochs": 20, "batch_size": 32, "optimizer": {"lr": 0.01}, "evaluate_every": 20}
for name, training in (("blind", {"protocol": "blind"}), ("split", split)):
    run = veracausa.train({**job, "name": f"product-{name}", "training": training})
    print(f"{name}: test AUC {run.summary['test']['auc']:.2f}")
