"""The order of the leader's file stays at home: where a row stands says nothing of its label."""

from __future__ import annotations

import math
import shutil
import stat

import numpy as np
import polars as pl
import pytest
import tomli_w
import torch
from refusals import Names

from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.errors import InputError, RunError
from veracausa.federation.inference import SitePrediction
from veracausa.federation.row_matching import secret_order
from veracausa.federation.site_program import party_program
from veracausa.runs.store import deserialize_state
from veracausa.wire.threads import run_threads, thread_links

ROWS = 240


def quiet(event):
    pass


def auc(places, labels):
    """How well a row's place predicts its label, and its standard deviation where it does not at all."""
    labels = np.asarray(labels, dtype=bool)[np.argsort(places)]
    ones, zeros = int(labels.sum()), int((~labels).sum())
    ranks = np.arange(1, len(labels) + 1)[labels].sum()
    return (ranks - ones * (ones + 1) / 2) / (ones * zeros), math.sqrt((ones + zeros + 1) / (12 * ones * zeros))


def says_nothing(places, labels):
    # Five standard deviations: about one test in a million fails by chance. A sorted file gives 1, thirteen away.
    found, deviation = auc(places, labels)
    return abs(found - 0.5) < 5 * deviation


def sort_by(file, column):
    pl.read_csv(file).sort(column, maintain_order=True).write_csv(file)


def kept(root, name):
    return deserialize_state((root / name / "run" / "parties" / name / "alignment.safetensors").read_bytes())["state"][
        "rows"
    ]


def label_of(file, rows):
    """Of the people in these rows of a party's own file; what only somebody who knows them can say."""
    ids = pl.read_csv(file)["id"].to_list()
    return [int(ids[row][1:]) % 3 != 0 for row in rows]


@pytest.fixture
def sorted_by_label(tmp_path, organisations, table_job):
    """A bank whose file is sorted by the label, and a lab with most of the same people."""

    def make(match="all", **settings):
        job = table_job(("lab",), training={"epochs": 1, "batch_size": 64}, **settings)
        job["data"]["match"] = match
        sites = organisations(job, ("lab",), rows=ROWS, lacking={"lab": range(0, ROWS, 11), "bank": range(5, ROWS, 17)})
        sort_by(tmp_path / "files" / "bank.csv", "y")
        return sites

    return make


def aligned(sites, secret=True):
    ready = sites.prepared(secret)
    sites.each(lambda name, link: ready[name].align(link, quiet))
    return kept(sites.root, "lab")


@pytest.mark.parametrize("match", ["all", "active"])
def test_a_place_says_nothing_of_the_label(tmp_path, sorted_by_label, match):
    rows = aligned(sorted_by_label(match))
    file = tmp_path / "files" / "lab.csv"
    for split in ("train", "test"):
        places = (rows[split] >= 0).nonzero().flatten()
        assert says_nothing(places.numpy(), label_of(file, rows[split][places].tolist())), split
    assert (rows["train"] < 0).any() == (match == "active")


def test_the_same_check_finds_the_labels_where_the_order_of_the_file_is_told(tmp_path, sorted_by_label):
    rows = aligned(sorted_by_label(), secret=False)["train"]
    assert auc(np.arange(len(rows)), label_of(tmp_path / "files" / "lab.csv", rows.tolist()))[0] == 1.0


def test_which_rows_train_says_nothing_of_the_label(tmp_path, sorted_by_label):
    """The first rows of the agreed order, not of a file: in that, they would all have the same label."""
    rows = aligned(sorted_by_label(data={"train": 70, "validation": 0.0}))["train"]
    labels = np.array(label_of(tmp_path / "files" / "lab.csv", rows.tolist()))
    assert len(rows) == 70
    # In 70 of 200 rows, two thirds of which are "yes": 46.7 on average, with a standard deviation of 3.2.
    assert abs(labels.sum() - 46.7) < 16.5


def test_it_is_the_same_order_when_an_alignment_is_done_again(sorted_by_label):
    """Checkpoints are of rows in one order: they go on with it, whoever lost what was kept."""
    sites = sorted_by_label()
    before = aligned(sites)
    (sites.root / "lab/run/parties/lab/alignment.safetensors").unlink()
    after = aligned(sites)
    assert all(torch.equal(before[split], after[split]) for split in before)
    secret = sites.root / "bank/run/parties/bank/order"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert not (sites.root / "lab/run/parties/lab/order").exists()
    # Another run has another order of the same people.
    secret.unlink()
    (sites.root / "lab/run/parties/lab/alignment.safetensors").unlink()
    assert not torch.equal(aligned(sites)["train"], before["train"])


@pytest.mark.parametrize("secret", [True, False])
def test_a_run_goes_on_in_the_order_in_which_it_began(sorted_by_label, secret):
    sites = sorted_by_label()
    first = party_program(sites.root / "bank", "bank", secret)
    assert any("every partner learns it" in warning for warning in first.warnings) != secret
    with pytest.raises(InputError, match="begun without --job-seed" if secret else "begun with --job-seed"):
        party_program(sites.root / "bank", "bank", not secret)
    party_program(sites.root / "bank", "bank", secret)


def test_a_torn_secret_is_drawn_again(sorted_by_label):
    sites = sorted_by_label()
    party_program(sites.root / "bank", "bank")
    secret = sites.root / "bank/run/parties/bank/order"
    secret.write_bytes(b"")
    party_program(sites.root / "bank", "bank")
    assert len(secret.read_bytes()) == 32
    secret.write_bytes(b"half")
    with pytest.raises(InputError, check=Names("order", "4", "32")):
        party_program(sites.root / "bank", "bank")


