"""What every page and table is written with: templates, and numbers as a person reads them. Needs no matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import escape

from veracausa.atomic import atomic_write
from veracausa.report.frame import policy, script, with_contents
from veracausa.report.hidden_paths import shown
from veracausa.runs.record import format_shape

if TYPE_CHECKING:
    from jinja2 import Environment

SCORES = {
    "accuracy": "accuracy",
    "commonest_class": "commonest class",
    "balanced_accuracy": "balanced accuracy",
    "auc": "AUC",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "loss": "loss",
}
SHARES = ("accuracy", "commonest_class", "balanced_accuracy")
"""Scores that are shares, and shown in percent."""


@dataclass(frozen=True)
class NextStep:
    """Something to do next, and the command that does it."""

    why: str
    command: str = ""


@dataclass(frozen=True)
class PageOpening:
    """The first lines of a page."""

    verdict: str
    lead: Sequence[str] = ()
    steps: Sequence[NextStep] = ()
    tone: str = ""
    """`bad`, `part` or `little`, by how much was read; nothing is ever called safe."""


def render(template: str, **context: Any) -> str:
    """A page from a template of this package; every value is escaped, and folders of this machine are cut from it."""
    return with_contents(_templates().get_template(template).render(**context))


@cache
def _templates() -> Environment:
    """Each template is compiled once a process."""
    from jinja2 import Environment, FunctionLoader

    folder = files("veracausa.report") / "templates"
    environment = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown,
    )
    environment.globals.update(policy=policy, script=script)
    environment.filters.update(
        size=format_bytes,
        duration=format_seconds,
        shape=format_shape,
        moment=format_moment,
        count=format_count,
        bound=format_bound,
    )
    environment.filters["cell"] = escape  # as it stands in a table: what looks like a path is data

    return environment


def write_page(path: Path, text: str) -> Path:
    """Write a page whole, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, text.encode())
    return path


def format_bytes(count: float) -> str:
    """A number of bytes in decimal units: 1 376 912 is `1.38 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def format_score(name: str, value: float) -> str:
    """Accuracies in percent, other scores with four significant digits."""
    return f"{100 * value:.1f} %" if name in SHARES else f"{value:.4g}"


def format_seconds(seconds: float) -> str:
    """A duration as a person says it: `48.2 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def format_moment(moment: Any) -> str:
    """An ISO time as `10 January 2025, 09:00 UTC`; anything else as it is."""
    try:
        when = datetime.fromisoformat(str(moment))
    except ValueError:
        return str(moment)
    return f"{when.day} {when:%B %Y, %H:%M %Z}".rstrip()


def format_count(value: Any) -> str:
    """A count with its thousands apart; anything else as it is."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def format_bound(value: Any) -> str:
    """One end of a column's values: its thousands apart, and no more digits than a reader wants."""
    if not isinstance(value, int | float):
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
