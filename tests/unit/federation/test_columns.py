"""A discovery from everybody's own folder finds what one finds in one place, and tells each party its part."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tomli_w
import torch
from refusals import Field, Names

from veracausa.discovery.discover import DiscoveryRun, run_job
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.job import DiscoveryJob
from veracausa.errors import InputError, RunError, WireError
from veracausa.federation import columns as site_columns
from veracausa.federation.columns import ATTRIBUTES, Attributes
from veracausa.federation.site_program import party_program
from veracausa.federation.vfedcd_site import LIVES
from veracausa.wire.message import Message
from veracausa.wire.threads import run_threads, thread_links

ROWS = 80
SETTINGS = {"epochs": 2, "refit_epochs": 2, "batch": 16, "width": 3, "structure_every": 2, "searches": []}


def cause_and_effect(rows=ROWS):
    rng = np.random.default_rng(5)
    a = rng.normal(size=rows)
    b = np.tanh(a) + 0.3 * rng.normal(size=rows)
    c = (a + rng.normal(size=rows) > 0).astype(int)
    d = b - c + 0.3 * rng.normal(size=rows)
    return {"a": a, "b": b, "c": c, "d": d, "flat": np.ones(rows), "e": rng.normal(size=rows)}


HELD = {"bank": ("a", "flat"), "lab": ("b",), "clinic": ("c", "d", "e")}


class Discovery:
    """The same files in folders of their own, and in one place."""

    def __init__(self, root, parties, gaps=False, **settings):
        self.root, self.parties = root, tuple(parties)
        self.settings = {**SETTINGS, **({} if settings.get("strong") else {"encryption": "none"}), **settings}
        values, rows, self.files = cause_and_effect(), np.arange(ROWS), {}
        root.mkdir()
        job = {
            "kind": "discovery",
            "method": "vfedcd",
            "seed": 4,
            "data": {"on": "id"},
            "parties": {name: [] for name in parties},
            "settings": self.settings,
            "simulation": self.settings.get("encryption") == "none",
        }
        for seed, name in enumerate(parties):
            order = np.random.default_rng(seed).permutation(rows[(rows % 7 != seed) | (not gaps)])
            lines = [",".join(["id", *HELD[name]])]
            for row in order:
                cells = [
                    "" if gaps and (row + seed) % 11 == 0 else f"{values[column][row]:.4f}" for column in HELD[name]
                ]
                lines.append(",".join([f"p{row}", *cells]))
            self.files[name] = root / f"{name}.csv"
            self.files[name].write_text("\n".join(lines) + "\n")
        for name in (*parties, VALIDATOR):
            folder = root / name
            folder.mkdir()
            (folder / "job.toml").write_text(tomli_w.dumps(job))
            if name in self.files:
                (folder / "party.toml").write_text(tomli_w.dumps({"data": {"path": str(self.files[name])}}))

    def whole(self):
        job = DiscoveryJob(
            method="vfedcd",
            seed=4,
            data={"files": {name: str(path) for name, path in self.files.items()}, "on": "id"},
            settings={**self.settings, "engine": "federated"},
        )
        return run_job(job, self.root / "whole")

    def run(self, start=None, links=None, seed=None, secret=False):
        names = (*self.parties, VALIDATOR)
        sites = {name: party_program(self.root / name, name, secret) for name in names}
        for site in sites.values():
            site.seed = site.seed if seed is None else seed

        def program(name):
            def run(link):
                sites[name].align(link, lambda event: None)
                sites[name].run(link, lambda event: None, start)

            return run

        run_threads({name: program(name) for name in names}, links or thread_links(names, timeout=30))
        return sites

    def found(self, name):
        return DiscoveryRun(self.root / name / "run")


def check_same(discovery, whole):
    for file in ("edges.csv", "strengths.csv", "graph.graphml", "metrics.jsonl"):
        assert (discovery.found(VALIDATOR).path / file).read_bytes() == (whole.path / file).read_bytes(), file
    summary, expected = discovery.found(VALIDATOR).summary, whole.summary
    for name in ("edges", "threshold", "held_out_log_likelihood", "attributes", "acyclic", "reveal"):
        assert summary[name] == expected[name], name
    for party in discovery.parties:
        path = discovery.found(party).path / "parties" / party
        assert (path / "edges.csv").read_bytes() == (whole.path / "parties" / party / "edges.csv").read_bytes()
        assert [other.name for other in path.parent.iterdir()] == [party]
        sent = discovery.found(party).summary["parties"][party]["bytes_sent"]
        assert sent == expected["parties"][party]["bytes_sent"]


@pytest.mark.parametrize(
    ("parties", "settings"),
    [
        (("bank", "clinic"), {"missing": "drop"}),
        (("bank", "lab", "clinic"), {"missing": "median", "reveal": "own", "threshold": 0.01}),
    ],
)
def test_the_same_graph_as_in_one_place(tmp_path, parties, settings):
    """With rows that some party lacks, and cells without a value."""
    discovery = Discovery(tmp_path / "sites", parties, gaps=True, **settings)
    whole = discovery.whole()
    assert whole.summary["rows"] < ROWS
    assert len(parties) < 3 or whole.summary["edges"] > 3
    sites = discovery.run()
    check_same(discovery, whole)
    everything = whole.summary["bytes_sent"]
    for name, site in sites.items():
        assert (site.path / "report.html").is_file()
        status = discovery.found(name).status
        assert (status["state"], status["share"], status["seconds_left"]) == ("done", 1.0, 0.0)
        assert status["epoch"] == status["epochs"] == site._epochs
        assert discovery.found(name).summary["announced"] == status["announced"]
        assert status["announced"]["bytes"] == pytest.approx(everything, rel=0.6)  # of few epochs, set-up is much
        declared = {line.kind: line.to for line in site.declared}
        for ledger in (site.path / "parties" / name).glob("*.jsonl"):
            for line in map(json.loads, ledger.read_text().splitlines()):
                assert line["to"] in declared[line["kind"]]


@pytest.mark.slow
def test_it_goes_on_after_a_fault(tmp_path):
    discovery = Discovery(tmp_path / "sites", ("bank", "clinic"), epochs=12, refit_epochs=2)
    whole = discovery.whole()
    links = thread_links(("bank", "clinic", VALIDATOR), timeout=30)
    send, sent = links["bank"].send, 0

    def dying(to, kind, step, tensors=None, **meta):
        nonlocal sent
        sent += kind.name == "answer"
        if sent > 75:
            raise RunError("pulled the plug")
        send(to, kind, step, tensors, **meta)

    links["bank"].send = dying
    with pytest.raises(RunError, match="pulled"):
        discovery.run(links=links)
    sites = [party_program(discovery.root / name, name, secret=False) for name in ("bank", "clinic", VALIDATOR)]
    step = max(set.intersection(*(site.store.whole_steps() for site in sites)))
    assert step == 10
    # One party does not know of a start that the others do: the next number is still new to all.
    plan = discovery.root / "clinic/run/parties/clinic/plan.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"lives": 0}))
    discovery.run(step)
    lives = [json.loads(path.read_text())["lives"] for path in discovery.root.glob("*/run/parties/*/plan.json")]
    assert lives == [2, 2, 2]
    for file in ("edges.csv", "strengths.csv"):
        assert (discovery.found(VALIDATOR).path / file).read_bytes() == (whole.path / file).read_bytes()


STRONG = {"bernoulli": False, "epochs": 12, "refit_epochs": 1, "candidates": 3}


@pytest.mark.parametrize(
    ("parties", "strong"),
    [
        (("bank", "clinic"), True),
        pytest.param(("bank", "lab", "clinic"), "replicated", marks=pytest.mark.slow),
        pytest.param(("bank", "clinic"), "dealer", marks=pytest.mark.slow),
    ],
)
def test_a_strong_discovery_goes_on_after_a_fault_and_is_told_to_all(tmp_path, parties, strong):
    """With new shares and numbers: what a member was sent before does not fit after it."""
    discovery = Discovery(tmp_path / "sites", parties, strong=strong, **STRONG)
    names = (*parties, VALIDATOR)
    seen = []

    def watched(links):
        for name, link in links.items():

            def receive(sender, kind, step, name=name, receive=link.receive):
                message = receive(sender, kind, step)
                seen.append(message)
                return message

            link.receive = receive
        return links

    def stopping(links):
        send = links["bank"].send

        def dying(to, kind, step, tensors=None, **meta):
            # The second half of a step of the eleventh epoch: all have kept the tenth.
            dying.sums += kind.name == "sums"
            if dying.sums > 10.5 * 4 * (len(parties) - 1):
                raise RunError("pulled the plug")
            send(to, kind, step, tensors, **meta)

        dying.sums = 0
        links["bank"].send = dying
        return links

    with pytest.raises(RunError, match="pulled"):
        discovery.run(links=stopping(watched(thread_links(names, timeout=30))))
    before = len(seen)
    sites = [party_program(discovery.root / name, name, secret=False) for name in names]
    step = max(set.intersection(*(site.store.whole_steps() for site in sites)))
    assert step == 10
    found = discovery.run(step, links=watched(thread_links(names, timeout=30)))
    epochs = [json.loads(line)["epoch"] for line in (found[VALIDATOR].path / "metrics.jsonl").read_text().splitlines()]
    assert epochs == list(range(1, 14))
    edges = [(discovery.found(name).path / "edges.csv").read_bytes() for name in names]
    assert len(set(edges)) == 1
    assert discovery.found("bank").status["state"] == "done"
    secret = [m for m in seen if "words" in m.tensors]
    for name in names:
        own = torch.cat([m.tensors["words"].ravel() for m in secret if m.receiver == name])
        assert len(own.unique()) == len(own) > 500
    numbers = [{(m.sender, m.receiver, m.kind, m.step) for m in part if "words" in m.tensors or m.kind == "result"}
               for part in (seen[:before], seen[before:])]  # fmt: skip
    assert not numbers[0] & numbers[1]
    for name, site in found.items():
        declared = {line.kind: line.to for line in site.declared}
        for ledger in (site.path / "parties" / name).glob("*.jsonl"):
            for line in map(json.loads, ledger.read_text().splitlines()):
                assert line["to"] in declared[line["kind"]]


def test_a_strong_discovery_refuses_columns_of_two_values_by_name(tmp_path):
    discovery = Discovery(tmp_path / "sites", ("bank", "clinic"), strong=True, epochs=1, refit_epochs=1)
    with pytest.raises(InputError, check=Names("c", "clinic")):
        discovery.run()


def test_an_encrypted_discovery_draws_one_order_for_all(tmp_path):
    discovery = Discovery(
        tmp_path / "sites", ("bank", "clinic"), encryption="bfv", epochs=1, refit_epochs=0, threshold=0.1
    )
    ready = {name: party_program(discovery.root / name, name) for name in ("bank", "clinic", VALIDATOR)}

    def align(name):
        return lambda link: ready[name].align(link, lambda event: None)

    for _ in range(2):
        run_threads({name: align(name) for name in ready}, thread_links(tuple(ready), timeout=30))
        seeds = {site.plan.order_seed for site in ready.values()}
        assert len(seeds) == 1
    assert ready["bank"].seed is None
    assert len({json.dumps(site.plan.describe()) for site in ready.values()}) == 1


@pytest.mark.slow
def test_an_encrypted_discovery_finds_the_same(tmp_path):
    """Masks and ciphertexts change nothing that is opened: with the same draws, the graph of an open one."""
    open_ = Discovery(tmp_path / "open", ("bank", "clinic"), epochs=1, refit_epochs=1)
    whole = open_.whole()
    hidden = Discovery(tmp_path / "hidden", ("bank", "clinic"), epochs=1, refit_epochs=1, encryption="bfv")
    hidden.run(seed=4)
    for file in ("edges.csv", "strengths.csv"):
        assert (hidden.found(VALIDATOR).path / file).read_bytes() == (whole.path / file).read_bytes()


def message(names, kept, kinds, rows=10, raw=None, rows_name=""):
    own = Attributes(("x",), np.array([True]), ("number",), rows)
    tensors = own.tensors() | {
        "names": torch.frombuffer(bytearray(raw or json.dumps(names).encode()), dtype=torch.uint8),
        "kept": torch.tensor(kept),
        "kinds": torch.tensor(kinds, dtype=torch.uint8),
    }
    return Message("lab", "bank", ATTRIBUTES.name, 0, tensors, {"rows": rows, "rows_name": rows_name})


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (message(["a"], [True], [0], raw=b"{"), "no list of names"),
        (message([1], [True], [0]), "no list of names"),
        (message(["a", "a"], [True, True], [0, 0]), "one of them twice"),
        (message(["a\n"], [True], [0]), "not printable"),
        (message(["a" * 300], [True], [0]), "too long"),
        (message(["a", "b"], [True], [0]), "other columns"),
        (message(["a"], [False], []), "other columns"),
        (message(["a"], [True], [0], rows_name="x" * 32), "what is no hash"),
        (message(["a"], [True], [3]), "a kind that there is not"),
        (message(["a"], [True], [0], rows=-1), "claims -1 rows"),
        (message(["a"], [True], [0], rows=1 << 40), "claims 1099511627776 rows"),
    ],
)
def test_columns_that_can_not_be_are_refused(said, problem):
    with pytest.raises(WireError, match=f"'lab' .*{problem}"):
        Attributes.of_message(said)


def exchanged(*own):
    names = [f"p{at}" for at in range(len(own))]
    programs = {
        name: (lambda link, said=said: site_columns.exchange(link, names, said))
        for name, said in zip(names, own, strict=True)
    }
    run_threads(programs, thread_links(names, timeout=5))


def test_a_party_that_claims_more_rows_or_anothers_column():
    def said(name, rows):
        return Attributes((name,), np.array([True]), ("number",), rows)

    with pytest.raises(WireError, match=r"'p1' claims 11 rows, 10 are in common|'p0' claims 10 rows, 11"):
        exchanged(said("a", 10), said("b", 11))
    with pytest.raises(InputError, check=Names("a", "p0", "p1")):
        exchanged(said("a", 10), said("a", 10))


def test_lives_are_bounded(tmp_path):
    discovery = Discovery(tmp_path / "sites", ("bank", "clinic"))
    links = thread_links(("bank", "clinic", VALIDATOR), timeout=30)
    send = links["clinic"].send

    def lying(to, kind, step, tensors=None, **meta):
        send(to, kind, step, tensors, **(meta if kind != LIVES else {"before": 1 << 40}))

    links["clinic"].send = lying
    with pytest.raises(WireError, check=Field("lives.before")):
        discovery.run(links=links)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"settings": {"bootstrap": 3}}, "settings.bootstrap"),
        ({"settings": {"start": "moments"}}, "settings.start = 'moments'"),
        ({"settings": {"profile": "general", "start": "empty"}}, "settings.likelihood = 'tested' is for one place"),
        ({"method": "notears"}, "needs all columns in one place"),
        ({"settings": {"engine": "floating"}}, "engine = 'floating'"),
        ({"settings": {"encryption": "paillier"}}, "encryption = 'paillier' is for one machine.*use bfv"),
        ({"data": {"files": {"bank": "x.csv"}}}, "data.files"),
        ({"parties": {"bank": []}}, "name two at least"),
        ({"parties": {"a": [], "b": []}}, "'bank' has no part"),
    ],
)
def test_what_can_not_be_across_sites(tmp_path, change, problem):
    job = {"kind": "discovery", "method": "vfedcd", "data": {"on": "id"}, "parties": {"bank": [], "lab": []}} | change
    (tmp_path / "job.toml").write_text(tomli_w.dumps(job))
    with pytest.raises(InputError, match=problem):
        party_program(tmp_path, "bank")
    assert not (tmp_path / "run").exists()
