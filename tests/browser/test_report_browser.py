"""The report in a real browser: it draws, complains about nothing, and fits a phone."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veracausa.report.compare import write_comparison
from veracausa.report.run_page import write_report

EXAMPLE = Path(__file__).parents[1] / "cli" / "example_run"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")]


def browse(tmp_path: Path, page: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"]
    command += ["--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", *arguments, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


@pytest.fixture(params=["report", "comparison"])
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    runs = [Path(shutil.copytree(EXAMPLE, tmp_path / name)) for name in ("first", "second")]
    return write_report(runs[0]) if request.param == "report" else write_comparison(runs, tmp_path / "both.html")


def test_it_draws_without_complaint(page: Path, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    done = browse(tmp_path, page, "--window-size=1000,1400", f"--screenshot={picture}")
    assert not re.findall(r".*CONSOLE.*", done.stderr)
    pixels = np.asarray(Image.open(picture).convert("L")).astype(float)
    assert pixels.shape == (1400, 1000)
    # Text and lines on paper: neither blank nor a block of ink.
    paper = np.median(pixels)
    assert 0.005 < np.mean(np.abs(pixels - paper) > 60) < 0.3


def test_it_fits_a_phone(page: Path, tmp_path: Path) -> None:
    # A window has a smallest width, a frame has none; the frame's script only measures what the page would overflow.
    measure = "<script>document.title = document.documentElement.scrollWidth + ' of ' + innerWidth</script></body>"
    narrow = page.with_name("narrow.html")
    narrow.write_text(page.read_text(encoding="utf-8").replace("</body>", measure), encoding="utf-8")
    frame = page.with_name("frame.html")
    show = 'onload="document.body.dataset.width = this.contentDocument.title"'
    frame.write_text(f'<body><iframe src="{narrow.name}" style="width:390px;height:800px;border:0" {show}></iframe>')
    done = browse(tmp_path, frame, "--allow-file-access-from-files", "--virtual-time-budget=2000", "--dump-dom")
    widths = re.search(r'data-width="(\d+) of (\d+)"', done.stdout)
    assert widths is not None
    assert int(widths[1]) <= int(widths[2]) == 390
