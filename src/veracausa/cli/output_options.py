"""What every command takes besides its own options: `--quiet` and `--log-level`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from veracausa import logs
from veracausa.errors import wrong_value


class LogLevel(StrEnum):
    """From which level on the package's log is written."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on the way: print only errors and the result.")]
LogFrom = Annotated[
    LogLevel | None,
    typer.Option("--log-level", metavar="LEVEL", help="Write a log to standard error: debug, info, warning or error."),
]


def _without_types_of_flags(parameters: list[Any]) -> list[Any]:
    """A flag takes no value, so that its help must not look as if it did."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


class PlainCommand(TyperCommand):
    """A command whose flags look like flags, and which refuses a value in plain words."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            problems = getattr(error.__cause__, "errors", None)
            if problems is not None:
                error.message = wrong_value(problems()[0])
            raise


class PlainGroup(TyperGroup):
    """A group of commands whose flags look like flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))


def add_command(app: typer.Typer, name: str, command: Callable[..., None], **settings: Any) -> None:
    """Make the function a command that takes `--quiet` and `--log-level`, too."""

    @functools.wraps(command)
    def run(*given: Any, quiet: bool, log_level: LogLevel | None, **options: Any) -> None:
        set_output(quiet, None if log_level is None else log_level.value)
        command(*given, **options)

    signature = inspect.signature(command, eval_str=True)
    more = {"quiet": (Quiet, False), "log_level": (LogFrom, None)}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in more.items()
    ]
    parameters = [*signature.parameters.values(), *added]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command(name, cls=PlainCommand, help=_unwrapped(inspect.getdoc(command) or ""), **settings)(run)


def _unwrapped(text: str) -> str:
    """A line a paragraph: the terminal wraps it, and what was wrapped before would be wrapped twice."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def set_output(quiet: bool, log_level: str | None) -> None:
    """How much the command that begins now says on its way."""
    from veracausa.cli import console

    console.news.quiet = quiet
    logs.configure(log_level or ("error" if quiet else None))
