"""Nested state (models, optimisers, generators) as one safetensors file that is either whole or not there."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save
from torch import Tensor

from veracausa.atomic import atomic_write
from veracausa.errors import RunError, of_system
from veracausa.wire.ledger import Ledger
from veracausa.wire.link import Link

_TENSOR = "$tensor"


def flatten(state: Any) -> tuple[dict[str, Tensor], Any]:
    """The tensors of a nested state by path, and a JSON skeleton that says where they belong."""
    tensors: dict[str, Tensor] = {}

    def walk(node: Any, path: str) -> Any:
        if isinstance(node, Tensor):
            # A copy: shared storage (a tied weight, a strip) must not be written twice nor refused.
            while path in tensors:  # {"a/b": …, "a": {"b": …}}
                path += "'"
            tensors[path] = node.detach().to("cpu", copy=True).contiguous()
            return {_TENSOR: path}
        if isinstance(node, dict):
            return {"$map": [[key, walk(value, f"{path}/{key}")] for key, value in node.items()]}
        if isinstance(node, list | tuple):
            return [walk(value, f"{path}/{i}") for i, value in enumerate(node)]
        if node is None or isinstance(node, str | int | float | bool):
            return node
        raise TypeError(f"{path}: a {type(node).__name__} cannot be kept in a checkpoint")

    return tensors, walk(state, "")


def unflatten(tensors: dict[str, Tensor], skeleton: Any) -> Any:
    """The nested state again."""
    if isinstance(skeleton, dict):
        if _TENSOR in skeleton:
            return tensors[skeleton[_TENSOR]]
        return {key: unflatten(tensors, value) for key, value in skeleton["$map"]}
    if isinstance(skeleton, list):
        return [unflatten(tensors, value) for value in skeleton]
    return skeleton


def serialize_state(state: Any) -> bytes:
    tensors, skeleton = flatten(state)
    return save(tensors, metadata={"skeleton": json.dumps(skeleton)})


def read_tree(path: Path) -> Any:
    """The state in a file; whatever is wrong with the file is one sentence with its path."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise of_system(error, path) from None
    return deserialize_state(content, path)


