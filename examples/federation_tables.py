"""Two tables as two organisations would hold them: the same patients, not all of them, in different orders."""

import polars as pl
from sklearn.datasets import load_breast_cancer

whole = load_breast_cancer()
names = [name.replace(" ", "_") for name in whole.feature_names]
frame = pl.DataFrame(whole.data, schema=names).with_columns(
    pl.format("P-{}", pl.int_range(1000, 1000 + len(whole.data))).alias("patient"),
    pl.Series("benign", ["yes" if benign else "no" for benign in whole.target]),
)
clinic = frame.select("patient", *names[:10], "benign").sample(540, seed=1, shuffle=True)
lab = frame.select("patient", *names[10:]).sample(550, seed=2, shuffle=True)
clinic.head(520).write_csv("clinic.csv")
lab.write_csv("lab.csv")
clinic.tail(20).drop("benign").write_csv("new-clinic.csv")  # people of whom it is not known yet
print(f"clinic.csv: {clinic.height - 20} patients, lab.csv: {lab.height} patients")
