"""Where batches differ in size, as they do for a party that lacks some ids, every size has a CUDA graph of its own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from veracausa import seeding
from veracausa.data.vertical import Part
from veracausa.defenses.causshield import CausShield, CausShieldOptions
from veracausa.defenses.causshield import adaptation as module
from veracausa.defenses.causshield.adaptation import Adaptation

ROWS = [24, 10, 17, 24, 10, 17, 9, 24]
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def bottom() -> nn.Module:
    with seeding.drawing_from(seeding.generator(0)):
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())


def adapted(graphs: bool) -> list[torch.Tensor]:
    """Payloads of batches of several sizes, each after two iterations from where the last one ended."""
    made = Adaptation(bottom().cuda(), (8, 8, 6), 24, CausShieldOptions(masker=False), seed=3, graphs=graphs)
    made.restart()
    payloads = []
    for at, rows in enumerate(ROWS):
        x = torch.rand(rows, 3, 8, 6, generator=seeding.generator(at)).cuda()
        made.adapt(x, 1 - x, 2)
        payloads.append(made.payload(x).clone())
    assert sorted(made._captured) == (sorted(set(ROWS))[: module.SIZES] if graphs else [])
    return payloads


@pytest.mark.gpu
@cuda
def test_replayed_batches_of_any_size_are_those_that_run_as_usual(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    for replayed, usual in zip(adapted(True), adapted(False), strict=True):
        torch.testing.assert_close(replayed, usual, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@cuda
def test_sizes_beyond_what_is_captured_run_as_usual(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    usual = adapted(False)
    monkeypatch.setattr(module, "SIZES", 1)
    made = Adaptation(bottom().cuda(), (8, 8, 6), 24, CausShieldOptions(masker=False), seed=3, graphs=True)
    made.restart()
    for at, rows in enumerate(ROWS):
        x = torch.rand(rows, 3, 8, 6, generator=seeding.generator(at)).cuda()
        made.adapt(x, 1 - x, 2)
        torch.testing.assert_close(made.payload(x), usual[at], rtol=1e-4, atol=1e-4)
    assert list(made._captured) == [24]


@pytest.mark.parametrize(("held", "compiled"), [(40, True), (30, False)])
def test_only_a_party_with_every_id_has_its_iteration_compiled(held, compiled, monkeypatch):
    noted: list[object] = []
    monkeypatch.setattr(torch, "compile", lambda function, **_: noted.append(function) or function)
    shield = CausShield(iterations=1, surrogate={"name": "permuted_ab"})
    model = bottom()
    shield.bind(model, torch.optim.SGD(model.parameters(), 0.1), seeding.generator(1), _Compiled(model))
    index = torch.cat([torch.arange(held), torch.full((40 - held,), -1)])
    rows = torch.rand(held, 3, 8, 6, generator=seeding.generator(2))
    shield.prepare(Part(40, rows, index))
    shield.forward(rows[:16], torch.arange(16), 0)
    assert bool(noted) is compiled


class _Compiled:
    """A runner that asks for compiled iterations."""

    graphs, compiled = False, True

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.model(x)
        return out


def test_a_bottom_that_the_compiler_fails_at_runs_uncompiled(monkeypatch, caplog):
    from torch._inductor.exc import InductorError

    def fails(*_):
        raise InductorError(AssertionError("512 v.s. 1024"), None)

    monkeypatch.setattr(torch, "compile", lambda function, **_: fails)
    x = torch.rand(24, 3, 8, 6, generator=seeding.generator(4))
    payloads = []
    for compiled in (True, False):
        made = Adaptation(bottom(), (8, 8, 6), 24, CausShieldOptions(), seed=3, compiled=compiled)
        made.draws.manual_seed(1)
        made.restart()
        made.adapt(x, 1 - x, 2)
        payloads.append(made.payload(x))
    torch.testing.assert_close(*payloads, rtol=1e-4, atol=1e-5)
    assert [record.message for record in caplog.records if "runs uncompiled" in record.message] != []


def test_an_error_of_the_model_itself_is_not_taken_for_the_compilers(monkeypatch):
    def fails(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(torch, "compile", lambda function, **_: fails)
    made = Adaptation(bottom(), (8, 8, 6), 24, CausShieldOptions(), seed=3, compiled=True)
    x = torch.rand(24, 3, 8, 6, generator=seeding.generator(4))
    with pytest.raises(RuntimeError, match="out of memory"):
        made.adapt(x, 1 - x, 1)
