"""`veracausa bench`: runs the benchmarks of a checkout. They are no part of the installed package."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from veracausa.errors import InputError

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Settings of the command: the benchmarks have options and a help of their own."""
CHECKOUT = Path(__file__).resolve().parents[3]


def bench(context: typer.Context) -> None:
    """Time the runtime, the wire, the defenses, discovery, encryption and alignment beside what they compare with."""
    if not (CHECKOUT / "benchmarks" / "__main__.py").is_file():
        raise InputError(
            "bench: the benchmarks are not part of the installed package; run `make bench NAME=runtime` in a checkout "
            "of the repository, where the folder benchmarks/ has them"
        )
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    from benchmarks.__main__ import app

    app(args=context.args, prog_name="veracausa bench", standalone_mode=False)