def deserialize_state(content: bytes, path: Path | None = None) -> Any:
    """The state of `serialize_state`. Bytes that are not one raise `RunError` with the path that they came from."""
    where = "" if path is None else f"{path}: "
    try:
        (length,) = (int.from_bytes(content[:8], "little"),)
        metadata = json.loads(content[8 : 8 + length])["__metadata__"]
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(content).items()}
        return unflatten(tensors, json.loads(metadata["skeleton"]))
    except RecursionError:  # nobody's state is so deep, but anybody can write such a file
        raise RunError(f"{where}not a state file (it is nested too deep); put the right one back") from None
    except (safetensors.SafetensorError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise RunError(f"{where}not a whole state file ({error})") from None


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def same(first: Any, second: Any) -> bool:
    """Whether two nested states are equal to the last bit."""
    a, b = flatten(first), flatten(second)
    return a[1] == b[1] and all(torch.equal(a[0][name], b[0][name]) for name in a[0])


_PUT_BACK = "put the file back, or train again into a new --out"
_NAME = re.compile(r"step-(\d{8})-([0-9a-f]{16})\.safetensors")
_MOMENT = re.compile(r"step-(\d{8})\.safetensors")


class Store:
    """One party's part of a run folder, and its resume cursor.

    A checkpoint's file name carries the digest of its bytes, so that a torn one is known for what it is and the one
    before it is used.
    """

    def __init__(self, run: Path, party: str, keep: int = 3) -> None:
        self.run = run
        self.party = party
        self.keep = keep
        self.folder = run / "parties" / party
        self.checkpoints = self.folder / "checkpoints"
        self.moments = self.folder / "moments"
        self.prepared_path = self.folder / "prepared.safetensors"
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.ledger = Ledger(self.folder / "ledger.jsonl")
        self.start_step: int | None = None
        """The step of the checkpoint to go on from; None: from the beginning."""
        self.marked: int | None = None
        """The newest step that all parties are known to hold: only older ones go. None: one process sees all."""
        self.after_save: Callable[[int, Callable[[int], None]], None] | None = None

    def log(self, record: Mapping[str, Any]) -> None:
        """Append one line to the run's metrics, in one write, so that parties do not cut into each other's lines."""
        line = json.dumps({"party": self.party, **record}) + "\n"
        fd = os.open(self.run / "metrics.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(fd, line.encode())
            os.fsync(fd)
        finally:
            os.close(fd)

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Keep the party's state after `step` training steps; older checkpoints beyond `keep` go."""
        self.ledger.flush()
        ledger = {"messages": self.ledger.messages, "bytes": self.ledger.bytes_sent}
        content = serialize_state({"step": step, "ledger": ledger, "state": state})
        atomic_write(self.checkpoints / f"step-{step:08d}-{digest(content)}.safetensors", content)
        self._remove(old for old in sorted(self.steps())[: -self.keep] if self.marked is None or old < self.marked)
        if self.after_save is not None:
            self.after_save(step, self.mark)

    def announce_to(self, link: Link) -> None:
        """Let the other parties know of checkpoints, where no process sees all folders."""
        if link.marks:
            self.marked = self.start_step or 0
            self.after_save = link.checkpointed

    def mark(self, step: int) -> None:
        """All parties hold a checkpoint of `step`."""
        self.marked = max(step, self.marked or 0)

    def keep_moment(self, step: int, model: Mapping[str, Any]) -> None:
        """Keep the party's model as it is after `step` training steps, for good."""
        self.moments.mkdir(exist_ok=True)
        atomic_write(self.moments / f"step-{step:08d}.safetensors", serialize_state(model))

    def moment_steps(self) -> list[int]:
        """The steps whose models were kept for good, in order."""
        found = self.moments.iterdir() if self.moments.is_dir() else ()
        return sorted(int(match[1]) for path in found if (match := _MOMENT.fullmatch(path.name)))

    def moment(self, step: int) -> Any:
        """The model that `keep_moment` kept at `step`."""
        path = self.moments / f"step-{step:08d}.safetensors"
        if not path.is_file():
            raise RunError(f"{path}: no such moment was kept; the job's checkpoints.moments says which are")
        return read_tree(path)

    def keep_prepared(self, kept: Mapping[str, Any]) -> str:
        """Keep what a defense prepared, once for all checkpoints; its digest, by which they know it again."""
        content = serialize_state(kept)
        atomic_write(self.prepared_path, content)
        return digest(content)

    def prepared(self, expected: str) -> Any:
        """What `keep_prepared` kept; `RunError` where the file is not the one of that digest."""
        if not self.prepared_path.is_file():
            raise RunError(f"{self.prepared_path}: is missing, and the party's defense needs it; {_PUT_BACK}")
        content = self.prepared_path.read_bytes()
        if digest(content) != expected:
            raise RunError(
                f"{self.prepared_path}: is not what the party's defense was trained with "
                f"(digest {digest(content)}, expected {expected}); {_PUT_BACK}"
            )
        return deserialize_state(content, self.prepared_path)

    def forget_after(self, step: int) -> None:
        """Remove the checkpoints and moments of later steps, whole or torn: they will be made again."""
        self._remove([later for later in self.steps() if later > step])
        for later in self.moment_steps():
            if later > step:
                (self.moments / f"step-{later:08d}.safetensors").unlink(missing_ok=True)

    def _remove(self, steps: Iterable[int]) -> None:
        for step in steps:
            for path in self.checkpoints.glob(f"step-{step:08d}-*"):
                path.unlink(missing_ok=True)

    def steps(self) -> set[int]:
        """The steps for which there is a checkpoint file, whole or torn."""
        return {int(match[1]) for path in self.checkpoints.iterdir() if (match := _NAME.fullmatch(path.name))}

    def whole_steps(self) -> set[int]:
        """The steps whose checkpoint has the digest that its name says."""
        return {step for step in self.steps() if self._content(step) is not None}

    def load(self, step: int) -> Any:
        """The state at `step`; the ledger forgets what came after it."""
        content = self._content(step)
        if content is None:
            raise RunError(f"{self.checkpoints}: no whole checkpoint of step {step}")
        where = self.checkpoints / f"step-{step:08d}-{digest(content)}.safetensors"
        tree = deserialize_state(content, where)
        try:
            messages, sent, state = tree["ledger"]["messages"], tree["ledger"]["bytes"], tree["state"]
        except (KeyError, TypeError):
            raise RunError(f"{where}: is no checkpoint; {_PUT_BACK}") from None
        self.ledger.resume(messages, sent)
        return state

    def _content(self, step: int) -> bytes | None:
        for path in self.checkpoints.glob(f"step-{step:08d}-*.safetensors"):
            match = _NAME.fullmatch(path.name)
            content = path.read_bytes()
            if match and digest(content) == match[2]:
                return content
        return None


class StateFile:
    """Where a long piece of work leaves off: one file in the party's own folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, state: Mapping[str, Any]) -> None:
        atomic_write(self.path, serialize_state(dict(state)))

    def load(self) -> Mapping[str, Any] | None:
        if not self.path.is_file():
            return None
        try:
            found: Mapping[str, Any] = deserialize_state(self.path.read_bytes(), self.path)
        except RunError:  # torn: the work begins anew, and gives the same bits
            return None
        return found


def common_step(stores: list[Store]) -> int | None:
    """The newest step of which every party has a whole checkpoint."""
    common = set.intersection(*(store.whole_steps() for store in stores))
    return max(common, default=None)
