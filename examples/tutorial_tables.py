"""Two organisations, a folder each: mostly the same people, in different orders; and new people. All are made up."""

import random
from pathlib import Path

draw = random.Random(0)
rows: dict[str, list[str]] = {"bank": [], "shop": []}
for _ in range(2200):
    person = f"{draw.getrandbits(48):012x}"
    income, debts, years = draw.gauss(42, 12), draw.expovariate(1 / 8), draw.randint(0, 30)
    spent, visits, returns = draw.expovariate(1 / 60), draw.randint(0, 20), draw.random()
    good = income / 12 - debts / 8 + years / 15 + visits / 6 - 3 * returns + draw.gauss(0, 0.8) > 3.7
    rows["bank"].append(f"{person},{income:.1f},{debts:.1f},{years},{'yes' if good else 'no'}")
    rows["shop"].append(f"{person},{spent:.2f},{visits},{returns:.2f}")

heads = {"bank": "person,income,debts,years,good", "shop": "person,spent,visits,returns"}
for party, head in heads.items():
    new, known = rows[party][:20], rows[party][20:]
    Path(party).mkdir(exist_ok=True)
    Path(party, "people.csv").write_text("\n".join([head, *draw.sample(known, 2080)]))  # a few are missing
    if party == "bank":  # nobody knows yet whether they are good
        head, new = head.removesuffix(",good"), [line.rpartition(",")[0] for line in new]
    Path(party, "new.csv").write_text("\n".join([head, *draw.sample(new, 20)]))
    print(f"{party}/people.csv: 2080 people, {party}/new.csv: 20")
