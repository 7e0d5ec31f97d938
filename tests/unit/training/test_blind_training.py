"""Blind training from a job to a run folder: what it learns, what it opens, what crosses, and what it refuses."""

from __future__ import annotations

import csv
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import veracausa
from veracausa.atomic import atomic_write
from veracausa.crypto.agreement import KEY as PUBLIC_KEY
from veracausa.crypto.agreement import TOSS
from veracausa.errors import InputError, RunError, WireError
from veracausa.runs.store import read_tree, serialize_state
from veracausa.training.blind.active import BlindActive
from veracausa.training.blind.kept_head import HeadKey
from veracausa.training.blind.passive import BlindPassive
from veracausa.training.blind.protocol import ASK, declare_scoring, head_kind
from veracausa.wire.ledger import read_ledger
from veracausa.wire.threads import ThreadLink, thread_links

ROWS = 900
CROSSES = {
    *("hello", "ready", "width", "toss", "toss shown", "key", "agreed", "head", "head_kept", "ask", "answer"),
    "mask_seed",
    *("moment_hello", "moment_turn", "moment_taken", "moment_query", "moment_answer", "moment_share"),
}
"""All kinds of a blind run whose labels stay at home. None but `moment_query` grows with training rows."""


def table(folder: Path, task: str = "classes", rows: int = ROWS, seed: int = 0, rare: int = 0) -> Path:
    """Six numbers and a word; the label depends on every third number, so that each party knows a part of it."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 6))
    words = rng.choice(["red", "green", "blue"], rows)
    signal = x[:, 0] + np.sin(2 * x[:, 2]) + x[:, 4] + 0.5 * (words == "red") + 0.2 * rng.normal(size=rows)
    label: Any = [f"{value:.4f}" for value in 40 + 5 * signal]
    if task == "classes":
        label = np.array(["low", "middle", "high"])[np.digitize(signal, [-0.7, 0.9])]
        label[:rare] = "odd"
    path = folder / f"{task}-{rows}-{seed}-{rare}.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(f"c{i}" for i in range(6)), "word", "label"])
        for at in range(rows):
            writer.writerow([f"P{at}", *(f"{v:.5f}" for v in x[at]), words[at], label[at]])
    return path


def job(path: Path, passive: int = 2, own: bool = True, **sections: Any) -> dict[str, Any]:
    names = [f"p{number}" for number in range(1, passive + 1)]
    held = {0: ("active", "c0", "c1"), 1: (names[0], "c2", "c3"), 2: (names[-1], "c4", "c5", "word")}
    columns: dict[str, list[str]] = {}
    for name, *own_columns in held.values():
        if own or name != "active":
            columns.setdefault(name, []).extend(own_columns)
    tree: dict[str, Any] = {
        "name": "blind",
        "seed": 3,
        "data": {"name": "csv", "path": str(path), "id": "id", "label": "label", "validation": 0.1},
        "parties": {"passive": names},
        "partition": {"active_has_features": own, "columns": columns},
        "training": {"protocol": "blind"},
        "blind": {"encryption": "none"},
        "features": {"name": "splines", "functions": 4},
        "runtime": {"device": "cpu", "cpu_threads": 1, "timeout": 60},
    }
    for section, settings in sections.items():
        tree[section] = {**tree.get(section, {}), **settings}
    return tree


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run with three parties of which all hold features, and the baselines."""
    folder = tmp_path_factory.mktemp("blind")
    tree = job(table(folder), training={"baselines": ["active_only", "joint"]})
    return veracausa.train(tree, out=folder / "run")


def test_it_learns_what_the_same_head_learns_in_one_place(run):
    summary = run.summary
    joint, alone = summary["baselines"]["joint"], summary["baselines"]["active_only"]
    assert summary["accuracy"] > alone["accuracy"] + 0.1
    # They differ by fixed point and by the dither of a hundredth.
    assert abs(summary["test"]["auc"] - joint["auc"]) < 0.005
    assert summary["test"]["loss"] == pytest.approx(joint["loss"], abs=0.01)
    assert summary["validation"]["accuracy"] > 0.6


