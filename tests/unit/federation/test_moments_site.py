"""A discovery from sums at everybody's own folder: the graph of one place, one release over kills, and refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import tomli_w
import torch
from refusals import Field, Names, Peer

from veracausa.discovery.discover import DiscoveryRun, run_job
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.job import DiscoveryJob, load_columns
from veracausa.errors import InputError, PeerLost, RunError, WireError
from veracausa.federation.site_program import party_program
from veracausa.runs.store import deserialize_state
from veracausa.training.blind.book import releases_in
from veracausa.wire.ledger import read_ledger
from veracausa.wire.threads import run_threads, thread_links

ROWS = 400
HELD = {"bank": ("a", "kind", "flat", "seen"), "lab": ("b", "two"), "clinic": ("c", "d")}
SHOWN = {"bank": ("a", "kind", "flat"), "lab": ("b", "two"), "clinic": ("c", "d")}
"""Without the column of dates."""


def people(rows: int = ROWS) -> pl.DataFrame:
    """Numbers, categories, two values, a constant, dates, and gaps."""
    rng = np.random.default_rng(5)
    a = rng.normal(size=rows)
    kind = np.array(list("uvw"))[np.digitize(a + 0.7 * rng.normal(size=rows), [-0.5, 0.5])]
    b = np.tanh(2 * a) + 0.4 * rng.normal(size=rows)
    two = (b + 0.5 * rng.normal(size=rows) > 0).astype(int)
    c = b**2 + 0.4 * rng.normal(size=rows)
    d = [None if at % 11 == 0 else float(x) for at, x in enumerate(c - a + 0.4 * rng.normal(size=rows))]
    seen = [f"2020-01-{at % 28 + 1:02d}" for at in range(rows)]
    table = {"a": a, "kind": kind, "flat": np.ones(rows), "seen": seen, "b": b, "two": two, "c": c, "d": d}
    return pl.DataFrame({"id": [f"p{at}" for at in range(rows)], **table})


class Sites:
    """A folder a member. The twin stands in for the encryption where nothing else is said."""

    def __init__(
        self, root: Path, parties: tuple[str, ...] = ("bank", "lab"), book: str | None = None, **settings: Any
    ) -> None:
        self.root, self.parties, self.book = root, parties, book
        settings = {"encryption": "none", "starts": 1, **settings}
        self.members = parties if settings.get("receiver") == "all" else (*parties, VALIDATOR)
        self.job: dict[str, Any] = {
            "kind": "discovery",
            "seed": 4,
            "data": {"on": "id"},
            "parties": {name: [] for name in parties},
            "settings": settings,
            "simulation": settings["encryption"] == "none",
        }
        root.mkdir(parents=True)
        whole = people()
        for at, name in enumerate(parties):
            rows = whole.filter(pl.int_range(pl.len()) % 17 != at).sample(fraction=1.0, seed=at, shuffle=True)
            rows.select("id", *HELD[name]).write_csv(self.file(name))
        for name in self.members:
            (root / name).mkdir()
        self.write()

    def write(self) -> None:
        for name in self.members:
            (self.root / name / "job.toml").write_text(tomli_w.dumps(self.job))
            if name in self.parties:
                own = {"data": {"path": str(self.file(name))}} | ({"book": self.book.format(name)} if self.book else {})
                (self.root / name / "party.toml").write_text(tomli_w.dumps(own))

    def file(self, name: str) -> Path:
        return self.root / f"{name}.csv"

    def links(self, timeout: float = 20) -> dict[str, Any]:
        return thread_links(self.members, timeout=timeout)

    def run(self, links: Any = None, start: int | None = None, secret: bool = False) -> dict[str, Any]:
        sites = {name: party_program(self.root / name, name, secret) for name in self.members}

        def program(name: str) -> Any:
            def run(link: Any) -> None:
                sites[name].align(link, lambda event: None)
                sites[name].run(link, lambda event: None, start)

            return run

        run_threads({name: program(name) for name in self.members}, links or self.links())
        return sites

    def common(self) -> int | None:
        """The newest checkpoint that all members hold."""
        sites = [party_program(self.root / name, name, secret=False) for name in self.members]
        return max(set.intersection(*(site.store.whole_steps() for site in sites)), default=None)

    def whole(self) -> DiscoveryRun:
        """The same files in one place, each party a thread."""
        job = DiscoveryJob(
            method="moments",
            seed=4,
            data={"files": {name: str(self.file(name)) for name in self.parties}, "on": "id"},
            settings={**self.job["settings"], "encryption": "none"},
        )
        return run_job(job, self.root / "whole")

    def found(self, name: str) -> DiscoveryRun:
        return DiscoveryRun(self.root / name / "run")

    def edges(self, name: str) -> bytes:
        return (self.found(name).path / "edges.csv").read_bytes()

    def releases(self, name: str) -> dict[str, float]:
        """That the party's run has on record."""
        return releases_in(self.root / name / "run" / "parties" / name)

    def opened(self) -> bytes:
        """The integers that were opened, at whoever opens them first."""
        name = self.members[-1] if VALIDATOR in self.members else self.parties[0]
        kept = deserialize_state((self.root / name / "run/parties" / name / "sums-0.safetensors").read_bytes())
        return bytes(kept["moments"]["integers"].numpy().tobytes())


