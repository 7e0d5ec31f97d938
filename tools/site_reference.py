"""The reference pages of the site, made from the program itself: commands, settings, and the public Python names."""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Iterator
from importlib import import_module
from typing import Any

WIDE = 100
HEAD = "This page is generated from the program, version {version}.\n"
KINDS = {
    "data sets": ("veracausa.data.sources", "datasets", "data"),
    "models": ("veracausa.models", "models", "model"),
    "defenses": ("veracausa.defenses", "defenses", "defense"),
    "surrogates of CausShield": ("veracausa.defenses.causshield.surrogates", "surrogates", "defense.surrogate"),
    "feature maps": ("veracausa.features", "feature_maps", "features"),
    "attacks on rows": ("veracausa.attacks", "attacks", ""),
    "attacks on labels": ("veracausa.attacks", "label_attacks", ""),
    "attacks on columns": ("veracausa.attacks", "column_attacks", ""),
    "attacks on blind training": ("veracausa.attacks", "blind_attacks", ""),
    "discovery methods": ("veracausa.discovery.methods", "methods", ""),
    "causal data": ("veracausa.data.causal", "causal_data", ""),
}
"""Title, module and name of each registry, and the section of a job in which its settings stand."""


def pages() -> dict[str, str]:
    """Name and text of every generated page."""
    return {"commands.md": commands_page(), "settings.md": settings_page(), "python.md": python_page()}


def _head(title: str) -> str:
    from veracausa import __version__

    return f"# {title}\n\n{HEAD.format(version=__version__)}"


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its whole name, in the order of the help."""
    import typer

    from veracausa.cli.main import app

    def below(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        for own, child in getattr(command, "commands", {}).items():
            if hasattr(child, "commands"):
                yield from below(child, f"{name} {own}")
            else:
                yield f"{name} {own}", child

    return below(typer.main.get_command(app), "veracausa")


def commands_page() -> str:
    """Every command with its arguments and options."""
    parts = [_head("Commands"), "Every command takes `--help`. Exit codes: 0 done, 1 the run failed, 2 the input was"]
    parts[-1] += " wrong, 130 Ctrl-C.\n"
    for name, command in commands():
        parts.append(f"## {name}\n")
        parts.append(_paragraphs(command.help or ""))
        rows = [_parameter(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
        parts.append(_table(("option", "default", "what it does"), rows))
    return "\n".join(parts)


def _parameter(parameter: Any) -> tuple[str, str, str]:
    if parameter.param_type_name == "argument":
        word = parameter.metavar or str(parameter.name).upper()
        named = f"`{word}`"
    else:
        flag = parameter.is_flag
        word = "" if flag else f" {parameter.metavar or str(parameter.name).upper()}"
        named = ", ".join(f"`{option}{word}`" for option in parameter.opts)
    default = parameter.default
    plain = default is None or default is False or callable(default) or default in ((), [])
    shown = "required" if parameter.required else "" if plain else f"`{getattr(default, 'value', default)}`"
    return named, shown, (parameter.help or "").strip()


def settings_page() -> str:
    """Every setting of a job, and of everything that can be chosen by name."""
    from veracausa.config import Job

    said = _described()
    parts = [_head("Settings"), "What they mean in full: [jobs.md](../jobs.md), [defenses.md](../defenses.md),"]
    parts[-1] += " [features.md](../features.md), [attacks.md](../attacks.md), [discovery.md](../discovery.md).\n"
    parts.append("## The job\n")
    names = [(name, kind, value) for name, kind, value in model_settings(Job) if name.split(".")[0] not in _CHOSEN]
    parts.append(_settings_table(names, said))
    for title, (module, attribute, section) in KINDS.items():
        registry = getattr(import_module(module), attribute)
        parts.append(f"## {title.capitalize()}\n")
        for name in registry.names():
            thing, options = registry.get(name), registry.options(name)
            if not thing.__module__.startswith("veracausa."):
                continue  # a plug-in of whoever builds the site
            parts.append(f"### {name}\n\n{_first(thing)}\n")
            prefix = f"{section}." if section else ""
            rows = [(f"{prefix}{n}", kind, value) for n, kind, value in model_settings(options) if n != "name"]
            if rows:
                parts.append(_settings_table(rows, said if section else {}))
    return "\n".join(parts)


_CHOSEN = ("data", "model", "defense", "features", "party")
"""Sections whose settings depend on a name, and stand below that name."""


def model_settings(model: Any, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Dotted name, type and default of each field of a pydantic model, nested ones in their place."""
    from pydantic import BaseModel

    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind.model_fields:
            yield from model_settings(kind, f"{prefix}{name}.")
        else:
            value = "required" if field.is_required() else _plain(field.get_default(call_default_factory=True))
            yield f"{prefix}{name}", _type(kind), value


