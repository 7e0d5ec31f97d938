"""Published methods of causal discovery on one table, behind one contract: one file a method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

from pydantic import create_model

from veracausa.data.causal import checked
from veracausa.discovery.base import CausalDiscovery
from veracausa.registry import Options, Registry

Method = TypeVar("Method", bound=type[CausalDiscovery])

methods: Registry[type[CausalDiscovery]] = Registry(
    "method", "veracausa.discovery.methods", old_groups=("veracausa.discovery.baselines",)
)


def method(name: str) -> Callable[[Method], Method]:
    """Register an estimator; its parameters become the settings a job may give."""

    def add(estimator: Method) -> Method:
        hints = get_type_hints(estimator)
        settings: dict[str, Any] = {field.name: (hints[field.name], field.default) for field in fields(estimator)}
        methods.register(name, create_model(f"{estimator.__name__}Options", __base__=Options, **settings))(estimator)
        return estimator

    return add


def build(name: str, **settings: Any) -> CausalDiscovery:
    """The method of this name with these settings, not yet fitted."""
    given = checked(methods.options(name), name, settings)
    return methods.get(name)(**{key: value for key, value in given if key != "name"})
