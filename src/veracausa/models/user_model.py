"""Models by name: the zoo's, plug-ins', and the user's own as `package.module:factory`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from veracausa.errors import InputError
from veracausa.models.options import UserModel
from veracausa.registry import Options, Registry

Builder = Callable[..., Any]
"""`(options, shape, outputs) -> nn.Module`, the model whole and uncut."""


class ModelRegistry(Registry[Builder]):
    """The zoo, and any `package.module:factory` that can be imported."""

    def options(self, name: str) -> type[Options]:
        """The settings that `name` takes; reading a job must not run the code it names, so nothing is imported."""
        return UserModel if ":" in name else super().options(name)

    def get(self, name: str) -> Builder:
        """The builder of `name`; this imports the user's module, which runs it: name only code you trust."""
        return _builder_around(name) if ":" in name else super().get(name)


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
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise InputError(f"model {name!r}: write a model of your own as 'package.module:factory'")
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
