"""The trained parts of a split run as ONNX files: a bottom for each party with features, and the active party's top.

Each file is checked as it is written: ONNX's own reference evaluator must give the numbers that PyTorch gives.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from veracausa.atomic import atomic_write
from veracausa.config import Job
from veracausa.data.preprocessing import column_count
from veracausa.defenses.base import Defense
from veracausa.errors import InputError, RunError
from veracausa.models import require_allowed
from veracausa.models.cut import JoinAxis, build_bottom, build_top, join
from veracausa.runs.folder import Run
from veracausa.training.checkpoints import saved_model
from veracausa.training.split.halves import build_defended, make_defense

CHECKED_ROWS = 3
TOLERANCE = 1e-4
"""Of single precision, relative to the largest number of a part's output."""


@dataclass(frozen=True)
class ExportedPart:
    """One file that was written, and how far its numbers are from PyTorch's."""

    party: str
    path: Path
    difference: float


class _Top(nn.Module):
    """The top model on payloads that come one by one."""

    def __init__(self, top: nn.Module, axis: JoinAxis) -> None:
        super().__init__()
        self.top, self.axis = top, axis

    def forward(self, *payloads: Tensor) -> Tensor:
        return cast(Tensor, self.top(join(payloads, self.axis)))


def export_run(run: Run, out: Path) -> list[ExportedPart]:
    """Write `PARTY/bottom.onnx` and `ACTIVE/top.onnx` below `out`, with a JSON beside each that says what goes in."""
    job = run.job
    require_allowed(job.model)
    _check(job)
    models = {name: saved_model(run, name) for name in (job.parties.active, *job.parties.passive)}
    head = models[job.parties.active]
    outputs = len(head["classes"]) or 1
    parts: dict[str, nn.Module] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, model in models.items():
        if shape := tuple(int(size) for size in model["shape"]):
            parts[name] = _bottom(job, name, shape, outputs, model)
            with torch.no_grad():
                shapes[name] = tuple(parts[name](torch.zeros(1, *shape)).shape[1:])
    order = [name for name in (job.parties.active, *head["payloads"]) if name in shapes]
    pictures = any(len(models[name]["shape"]) == 3 for name in order)
    axis: JoinAxis = job.partition.axis if pictures else "features"
    top = build_top(job.model, [shapes[name] for name in order], axis, outputs, torch.Generator())
    top.load_state_dict(head["top"])
    written = []
    for name, bottom in parts.items():
        path = out / name / "bottom.onnx"
        wanted = tuple(models[name]["shape"])
        found = _write(bottom, [wanted], ["rows"], "payload", path)
        written.append(ExportedPart(name, path, found))
        _describe(path, {"input": {"rows": list(wanted)}, "output": {"payload": list(shapes[name])}}, models[name])
    path = out / job.parties.active / "top.onnx"
    names = [f"payload_{name}" for name in order]
    found = _write(_Top(top, axis).eval(), [shapes[name] for name in order], names, "outputs", path)
    told = {"input": {n: list(shapes[party]) for n, party in zip(names, order, strict=True)}, "output": [outputs]}
    _describe(path, {**told, "classes": list(head["classes"])}, None)
    return [*written, ExportedPart(job.parties.active, path, found)]


def _check(job: Job) -> None:
    if job.training.protocol != "split":
        raise InputError(
            f"training.protocol = {job.training.protocol!r}: passive parties answer with an encrypted head, and ONNX "
            "has no encryption; use `veracausa predict`"
        )
    if job.runtime.precision != "fp32":
        raise InputError(
            f"runtime.precision = {job.runtime.precision!r}: its rounding has no place in the file; train with fp32"
        )
    for party in job.parties.passive:
        made = type(make_defense(job, party))
        if made.infer is not Defense.infer or made.protect is not Defense.protect:
            raise InputError(
                f"party {party!r}: its defense {job.defense_of(party).name!r} changes what leaves after the model, and "
                "ONNX would send it unchanged; use `veracausa predict`"
            )
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(f'{error.name} is not installed; pip install "veracausa[onnx]"') from None


def _bottom(job: Job, party: str, shape: tuple[int, ...], outputs: int, model: Mapping[str, Any]) -> nn.Module:
    module: nn.Module
    if party == job.parties.active:
        module = build_bottom(job.model, shape, outputs, torch.Generator())
    else:
        columns = column_count(model["preprocessing"])
        built = build_defended(job, party, shape, outputs, torch.Generator(), columns=columns)
        if built.payload != built.expected:
            raise InputError(
                f"party {party!r}: its defense {job.defense_of(party).name!r} sends another shape, and the adapter for "
                "it is not exported; use `veracausa predict`"
            )
        module = built.module
    module.load_state_dict(model["bottom"])
    return module.eval()


def _write(module: nn.Module, shapes: Sequence[tuple[int, ...]], names: list[str], result: str, path: Path) -> float:
    """Write a module, for any number of rows, and return how far its numbers are from PyTorch's."""
    import numpy as np
    from onnx import load_model_from_string
    from onnx.reference import ReferenceEvaluator

    rng = torch.Generator().manual_seed(0)
    example = tuple(torch.rand(CHECKED_ROWS, *shape, generator=rng) for shape in shapes)
    batch = torch.export.Dim("rows", min=1)
    dynamic = tuple({0: batch} for _ in example)
    try:
        with warnings.catch_warnings(), _quiet("torch.onnx"):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module,
                example,
                dynamo=True,
                verbose=False,
                input_names=names,
                output_names=[result],
                dynamic_shapes=(dynamic,) if isinstance(module, _Top) else dynamic,  # it takes them as *payloads
            )
        assert program is not None
        content = program.model_proto.SerializeToString()
    except Exception as error:  # the exporter raises what its many parts raise
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"{path.name}: this model cannot be written as ONNX: {said[0][:200]}") from error
    with torch.no_grad():
        wanted = module(*example).numpy()
    given = {name: value.numpy() for name, value in zip(names, example, strict=True)}
    (found,) = ReferenceEvaluator(load_model_from_string(content)).run(None, given)
    difference = float(np.abs(found - wanted).max(initial=0.0) / max(1.0, np.abs(wanted).max(initial=0.0)))
    if not difference <= TOLERANCE:
        raise RunError(f"{path.name}: the ONNX file gives other numbers than the model (off by {difference:.2g})")
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, content)
    return difference


@contextmanager
def _quiet(logger: str) -> Iterator[None]:
    """Without its warnings, which name packages that nobody here needs."""
    log = logging.getLogger(logger)
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _describe(path: Path, told: dict[str, Any], model: Mapping[str, Any] | None) -> None:
    """Shapes of one row, and what was done to the party's columns before."""
    if model is not None:
        pixels = len(model["shape"]) == 3
        told["before"] = "pixels from 0 to 1" if pixels else "columns as `preprocessing` says"
        told["preprocessing"] = model["preprocessing"]
    atomic_write(path.with_suffix(".json"), (json.dumps(told, indent=2, default=str) + "\n").encode())
