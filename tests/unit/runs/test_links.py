"""What a run writes stays in its own folder: a link in it is not followed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from veracausa.errors import InputError
from veracausa.report.run_page import write_report
from veracausa.runs.folder import locked

EXAMPLE = Path(__file__).parents[2] / "cli" / "example_run"


@pytest.mark.parametrize("name", ["images", "parties/passive_1", ".lock"])
def test_a_link_is_refused_and_what_it_leads_to_stays_as_it_was(name: str, tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(EXAMPLE, run)
    if name == ".lock":
        outside.write_text("keep me")
    else:
        outside.mkdir()
    place = run / name
    if place.is_dir():
        shutil.rmtree(place)
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(outside)
    for write in (write_report, _lock):
        with pytest.raises(InputError, match=f"{name}: is a link, and what a run writes stays in its own folder"):
            write(run)
    assert outside.read_text() == "keep me" if name == ".lock" else not list(outside.iterdir())


def _lock(run: Path) -> None:
    with locked(run):
        pass
