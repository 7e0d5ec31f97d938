"""What a run tells whoever watches it: events as they happen, and how much of a long step is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Observer = Callable[[Mapping[str, Any]], None]
"""Hears every event of a run: a mapping whose `event` says what happened."""
ProgressCallback = Callable[[float], None]
"""Hears the share that is done, between 0 and 1."""
