"""Reports in a real browser: they draw, complain about nothing and fit a phone; an audit's table sorts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from told_graph import EDGES, written
from veracausa.audit.measure import Gallery
from veracausa.report.compare import write_comparison
from veracausa.report.run_page import write_report
from veracausa.runs.folder import write_json

EXAMPLE = Path(__file__).parents[1] / "cli" / "example_run"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PARTIES = ("passive_1", "passive_2")

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")]

ASK = """
const images = [...document.images];
const sorted = () => [...document.querySelectorAll("table.sortable tbody tr")].map((row) => row.cells[4].textContent);
const before = sorted();
document.querySelectorAll("table.sortable th button")[4].click();
const down = sorted();
document.querySelectorAll("table.sortable th button")[4].click();
const wall = document.querySelector(".wall");
wall.click();
return JSON.stringify({
  images: images.length, loaded: images.filter((image) => image.complete && image.naturalWidth > 0).length,
  before, down, up: sorted(), large: wall.classList.contains("large"),
  width: document.documentElement.scrollWidth, of: window.innerWidth,
});
"""
WIDTH = "return document.documentElement.scrollWidth + ' of ' + window.innerWidth;"
INTRUDE = """
const heard = [];
document.addEventListener("securitypolicyviolation", (event) => heard.push(event.effectiveDirective));
const own = document.createElement("script");
own.textContent = "document.body.dataset.ran = 'yes'";
document.body.append(own);
const far = document.createElement("img");
far.src = "http://127.0.0.1:9/x.png";
document.body.append(far);
return new Promise((done) => setTimeout(() => done(JSON.stringify(
  { heard: heard.sort(), ran: document.body.dataset.ran ?? "no" })), 300));
"""
"""What a page's policy must stop: a script that it does not know, and a request."""


def audited(tmp_path: Path) -> Path:
    """A run that says it was audited, with a twin, pictures and moments; nothing was trained for it."""
    run = Path(shutil.copytree(EXAMPLE, tmp_path / "run"))
    shutil.copytree(EXAMPLE, run / "twin")
    rng = torch.Generator().manual_seed(0)
    for place, strength in ((run, 0.4), (run / "twin", 0.9)):
        entries: dict[str, Any] = {}
        for attack, leaked in (("inverse", strength), ("unsplit", 0.0)):
            scores = {"mse": 0.05 * (1 - leaked), "psnr": 20.0, "ssim": leaked, "leakage": leaked, "blind_mse": 0.05}
            moments = [{"moment": at, "train": leaked * at, "test": leaked * at} for at in (0.1, 0.5, 1.0)]
            own = {"train": {**scores, "samples": 40, "blind": "class mean", "trivial": {"grey": 0.1}}}
            own["test"] = {**own["train"], "leakage": leaked / 2}
            parties = {party: {**own, "auxiliary": 20, "moments": moments} for party in PARTIES}
            entries[attack] = {**scores, "party": "passive_1", "parties": parties, "granted": ["auxiliary"]}
            entries[attack] |= {"works": attack == "inverse", "undefended": {"leakage": 0.9 if leaked else 0.0}}
            for party in PARTIES:
                truth, guess = torch.rand(2, 30, 1, 8, 4, generator=rng)
                mse = (truth - guess).square().flatten(1).mean(1)
                gallery = Gallery.of(
                    torch.arange(30), truth, guess, truth.mean(0, keepdim=True).expand(30, -1, -1, -1), mse
                )
                gallery.write(place / "attacks" / attack / f"pictures-{party}.safetensors")
        summary = json.loads((place / "summary.json").read_text())
        summary |= {"attacks": entries, "blind": {"mse": 0.05}, "strongest": {"attack": "inverse", "leakage": strength}}
        summary["verdict"] = "Behind a defense the strongest attack, inverse, reads 40 %."
        write_json(place / "summary.json", summary)
    return run


