"""Two organisations with a frame each, rows in any order: train blind, see what is kept, predict new frames."""

import random

import polars as pl  # a pandas frame is taken just so

import veracausa

draw = random.Random(0)
people = []
for i in range(1500):
    income, age, spent = draw.randint(20, 90), draw.randint(20, 80), draw.randint(0, 99)
    good = income + age - spent / 2 + draw.gauss(0, 8) > 80
    people.append((f"p{i}", income, "yes" if good else "no", age, None if i % 9 == 0 else spent))
whole = pl.DataFrame(people, schema=["customer", "income", "good", "age", "spent"], orient="row")
bank = whole.select("customer", "income", "good")
shop = whole.select("customer", "age", "spent").reverse().head(1400)  # another order, and 100 people are unknown

run = veracausa.train(
    {"name": "frames", "training": {"protocol": "blind", "baselines": ["active_only"]}},
    data={"bank": bank, "shop": shop},
    label="good",
    id="customer",
)
print(f"AUC {run.summary['test']['auc']:.3f}, bank alone {run.summary['baselines']['active_only']['auc']:.3f}")
print(f"kept: {', '.join(sorted(path.name.split('-')[0] for path in (run.path / 'rows').iterdir()))}")

new_bank = pl.DataFrame({"customer": ["q1", "q2"], "income": [85, 22]})
new_shop = pl.DataFrame({"customer": ["q3", "q2", "q1"], "age": [50, 25, 70], "spent": [20, 90, 5]})
predictions = veracausa.predict(run, {"bank": new_bank, "shop": new_shop})
print(", ".join(f"{name}: {label}" for name, label in zip(predictions.ids, predictions.labels, strict=True)))
