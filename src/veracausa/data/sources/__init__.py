"""Where data comes from: one file a source.

A source is a function that takes its options and the job, and returns whole `Images` or `Tables`. It knows nothing of
parties: `veracausa.data.load` splits what it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from veracausa.registry import Registry

if TYPE_CHECKING:
    from veracausa.data.images import Images
    from veracausa.data.tables import Tables

datasets: Registry[Callable[..., Images | Tables[Any]]] = Registry("data set", "veracausa.data.sources")