def browse(tmp_path: Path, page: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"]
    command += ["--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", *arguments, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def told_on_a_phone(tmp_path: Path, page: Path, script: str) -> str:
    """What a script finds on the page in a narrow frame, in which nothing may complain.

    A window has a smallest width, a frame has none. The script runs outside, because the page would not let it run.
    """
    done = framed(tmp_path, page, script)
    assert not re.findall(r".*CONSOLE.*", done.stderr)
    told = re.search(r'data-told="([^"]*)"', done.stdout)
    assert told is not None
    return told[1].replace("&quot;", '"')


def framed(tmp_path: Path, page: Path, script: str) -> subprocess.CompletedProcess[str]:
    frame = page.with_name("frame.html")
    show = (
        f"const ask = async (document, window) => {{ {script} }};\n"
        "const frame = document.querySelector('iframe');\n"
        "frame.onload = async () => {\n"
        "  document.body.dataset.told = await ask(frame.contentDocument, frame.contentWindow);\n};\n"
        f"frame.src = '{page.name}';"
    )
    frame.write_text(
        f'<body><iframe style="width:390px;height:900px;border:0"></iframe><script>{show}</script></body>',
        encoding="utf-8",
    )
    return browse(tmp_path, frame, "--allow-file-access-from-files", "--virtual-time-budget=3000", "--dump-dom")


def drawn(tmp_path: Path, page: Path, width: int, height: int, *arguments: str) -> np.ndarray:
    """A picture of the page in grey; nothing may complain."""
    picture = tmp_path / "page.png"
    done = browse(tmp_path, page, *arguments, f"--window-size={width},{height}", f"--screenshot={picture}")
    assert not re.findall(r".*CONSOLE.*", done.stderr)
    pixels = np.asarray(Image.open(picture).convert("L")).astype(float)
    assert pixels.shape == (height, width)
    return pixels


def trained_blind(run: Path) -> Path:
    """The run, made to say that it was blind and attacked; its figures are made up."""
    features = {party: {"name": "patches", "width": 48, "notes": ["a note of some length " * 4]} for party in PARTIES}
    told = {"rows": 24887, "numbers": 9, "predicted": {"test": 6222}, "epsilon": 4.0, "ridge": 0.1, "ridge_by": "gcv"}
    summary = json.loads((run / "summary.json").read_text())
    summary |= {"protocol": "blind", "blind_training": {**told, "features": features}}
    summary["strongest"] = {"attack": "score_decoder", "leakage": 0.03}
    write_json(run / "summary.json", summary)
    kinds = ("moment_query", "moment_answer", "moment_share", "head", "answer", "hello", "key")
    lines = [{"to": "active", "kind": kind, "shape": {"x": [9]}, "bytes": 10**6} for kind in kinds]
    for party in PARTIES:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (run / "parties" / party / "ledger.jsonl").write_text(text)
    return run


@pytest.fixture(params=["report", "comparison", "blind report", "split and blind", "discovery"])
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "discovery":
        both = [
            {"method": name, "edges": 3, "kept": name == "moments", "edge_list": EDGES} for name in ("moments", "x")
        ]
        return written(tmp_path / "told", truth=True, parties=True, compared_=both).report()
    runs = [Path(shutil.copytree(EXAMPLE, tmp_path / name)) for name in ("first", "second")]
    if "blind" in request.param:
        trained_blind(runs[0])
    if "report" in request.param:
        return write_report(runs[0])
    return write_comparison(runs, tmp_path / "both.html")


def test_a_report_draws_without_complaint(page: Path, tmp_path: Path) -> None:
    pixels = drawn(tmp_path, page, 1000, 1400)
    # Text and lines on paper: neither blank nor a block of ink.
    assert 0.005 < np.mean(np.abs(pixels - np.median(pixels)) > 60) < 0.3


def test_a_report_fits_a_phone(page: Path, tmp_path: Path) -> None:
    width, of = map(int, told_on_a_phone(tmp_path, page, WIDTH).split(" of "))
    assert width <= of == 390


def test_the_policy_stops_scripts_and_requests_that_are_not_the_pages_own(page: Path, tmp_path: Path) -> None:
    done = framed(tmp_path, page, INTRUDE)
    told = re.search(r'data-told="([^"]*)"', done.stdout)
    assert told is not None
    found = json.loads(told[1].replace("&quot;", '"'))
    assert found == {"heard": ["img-src", "script-src-elem"], "ran": "no"}


def test_an_audit_loads_its_pictures_sorts_its_table_and_fits_a_phone(tmp_path: Path) -> None:
    found = json.loads(told_on_a_phone(tmp_path, write_report(audited(tmp_path)), ASK))
    # Two walls of six lines: original, two attacks with and without a defense, the blind guess.
    assert found["images"] == found["loaded"] == 12
    assert found["before"] != found["down"]
    numbers = [[float(cell.split()[0]) for cell in found[way]] for way in ("down", "up")]
    assert numbers[0] == sorted(numbers[0], reverse=True)
    assert numbers[1] == sorted(numbers[1])
    assert found["large"] is True
    assert found["width"] <= found["of"] == 390


@pytest.mark.parametrize("dark", [False, True])
def test_an_audit_draws_without_complaint(dark: bool, tmp_path: Path) -> None:
    extra = ["--force-dark-mode"] if dark else []
    pixels = drawn(tmp_path, write_report(audited(tmp_path)), 1200, 2400, *extra)
    assert (np.median(pixels) < 128) == dark
    assert 0.02 < np.mean(np.abs(pixels - np.median(pixels)) > 60) < 0.5
