"""A party started from its own folder: the same weights as in one place, also after faults, and a readable run."""

from __future__ import annotations

import json
import re
import stat

import pytest
import torch
from refusals import Names, Peer

from veracausa.audit.job import audit_run
from veracausa.audit.settings import AuditSettings
from veracausa.errors import InputError, PeerLost, RunError
from veracausa.federation.site_program import party_program
from veracausa.report.run_page import headline, write_report
from veracausa.runs.folder import Run
from veracausa.runs.record import read_run
from veracausa.runs.store import deserialize_state, flatten
from veracausa.training.train import train


def model(path, name):
    tree = deserialize_state((path / "parties" / name / "model.safetensors").read_bytes())
    return {key: value for key, value in tree.items() if key != "classes"}


def assert_same(one, other):
    (some, skeleton), (others, expected) = flatten(one), flatten(other)
    assert skeleton == expected
    assert all(torch.equal(tensor, others[name]) for name, tensor in some.items())


def embedded(sites, out):
    return train({**sites.job, "party": dict(sites.owned)}, out)


@pytest.mark.parametrize("passive", [("lab",), ("lab", "clinic")])
def test_the_same_weights_as_in_one_place(tmp_path, organisations, table_job, passive):
    sites = organisations(
        table_job(passive, data={"match": "active"}, defense={"name": "laplace"}),
        passive,
        lacking={"lab": range(0, 60, 9)},
    )
    whole = embedded(sites, tmp_path / "whole")
    sites.run()
    for name in sites.names:
        run = sites.root / name / "run"
        assert_same(model(run, name), model(whole.path, name))
        assert Run(run).status["state"] == "done"
        # Nobody else's files, and nobody else's ledger.
        assert [path.name for path in (run / "parties").iterdir()] == [name]
        assert headline(read_run(run)).startswith(("Two" if len(passive) == 1 else "Three") + " parties trained mlp")
        # A party's table of columns is its own: no partner's is among it, on no page and in no file that is read.
        parties = Run(run).summary["parties"]
        assert [column["name"] for column in parties[name]["columns"]]
        assert all(not party.get("columns") for other, party in parties.items() if other != name)
        page = write_report(run).read_text(encoding="utf-8")
        others = {
            c["name"] for other in sites.names if other != name for c in whole.summary["parties"][other]["columns"]
        }
        shown = set(re.findall(r'<tr><th scope="row">([^<]+)</th><td data-label="type"[^>]*>', page))
        own = {column["name"] for column in parties[name]["columns"]}
        assert shown == own
        assert not (others - own) & shown
    summary = Run(sites.root / "bank" / "run").summary
    assert summary["test"] == whole.summary["test"]
    assert summary["parties"]["bank"] == whole.summary["parties"]["bank"]
    passive_summary = Run(sites.root / "lab" / "run").summary
    assert passive_summary["parties"]["lab"] == whole.summary["parties"]["lab"]


def test_it_goes_on_after_a_fault(tmp_path, organisations, table_job):
    sites = organisations(table_job(defense={"name": "laplace"}, checkpoints={"every_steps": 2}))
    whole = embedded(sites, tmp_path / "whole")
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
        sites.run(links=links)
    assert Run(sites.root / "bank" / "run").status["state"] == "failed"
    before = sites.prepared()
    common = set.intersection(*(site.store.whole_steps() for site in before.values()))
    assert common
    # One party had not yet kept the alignment: it is simply done again.
    (sites.root / "clinic/run/parties/clinic/alignment.safetensors").unlink()
    heard = []
    sites.run(max(common), heard=heard)
    assert any(event["event"] == "aligning" for _, event in heard)
    for name in sites.names:
        assert_same(model(sites.root / name / "run", name), model(whole.path, name))
    ledger = [
        (sites.root / name / "run" / "parties" / name / "ledger.jsonl").read_text().splitlines() for name in sites.names
    ]
    expected = [(whole.path / "parties" / name / "ledger.jsonl").read_text().splitlines() for name in sites.names]
    # A resume says hello once more; else what left is what leaves an undisturbed run.
    assert all(len(one) >= len(other) for one, other in zip(ledger, expected, strict=True))


def test_an_alignment_is_kept(organisations, table_job):
    sites = organisations(table_job(("lab",)), ("lab",), rows=30)
    for expected in (True, False):
        heard, ready = [], sites.prepared()
        sites.each(lambda name, link: ready[name].align(link, heard.append))  # noqa: B023
        assert any(event["event"] == "aligning" for event in heard) == expected


def test_other_data_are_recognised(organisations, table_job, tmp_path):
    sites = organisations(table_job(("lab",)), ("lab",), rows=30)
    lab = sites.root / "lab"
    first = party_program(lab, "lab")
    assert party_program(lab, "lab").data_digest == first.data_digest
    salt = lab / "run/parties/lab/salt"
    assert stat.S_IMODE(salt.stat().st_mode) == 0o600
    file = tmp_path / "files" / "lab.csv"
    text = file.read_text()
    file.write_text(text.replace("p7,", "p7777,"))
    assert party_program(lab, "lab").data_digest != first.data_digest
    file.write_text(text)
    assert party_program(lab, "lab").data_digest == first.data_digest
    (lab / "party.toml").write_text((lab / "party.toml").read_text() + "\n[defense]\nname = 'mask'\n")
    with pytest.raises(InputError):
        party_program(lab, "lab")


