"""Organisations that trained blind: each one's part serves elsewhere, and the key of the head goes with its owner."""

from __future__ import annotations

import json
import os
import zipfile

import pytest

from veracausa.errors import InputError, WireError
from veracausa.federation.export_import import export, import_part
from veracausa.federation.inference import SitePrediction
from veracausa.runs.store import read_tree
from veracausa.wire.ledger import read_ledger
from veracausa.wire.threads import run_threads, thread_links

COLUMNS = {"bank": ("y", "income"), "lab": ("a", "b"), "clinic": ("kind", "c")}
NAMES = tuple(COLUMNS)


def train(sites) -> None:
    """With secrets of their own, as between organisations."""
    ready = sites.prepared(secret=True)

    def program(name, link):
        ready[name].align(link, lambda event: None)
        ready[name].run(link, lambda event: None, None)

    sites.each(program)


@pytest.fixture
def trained(organisations, table_job):
    own = {"blind": {"encryption": "none", "allow_small_n": True}, "features": {"name": "splines", "functions": 4}}
    job = {**table_job(training={"protocol": "blind"}), **own}
    job.pop("model")
    sites = organisations(job, rows=240)
    train(sites)
    return sites


def predicted(folders, files):
    found = {}
    parties = {name: SitePrediction(folders[name], name, files[name]) for name in NAMES}

    def program(name):
        def run(link):
            found[name] = parties[name](link, lambda event: None)

        return run

    run_threads({name: program(name) for name in NAMES}, thread_links(NAMES, timeout=10))
    return found["bank"]


def model_of(folder, name):
    return folder / "run/parties" / name / "model.safetensors"


def test_parts_predict_elsewhere_as_before(trained, tmp_path, people):
    files = {name: people(tmp_path / f"new-{name}.csv", range(300, 330), COLUMNS[name], 2) for name in NAMES}
    here = {name: trained.root / name for name in NAMES}
    first, again = predicted(here, files), predicted(here, files)
    assert again.outputs.equal(first.outputs)
    # A session sends neither head nor key, and no party but the bank has one.
    for name, kinds in (("bank", {"ask"}), ("lab", {"head_kept", "mask_seed", "answer", "hello"})):
        sent = {line["kind"] for line in read_ledger(here[name] / "run/parties" / name / "inference.jsonl")}
        assert kinds <= sent
        assert not {"head", "key", "toss"} & sent
    there = {name: tmp_path / "serving" / name for name in NAMES}
    before = os.umask(0o022)
    try:
        for name in NAMES:
            part = tmp_path / f"{name}.zip"
            export(here[name], name, part)
            assert part.stat().st_mode & 0o777 == 0o600
            with zipfile.ZipFile(part) as archive:
                assert ("head.key" in archive.namelist()) == (name == "bank")
            import_part(part, there[name])
    finally:
        os.umask(before)
    assert (there["bank"] / "run/parties/bank/head.key").stat().st_mode & 0o777 == 0o600
    assert predicted(there, files).outputs.equal(first.outputs)


def test_a_part_without_its_key_is_none(trained, tmp_path):
    own = trained.root / "bank/run/parties/bank"
    export(trained.root / "bank", "bank", tmp_path / "whole.zip")
    with zipfile.ZipFile(tmp_path / "whole.zip") as whole, zipfile.ZipFile(tmp_path / "less.zip", "w") as less:
        manifest = json.loads(whole.read("manifest.json"))
        del manifest["files"]["head.key"]
        less.writestr("manifest.json", json.dumps(manifest))
        for name in manifest["files"]:
            less.writestr(name, whole.read(name))
    with pytest.raises(InputError, match=r"has head\.key, and nobody else"):
        import_part(tmp_path / "less.zip", tmp_path / "new")
    (own / "head.key").unlink()
    with pytest.raises(InputError, match=r"head\.key: is missing.*train again"):
        export(trained.root / "bank", "bank", tmp_path / "none.zip")


def test_another_training_is_another_head(trained, tmp_path, people):
    """The blur of a row follows from the ciphertexts that a party keeps, and the old key opens nothing of the new."""
    files = {name: people(tmp_path / f"new-{name}.csv", range(300, 330), COLUMNS[name], 2) for name in NAMES}
    here = {name: trained.root / name for name in NAMES}
    kept = {name: read_tree(model_of(here[name], name))["kept_head"] for name in ("lab", "clinic")}
    assert kept["lab"]["name"] != kept["clinic"]["name"]
    key = (here["bank"] / "run/parties/bank/head.key").read_bytes()
    for name in NAMES:  # begin anew, in the same folders
        (here[name] / "run").rename(here[name] / "old")
        (here[name] / "answers").rename(here[name] / "old-answers")
    train(trained)
    assert read_tree(model_of(here["lab"], "lab"))["kept_head"]["name"] != kept["lab"]["name"]
    (here["bank"] / "run/parties/bank/head.key").write_bytes(key)
    with pytest.raises(WireError, match=r"head_kept\.name.*keeps another head.*train again"):
        predicted(here, files)