def test_the_summary_says_what_was_opened(run):
    summary = run.summary
    facts = summary["blind_training"]
    assert summary["protocol"] == "blind"
    assert facts["rows"] == 648  # of 900: a fifth is held out for the test, then a tenth for validation
    assert facts["predicted"] == {"validation": 72, "test": 180}
    assert facts["numbers"] == 2  # three classes
    assert facts["summed"] is True
    assert facts["ridge"] > 0
    assert facts["epsilon"] is None
    assert {name: entry["name"] for name, entry in facts["features"].items()} == dict.fromkeys(
        ("active", "p1", "p2"), "splines"
    )
    assert summary["parties"]["p1"]["features"] == facts["features"]["p1"]["width"]
    assert any(note.startswith("simulation") for note in summary["notes"])
    assert [record["event"] for record in run.metrics] == ["epoch", "evaluation"]
    assert run.status["state"] == "done"


def sent(run, party: str) -> list[dict[str, Any]]:
    return list(read_ledger(run.path / "parties" / party / "ledger.jsonl"))


def elements(line: dict[str, Any]) -> int:
    return sum(int(np.prod(shape)) for shape in line["shape"].values())


def test_no_message_carries_a_training_row(run, tmp_path):
    """By kinds and shapes: with twice the training rows nothing grows but ciphertexts and scores of held-out rows."""
    settings = {"data": {"validation": 0.0, "train": 700, "test": 60}, "blind": {"encryption": "none"}}
    path = table(tmp_path, rows=1800)
    small = veracausa.train(job(path, **settings), out=tmp_path / "small")
    settings["data"]["train"] = 1400
    large = veracausa.train(job(path, **settings), out=tmp_path / "large")
    for party in ("active", "p1", "p2"):
        assert {line["kind"] for line in sent(run, party)} <= CROSSES
        sizes = []
        for one in (small, large):
            lines = [line for line in sent(one, party) if line["kind"] not in ("ready", "moment_turn")]
            sizes.append(
                [(line["kind"], line["to"], elements(line)) for line in lines if line["kind"] != "moment_query"]
            )
        widths = [one.summary["blind_training"]["features"][party]["width"] for one in (small, large)]
        assert widths[0] == widths[1]
        assert sizes[0] == sizes[1]
    rows = {one: sum(elements(x) for x in sent(one, "p1") if x["kind"] == "moment_query") for one in (small, large)}
    assert rows[large] == 2 * rows[small]  # so the check above could have failed


def test_passive_parties_know_neither_labels_nor_weights(run):
    active = read_tree(run.path / "parties/active/model.safetensors")
    assert set(active["head"]["weights"]) == {"active", "p1", "p2"}
    for party in ("p1", "p2"):
        model = read_tree(run.path / "parties" / party / "model.safetensors")
        assert not {"head", "labels", "told"} & set(model)
        assert model["kept_head"]["commitment"] == active["fingerprint"]
    assert not [line for line in sent(run, "active") if line["kind"] == "labels"]


def test_predictions_repeat_bit_for_bit(run):
    first, again = run.predict(), run.predict()
    assert torch.equal(first.outputs, again.outputs)
    assert first.scores["accuracy"] == pytest.approx(run.summary["test"]["accuracy"])
    path = table(run.path.parent, rows=ROWS)
    new = run.predict(path)
    at = {name: row for row, name in enumerate(new.ids)}
    # The same people from a file, in other requests than before: the same answers.
    assert torch.equal(new.outputs[[at[name] for name in first.ids]], first.outputs)


def test_a_score_is_known_up_to_the_dither(tmp_path):
    """Two steps a thousand times apart: outputs differ by about the larger one, not by less and not by more."""
    trees = [job(table(tmp_path, "amounts"), blind={"step": step}) for step in (1e-4, 0.1)]
    fine, coarse = (veracausa.train(tree, out=tmp_path / str(at)) for at, tree in enumerate(trees))
    apart = (fine.predict().outputs - coarse.predict().outputs).double()
    spread = 5 * (1 + 0.5 + 1 + 0.06) ** 0.5  # about that of the label, in whose units outputs are
    expected = spread * 0.1 * (2 / 12) ** 0.5  # of two passive parties
    assert 0.5 * expected < float(apart.std()) < 2 * expected


