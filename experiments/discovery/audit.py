"""What attackers read from the sums of a discovery: `python experiments/discovery/audit.py tables rows releases known`.

`tables`: all attacks on tables of the suite, Sachs and Adult, exact and with noise. `rows`: what a party in league
with the validator gains, over rows for each function. `releases`: the same with the sums of weighted resamples.
`known`: the validator who knows all rows but a few. `anew`: a second release without a row, every function made anew.
Each writes `NAME.json` and `NAME.md` into `--out`, with settings and machine.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veracausa.audit.column_scores import make_attack
from veracausa.audit.discovery import attacks_on
from veracausa.audit.sums import situations_of
from veracausa.audit.sums_scores import ALONE, attacked, baselines
from veracausa.audit.sums_system import SumsSystem
from veracausa.audit.sums_views import SumsSeat, SumsViews
from veracausa.data.causal import CausalData, load_causal
from veracausa.data.causal.frames import as_causal
from veracausa.data.causal.parties import block_sizes
from veracausa.data.files import data_folder
from veracausa.data.sources.adult import read_adult
from veracausa.discovery.engines.sums.plan import SumsPlan
from veracausa.discovery.methods.moments.expansion import column_kinds
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.errors import InputError
from veracausa.runs.machine import describe_machine

OTHERS = 10_000
SEED, KNOWN_ROWS, RELEASES, DELTA = 0, 15, 20, 1e-5
GRAPHS = (1000, 1001)
SEATS = 3
"""So many attackers and victims: every party is attacked once."""
CASES: dict[str, dict[str, Any]] = {
    "validator": {},
    "opened to all": {"receiver": "all"},
    "epsilon 4": {"epsilon": 4.0},
    "epsilon 1": {"epsilon": 1.0},
}
ADULT = 2000
"""Rows of Adult that are summed up."""
FIXED = {"functions": 8, "allow_small_n": True}
"""So many functions of a number whatever the rows, which is refused otherwise."""
WAYS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "8 functions": (FIXED, (200, 300, 500, 1000, 2000, 4000)),
    "as the plan says": ({}, (500,)),  # of more rows it takes 8
    "opened to all": ({"receiver": "all"}, (500, 1000, 2000)),
}
"""How sums are made, and of how many rows."""
LOUD, BEYOND = 1000.0, "unchecked, 1,000 times the clip"
"""Noise covers rows of parties that keep to the clip. One that does not is heard above it."""
GAINING = ("sum_regression", "sum_correction", "curve_sampling")


def suite(rows: int, graph: int = GRAPHS[0], generator: str = "gp_additive", others: int = OTHERS) -> CausalData:
    """15 columns; the rows behind the first ones are other people."""
    return load_causal("suite", generator=generator, attributes=15, rows=rows + others, seed=graph)


def adult() -> CausalData:
    """All columns of Adult, numbers and categories; people in an order that says nothing."""
    frame = read_adult(data_folder() / "tabular" / "adult.data")
    return as_causal(frame.sample(fraction=1.0, shuffle=True, seed=SEED))


def system(data: CausalData, rows: int, parties: int = 3, **settings: Any) -> SumsSystem:
    """Columns dealt in their order, the first rows summed up, the others as rows of other people."""
    sizes = block_sizes(len(data.names), parties)
    ends = np.cumsum(sizes)
    places = {f"party {k + 1}": range(end - size, end) for k, (end, size) in enumerate(zip(ends, sizes, strict=True))}
    columns = {party: tuple(data.names[at] for at in own) for party, own in places.items()}
    kinds = {party: column_kinds(data.values[:, own], columns[party], data.nominal) for party, own in places.items()}
    plan = SumsPlan(SumsSettings(**{"encryption": "none", **settings}), columns, rows, SEED)
    values = {party: data.values[:rows, own] for party, own in places.items()}
    others = {party: data.values[rows:, own] for party, own in places.items()} if rows < len(data.values) else None
    return SumsSystem.of(plan, values, kinds, others)


def reached(seats: Sequence[SumsSeat], name: str, epsilon: float | None = None, **options: Any) -> dict[str, Any]:
    """What an attack reads; nothing where this table has no such situation."""
    try:
        return attacked(seats, make_attack(name, options), epsilon, DELTA)
    except InputError:
        return {}


def strongest(made: SumsSystem, name: str) -> dict[str, Any]:
    """An attack's settings where its defaults are not the strongest: a made-up feature as large as the clip lets it."""
    return {"amplitude": made.moments.clip} if name == "indicator_column" and made.moments.clip else {}


