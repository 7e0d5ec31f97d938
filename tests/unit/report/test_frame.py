"""What surrounds a page: its policy names the scripts it has and no other, and its contents are its headings."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import veracausa
from veracausa.report.frame import SCRIPTS, policy, script, with_contents
from veracausa.report.run_page import write_report

EXAMPLE = Path(__file__).parents[2] / "cli" / "example_run"


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_policy_has_the_hash_of_what_stands_between_the_tags(name: str) -> None:
    inner = re.fullmatch(r"<script>(.*)</script>", script(name), re.DOTALL)
    assert inner is not None
    digest = base64.b64encode(hashlib.sha256(inner[1].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy()


def test_the_policy_lets_nothing_out_and_no_other_script_in() -> None:
    rules = dict(rule.split(" ", 1) for rule in policy().split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in rules["script-src"]
    assert rules["img-src"] == "data:"
    assert not re.search(r"https?:|\*", policy())
    with pytest.raises(ValueError, match=r"evil\.js"):
        script("evil.js")


def test_contents_are_the_headings_in_order_and_every_link_has_its_place() -> None:
    page = with_contents("<!--contents--><h2>One</h2><h2>Two &amp; two</h2><h2>Three</h2>")
    assert re.findall(r'<a href="#(.*?)">(.*?)</a>', page) == [
        ("part-1", "One"),
        ("part-2", "Two &amp; two"),
        ("part-3", "Three"),
    ]
    assert re.findall(r'<h2 id="(.*?)">', page) == ["part-1", "part-2", "part-3"]
    assert "<a" not in with_contents("<!--contents--><h2>One</h2>")


def test_plots_for_developers_come_last_and_folded(tmp_path: Path) -> None:
    text = write_report(Path(shutil.copytree(EXAMPLE, tmp_path / "run"))).read_text(encoding="utf-8")
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", text)
    assert headings[-1] == "For method developers"
    assert '<details class="developers">' in text
    assert "What each party sent" in headings
    assert text.index("For method developers</h2>") < text.index("<h3>Environment</h3>")
    assert "what its model made of each of its rows" in text
    assert "veracausa audit RUN" in text


def test_pages_are_written_without_torch(tmp_path: Path) -> None:
    run = shutil.copytree(EXAMPLE, tmp_path / "run")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "import veracausa.report.compare, veracausa.report.discovery_page, veracausa.report.live_page\n"
        "from veracausa.report.run_page import write_report\n"
        "write_report(Path(sys.argv[1]))"
    )
    source = str(Path(veracausa.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code, str(run)],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.html").is_file()