def dying(links: Any, member: str, kind: str, number: int = 1) -> None:
    """The member is gone when it is to send the message of this kind for the so-manieth time."""
    send, sent = links[member].send, 0

    def stopped(to: str, what: Any, step: int, tensors: Any = None, **meta: Any) -> None:
        nonlocal sent
        sent += what.name == kind
        if sent >= number:
            raise RunError("pulled the plug")
        send(to, what, step, tensors, **meta)

    links[member].send = stopped


@pytest.mark.parametrize(
    ("parties", "settings"),
    [(("bank", "lab"), {}), (("bank", "lab", "clinic"), {"reveal": "own"}), (("bank", "lab"), {"receiver": "all"})],
)
def test_the_same_graph_as_in_one_place(tmp_path: Path, parties: tuple[str, ...], settings: dict[str, Any]) -> None:
    """With categories, two values, gaps, rows that some party lacks, a constant and a column of dates."""
    discovery = Sites(tmp_path / "sites", parties, **settings)
    whole = discovery.whole()
    assert whole.summary["edges"] > 1
    sites = discovery.run()
    for name in discovery.members:
        if name == VALIDATOR or settings.get("reveal") != "own":
            assert discovery.edges(name) == (whole.path / "edges.csv").read_bytes()
        if name != VALIDATOR:
            own = discovery.found(name).path / "parties"
            assert [path.name for path in own.iterdir()] == [name]
            assert (own / name / "edges.csv").read_bytes() == (whole.path / "parties" / name / "edges.csv").read_bytes()
        notes = " ".join(discovery.found(name).summary["notes"])
        assert ("seen: left out, it holds dates" in notes) == (name == "bank")
        assert discovery.found(name).status["state"] == "done"
        assert (sites[name].path / "report.html").is_file()
    summary = discovery.found("bank").summary
    assert summary["attributes"] == sum(len(SHOWN[name]) for name in parties)
    assert summary["rows"] == whole.summary["rows"] < ROWS


def test_everything_that_crosses_was_declared(tmp_path: Path) -> None:
    discovery = Sites(tmp_path / "sites", ("bank", "lab", "clinic"))
    for name, site in discovery.run().items():
        declared = {line.kind: line for line in site.declared}
        for ledger in (site.path / "parties" / name).glob("*.jsonl"):
            sent: dict[str, int] = {}
            for line in map(json.loads, ledger.read_text().splitlines()):
                assert line["to"] in declared[line["kind"]].to
                sent[line["kind"]] = sent.get(line["kind"], 0) + line["bytes"]
            for kind, size in sent.items():
                said = declared[kind].bytes
                # Numbers of messages and functions are estimates: twice as much, and a little more, is still no lie.
                assert said is None or size <= 2 * said + 4000, (kind, size, said)


def test_encrypted_it_is_the_same_sums(tmp_path: Path) -> None:
    pytest.importorskip("seal")
    twin, hidden = Sites(tmp_path / "twin"), Sites(tmp_path / "hidden", encryption="bfv")
    twin.run()
    hidden.run()
    assert hidden.opened() == twin.opened()
    assert hidden.edges(VALIDATOR) == twin.edges(VALIDATOR)
    sent = hidden.found("lab").summary["parties"]["lab"]["bytes_sent"]
    assert sent < 20e6


EITHER = ""
"""One of the parties: how many functions both have decides which of the two encrypts."""
PHASES = [
    ("bank", "places"),
    ("lab", "attributes"),
    ("lab", "sums_hello"),
    ("bank", "sums_layout"),
    ("bank", "toss"),
    ("lab", "key"),
    (VALIDATOR, "agreed"),
    ("lab", "moment_turn"),
    (EITHER, "moment_query"),
    (EITHER, "moment_answer"),
    ("bank", "moment_share"),
    ("lab", "moment_share"),
    (VALIDATOR, "sums_beat"),
    (VALIDATOR, "sums_found"),
]


