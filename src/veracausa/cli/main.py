"""The command `veracausa`: every command is a module of this package, and what is heavy is imported inside it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from typing import Annotated, NoReturn

import typer

from veracausa import __version__
from veracausa.cli import (
    align,
    audit,
    bench,
    console,
    data,
    demo,
    discover,
    doctor,
    export,
    federation,
    frontier,
    init,
    predict,
    report,
    reproduce,
    schema,
    train,
)
from veracausa.cli import list as listing
from veracausa.cli.interruption import of_ctrl_c
from veracausa.cli.output_options import PlainGroup, add_command
from veracausa.errors import FULL, VeracausaError, of_system
from veracausa.escaping import escaped

app = typer.Typer(
    name="veracausa",
    cls=PlainGroup,
    help="Vertical federated learning: train one model across parties that hold different columns of the same people.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
add_command(app, "demo", demo.demo)
add_command(app, "init", init.init)
add_command(app, "align", align.align)
add_command(app, "train", train.train)
add_command(app, "predict", predict.predict)
add_command(app, "audit", audit.audit)
add_command(app, "discover", discover.discover)
add_command(app, "frontier", frontier.frontier)
add_command(app, "report", report.report)
add_command(app, "export", export.export)
add_command(app, "reproduce", reproduce.reproduce)
add_command(app, "list", listing.list_)
add_command(app, "schema", schema.schema)
add_command(app, "data", data.data)
add_command(app, "doctor", doctor.doctor)
app.command("bench", context_settings=bench.PASS_ON)(bench.bench)
app.add_typer(federation.app, name="federation")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"veracausa {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="VERACAUSA_DEBUG", help="Show the traceback when something fails.")
    ] = False,
) -> None:
    # By the environment, because it also reaches the processes that a run starts.
    os.environ["VERACAUSA_DEBUG"] = "1" if debug else "0"


def main() -> None:
    """Run the command line; what goes wrong is one sentence and an exit code: 2 for the input, 1 for the run."""
    try:
        app(prog_name="veracausa")
    except VeracausaError as error:
        _leave(str(error), error.exit_code)
    except KeyboardInterrupt:
        _leave("stopped by Ctrl-C", 130)
    except OSError as error:
        if error.errno not in FULL and not error.filename:
            raise  # nobody knows what this is about
        said = of_system(error)
        _leave(str(said), said.exit_code)
    except Exception as error:
        if not of_ctrl_c(error):
            raise
        _leave("stopped by Ctrl-C", 130)


def _leave(sentence: str, exit_code: int) -> NoReturn:
    if os.environ.get("VERACAUSA_DEBUG") == "1":
        traceback.print_exc()
    line = f"veracausa: {escaped(sentence)}"
    sys.stderr.write(f"{console.wrapped(line, console.err.width) if console.err.is_terminal else line}\n")
    sys.exit(exit_code)


def program() -> None:
    """The command line as a program of its own.

    The engine between organisations leaves threads inside its libraries, and a party that was stopped may still
    compute. An interpreter that is taken down under such threads may crash after all is done. Then it is left at once,
    with everything written.
    """
    try:
        main()
    except SystemExit as end:
        busy = any(thread.daemon for thread in threading.enumerate())
        if not (busy or "nvflare" in sys.modules) or not isinstance(end.code, int | None):
            raise
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code or 0)


if __name__ == "__main__":
    program()
