"""Messages between parties: what may cross, how it is written, and the links that carry it.

A party sees a `Link` and nothing else of the others. Every message has a declared `Kind`, is checked at both ends, and
stands in the sender's `Ledger`. Links exist between threads, between processes, and (`flare`) between organisations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veracausa.wire.ledger import Ledger
    from veracausa.wire.link import Link
    from veracausa.wire.message import Kind, Message, TensorSpec

__all__ = ["Kind", "Ledger", "Link", "Message", "TensorSpec"]
_MODULES = {"Kind": "message", "Ledger": "ledger", "Link": "link", "Message": "message", "TensorSpec": "message"}


def __getattr__(name: str) -> Any:
    """Imported when asked for: they bring PyTorch along, which certificates do without."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
