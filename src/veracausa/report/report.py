"""The page of a run, or of several runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from veracausa.errors import InputError
from veracausa.report.compare import write_comparison
from veracausa.report.run_page import write_report

if TYPE_CHECKING:
    from veracausa.runs.folder import Run


def report(*runs: str | Path | Run, out: str | Path | None = None) -> Path:
    """Write the report of a run, or one page that compares several, and return the page's path.

    runs: run folders, or runs. One is written into its own folder, as `report.html`.
    out: where a comparison is written. Default: `comparison.html`.

    >>> veracausa.report("runs/mine")
    >>> veracausa.report("runs/mine", "runs/other", out="both.html")
    """
    paths = [Path(run) if isinstance(run, str | Path) else run.path for run in runs]
    if not paths:
        raise InputError("report: name at least one run")
    if len(paths) > 1:
        return write_comparison(paths, Path(out) if out is not None else Path("comparison.html"))
    if out is not None:
        raise InputError("--out is for a comparison of several runs; one run's report goes into its own folder")
    return write_report(paths[0])