@pytest.mark.parametrize("match", ["all", "active"])
def test_what_is_declared_is_what_is_sent(organisations, table_job, match):
    sites = organisations(table_job(("lab",), data={"match": match}), ("lab",))
    ready = sites.prepared()
    declared = {name: {line.kind: line for line in site.declared} for name, site in ready.items()}
    sites.run()
    for name in sites.names:
        folder = sites.root / name / "run" / "parties" / name
        lines = [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
        assert {line["kind"] for line in lines} == set(declared[name])
        for line in lines:
            assert line["to"] in declared[name][line["kind"]].to
    sent = [json.loads(line) for line in (sites.root / "lab/run/parties/lab/ledger.jsonl").read_text().splitlines()]
    payload = sum(line["bytes"] for line in sent if line["kind"] == "representation") / 3
    estimate = declared["lab"]["representation"].bytes
    assert 0.7 * estimate < payload < 1.5 * estimate
    assert declared["bank"]["gradient"].bytes is None


def test_pictures_are_loaded_at_every_site(tmp_path, organisations):
    job = {
        "seed": 1,
        "data": {"name": "digits", "train": 64, "test": 20},
        "model": {"name": "mlp"},
        "parties": {"active": "bank", "passive": ["lab", "clinic"]},
        "training": {"epochs": 1, "batch_size": 32},
        "runtime": {"device": "cpu", "cpu_threads": 1},
        "risk": {"every": 0},
    }
    sites = organisations(job)
    for name in sites.names:
        (sites.root / name / "party.toml").unlink()
    whole = train(job, tmp_path / "whole")
    sites.run()
    for name in sites.names:
        assert_same(model(sites.root / name / "run", name), model(whole.path, name))


def test_a_secret_seed_is_the_partys_own(organisations, table_job):
    sites = organisations(table_job(("lab",), training={"epochs": 1}), ("lab",), rows=30)
    open_, secret = (party_program(sites.root / "lab", "lab", secret=secret) for secret in (False, True))
    assert open_.warnings
    assert not secret.warnings
    assert secret.job.seed != open_.job.seed
    assert party_program(sites.root / "lab", "lab", secret=True).job.seed == secret.job.seed
    kept = sites.root / "lab/run/parties/lab/seed"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert len(kept.read_bytes()) == 32
    assert secret.job.seed == int.from_bytes(kept.read_bytes(), "big")
    whole = kept.read_bytes()
    kept.write_bytes(whole[:7])
    with pytest.raises(InputError, check=Names("seed", "7", "32")):
        party_program(sites.root / "lab", "lab", secret=True)
    kept.write_bytes(whole)
    # Splits are still drawn alike: the two sites agree on how many rows there are.
    ready = {"bank": party_program(sites.root / "bank", "bank", secret=True), "lab": secret}

    def program(name, link):
        ready[name].align(link, lambda event: None)
        ready[name].run(link, lambda event: None, None)

    sites.each(program)
    assert Run(sites.root / "bank" / "run").summary["epochs"] == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"training": {"baselines": ["joint"]}}, "training.baselines"),
        ({"transcript": {"record": True}}, "transcript.record"),
        ({"party": {"lab": {"data": {}}}}, "party.toml"),
        ({"parties": {"active": "bank", "passive": ["x"]}}, "'lab' has no part"),
    ],
)
def test_what_can_not_be_across_sites(organisations, table_job, change, problem):
    sites = organisations(table_job(("lab",)) | change, ("lab",), rows=30)
    with pytest.raises(InputError, match=problem):
        party_program(sites.root / "lab", "lab")
    assert not (sites.root / "lab" / "run").exists()


def test_a_lost_peer_is_named(organisations, table_job):
    sites = organisations(table_job(("lab",)), ("lab",), rows=30)
    links, ready = sites.links(timeout=0.5), party_program(sites.root / "bank", "bank")
    with pytest.raises(PeerLost, check=Peer("lab")):
        ready.align(links["bank"], lambda event: None)


def test_a_party_audits_what_it_sent(organisations, table_job):
    sites = organisations(table_job())
    sites.run()
    (sites.root / "lab" / "federation.toml").touch()
    (sites.root / "bank" / "federation.toml").touch()
    found = audit_run(Run(sites.root / "lab" / "run"), AuditSettings(("inverse",), ["inverse.epochs=2"], 8, 20))
    assert list(found["attacks"]["inverse"]["parties"]) == ["lab"]
    with pytest.raises(InputError, match="no passive party's model"):
        audit_run(Run(sites.root / "bank" / "run"), AuditSettings(auxiliary=8, victims=20))


def test_other_data_are_not_audited_in_their_place(organisations, table_job):
    sites = organisations(table_job())
    sites.run()
    (sites.root / "lab" / "federation.toml").touch()
    (sites.root / "lab/run/parties/lab/alignment.safetensors").unlink()
    with pytest.raises(InputError, match="not the data of the run"):
        audit_run(Run(sites.root / "lab" / "run"), AuditSettings(auxiliary=8, victims=20))
