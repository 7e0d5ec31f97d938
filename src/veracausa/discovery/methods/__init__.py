"""Methods of causal discovery behind one contract, `CausalDiscovery`: one file a method, and the folder `vfedcd`.

A method registers itself with `@method("its_name")`. Its parameters become the settings that a job may give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import create_model

from veracausa.data.causal import checked
from veracausa.discovery.base import CausalDiscovery
from veracausa.registry import Options, Registry

Method = TypeVar("Method", bound=type[CausalDiscovery])

methods: Registry[type[CausalDiscovery]] = Registry(
    "method",
    __name__,
    __name__,
    f"{__name__}.vfedcd",
    f"{__name__}.moments",
    old_groups=("veracausa.discovery.baselines",),
)


def method(name: str) -> Callable[[Method], Method]:
    """Register an estimator; its parameters become the settings a job may give."""

    def add(estimator: Method) -> Method:
        settings: dict[str, Any] = estimator.job_options()
        methods.register(name, create_model(f"{estimator.__name__}Options", __base__=Options, **settings))(estimator)
        return estimator

    return add


def build(name: str, **settings: Any) -> CausalDiscovery:
    """The method of this name with these settings, not yet fitted."""
    given = checked(methods.options(name), name, settings)
    return methods.get(name)(**{key: value for key, value in given if key in given.model_fields_set and key != "name"})
