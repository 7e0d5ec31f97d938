"""The inner iteration compiled: for whom, and what happens where the compiler fails."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from veracausa import seeding
from veracausa.data.vertical import Part
from veracausa.defenses.causshield import CausShield, CausShieldOptions
from veracausa.defenses.causshield.adaptation import Adaptation
from veracausa.defenses.causshield.turns import CAREFUL
from veracausa.models.runner import Runner


def bottom() -> nn.Module:
    with seeding.drawing_from(seeding.generator(0)):
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())


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


class _Compiled(Runner):
    """A runner that asks for compiled iterations."""

    graphs, compiled = False, True


def failing(*_):
    from torch._inductor.exc import InductorError

    raise InductorError(AssertionError("512 v.s. 1024"), None)


def adapted(compiled: bool, **settings: bool | str) -> tuple[Adaptation, torch.Tensor]:
    made = Adaptation(bottom(), (8, 8, 6), 24, CausShieldOptions(**settings), seed=3, compiled=compiled)
    made.draws.manual_seed(1)
    made.reset_to_bottom()
    x = torch.rand(24, 3, 8, 6, generator=seeding.generator(4))
    made.adapt(x, 1 - x, 2)
    return made, made.payload(x)


def test_where_the_compiler_fails_it_is_asked_for_less(monkeypatch, caplog):
    calls: list[int] = []

    def compiled(function, options=None, **_):
        def careful(*arguments):
            calls.append(len(arguments[0]))
            return function(*arguments)

        return careful if options == CAREFUL else failing

    monkeypatch.setattr(torch, "compile", compiled)
    made, payload = adapted(True)
    assert calls == [24, 24]
    assert made.turns[0].compiled
    assert not caplog.records
    torch.testing.assert_close(payload, adapted(False)[1], rtol=1e-4, atol=1e-5)


def test_each_player_in_turn_is_compiled_with_dimensions_of_any_number(monkeypatch):
    asked: list[object] = []

    def compile(function, options=None, **_):
        return lambda *given: asked.append(options) or function(*given)

    monkeypatch.setattr(torch, "compile", compile)
    settings = {"players": "alternating", "dimensions": "flat"}
    made, payload = adapted(True, **settings)
    assert made.count > made.rows
    assert [turn.compiled for turn in made.turns] == [True, True]
    assert asked == [CAREFUL] * 4, "two iterations of two players, with care from the first"
    torch.testing.assert_close(payload, adapted(False, **settings)[1], rtol=1e-4, atol=1e-5)


def test_the_compiler_knows_what_it_is_asked_to_leave():
    assert torch.compile(bottom(), options=CAREFUL) is not None
    with pytest.raises(RuntimeError, match="no such option"):
        torch.compile(bottom(), options={"no such option": False})


def test_a_bottom_that_the_compiler_fails_at_runs_uncompiled(monkeypatch, caplog):
    passes: list[int] = []
    monkeypatch.setattr(torch, "compile", lambda function, **_: failing)
    monkeypatch.setattr(nn.BatchNorm2d, "forward", _counted(nn.BatchNorm2d.forward, passes))
    made, payload = adapted(True, masker=False)
    assert "runs uncompiled" in "".join(record.message for record in caplog.records)
    assert not made.turns[0].compiled
    assert passes == [24] * 5, "two views in two iterations and the payload, each in a pass of its own"
    assert torch.equal(payload, adapted(False, masker=False)[1])


def _counted(forward, passes):
    def counted(norm, x):
        passes.append(len(x))
        return forward(norm, x)

    return counted


def test_an_error_of_the_model_itself_is_not_taken_for_the_compilers(monkeypatch):
    def fails(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(torch, "compile", lambda function, **_: fails)
    made = Adaptation(bottom(), (8, 8, 6), 24, CausShieldOptions(), seed=3, compiled=True)
    x = torch.rand(24, 3, 8, 6, generator=seeding.generator(4))
    with pytest.raises(RuntimeError, match="out of memory"):
        made.adapt(x, 1 - x, 1)
