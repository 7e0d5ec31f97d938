"""The engines of VFedCD: one model, learned in one place, by pairs of parties on shares, or by all parties on shares.

`Centralized` is in `centralized`, `Federation` in `launch`. Both keep to the protocol `Engine`. What the parties of a
federation do is in `shares` and, for the strong mode, in `mpc`. `literal` has the protocol as published.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from veracausa.data.causal.columns import PreparedTable
    from veracausa.discovery.methods.vfedcd.settings import Settings
    from veracausa.discovery.result import DiscoveryResult
    from veracausa.events import ProgressCallback


class Engine(Protocol):
    """One way to run the model."""

    def expected(self, settings: Settings, table: PreparedTable) -> dict[str, Any] | None:
        """What `learn` will take, as far as it can be said beforehand."""
        ...

    def learn(
        self,
        settings: Settings,
        table: PreparedTable,
        progress: ProgressCallback,
        out: Path | None = None,
        resume: bool = False,
    ) -> DiscoveryResult:
        """What it finds, with attributes in the table's order. It keeps what a resume needs in `out`."""
        ...