@pytest.mark.parametrize(
    ("passive", "own", "sections"),
    [
        (1, True, {}),
        (1, False, {}),
        (2, False, {"overlap": {"fraction": 0.7}}),
        (2, True, {"blind": {"labels": "private", "label_epsilon": 3.0}}),
        (2, False, {"blind": {"labels": "shared"}}),
        (2, True, {"blind": {"labels": "private", "label_prior": True}}),
        (2, True, {"training": {"class_weights": "balanced"}}),
    ],
)
@pytest.mark.parametrize("task", ["classes", "amounts"])
def test_every_shape_of_federation_trains_and_predicts(passive, own, sections, task, tmp_path):
    made = veracausa.train(job(table(tmp_path, task), passive, own, **sections), out=tmp_path / "run")
    scores = made.summary["test"]
    assert scores["r2"] > 0.5 if task == "amounts" else scores["accuracy"] > 0.6
    assert made.predict().scores == pytest.approx(scores)
    told = made.summary["blind_training"]["label_account"]
    if sections.get("blind", {}).get("labels") == "private":
        assert told["epsilon"] == pytest.approx(sections["blind"].get("label_epsilon", 4.0))
        labels = [line for line in sent(made, "active") if line["kind"] == "labels"]
        assert [line["to"] for line in labels] == ["p1", "p2"]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"runtime": {"link": "processes"}}, marks=pytest.mark.slow, id="processes"),
        pytest.param({"blind": {"encryption": "bfv"}}, id="bfv"),
    ],
)
def test_processes_and_bfv_give_the_same_bits(other, tmp_path):
    pytest.importorskip("seal")
    path = table(tmp_path)
    settings = {"data": {"validation": 0.0, "test": 40}}
    plain = veracausa.train(job(path, **settings), out=tmp_path / "plain")
    made = veracausa.train(job(path, **settings, **other), out=tmp_path / "other")
    assert plain.summary["test"] == made.summary["test"]
    assert plain.summary["blind_training"]["fingerprint"] == made.summary["blind_training"]["fingerprint"]
    assert torch.equal(plain.predict().outputs, made.predict().outputs)


def test_noise_on_the_sums_is_accounted_and_costs_little_with_enough_rows(tmp_path):
    path = table(tmp_path, rows=3000)
    made = veracausa.train(job(path, blind={"epsilon": 8.0}), out=tmp_path / "run")
    facts = made.summary["blind_training"]
    assert facts["epsilon"] == 8.0
    assert facts["rho"] > 0
    assert facts["noise"] > 0
    assert facts["clip"] > 1
    assert made.summary["accuracy"] > 0.5
    again = veracausa.train(job(path, blind={"epsilon": 8.0}), out=tmp_path / "again")
    assert torch.equal(made.predict().outputs, again.predict().outputs)  # a simulation repeats


