"""A cell that ends its process's GPU is run again, uncompiled, in a new process, and takes no other with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from veracausa.events import Observer
from veracausa.experiments.cell import Cell, CellStore, DeviceLost, run_cell
from veracausa.experiments.schedule import CellProgress, CellWorkers, run_cells, until
from veracausa.models import runner
from veracausa.models.runner import UNCOMPILED, Runner, device_is_lost


@dataclass(frozen=True)
class FragileCell(Cell):
    """Ends the GPU of a process in which things are compiled; `hopeless`: of any process."""

    name: str
    hopeless: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        return {"name": self.name}

    @property
    def about(self) -> str:
        return self.name

    def run(self, store: CellStore, observer: Observer) -> None:
        if self.name != "sound" and (runner.may_compile() or self.hopeless):
            raise DeviceLost("misaligned address")
        store.keep(self, {"scores": {}, "compiled": runner.may_compile()})


def silent(cell: Cell, seconds: float, progress: CellProgress) -> None:
    pass


@pytest.mark.parametrize("count", [1, 2])
def test_what_ends_a_gpu_is_run_again_uncompiled(store: CellStore, count: int):
    cells = [FragileCell("sound"), FragileCell("fragile"), FragileCell("another")]
    with CellWorkers(count) as workers:
        progress = run_cells(cells, store, workers, until(None), silent)
    assert (progress.finished, progress.failed) == (3, {})
    compiled = {cell.name: cell.result(store)["compiled"] for cell in cells}
    assert compiled == {"sound": True, "fragile": False, "another": False}
    assert runner.may_compile(), "this process compiles as before"


@pytest.mark.parametrize("count", [1, 2])
def test_what_ends_every_gpu_fails_and_the_others_do_not(store: CellStore, count: int):
    cells = [FragileCell("hopeless", hopeless=True), FragileCell("fragile")]
    with CellWorkers(count) as workers:
        progress = run_cells(cells, store, workers, until(None), silent)
    assert (progress.finished, list(progress.failed.values())) == (1, ["misaligned address"])


def test_only_an_error_that_ended_the_gpu_is_one(store: CellStore, monkeypatch: pytest.MonkeyPatch):
    def fails(cell: Cell, store: CellStore, observer: Observer) -> None:
        raise RuntimeError("CUDA error: misaligned address\nCompile with TORCH_USE_CUDA_DSA")

    monkeypatch.setattr(FragileCell, "run", fails)
    assert not device_is_lost()
    with pytest.raises(RuntimeError, match="misaligned") as other:
        run_cell(FragileCell("sound"), store)
    assert not isinstance(other.value, DeviceLost)

    def ended() -> None:
        raise RuntimeError("CUDA error: misaligned address")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", ended)
    with pytest.raises(DeviceLost, match=r"^CUDA error: misaligned address$"):
        run_cell(FragileCell("sound"), store)


def test_the_environment_has_the_last_word_on_compiling(monkeypatch: pytest.MonkeyPatch):
    from veracausa.config import Runtime

    wanted = Runtime(compile=True, device="cpu")
    module = torch.nn.Linear(2, 2)
    assert Runner(module, wanted).compiled
    monkeypatch.setenv(UNCOMPILED, "1")
    assert not Runner(module, wanted).compiled
