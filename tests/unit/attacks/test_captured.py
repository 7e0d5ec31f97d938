"""A captured step: itself on a CPU; on a GPU the same numbers, with the warm_up undone."""

from __future__ import annotations

import pytest
import torch

from veracausa.models.runner import capture, reset_optimizer_state

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_on_a_cpu_it_is_the_step_itself_and_rehearses_nothing() -> None:
    calls = []

    def step() -> None:
        calls.append(1)

    assert capture(step, torch.device("cpu"), [torch.zeros(2)]) is step
    assert not calls


def test_an_optimiser_forgets_in_place() -> None:
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=0.1, amsgrad=True)
    weight.grad = torch.ones(3)
    optimizer.step()
    held = optimizer.state[weight]["exp_avg"]
    reset_optimizer_state(optimizer)
    assert optimizer.state[weight]["exp_avg"] is held
    assert all(not value.any() for value in optimizer.state[weight].values())


def descent(device: torch.device, steps: int) -> torch.Tensor:
    weight = torch.linspace(-1, 1, 5, device=device).requires_grad_()
    optimizer = torch.optim.Adam([weight], lr=0.01, amsgrad=True, fused=True, capturable=device.type == "cuda")

    def step() -> None:
        (weight.grad,) = torch.autograd.grad((weight - 3).square().sum(), [weight])
        optimizer.step()

    replay = capture(step, device, [weight])
    reset_optimizer_state(optimizer)
    for _ in range(steps):
        replay()
    return weight.detach().cpu()


@pytest.mark.gpu
@needs_gpu
def test_a_replayed_descent_is_the_eager_one() -> None:
    assert torch.allclose(descent(torch.device("cuda"), 50), descent(torch.device("cpu"), 50), atol=1e-5)


@pytest.mark.gpu
@needs_gpu
def test_a_step_that_looks_at_its_values_is_run_as_it_is() -> None:
    device = torch.device("cuda")
    total = torch.zeros((), device=device)

    def step() -> None:
        total.add_(1.0 if float(total) < 100 else 2.0)

    replay = capture(step, device, [total])
    assert float(total) == 0
    replay()
    assert float(total) == 1
