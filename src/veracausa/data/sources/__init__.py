"""Where data comes from: one file a format."""

from collections.abc import Callable
from typing import Any

from veracausa.registry import Registry

datasets: Registry[Callable[..., Any]] = Registry("data set", "veracausa.data.sources")
