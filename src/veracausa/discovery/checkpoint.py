"""The state of a fit in one place, in a file, so that a fit that is killed goes on."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from veracausa.errors import InputError, RunError
from veracausa.runs.atomic import write_whole
from veracausa.runs.tree import decode_tree, encode_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from veracausa.discovery.floating import Fit
    from veracausa.discovery.searches import Searches

Array = NDArray[np.float64]

EVERY = 10.0
"""Seconds between two checkpoints: a short fit has none, a long one loses little."""


class Checkpoint:
    """One file, written over again and again; it knows the rows and the settings that it was made with."""

    def __init__(self, path: Path, model: Searches, *rows: Array) -> None:
        self.path, self.model = path, model
        digest = hashlib.sha256(model.settings.model_dump_json().encode())
        for table in rows:
            digest.update(f"{table.shape}".encode())
            digest.update(np.ascontiguousarray(table).tobytes())
        self.fit = digest.hexdigest()
        self._written = time.monotonic()

    def restore(self) -> None:
        """Put the model where the file left it; nothing is done without a file."""
        try:
            kept = decode_tree(self.path.read_bytes())
        except (FileNotFoundError, RunError):  # there is none, or not a whole one: begin anew
            return
        if kept["fit"] != self.fit:
            raise InputError(f"{self.path}: was begun with other rows or settings; use a new --out")
        self.model.load_state(_arrays(kept["model"]))

    def keep(self) -> None:
        """Write the model's state if the last writing was long ago."""
        if time.monotonic() - self._written < EVERY:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, encode_tree({"fit": self.fit, "model": _tensors(self.model.state())}))
        self._written = time.monotonic()


def fit_and_keep(
    model: Searches,
    train: Array,
    held_out: Array,
    progress: Callable[[float], None],
    time_is_up: Callable[[], bool],
    file: Path | None = None,
    resume: bool = False,
) -> Fit:
    """The model's fit; with a file, one that may be killed and goes on with `resume`."""
    with np.errstate(over="ignore", invalid="ignore"):  # a fit that diverges says so itself
        if file is None:
            return model.fit(train, held_out, progress, time_is_up)
        checkpoint = Checkpoint(file, model, train, held_out)
        if resume:
            checkpoint.restore()
        else:
            file.unlink(missing_ok=True)
        return model.fit(train, held_out, progress, time_is_up, checkpoint.keep)


def _tensors(node: Any) -> Any:
    import torch

    if isinstance(node, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(node))
    return {key: _tensors(value) for key, value in node.items()} if isinstance(node, dict) else node


def _arrays(node: Any) -> Any:
    if hasattr(node, "numpy"):
        return node.numpy()
    return {key: _arrays(value) for key, value in node.items()} if isinstance(node, dict) else node