def test_ids_and_the_key_alone_make_the_order():
    ids = [f"p{n}" for n in range(50)]
    order = [ids[at] for at in secret_order(ids, b"k" * 32, 0).tolist()]
    assert order == [ids[::-1][at] for at in secret_order(ids[::-1], b"k" * 32, 0).tolist()]
    assert sorted(order) == sorted(ids)
    for key, number in ((b"j" * 32, 0), (b"k" * 32, 1)):
        assert order != [ids[at] for at in secret_order(ids, key, number).tolist()]


def test_new_rows_are_predicted_in_no_partys_order_and_come_back_in_the_active_partys(
    tmp_path, sorted_by_label, people
):
    sites = sorted_by_label(defense={"name": "none"})
    ready = sites.prepared(secret=True)

    def train(name, link):
        ready[name].align(link, quiet)
        ready[name].run(link, quiet, None)

    sites.each(train)
    columns = {"bank": ("y",), "lab": ("a", "b")}
    files = {name: people(tmp_path / f"new-{name}.csv", range(300, 500), columns[name], 4) for name in columns}
    sort_by(files["bank"], "y")
    found, asked = {}, []

    def predict(name, link):
        party = SitePrediction(sites.root / name, name, files[name])
        rows = party._rows
        party._rows = lambda link, notify: asked.append((name, data := rows(link, notify))) or data
        found[name] = party(link, quiet)

    sites.each(predict)
    (ids,) = [data.test.ids for name, (data, _) in asked if name == "lab"]
    assert says_nothing(np.arange(len(ids)), [int(id[1:]) % 3 != 0 for id in ids])
    predictions = found["bank"]
    table = pl.read_csv(files["bank"])
    assert predictions.ids == tuple(table["id"])
    right = [label == truth for label, truth in zip(predictions.labels, table["y"], strict=True)]
    assert predictions.scores["accuracy"] == pytest.approx(np.mean(right))
    # Without new rows, those of the test: in the file's order, too.
    sites.each(lambda name, link: found.update({name: SitePrediction(sites.root / name, name)(link, quiet)}))
    whole = pl.read_csv(tmp_path / "files" / "bank.csv")["id"].to_list()
    at = [whole.index(id) for id in found["bank"].ids]
    assert at == sorted(at)


@pytest.mark.parametrize("method", ["moments", "vfedcd"])
def test_a_discovery_tells_nothing_of_the_first_partys_file(tmp_path, method):
    rng = np.random.default_rng(3)
    values = rng.normal(size=ROWS)
    job = {"kind": "discovery", "method": method, "data": {"on": "id"}, "parties": {"bank": [], "lab": []}}
    for name, order in {"bank": np.argsort(values), "lab": rng.permutation(ROWS)}.items():
        ids = [f"p{row}" for row in order]
        pl.DataFrame({"id": ids, f"of_{name}": values[order]}).write_csv(tmp_path / f"{name}.csv")
    names = ("bank", "lab", VALIDATOR)
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.toml").write_text(tomli_w.dumps(job))
        if name != VALIDATOR:
            (tmp_path / name / "party.toml").write_text(
                tomli_w.dumps({"data": {"path": str(tmp_path / f"{name}.csv")}})
            )

    def rows(secret):
        ready = {name: party_program(tmp_path / name, name, secret) for name in names}
        programs = {name: (lambda link, site=site: site.align(link, quiet)) for name, site in ready.items()}
        run_threads(programs, thread_links(names, timeout=30))
        ids = pl.read_csv(tmp_path / "lab.csv")["id"].to_list()
        return [values[int(ids[row][1:])] > 0 for row in kept(tmp_path, "lab").tolist()]

    assert says_nothing(np.arange(ROWS), rows(secret=True))
    for name in names:
        (tmp_path / name / "run").rename(tmp_path / f"{name}-before")
    assert auc(np.arange(ROWS), rows(secret=False))[0] == 1.0


def test_a_secret_order_outlives_a_fault(tmp_path, organisations, table_job):
    """The same secrets, with and without a fault after which a party has lost its alignment: the same weights."""
    sites = organisations(table_job(("lab",), checkpoints={"every_steps": 2}), ("lab",))
    sites.prepared(secret=True)
    shutil.copytree(sites.root, tmp_path / "undisturbed")

    def run(root, start=None, links=None):
        ready = {name: party_program(root / name, name) for name in sites.names}

        def program(name, link):
            ready[name].align(link, quiet)
            ready[name].run(link, quiet, start)

        sites.each(program, links)

    run(tmp_path / "undisturbed")
    links = sites.links()
    send, sent = links["lab"].send, 0

    def dying(to, kind, step, tensors=None, **meta):
        nonlocal sent
        sent += kind.name == "representation"
        if sent > 5:
            raise RunError("pulled the plug")
        send(to, kind, step, tensors, **meta)

    links["lab"].send = dying
    with pytest.raises(RunError, match="pulled"):
        run(sites.root, links=links)
    steps = [party_program(sites.root / name, name).store.whole_steps() for name in sites.names]
    (sites.root / "lab/run/parties/lab/alignment.safetensors").unlink()
    run(sites.root, max(set.intersection(*map(set, steps))))
    for name in sites.names:
        model = f"{name}/run/parties/{name}/model.safetensors"
        assert (sites.root / model).read_bytes() == (tmp_path / "undisturbed" / model).read_bytes()