def about(made: SumsSystem) -> dict[str, Any]:
    return {
        "rows": made.rows,
        "functions": made.widths,
        "rows_a_function": made.rows_a_column,
        "noise": made.noise,
        "notes": [note for own in made.parties.values() for note in own.made.notes],
    }


def tables() -> Iterator[dict[str, Any]]:
    """All attacks in all situations."""
    sachs = load_causal("sachs")
    exact = ("validator", "opened to all")
    held: dict[str, tuple[Callable[[], CausalData], int, Sequence[str]]] = {
        "suite": (lambda: suite(1000), 1000, tuple(CASES)),
        "suite, linear": (lambda: suite(1000, generator="linear"), 1000, exact),
        "sachs": (lambda: sachs, len(sachs.values), tuple(CASES)),
        "adult": (lambda: adult().head(ADULT + OTHERS), ADULT, tuple(CASES)),
    }
    for table, (load, rows, cases) in held.items():
        data = load()
        for case in cases:
            settings = CASES[case]
            made = system(data, rows, **settings)
            views = SumsViews(made, SEED, KNOWN_ROWS, RELEASES)
            together = views.all_but_one()
            line: dict[str, Any] = {"table": table, "case": case, **about(made)}
            line["blind"], line["blind_all_but_one"] = baselines(views.parties()[:SEATS]), baselines(together)
            line["attacks"] = {}
            for name in attacks_on("sums"):
                for situation in situations_of(name):
                    label = f"{name}: {situation}" if len(situations_of(name)) > 1 else name
                    seats, how = views.makers[situation]()[:SEATS], strongest(made, name)
                    line["attacks"][label] = reached(seats, name, settings.get("epsilon"), **how)
                if name == "indicator_column" and made.moments.clip:
                    beyond = {"amplitude": LOUD * made.moments.clip}
                    seats = views.makers["unchecked"]()[:SEATS]
                    line["attacks"][f"{name}: {BEYOND}"] = reached(seats, name, settings["epsilon"], **beyond)
                if make_attack(name, {}).colluding:
                    line["attacks"][f"all but one: {name}"] = reached(together, name)
            yield line


def rows() -> Iterator[dict[str, Any]]:
    """The gain over rows for each function of two parties, with and without the product's own limits."""
    for how, (settings, counts) in WAYS.items():
        for count in counts:
            for graph in GRAPHS:
                made = system(suite(count, graph), count, **settings)
                views = SumsViews(made, SEED, KNOWN_ROWS, RELEASES)
                seats = {"party": views.parties()[:SEATS], "all but one": views.all_but_one()}
                line: dict[str, Any] = {"graph": graph, "how": how, **about(made)}
                for who, own in seats.items():
                    line[who] = {ALONE: baselines(own)[ALONE]} | {name: reached(own, name) for name in GAINING}
                yield line


def releases() -> Iterator[dict[str, Any]]:
    """What the sums of resamples with public weights tell."""
    made = system(suite(1000), 1000, **FIXED)
    for count in (1, 2, 5, 10, 15, 20, 30):
        views = SumsViews(made, SEED, KNOWN_ROWS, count)
        seats = {"party": views.parties()[:SEATS], "all but one": views.all_but_one()}
        line: dict[str, Any] = {"resamples": count, **about(made)}
        for who, own in seats.items():
            line[who] = {ALONE: baselines(own)[ALONE], "weighted_releases": reached(own, "weighted_releases")}
        yield line


def known() -> Iterator[dict[str, Any]]:
    """The validator who knows all rows but a few: the rows that are left."""
    made = system(suite(1000, others=0), 1000, **FIXED)
    views = SumsViews(made, SEED, KNOWN_ROWS, RELEASES)
    seat = views.validator()
    for left in (1, 2, 5, 10, 20, 50, 100, 130, 200, 500):
        yield {"left": left, **about(made), **reached([views.knowing_all_but(seat, left)], "known_rows_left")}


def anew() -> Iterator[dict[str, Any]]:
    """A second release without a row, every function made anew. A row less than 1,010 leaves the functions as many."""
    held: dict[str, Callable[[], SumsSystem]] = {
        "suite": lambda: system(suite(1010), 1010),
        "suite, linear": lambda: system(suite(1010, generator="linear"), 1010),
        "sachs": lambda: system(load_causal("sachs"), len(load_causal("sachs").values)),
        "adult": lambda: system(adult().head(ADULT), ADULT),
    }
    for table, load in held.items():
        made = load()
        views = SumsViews(made, SEED, KNOWN_ROWS, RELEASES)
        yield {"table": table, **about(made), **reached([views.made_anew(views.validator())], "row_difference")}


