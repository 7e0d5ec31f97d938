"""The page of a run that runs, in a real browser: it follows the run, and says when that is over."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veracausa.report.live_page import LivePage

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")]


def browse(tmp_path: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"]
    command += ["--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", *arguments, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


class Counted(LivePage):
    """A page that goes one step on whenever it is asked for news, and is gone after `last` of them."""

    def __init__(self, last: int) -> None:
        super().__init__("veracausa train")
        self.asked, self.last = 0, last
        self.state({"event": "start", "epochs": 3, "steps": 100, "step": 0})

    def answer(self, path: str) -> tuple[str, str] | None:
        if path.endswith("/part"):
            self.asked += 1
            self.state({"event": "step", "step": 10 * self.asked})
            self.state({"event": "epoch", "epoch": self.asked, "train": {"loss": 1 / self.asked}})
        return None if self.asked > self.last else super().answer(path)


def test_the_page_follows_the_run_without_complaint(tmp_path: Path) -> None:
    with Counted(last=1000) as page:
        done = browse(tmp_path, page.url, "--virtual-time-budget=4500", "--dump-dom")
    assert not re.findall(r".*CONSOLE.*", done.stderr)
    shown = re.search(r"<h1>Training: (\d+) %</h1>", done.stdout)
    assert shown is not None
    assert int(shown[1]) >= 20, "it asked more than once"
    assert "<polyline" in done.stdout
    assert re.search(r'id="gone" hidden', done.stdout)


def test_the_page_says_that_the_run_is_over(tmp_path: Path) -> None:
    with Counted(last=2) as page:
        done = browse(tmp_path, page.url, "--virtual-time-budget=6000", "--dump-dom")
    assert "Training: 20 %" in done.stdout, "the last that was seen stays"
    assert not re.search(r'id="gone" hidden', done.stdout)


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_draws(dark: bool, tmp_path: Path) -> None:
    with Counted(last=1000) as page:
        picture = tmp_path / "page.png"
        extra = ["--force-dark-mode"] if dark else []
        browse(tmp_path, page.url, *extra, "--window-size=1000,900", "--timeout=3000", f"--screenshot={picture}")
    pixels = np.asarray(Image.open(picture).convert("L")).astype(float)
    assert (np.median(pixels) < 128) == dark
    assert 0.005 < np.mean(np.abs(pixels - np.median(pixels)) > 60) < 0.3
