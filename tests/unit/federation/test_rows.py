"""A party's rows at its own site are those that a run in one place would hand it, to the bit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from refusals import Field, Names

from veracausa.config import load_job
from veracausa.data.load import load
from veracausa.data.vertical import SPLITS
from veracausa.errors import InputError, WireError
from veracausa.federation import row_matching as order
from veracausa.federation.row_matching import NOTHING, agree_on_kept, checked_places
from veracausa.federation.rows import HELD, SCHEMA, SiteTable
from veracausa.training.split.program import Schema
from veracausa.wire.threads import run_threads, thread_links

PASSIVE = ("lab", "clinic")
ROOT = Path("/nowhere")
"""Paths are absolute in most tests."""


def write(path, people, columns, seed):
    """A file of these people in an order of its own; a cell follows from the person and the column."""
    people = list(people)
    random.Random(seed).shuffle(people)
    lines = [",".join([f"p{n}", *(cell(n, column) for column in columns)]) for n in people]
    path.write_text("\n".join([",".join(["id", *columns]), *lines]) + "\n")
    return path


def cell(n, column):
    if column == "y":
        return "yes" if n % 3 else "no"
    if column == "kind":
        return "uvw"[n % 3] if n % 7 else ""
    return f"{(n * 7919 + ord(column[0]) * 31) % 97 / 7:.3f}"


COLUMNS = {"bank": ("y", "income"), "lab": ("a", "b"), "clinic": ("kind", "c")}


def make_files(folder, passive, people, tests=None, apart=()):
    """Every party's own settings; `people` and `tests` say who has whom, `apart` who has test files of its own."""
    owned = {}
    for seed, name in enumerate(("bank", *passive)):
        train = set(people.get(name, people["all"]))
        own = {"id": "id"}
        if tests and name in apart:
            own["test_path"] = str(write(folder / f"{name}-test.csv", tests, COLUMNS[name], seed + 10))
        elif tests:
            train |= set(tests)
        own["path"] = str(write(folder / f"{name}.csv", train, COLUMNS[name], seed))
        owned[name] = own
    return owned


def job_of(passive, owned=None, **settings):
    data = {"name": "csv", "label": "y", "validation": 0.2, **settings.pop("data", {})}
    tree = {"seed": 3, "data": data, "model": {"name": "mlp"}, **settings}
    tree["parties"] = {"active": "bank", "passive": list(passive)}
    return load_job({**tree, "party": {name: {"data": own} for name, own in (owned or {}).items()}})


def at_sites(passive, owned, **settings):
    """What each site has for itself after an alignment; every one sees its own settings only."""
    names = ("bank", *passive)
    result = {}

    def site(name):
        table = SiteTable(job_of(passive, {name: owned[name]}, **settings), name, folder=ROOT)

        def run(link):
            result[name] = table.data(table.find(link, lambda event: None, None))

        return run

    run_threads({name: site(name) for name in names}, thread_links(names, timeout=20))
    return result


def check_same(passive, owned, **settings):
    whole = load(job_of(passive, owned, **settings))
    sites = at_sites(passive, owned, **settings)
    for name, expected in whole.parties.items():
        data, schema, _ = sites[name]
        assert (data.name, data.shape, data.preprocessing) == (expected.name, expected.shape, expected.preprocessing)
        assert (schema.task, schema.outputs, schema.join) == (whole.task, Schema.of(whole).outputs, whole.join)
        for split in SPLITS:
            part, other = data.part(split), expected.part(split)
            assert (part.length, part.ids, part.groups) == (other.length, other.ids, other.groups)
            for field in ("features", "index", "labels"):
                one, two = getattr(part, field), getattr(other, field)
                assert (one is None) == (two is None), field
                assert one is None or (one.dtype == two.dtype and torch.equal(one, two)), field
    assert sites["bank"][1].classes == whole.classes
    assert sites["lab"][1].classes == ("0", "1")  # the names stay with the active party
    return sites


