"""Models by name: what a job may say about its model, the zoo's builders, and the user's own `package.module:factory`.

A job, a run folder and a part of a federation are files, and files come from other people. A name with a colon in
one of them is therefore no reason to import anything. It runs only if this user allows the very same name: by an
option of the command, an argument in Python, or in a federation by the party's own `party.toml`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, PrivateAttr

from veracausa.errors import InputError
from veracausa.registry import Options, Registry

Convention = Literal["N1", "N2", "N3"]
"""How a cut is counted: N1 units, N2 children of torchvision's ResNet, N3 weight layers on the main path."""


@dataclass(frozen=True, eq=False)
class _Permission:
    """Which factory this user allows, and which file names the model."""

    factory: str | None = None
    named_in: str = "job"

    def __eq__(self, other: object) -> bool:
        """It is no setting: two jobs that differ in nothing else are the same job."""
        return isinstance(other, _Permission)

    __hash__ = None  # type: ignore[assignment]


class ModelOptions(Options):
    """What every model takes; a model adds its own settings."""

    _permission: _Permission = PrivateAttr(default_factory=_Permission)
    """No file can set it, because it is no setting: it comes from whoever loads the job."""

    cut: int = Field(ge=1)
    """The last unit of the bottom model, counted from 1."""
    cut_convention: Convention = "N1"

    def payload_limit(self, columns: int | None) -> int | None:
        """The most numbers a row that a bottom sends, of a party whose table has so many columns; None: no limit.

        `columns` counts the table's own, before words become several numbers. None: the rows are no table.
        """
        return None

    @property
    def allowed(self) -> str | None:
        """The `package.module:factory` that this user named as one that may run, if any."""
        return self._permission.factory

    @property
    def named_in(self) -> str:
        """The file that names the model, for a reader of an error."""
        return self._permission.named_in

    def allow(self, factory: str | None, named_in: str) -> None:
        """Note which factory this user allows, and which file names the model."""
        self._permission = _Permission(factory, named_in)


class UserModel(ModelOptions):
    """What a model of the user's own, named `package.module:factory`, takes."""

    args: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments for the factory, after `shape` and `outputs`."""


Builder = Callable[..., Any]
"""`(options, shape, outputs) -> nn.Module`, the model whole and uncut."""


class ModelRegistry(Registry[Builder]):
    """The zoo, and any `package.module:factory` that this user allows."""

    def options(self, name: str) -> type[Options]:
        """The settings that `name` takes; reading a job must not run the code it names, so nothing is imported."""
        return UserModel if ":" in name else super().options(name)

    def get(self, name: str, allowed: str | None = None) -> Builder:
        """The builder of `name`. A factory is imported, which runs its module, only if `allowed` names the same one."""
        if ":" not in name:
            return super().get(name)
        check_allowed(name, allowed)
        return _builder_around(name)


def require_allowed(model: ModelOptions) -> None:
    """Refuse a model that is code which this user has not allowed; nothing is imported to find that out."""
    if ":" in model.name:
        check_allowed(model.name, model.allowed, model.named_in)


def check_allowed(name: str, allowed: str | None, named_in: str = "job") -> None:
    """Refuse the factory `name` unless it is the allowed one; `named_in` is the file that names it."""
    module, _, attribute = name.partition(":")
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise InputError(f"{named_in}: model.name = {name!r}: write a model of your own as 'package.module:factory'")
    if name != allowed:
        raise InputError(
            f"{named_in}: model.name = {name!r}: is code, not a model of the registry, and runs only where you name it "
            f"yourself; if you trust it, add --allow-model {name} (in Python allow_model={name!r}), or for a "
            f'federation [model] allow = "{name}" to your party.toml'
        )


def _builder_around(name: str) -> Builder:
    factory = _import_factory(name)

    def builder(options: UserModel, shape: tuple[int, ...], outputs: int) -> Any:
        try:
            return factory(shape, outputs, **options.args)
        except InputError:
            raise
        # Whatever the user's code raises is for the user to read, in one sentence, with the traceback chained.
        except Exception as error:
            call = f"({shape}, {outputs}{''.join(f', {key}={value!r}' for key, value in options.args.items())})"
            raise InputError(f"model {name!r}: calling it as {call} failed: {type(error).__name__}: {error}") from error

    return builder


def _import_factory(name: str) -> Builder:
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InputError(
            f"model {name!r}: cannot import {module_name}: {type(error).__name__}: {error}; "
            "install it, or put its folder on PYTHONPATH"
        ) from error
    factory: Builder | None = getattr(module, attribute, None)
    if not callable(factory):
        raise InputError(f"model {name!r}: {module_name} has no function {attribute!r} to call as (shape, outputs)")
    return factory