@pytest.fixture(autouse=True)
def _without_pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page takes as long as the discovery itself; it is looked at once."""
    if "one_place" not in request.node.name:
        monkeypatch.setattr(DiscoveryRun, "report", lambda run: run.path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    discovery = Sites(tmp_path_factory.mktemp("undisturbed") / "sites")
    discovery.run()
    return discovery


def sender(undisturbed: Sites, kind: str) -> str:
    """The party that sends this kind."""
    for name in undisturbed.parties:
        ledger = undisturbed.found(name).path / "parties" / name / "ledger.jsonl"
        if any(line["kind"] == kind for line in read_ledger(ledger)):
            return name
    raise AssertionError(f"nobody sends {kind}")


def killed(discovery: Sites, undisturbed: Sites, phases: Sequence[tuple[str, str]]) -> None:
    """Kill a member in each phase in turn, then let all end."""
    begun: dict[str, set[str]] = {name: set() for name in discovery.parties}
    for member, kind in phases:
        links = discovery.links()
        dying(links, member or sender(undisturbed, kind), kind)
        with pytest.raises(RunError, match="pulled"):
            discovery.run(links, discovery.common())
        for name in discovery.parties:
            begun[name] |= set(discovery.releases(name))
    discovery.run(start=discovery.common())
    assert discovery.opened() == undisturbed.opened()
    for name in discovery.members:
        assert discovery.edges(name) == undisturbed.edges(name)
    for name, before in begun.items():
        assert len(discovery.releases(name)) == 1
        assert before <= set(discovery.releases(name))  # a release that was begun is the one that ends


def test_killed_in_every_phase_it_ends_in_the_same_bits(tmp_path: Path, undisturbed: Sites) -> None:
    killed(Sites(tmp_path / "sites"), undisturbed, PHASES)


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_killed_in_one_phase_it_ends_in_the_same_bits(
    tmp_path: Path, undisturbed: Sites, phase: tuple[str, str]
) -> None:
    killed(Sites(tmp_path / "sites"), undisturbed, [phase])


def test_noise_is_drawn_once(tmp_path: Path) -> None:
    """A release that goes on after a kill has the same noise: with fresh noise it would be a second one."""
    discovery = Sites(tmp_path / "sites", epsilon=4.0)
    links = discovery.links()
    dying(links, "lab", "moment_share")
    with pytest.raises(RunError, match="pulled"):
        discovery.run(links)

    def noise(name: str) -> Any:
        path = discovery.root / name / "run/parties" / name / "sums-0.safetensors"
        return deserialize_state(path.read_bytes())["noise"]

    first = {name: noise(name) for name in discovery.parties}
    discovery.run(start=discovery.common())
    assert all(torch.equal(noise(name), drawn) for name, drawn in first.items())
    assert discovery.found(VALIDATOR).summary["noise"]


def again(discovery: Sites) -> None:
    """Begin anew with the same folders and books."""
    for name in discovery.members:
        shutil.rmtree(discovery.root / name / "run")


def test_a_second_release_of_the_same_rows_is_refused(tmp_path: Path) -> None:
    discovery = Sites(tmp_path / "sites", book="releases")
    discovery.run()
    discovery.run(start=discovery.common())  # the same run once more is no other release
    again(discovery)
    site = party_program(discovery.root / "bank", "bank", secret=False)
    assert any("were released before" in warning for warning in site.warnings)
    with pytest.raises(InputError, match=r"earlier release.*no budget"):
        discovery.run()
    # Other people are no second release.
    for name in discovery.parties:
        table = pl.read_csv(discovery.file(name))
        table.with_columns(pl.format("q-{}", pl.col("id")).alias("id")).write_csv(discovery.file(name))
    again(discovery)
    discovery.run()


def test_a_budget_has_room_for_some_releases(tmp_path: Path) -> None:
    discovery = Sites(tmp_path / "sites", book="releases", epsilon=2.0, budget=3.0)
    discovery.run()
    again(discovery)
    discovery.run()
    again(discovery)
    with pytest.raises(InputError, check=Names("epsilon", "3")):
        discovery.run()


def test_one_book_serves_several_federations(tmp_path: Path) -> None:
    first, second = (Sites(tmp_path / f"sites{number}", book="../../book-of-{}") for number in (1, 2))
    first.run()
    with pytest.raises(InputError, match="earlier release"):
        second.run()


def test_a_simulation_has_no_book_of_its_own(tmp_path: Path) -> None:
    discovery = Sites(tmp_path / "sites")
    discovery.run()
    again(discovery)
    discovery.run()
    assert not (discovery.root / "bank" / "releases").exists()


def lying(links: Any, member: str, kind: str, **changes: Any) -> None:
    send = links[member].send

    def sent(to: str, what: Any, step: int, tensors: Any = None, **meta: Any) -> None:
        if what.name == kind:
            tensors = None if tensors is None else {name: changes.get(name, part) for name, part in tensors.items()}
            meta |= {name: value for name, value in changes.items() if name in meta}
        send(to, what, step, tensors, **meta)

    links[member].send = sent


@pytest.mark.parametrize(
    ("member", "kind", "changes", "field"),
    [
        ("lab", "attributes", {"rows": 3}, "attributes.rows"),
        ("bank", "sums_hello", {"width": 1 << 40}, "sums_hello.width"),
        ("bank", "sums_hello", {"width": 0}, "sums_hello.width"),
        ("lab", "sums_hello", {"fingerprint": torch.zeros(32, dtype=torch.uint8)}, "sums_hello.fingerprint"),
        ("lab", "sums_layout", {"nodes": torch.zeros(1, 4, dtype=torch.int64)}, "sums_layout.nodes"),
        ("lab", "sums_layout", {"nodes": torch.full((2, 4), 9)}, "sums_layout.nodes"),
        ("lab", "moment_share", {"rho": 0.1}, "moment_share.rho"),
        (VALIDATOR, "sums_found", {"model": "psychic"}, "sums_found.model"),
    ],
)
def test_a_member_that_lies_is_refused(
    tmp_path: Path, member: str, kind: str, changes: dict[str, Any], field: str
) -> None:
    discovery = Sites(tmp_path / "sites")
    links = discovery.links()
    lying(links, member, kind, **changes)
    with pytest.raises(WireError, check=Field(field)):
        discovery.run(links)


SILENT = ("attributes", "moment_hello", "moment_share")


@pytest.mark.parametrize("kind", ["moment_query", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SILENT)])
def test_a_member_that_falls_silent_is_named(tmp_path: Path, undisturbed: Sites, kind: str) -> None:
    discovery = Sites(tmp_path / "sites")
    links = discovery.links()
    member = sender(undisturbed, kind) if kind == "moment_query" else "lab"
    # Who waits for the silent one itself complains first; others wait for whoever waits.
    waits = VALIDATOR if kind == "moment_share" else next(name for name in discovery.parties if name != member)
    links[waits].timeout = 1.5
    send, still = links[member].send, False

    def silent(to: str, what: Any, step: int, tensors: Any = None, **meta: Any) -> None:
        nonlocal still
        still |= what.name == kind
        if not still:
            send(to, what, step, tensors, **meta)

    links[member].send = silent
    with pytest.raises(PeerLost, check=Peer(member)):
        discovery.run(links)


def test_rows_that_are_too_few_are_refused_before_anybody_is_dialled(tmp_path: Path) -> None:
    discovery = Sites(tmp_path / "sites")
    pl.read_csv(discovery.file("bank")).head(30).write_csv(discovery.file("bank"))
    with pytest.raises(InputError, match="30 rows are so few"):
        party_program(discovery.root / "bank", "bank")


def test_a_plan_that_changes_is_refused(tmp_path: Path) -> None:
    discovery = Sites(tmp_path / "sites")
    discovery.run()
    plan = discovery.root / "lab/run/parties/lab/plan.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"rows": 3}))
    with pytest.raises(InputError, match="begun with another rows"):
        discovery.run(start=discovery.common())


def test_what_needs_all_columns_says_where_they_lie(undisturbed: Sites) -> None:
    with pytest.raises(InputError, match="lie at their parties"):
        load_columns(undisturbed.found("bank").job)


def test_rows_have_one_secret_name(tmp_path: Path) -> None:
    """The same over starts, another one for another leader's secret, none without a secret."""
    names = []
    for at in range(2):
        discovery = Sites(tmp_path / f"sites{at}")
        sites = {name: party_program(discovery.root / name, name) for name in discovery.members}
        for _ in range(2):
            programs = {
                name: (lambda link, site=site: site.align(link, lambda event: None)) for name, site in sites.items()
            }
            run_threads(programs, discovery.links())
            assert len({site.plan.rows_digest for site in sites.values()}) == 1
            names.append(sites["lab"].plan.rows_digest)
            (discovery.root / "lab/run/parties/lab/alignment.safetensors").unlink()
    assert names[0] == names[1] != names[2] == names[3]
    assert all(len(name) == 32 for name in names)