@pytest.mark.parametrize("passive", [("lab",), PASSIVE])
def test_same_people_everywhere(tmp_path, passive):
    owned = make_files(tmp_path, passive, {"all": range(40)})
    check_same(passive, owned, partition={"active_has_features": len(passive) == 1})


@pytest.mark.parametrize("passive", [("lab",), PASSIVE])
def test_gaps_stay_where_the_active_partys_rows_count(tmp_path, passive):
    people = {"all": range(60), "lab": [n for n in range(10, 70) if n % 5], "clinic": range(5, 60)}
    owned = make_files(tmp_path, passive, people)
    data = {"match": "active", "train": 40, "test": 9}
    sites = check_same(passive, owned, data=data, overlap={"fraction": 0.8, "parties": ["lab"]})
    assert any("validation rows dropped" in note for note in sites["bank"][2])
    assert sites["lab"][0].train.present_count() < len(sites["lab"][0].train)


@pytest.mark.parametrize("apart", [("bank",), ("bank", "clinic"), ("bank", *PASSIVE)])
def test_test_files(tmp_path, apart):
    owned = make_files(tmp_path, PASSIVE, {"all": range(30)}, tests=range(100, 110), apart=apart)
    check_same(PASSIVE, owned, data={"match": "active"})


def test_only_common_rows_by_default(tmp_path):
    some = {"all": range(50), "lab": range(5, 60), "clinic": [n for n in range(55) if n % 4]}
    sites = at_sites(PASSIVE, make_files(tmp_path, PASSIVE, some))
    assert sites["lab"][2] == ("34 of the 55 rows of lab.csv are among those that every party has",)
    (tmp_path / "cut").mkdir()
    common = [n for n in range(5, 50) if n % 4]
    # The same as in one place with files that hold nobody else, in the same order.
    cut = {}
    for name, own in sites_files(tmp_path).items():
        header, *lines = own.read_text().splitlines()
        kept = [line for line in lines if int(line.split(",")[0][1:]) in common]
        (tmp_path / "cut" / own.name).write_text("\n".join([header, *kept]) + "\n")
        cut[name] = {"id": "id", "path": str(tmp_path / "cut" / own.name)}
    whole = load(job_of(PASSIVE, cut))
    for name, (data, _, _) in sites.items():
        for split in SPLITS:
            assert data.part(split).ids == whole.parties[name].part(split).ids
        if data.train.features is not None:
            assert torch.equal(data.train.features, whole.parties[name].train.features)


def sites_files(folder):
    return {name: folder / f"{name}.csv" for name in ("bank", *PASSIVE)}


@pytest.mark.parametrize(
    ("places", "problem"),
    [([0, 1, 1], "no order"), ([0, 1, 3], "no order"), ([0, -1, 2], "no order"), ([0, 1], "places 2 rows")],
)
def test_what_is_no_order_is_refused(places, problem):
    with pytest.raises(WireError, match=problem) as refused:
        checked_places(torch.tensor(places), 3, "bank")
    assert "'bank'" in str(refused.value)


def hostile(tmp_path, program, expected):
    """One honest lab whose partner `bank` runs this program instead."""
    owned = make_files(tmp_path, ("lab",), {"all": range(20)})
    table = SiteTable(job_of(("lab",), {"lab": owned["lab"]}), "lab", ROOT)
    links = thread_links(("bank", "lab"), timeout=5)
    with pytest.raises(WireError, match=expected):
        run_threads({"bank": program, "lab": lambda link: table.find(link, lambda event: None, None)}, links)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"task": "guess", "outputs": 2, "tests": 0}, "'bank' names a task"),
        ({"task": "classification", "outputs": 1 << 40, "tests": 0}, "'bank' claims 1099511627776 outputs"),
        ({"task": "regression", "outputs": 2, "tests": 0}, "'bank' claims 2 outputs"),
        ({"task": "regression", "outputs": 1, "tests": 7}, "'bank' must say"),
    ],
)
def test_a_schema_that_can_not_be(tmp_path, said, expected):
    def bank(link):
        link.declare(SCHEMA)
        link.send("lab", SCHEMA, 0, **said)

    hostile(tmp_path, bank, expected)


