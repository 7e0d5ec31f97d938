"""A trained part goes to another folder and predicts there as before; what is not one is refused."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import zipfile

import pytest

from veracausa.errors import InputError
from veracausa.federation.export_import import export, import_part
from veracausa.federation.inference import SitePrediction
from veracausa.federation.site_program import party_program
from veracausa.wire.threads import run_threads, thread_links

COLUMNS = {"bank": ("y",), "lab": ("a", "b")}


@pytest.fixture
def trained(organisations, table_job):
    job = table_job(("lab",), training={"epochs": 1, "batch_size": 16})
    sites = organisations(job, ("lab",), rows=30, lab={"defense": {"name": "laplace", "epsilon": 2.0}})
    sites.run()
    return sites


def predicted(root, files):
    found = {}
    parties = {name: SitePrediction(root / name, name, path) for name, path in files.items()}

    def program(name):
        def run(link):
            found[name] = parties[name](link, lambda event: None)

        return run

    run_threads({name: program(name) for name in parties}, thread_links(tuple(parties), timeout=10))
    return found["bank"]


def test_it_predicts_elsewhere_as_before(tmp_path, trained, people):
    files = {name: people(tmp_path / f"new-{name}.csv", range(50, 60), COLUMNS[name], 2) for name in COLUMNS}
    before = predicted(trained.root, files)
    for name in COLUMNS:
        part = tmp_path / f"{name}.part.zip"
        manifest = export(trained.root / name, name, part)
        assert (manifest.party, manifest.role) == (name, "active" if name == "bank" else "passive")
        with zipfile.ZipFile(part) as archive:
            whole = b"".join(archive.read(entry) for entry in archive.namelist())
        assert str(tmp_path).encode() not in whole  # where the data lie stays at home
        assert import_part(part, tmp_path / "serving" / name) == manifest
    after = predicted(tmp_path / "serving", files)
    assert after.ids == before.ids
    assert after.outputs.equal(before.outputs)
    with pytest.raises(InputError, match="give new rows"):
        SitePrediction(tmp_path / "serving" / "lab", "lab")


def test_nobody_else_on_the_machine_reads_an_imported_part(tmp_path, trained):
    part = tmp_path / "lab.zip"
    export(trained.root / "lab", "lab", part)
    before = os.umask(0o022)
    try:
        import_part(part, tmp_path / "new" / "lab")
        (tmp_path / "there").mkdir(mode=0o755)
        import_part(part, tmp_path / "there")
    finally:
        os.umask(before)
    for folder in (tmp_path / "new" / "lab", tmp_path / "there"):
        paths = [folder, *folder.rglob("*")]
        assert len(paths) > 8
        for path in paths:
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_a_run_folder_that_is_a_link_is_not_written_through(tmp_path, trained):
    part = tmp_path / "lab.zip"
    export(trained.root / "lab", "lab", part)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="run: is a link"):
        import_part(part, tmp_path / "new")
    own = trained.root / "lab" / "run" / "parties"
    own.rename(tmp_path / "elsewhere" / "parties")
    own.symlink_to(tmp_path / "elsewhere" / "parties")
    with pytest.raises(InputError, match="parties: is a link, and what a run writes stays in its own folder"):
        party_program(trained.root / "lab", "lab")


def test_a_folder_with_another_job_or_a_run(tmp_path, trained):
    part = tmp_path / "lab.zip"
    export(trained.root / "lab", "lab", part)
    joined = tmp_path / "joined"
    joined.mkdir()
    (joined / "job.toml").write_bytes((trained.root / "lab" / "job.toml").read_bytes() + b"\n")
    with pytest.raises(InputError, match="another job"):
        import_part(part, joined)
    with pytest.raises(InputError, match="already there"):
        import_part(part, trained.root / "lab")


def test_a_secret_seed_does_not_travel(tmp_path, organisations, table_job):
    sites = organisations(table_job(("lab",), training={"epochs": 1}), ("lab",), rows=30)
    ready = {name: party_program(sites.root / name, name, secret=True) for name in sites.names}

    def program(name, link):
        ready[name].align(link, lambda event: None)
        ready[name].run(link, lambda event: None, None)

    sites.each(program)
    seed = (sites.root / "lab/run/parties/lab/seed").read_bytes()
    export(sites.root / "lab", "lab", tmp_path / "lab.zip")
    import_part(tmp_path / "lab.zip", tmp_path / "serving")
    new = (tmp_path / "serving/run/parties/lab/seed").read_bytes()
    assert len(new) == len(seed)
    assert new != seed


def repacked(part, out, change=None, **files):
    with zipfile.ZipFile(part) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents |= files
    if change is not None:
        manifest = json.loads(contents["manifest.json"])
        change(manifest, contents)
        contents["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return out


def test_what_is_no_part_is_refused(tmp_path, trained):
    part, bad = tmp_path / "lab.zip", tmp_path / "bad.zip"
    export(trained.root / "lab", "lab", part)

    def sized(content):
        return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    def pickled(manifest, contents):
        contents["model.safetensors"] = pickle.dumps({"bottom": {}})
        manifest["files"]["model.safetensors"] = sized(contents["model.safetensors"])

    def bank(manifest, contents):
        manifest["party"] = "bank"

    def huge(manifest, contents):
        manifest["files"]["model.safetensors"]["bytes"] = 1 << 60

    def other_job(manifest, contents):
        contents["job.toml"] = contents["job.toml"].replace(b'name = "mlp"', b'name = "mlp"\nwidth = 7')
        manifest["files"]["job.toml"] = sized(contents["job.toml"])

    cases = [
        (lambda: repacked(part, bad, **{"model.safetensors": b"x" * 10}), "larger|not what the manifest says"),
        (lambda: repacked(part, bad, **{"../evil": b"x"}), "other files"),
        (lambda: repacked(part, bad, pickled), "bad.zip: "),
        (lambda: repacked(part, bad, bank), "not the passive party"),
        (lambda: repacked(part, bad, huge), "at most"),
        (lambda: repacked(part, bad, other_job), "bad.zip: "),
        (lambda: bad.write_bytes(part.read_bytes()[:-50]), "cannot be read"),
        (lambda: bad.write_bytes(b"PK"), "cannot be read"),
        (lambda: bad.unlink(), "no such file"),
    ]
    for make, problem in cases:
        make()
        with pytest.raises(InputError, match=problem):
            import_part(bad, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_a_compressed_part_is_refused(tmp_path, trained):
    export(trained.root / "lab", "lab", tmp_path / "lab.zip")
    with zipfile.ZipFile(tmp_path / "lab.zip") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    with pytest.raises(InputError, match="compressed"):
        import_part(tmp_path / "bomb.zip", tmp_path / "out")


def test_nothing_trained_nothing_exported(tmp_path, organisations, table_job):
    sites = organisations(table_job(("lab",)), ("lab",), rows=30)
    party_program(sites.root / "lab", "lab")
    with pytest.raises(InputError, match="no trained model"):
        export(sites.root / "lab", "lab", tmp_path / "lab.zip")
    (tmp_path / "job.toml").write_text("kind = 'discovery'\n")
    with pytest.raises(InputError, match="a graph and no model"):
        export(tmp_path, "lab", tmp_path / "lab.zip")