MEASURED = {"tables": tables, "rows": rows, "releases": releases, "known": known, "anew": anew}


def markdown(name: str, lines: Sequence[Mapping[str, Any]]) -> str:
    """The figures that the pages quote."""
    found = []
    if name == "tables":
        for table in dict.fromkeys(line["table"] for line in lines):
            own = [line for line in lines if line["table"] == table]
            found += [f"## {table}", "", _row(["", *(line["case"] for line in own)]), _row(["---"] * (1 + len(own)))]
            found.append(_row(["rows for each function", *(f"{line['rows_a_function']:.0f}" for line in own)]))
            found.append(_row([ALONE, *(_plain(line["blind"][ALONE]) for line in own)]))
            found.append(_row([f"all but one: {ALONE}", *(_plain(line["blind_all_but_one"][ALONE]) for line in own)]))
            labels = dict.fromkeys(label for line in own for label in line["attacks"])
            found += [_row([label, *(_cell(line["attacks"].get(label)) for line in own)]) for label in labels]
            found.append("")
    elif name == "rows":
        head = ["functions", "graph", "rows", "rows for each function", f"party: {ALONE}", *GAINING]
        head += [f"all but one: {ALONE}", *GAINING]
        found += [_row(head), _row(["---"] * len(head))]
        for line in lines:
            cells = [line["how"], line["graph"], line["rows"], f"{line['rows_a_function']:.1f}"]
            for who in ("party", "all but one"):
                cells += [_plain(line[who][ALONE]), *(_cell(line[who][attack]) for attack in GAINING)]
            found.append(_row(cells))
    elif name == "anew":
        found += [_row(["table", "rows", "R² (gain)"]), _row(["---"] * 3)]
        found += [_row([line["table"], line["rows"], _cell(line)]) for line in lines]
    elif name == "releases":
        found += [
            _row(["resamples", "party: equations a row", "R² (gain)", "all but one: equations a row", "R² (gain)"])
        ]
        found.append(_row(["---"] * 5))
        for line in lines:
            parts = [line[who]["weighted_releases"] for who in ("party", "all but one")]
            cells = [text for part in parts for text in (f"{part['notes']['equations_a_row']:.2f}", _cell(part))]
            found.append(_row([line["resamples"], *cells]))
    else:
        found += [_row(["rows left", "empty directions", "rows found", "R²"]), _row(["---"] * 4)]
        for line in lines:
            notes = line["notes"]
            found.append(
                _row(
                    [
                        line["left"],
                        f"{notes['empty_directions']:.0f}",
                        f"{notes['rows_found']:.2f}",
                        f"{line['mean']:.2f}",
                    ]
                )
            )
    return "\n".join(found) + "\n"


def _plain(entry: Mapping[str, Any]) -> str:
    cells = f", {100 * entry['cells']:.0f} % right" if "cells" in entry else ""
    return f"{entry.get('mean', 0.0):.3f}{cells}"


def _cell(entry: Mapping[str, Any] | None) -> str:
    if not entry:
        return "–"
    if "auc" in entry:
        bound = "" if entry["bound"] is None else f", at most {entry['bound']:.2f}"
        return f"AUC {entry['auc']:.2f} (advantage {entry['advantage']:.2f}{bound})"
    cells = f", {100 * entry['cells']:.0f} % right ({100 * entry['cells_gain']:+.0f})" if "cells" in entry else ""
    return f"{entry['mean']:.3f} ({entry['gain']:+.3f}){cells}"


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", choices=sorted(MEASURED))
    parser.add_argument("--out", type=Path, default=Path("results/discovery/audit"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.names:
        started, lines = time.process_time(), []
        for line in MEASURED[name]():
            lines.append(line)
            print(
                json.dumps({key: line[key] for key in ("table", "case", "how", "rows", "left") if key in line}),
                flush=True,
            )
            config = {"seed": SEED, "known_rows": KNOWN_ROWS, "resamples": RELEASES, "others": OTHERS, "delta": DELTA}
            config |= {"graphs": GRAPHS, "seats": SEATS, "fixed": FIXED, "cases": CASES}
            whole = {"config": config, "machine": describe_machine(cuda=False)}
            whole |= {"processor_seconds": round(time.process_time() - started), "lines": lines}
            (asked.out / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
            (asked.out / f"{name}.md").write_text(markdown(name, lines), encoding="utf-8")


if __name__ == "__main__":
    main()