def test_an_order_that_is_none_over_the_wire(tmp_path):
    """The active party does all that it should, and then puts two rows in one place."""
    owned = make_files(tmp_path, ("lab",), {"all": range(20)})
    tables = {name: SiteTable(job_of(("lab",), {name: owned[name]}), name, ROOT) for name in ("bank", "lab")}
    links = thread_links(("bank", "lab"), timeout=5)
    send = links["bank"].send

    def lying(to, kind, step, tensors=None, **meta):
        if kind is order.PLACES:
            tensors = {"places": torch.zeros_like(tensors["places"])}
        send(to, kind, step, tensors, **meta)

    links["bank"].send = lying
    programs = {
        name: (lambda link, table=table: table.find(link, lambda event: None, None)) for name, table in tables.items()
    }
    with pytest.raises(WireError, check=Field("places.places", "bank", "20")):
        run_threads(programs, links)


def test_a_passive_party_that_claims_more_rows(tmp_path):
    owned = make_files(tmp_path, ("lab",), {"all": range(20)})
    tables = {
        name: SiteTable(job_of(("lab",), {name: owned[name]}, data={"match": "active"}), name, ROOT)
        for name in ("bank", "lab")
    }
    links = thread_links(("bank", "lab"), timeout=5)
    send = links["lab"].send

    def lying(to, kind, step, tensors=None, **meta):
        if kind is HELD:
            tensors = {**tensors, "test": torch.ones(99, dtype=torch.bool)}
        send(to, kind, step, tensors, **meta)

    links["lab"].send = lying
    programs = {
        name: (lambda link, table=table: table.find(link, lambda event: None, None)) for name, table in tables.items()
    }
    with pytest.raises(WireError, check=Field("held.test")):
        run_threads(programs, links)


def test_own_settings_are_checked_at_home(tmp_path):
    owned = make_files(tmp_path, ("lab",), {"all": range(20)})
    with pytest.raises(InputError, check=Names("party.toml", "data.path")):
        SiteTable(job_of(("lab",), {"lab": {"id": "id"}}), "lab", tmp_path)
    with pytest.raises(InputError, check=Names("party.toml", "data.id")):
        SiteTable(job_of(("lab",), {"lab": {"path": owned["lab"]["path"]}}), "lab", tmp_path)
    with pytest.raises(InputError, match="both name columns"):
        SiteTable(
            job_of(("lab",), {"lab": {**owned["lab"], "columns": ["a"]}}, partition={"columns": {"lab": ["a"]}}),
            "lab",
            tmp_path,
        )
    # A path is found beside party.toml, wherever the program was started.
    assert SiteTable(job_of(("lab",), {"lab": {"id": "id", "path": "lab.csv"}}), "lab", tmp_path).columns == ("a", "b")


@pytest.mark.parametrize(("theirs", "same"), [((b"a" * 16, b"a" * 16), True), ((b"a" * 16, NOTHING), False)])
def test_an_alignment_is_used_again_only_where_all_have_it(theirs, same):
    names, found = ("bank", "lab", "clinic"), {}
    kept = dict(zip(names, (b"a" * 16, *theirs), strict=True))

    def site(name):
        def run(link):
            found[name] = agree_on_kept(link, names, kept[name])

        return run

    run_threads({name: site(name) for name in names}, thread_links(names, timeout=5))
    assert {reuse for reuse, _ in found.values()} == {same}
    assert len({fingerprint for _, fingerprint in found.values()}) == 1
    assert (found["bank"][1] == kept["bank"]) == same