def _type(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return ", ".join(json.dumps(value) for value in typing.get_args(kind))
    text = kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
    text = re.sub(r"typing\.|collections\.abc\.|pathlib\.(_local\.)?", "", text.replace("NoneType", "None"))
    text = re.sub(r"Literal\[([^\]]*)\]", r"\1", text.replace("Union", ""))
    return re.sub(r"veracausa[\w.]*\.(\w+)", r"\1", text).replace(" | ", " or ")


def _plain(value: Any) -> str:
    if value is None:
        return "not set"
    value = value.model_dump(mode="json") if hasattr(value, "model_dump") else value
    return json.dumps(value, ensure_ascii=False, default=str)


def _settings_table(rows: list[tuple[str, str, str]], said: dict[str, str]) -> str:
    cells = [
        (f"`{name}`", f"`{kind}`", value if value in ("required", "not set") else f"`{value}`", said.get(name, ""))
        for name, kind, value in rows
    ]
    if not any(cell[3] for cell in cells):
        return _table(("setting", "type", "default"), [cell[:3] for cell in cells])
    return _table(("setting", "type", "default", "meaning"), cells)


def _described() -> dict[str, str]:
    """What docs/jobs.md says of each setting, in one cell."""
    from pathlib import Path

    page = (Path(__file__).resolve().parents[1] / "docs" / "jobs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| .*? \| (.+) \|$", page, re.MULTILINE)
    return {name: re.sub(r"\]\((?!\w+://)([^)#]*)", lambda m: f"](../{m[1] or 'jobs.md'}", told) for name, told in rows}


def python_page() -> str:
    """Every public name with its signature and what it says of itself."""
    import veracausa

    parts = [_head("Python"), _paragraphs(inspect.getdoc(veracausa) or "")]
    for name in sorted(veracausa.__all__, key=str.lower):
        thing = getattr(veracausa, name)
        if name == "__version__":
            continue
        parts.append(f"## veracausa.{name}\n")
        if getattr(thing, "__name__", name) != name:
            parts.append(f"Another name of `{thing.__name__}`.\n")
            continue
        parts.append(_signature(name, thing))
        parts.append(_paragraphs(inspect.getdoc(thing) or ""))
        if inspect.isclass(thing):
            for member, value in public_members(thing):
                parts.append(f"### {name}.{member}\n")
                parts.append(_signature(member, value))
                parts.append(_paragraphs(inspect.getdoc(value) or ""))
    return "\n".join(parts)


def public_members(cls: Any) -> Iterator[tuple[str, Any]]:
    """Methods and properties of a class that veracausa defines and describes, its bases' included."""
    for name in sorted(dir(cls)):
        value = inspect.getattr_static(cls, name)
        inner = getattr(value, "fget", None) or getattr(value, "__func__", value)
        ours = str(getattr(inner, "__module__", "")).startswith("veracausa")
        if name.startswith("_") or not ours or not (inspect.isfunction(inner)) or not inspect.getdoc(value):
            continue
        yield name, value


def _signature(name: str, thing: Any) -> str:
    """As code; one parameter a line where all of them do not fit on one."""
    inner = getattr(thing, "__func__", thing)
    if isinstance(thing, property):
        return ""
    if hasattr(thing, "model_fields"):
        return "Its fields are the sections of a job: [settings](settings.md#the-job).\n"
    try:
        signature = inspect.signature(inner)
    except (TypeError, ValueError):
        return ""
    plain = [
        one if not callable(one.default) or inspect.isclass(one.default) else one.replace(default=...)
        for one in signature.parameters.values()
    ]
    signature = signature.replace(parameters=plain)  # a function as a default has no name worth showing
    said = f"{name}{signature}".replace("'", "").replace("Ellipsis", "...")
    if len(said) > WIDE:
        marks = {inspect.Parameter.KEYWORD_ONLY: "*", inspect.Parameter.VAR_POSITIONAL: ""}
        lines, mark = [], None
        for parameter in signature.parameters.values():
            if parameter.kind in marks and mark is None:
                mark = marks[parameter.kind]
                lines += [f"    {mark},"] if mark else []
            lines.append(f"    {parameter},".replace("Ellipsis", "..."))
        ends = "" if signature.return_annotation is inspect.Signature.empty else f" -> {signature.return_annotation}"
        said = "\n".join([f"{name}(", *lines, f"){ends}"]).replace("'", "")
    return f"```python\n{said}\n```\n"


def _paragraphs(text: str) -> str:
    """A docstring as Markdown: its sections in bold, its parameters as a list, its examples as code."""
    found = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if section := re.match(r"(\w[\w ]*)\n-+\n", block):
            found.append(f"**{section[1]}**")
            block = block[section.end() :]
        if block.startswith((">>>", "    ")):
            shown = re.sub(r"  # doctest: .*", "", inspect.cleandoc(block))
            found.append(f"```python\n{shown}\n```")
        elif re.search(r"^\S.*\n    \S", block, re.MULTILINE) and found and found[-1].startswith("**"):
            found.append(re.sub(r"^(\S.*)\n    ", r"- `\1`: ", block, flags=re.MULTILINE))
        elif block.strip("\b \n"):
            found.append(block.replace("\b\n", ""))
    return "\n\n".join(found) + "\n"


def _first(thing: Any) -> str:
    said = thing.__doc__ or import_module(thing.__module__).__doc__ or ""
    return " ".join(said.split("\n\n")[0].split())


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    """One line, in which no bar ends the cell."""
    return " ".join(text.replace("\\|", "|").split()).replace("|", "\\|")
