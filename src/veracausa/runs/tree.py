"""Nested state (models, optimisers, generators) as one safetensors file that is either whole or not there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save
from torch import Tensor

from veracausa.errors import RunError, of_system

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


def encode_tree(state: Any) -> bytes:
    tensors, skeleton = flatten(state)
    return save(tensors, metadata={"skeleton": json.dumps(skeleton)})


def read_tree(path: Path) -> Any:
    """The state in a file; whatever is wrong with the file is one sentence with its path."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise of_system(error, path) from None
    return decode_tree(content, path)


def decode_tree(content: bytes, path: Path | None = None) -> Any:
    """The state of `encode_tree`; raises `RunError` on bytes that are not one, with the path that they came from."""
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