def test_small_classes_are_refused_before_anything_is_written(tmp_path):
    path = table(tmp_path, rare=12)
    with pytest.raises(InputError, match=r"'odd' has .* training rows.*blind\.min_rows.*blind\.epsilon"):
        veracausa.train(job(path), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("sections", "match"),
    [
        ({"training": {"baselines": ["unsplit"]}}, "unsplit"),
        ({"features": {"name": "rotation"}}, "no such|named"),
        ({"party": {"p1": {"features": {"name": "patches"}}}}, "takes pictures"),
        ({"data": {"train": 100}}, "rows for the|single out"),
        ({"overlap": {"fraction": 0.99}}, r"holds .* of .* training rows"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(sections, match, tmp_path):
    with pytest.raises((InputError, RunError), match=match) as refused:
        veracausa.train(job(table(tmp_path), **sections), out=tmp_path / "run")
    # Nothing is half-written, so the same folder can be named again when that is mended.
    assert isinstance(refused.value, InputError) is not (tmp_path / "run").exists()


def test_a_second_head_on_the_same_ids_needs_the_party_to_agree(tmp_path):
    """With a book that serves several jobs, also across runs."""
    path = table(tmp_path)
    tree = job(path, party={"p1": {"book": str(tmp_path / "book")}})
    first = veracausa.train(tree, out=tmp_path / "first")
    assert torch.equal(first.predict().outputs, first.predict().outputs)
    other = job(path, party={"p1": {"book": str(tmp_path / "book")}}, blind={"ridge": 1.0})
    with pytest.raises(RunError, match=r"'p1' has taken part in sums .* second_head = true"):
        veracausa.train(other, out=tmp_path / "second")
    other["party"]["p1"]["second_head"] = True
    assert veracausa.train(other, out=tmp_path / "second", resume=True).summary["accuracy"] > 0.6
    # The other party keeps its book in the run, and ids are in none of them in clear.
    assert not (tmp_path / "second/parties/p1/answered").exists()
    assert (tmp_path / "second/parties/p2/answered").exists()
    content = (tmp_path / "book/p1/answered").read_bytes()
    begins = {content[at : at + 4] for at in range(0, len(content), 16)}  # two bytes alone are there by chance
    assert not begins & {f"P{number}".encode() for number in range(100, ROWS)}


def copied(run, folder: Path) -> Path:
    shutil.copytree(run.path, folder)
    return folder


def changed(model: Path, change: Any) -> None:
    tree = read_tree(model)
    change(tree)
    atomic_write(model, serialize_state(tree))


def test_later_sessions_bring_neither_head_nor_key(run, monkeypatch):
    """By what every party sends: the one head of training is in no other session."""
    said: list[tuple[str, str]] = []
    send = ThreadLink.send

    def listening(self, to, kind, *more, **meta):
        said.append((self.me, kind.name))
        return send(self, to, kind, *more, **meta)

    monkeypatch.setattr(ThreadLink, "send", listening)
    run.predict()
    assert {kind for _, kind in said} == {"hello", "head_kept", "mask_seed", "ask", "answer"}
    assert {kind for me, kind in said if me == "active"} == {"ask"}
    heads = [line["to"] for line in sent(run, "active") if line["kind"] == "head"]
    assert heads == ["p1", "p2"]  # in training, once each


@pytest.mark.parametrize("kind", [PUBLIC_KEY, TOSS, head_kind(8)])
def test_a_passive_party_takes_no_head_after_training(run, kind):
    """Several sessions with other weights would read all features of a row. There is no message to bring them."""
    links = thread_links(("active", "p1", "p2"), timeout=5)
    declare_scoring(links["p1"], run.job)
    links["active"].declare(kind, peer="p1")
    parts = {
        name: torch.zeros([size or 8 for size in spec.shape], dtype=spec.dtype) for name, spec in kind.tensors.items()
    }
    links["active"].send("p1", kind, 1, parts)
    with pytest.raises(WireError, match="declared"):
        links["p1"].receive("active", ASK, 1)


def test_other_weights_in_the_active_partys_model_change_nothing(run, tmp_path):
    """A passive party answers with what it keeps, and the active party opens that, whatever it claims its head is."""
    copy = copied(run, tmp_path / "run")

    def another(model):
        model["head"]["weights"]["p1"][0, 0] += 1
        model["head"]["weights"]["p2"] *= -1

    changed(copy / "parties/active/model.safetensors", another)
    assert torch.equal(veracausa.Run(copy).predict().outputs, run.predict().outputs)


def test_a_kept_head_that_was_changed_is_refused(run, tmp_path):
    copy = copied(run, tmp_path / "run")

    def another(model):
        model["kept_head"]["encrypted"][0] += 1

    changed(copy / "parties/p1/model.safetensors", another)
    with pytest.raises(RunError, match=r"'p1': its kept head is not the one of its training"):
        veracausa.Run(copy).predict()


def test_parts_of_two_trainings_do_not_go_together(run, tmp_path):
    """The same job, data and weights: the key of one training opens nothing of another."""
    copy = copied(run, tmp_path / "run")
    again = veracausa.train(run.job, out=tmp_path / "again")
    shutil.copy(again.path / "parties/p2/model.safetensors", copy / "parties/p2/model.safetensors")
    with pytest.raises(RunError, match=r"head_kept\.name.*'p2' keeps another head.*train again"):
        veracausa.Run(copy).predict()


def test_the_key_of_the_head_is_in_a_file_of_its_own(run, tmp_path):
    where = run.path / "parties/active/head.key"
    assert where.stat().st_mode & 0o777 == 0o600
    assert not list(run.path.glob("parties/p*/head.key"))
    copy = copied(run, tmp_path / "run")
    (copy / "parties/active/head.key").unlink()
    with pytest.raises(InputError, match=r"head\.key: is missing.*train again"):
        veracausa.Run(copy).predict()
    (copy / "parties/active/head.key").write_bytes(b"torn")
    with pytest.raises(InputError, match=r"head\.key: holds no key of a head"):
        veracausa.Run(copy).predict()


@pytest.mark.xdist_group("bfv")
def test_a_fresh_process_opens_what_bfv_kept(tmp_path):
    pytest.importorskip("seal")
    settings = {"data": {"validation": 0.0, "test": 40}, "blind": {"encryption": "bfv"}}
    made = veracausa.train(job(table(tmp_path), 1, **settings), out=tmp_path / "run")
    code = (
        "import sys, veracausa; from pathlib import Path; "
        "veracausa.Run(Path(sys.argv[1])).predict(out=Path(sys.argv[2]), raw=True)"
    )
    subprocess.run([sys.executable, "-c", code, str(made.path), str(tmp_path / "there.csv")], check=True)
    made.predict(out=tmp_path / "here.csv", raw=True)
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()
    folder = made.path / "parties/active"
    key = HeadKey.load(folder / "head.key")
    assert len(key.secret) == 8192
    assert key.secret.hex() not in repr(key) + str(vars(key).keys())
    for path in made.path.rglob("*"):
        if path.is_file() and path.name != "head.key":
            assert key.secret[:64] not in path.read_bytes(), path
    with pytest.raises(TypeError, match="no serializer"):
        pickle.dumps(key)


def test_a_party_that_dies_before_it_kept_the_head_takes_all_back(tmp_path, run, monkeypatch):
    """Nothing is asked before all have kept it, so nobody holds a part of an older head than the others afterwards."""
    finished = BlindPassive.finished

    def dying(self, phase, *more):
        if phase == "head" and self.name == "p2":
            raise RunError("killed here")
        finished(self, phase, *more)

    monkeypatch.setattr(BlindPassive, "finished", dying)
    with pytest.raises(RunError, match="killed here"):
        veracausa.train(run.job, out=tmp_path / "run")
    active = tmp_path / "run/parties/active"
    first = HeadKey.load(active / "head.key")
    assert not list(active.glob("checkpoints/step-00000004-*"))
    assert not list((tmp_path / "run").glob("parties/p*/answered"))
    monkeypatch.undo()
    again = veracausa.train(run.job, out=tmp_path / "run", resume=True)
    second = HeadKey.load(active / "head.key")
    assert second.toss != first.toss
    for party in ("p1", "p2"):
        kept = read_tree(tmp_path / "run/parties" / party / "model.safetensors")["kept_head"]
        assert bytes.fromhex(kept["name"]) == second.names[party] != first.names[party]
    # A simulation's dither follows from the commitment, so a new encryption of the same weights gives the same bits.
    assert torch.equal(again.predict().outputs, run.predict().outputs)


def test_an_active_party_that_claims_to_have_lost_its_head_gets_no_second_one(tmp_path, run, monkeypatch):
    """It went back to the sums after rows were answered. Whatever it sends now, these rows have had their head."""
    record = BlindActive._record

    def dying(self, reader):
        record(self, reader)
        raise RunError("killed here")

    monkeypatch.setattr(BlindActive, "_record", dying)
    with pytest.raises(RunError, match="killed here"):
        veracausa.train(run.job, out=tmp_path / "run")
    monkeypatch.undo()
    (kept,) = (tmp_path / "run/parties/active/checkpoints").glob("step-00000004-*")
    kept.unlink()
    with pytest.raises(RunError, match=r"'p[12]' has answered for .* with another head"):
        veracausa.train(run.job, out=tmp_path / "run", resume=True)


def test_progress_is_told_phase_by_phase(tmp_path):
    heard: list[dict[str, Any]] = []
    veracausa.train(job(table(tmp_path)), out=tmp_path / "run", observer=lambda event: heard.append(dict(event)))
    phases = [event for event in heard if event["event"] == "phase"]
    assert {event["what"] for event in phases} == {"features", "moments", "head", "scores"}
    assert all(0 <= event["share"] <= 1 for event in phases)
    assert max(event["share"] for event in phases if event["what"] == "scores") == 1
    assert [event["event"] for event in heard if event["event"] in ("start", "epoch", "done")] == [
        "start",
        "epoch",
        "done",
    ]


def test_a_resumed_finished_run_changes_nothing(run):
    before = json.dumps(run.summary)
    again = veracausa.train(run.job, out=run.path, resume=True)
    assert json.dumps(again.summary) == before
