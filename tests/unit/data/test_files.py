"""Where data files lie, how they are fetched, and which sources there are."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from refusals import Names

from veracausa.data.files import Remote, data_folder, fetch, find, given_path, subset_note
from veracausa.data.sources import datasets
from veracausa.errors import InputError


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    served = tmp_path / "served"
    served.mkdir()
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    web = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(served)))
    threading.Thread(target=web.serve_forever, args=(0.02,), daemon=True).start()
    yield served, f"http://127.0.0.1:{web.server_port}"
    web.shutdown()
    web.server_close()


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def test_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("VERACAUSA_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.delenv("VERACAUSA_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder() == tmp_path / "cache/veracausa"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path.home() / ".cache/veracausa"


def test_a_given_path_is_looked_for_in_both_places(data_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (data_folder / "a.csv").write_text("x")
    assert given_path("a.csv", "data.path") == data_folder / "a.csv"
    (tmp_path / "a.csv").write_text("y")
    assert given_path("a.csv", "data.path").read_text() == "y"
    with pytest.raises(InputError, check=Names("data.path", "b.csv")):
        given_path("b.csv", "data.path")


def test_a_missing_file_is_fetched_and_checked(tmp_path, monkeypatch, server):
    monkeypatch.setenv("VERACAUSA_DATA", str(tmp_path / "data"))
    served, url = server
    (served / "a.bin").write_bytes(b"content")
    path = find("deep/a.bin", Remote(f"{url}/a.bin", md5(served / "a.bin")))
    assert path.read_bytes() == b"content"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.bin"]


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_an_archive_gives_its_siblings(tmp_path, server, kind):
    served, url = server
    archive = served / f"a.{kind}"
    files = {"in/one.bin": b"1", "in/two.bin": b"2", "../three.bin": b"3"}
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as bundle:
            for name, content in files.items():
                bundle.writestr(name, content)
    else:
        with tarfile.open(archive, "w:gz") as tar:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    fetch(tmp_path / "out/one.bin", Remote(f"{url}/a.{kind}", md5(archive), "in/*"))
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {"one.bin": b"1", "two.bin": b"2"}
    with pytest.raises(InputError, match="does not hold it"):
        fetch(tmp_path / "out/four.bin", Remote(f"{url}/a.{kind}", md5(archive), "in/*"))


def test_a_wrong_download_leaves_nothing(tmp_path, server):
    served, url = server
    (served / "a.bin").write_bytes(b"tampered")
    with pytest.raises(InputError, match=r"a\.bin is missing \(looked for .*; fetching it failed: .*VERACAUSA_DATA"):
        fetch(tmp_path / "out/a.bin", Remote(f"{url}/a.bin", "0" * 32))
    assert not (tmp_path / "out").exists()


def test_no_network_is_one_sentence(data_folder):
    with pytest.raises(InputError, match=r"a\.bin is missing.*looked for .*/x/a\.bin.*https://example\.invalid/a\.bin"):
        find("x/a.bin", Remote("https://example.invalid/a.bin", "0" * 32))
    assert list(data_folder.iterdir()) == []


def test_a_subset_is_noted(tmp_path):
    assert subset_note("cifar100", tmp_path, 10) == ()
    (tmp_path / "README.txt").write_text("SUBSET of it")
    assert subset_note("cifar100", tmp_path, 10) == ("cifar100: a subset (10 training rows)",)


def test_every_source_is_found_by_name():
    assert set(datasets.names()) >= {
        *("adult", "cifar10", "cifar100", "clothing", "csv", "digits", "emnist", "images", "mnist", "parquet"),
    }
    with pytest.raises(InputError, match="did you mean 'cifar10'"):
        datasets.get("cifar1O")


def test_naming_the_sources_imports_none_of_what_they_read_with():
    program = (
        "import sys; from veracausa.data import load; from veracausa.data.sources import datasets; datasets.names();"
        "sys.exit(', '.join({'polars', 'sklearn', 'PIL', 'pooch'} & set(sys.modules)) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
