"""Two organisations with a CSV file each: write the files, train, predict new rows."""

import random
from pathlib import Path

import veracausa

draw = random.Random(0)
people = [{"id": f"p{i}", "age": draw.randint(20, 80), "visits": draw.randint(0, 9)} for i in range(400)]
bank, clinic = ["id,income,good"], ["id,age,visits"]
for person in people:
    income = draw.randint(20, 90)
    bank.append(f"{person['id']},{income},{'yes' if income + person['age'] > 105 else 'no'}")
    clinic.append(f"{person['id']},{person['age']},{person['visits']}")
Path("bank.csv").write_text("\n".join(bank))
Path("clinic.csv").write_text("\n".join(clinic))

run = veracausa.train(
    {
        "name": "own-tables",
        "data": {"name": "csv", "label": "good", "id": "id"},
        "parties": {"active": "bank", "passive": ["clinic"]},
        "party": {"bank": {"data": {"path": "bank.csv"}}, "clinic": {"data": {"path": "clinic.csv"}}},
        "partition": {"active_has_features": True},
        "model": {"name": "mlp", "hidden": [16, 16], "cut": 2},
        "training": {"epochs": 30, "batch_size": 32, "optimizer": {"lr": 0.01}, "baselines": ["active_only"]},
    }
)
print(f"together {run.summary['accuracy']:.3f}, bank alone {run.summary['baselines']['active_only']['accuracy']:.3f}")

Path("new-bank.csv").write_text("id,income\nq1,85\nq2,22\n")
Path("new-clinic.csv").write_text("id,age,visits\nq2,25,1\nq1,70,3\n")
predictions = run.predict({"bank": "new-bank.csv", "clinic": "new-clinic.csv"})
for name, label in zip(predictions.ids, predictions.labels, strict=True):
    print(f"{name}: {label}")
