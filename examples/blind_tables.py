"""Three organisations with a CSV file each: train blind, see what crossed, predict new rows."""

import random
from pathlib import Path

import veracausa

draw = random.Random(0)
files = {"bank": ["id,income,good"], "clinic": ["id,age"], "shop": ["id,spent"]}
for i in range(1500):
    income, age, spent = draw.randint(20, 90), draw.randint(20, 80), draw.randint(0, 99)
    good = income + age - spent / 2 + draw.gauss(0, 8) > 80
    files["bank"].append(f"p{i},{income},{'yes' if good else 'no'}")
    files["clinic"].append(f"p{i},{age}")
    files["shop"].append(f"p{i},{spent}")
for party, lines in files.items():
    Path(f"{party}.csv").write_text("\n".join(lines))

run = veracausa.train(
    {
        "name": "blind-tables",
        "data": {"name": "csv", "label": "good", "id": "id"},
        "parties": {"active": "bank", "passive": ["clinic", "shop"]},
        "party": {party: {"data": {"path": f"{party}.csv"}} for party in files},
        "partition": {"active_has_features": True},
        "training": {"protocol": "blind", "baselines": ["active_only"]},
    }
)
told = run.summary["blind_training"]
print(f"sums over {told['rows']} rows crossed, {told['numbers']} number a predicted row")
print(f"AUC {run.summary['test']['auc']:.3f}, bank alone {run.summary['baselines']['active_only']['auc']:.3f}")

new = {"bank": "id,income\nq1,85\nq2,22", "clinic": "id,age\nq1,70\nq2,25", "shop": "id,spent\nq1,5\nq2,90"}
for party, text in new.items():
    Path(f"new-{party}.csv").write_text(text)
predictions = run.predict({party: f"new-{party}.csv" for party in new})
print(", ".join(f"{name}: {label}" for name, label in zip(predictions.ids, predictions.labels, strict=True)))
