"""The recording: complete, bounded, unchanged by what the party does next, and honest about broken files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from veracausa.attacks.gradient_record import GradientRecord, GradientRecorder, _numbered, recording
from veracausa.defenses.methods.none import Undefended
from veracausa.errors import InputError
from veracausa.registry import Options
from veracausa.runs.store import Store
from veracausa.training.hooks import FederationInfo
from veracausa.training.recorders import GradientsReturned, gradients_folder


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_everything_that_came_back_is_there_in_order(tmp_path: Path) -> None:
    recorder = GradientRecorder(tmp_path, memory=500)
    sent = [(step, torch.arange(4) + step, torch.randn(4, 2, 3, generator=rng(step))) for step in range(10)]
    for step, ids, gradient in sent:
        recorder.add(step, ids, gradient)
    record = recorder.finish()
    assert len(record.paths) > 1
    parts = list(record)
    assert torch.equal(torch.cat([part.ids for part in parts]), torch.cat([ids for _, ids, _ in sent]))
    whole = torch.cat([gradient for _, _, gradient in sent]).flatten(1)
    assert torch.equal(torch.cat([part.direction for part in parts]), whole)
    assert torch.allclose(torch.cat([part.norm for part in parts]), whole.norm(dim=1))
    assert torch.cat([part.step for part in parts])[::4].tolist() == list(range(10))


def test_memory_is_bounded(tmp_path: Path) -> None:
    recorder = GradientRecorder(tmp_path, memory=10_000)
    for step in range(50):
        recorder.add(step, torch.arange(8), torch.zeros(8, 20))
        assert recorder._bytes < 10_000
    assert recorder.finish().passes() == 50


def test_a_sketch_keeps_lengths_and_angles(tmp_path: Path) -> None:
    gradient = torch.randn(6, 4, 32, 32, generator=rng())
    gradient[1] = gradient[0] + 0.1 * gradient[2]
    gradient[3] = -gradient[2]
    recorder = GradientRecorder(tmp_path, width=256)
    recorder.add(0, torch.arange(6), gradient)
    (part,) = recorder.finish()
    assert part.direction.shape == (6, 256)
    assert torch.allclose(part.norm, gradient.flatten(1).norm(dim=1))
    unit, sketched = (nn.functional.normalize(v.flatten(1)) for v in (gradient, part.direction))
    # A cosine's error has a standard deviation of about 1/√256.
    assert (unit @ unit.T - sketched @ sketched.T).abs().max() < 4 / 16


def test_a_wrapped_defense_trains_as_before(tmp_path: Path) -> None:
    weights = []
    for watched in (False, True):
        bottom = nn.Linear(3, 2)
        nn.init.constant_(bottom.weight, 0.5)
        nn.init.constant_(bottom.bias, 0.0)
        defense = Undefended(Options(name="none"))
        defense.bind(bottom, torch.optim.SGD(bottom.parameters(), 0.1), rng())
        recorder = GradientRecorder(tmp_path / str(watched))
        _, context = defense.forward(torch.ones(4, 3), torch.arange(4), 9)
        if watched:
            gradient = torch.ones(4, 2)
            with recording(defense, recorder):
                defense.backward(context, gradient)
            gradient.zero_()
        else:
            defense.backward(context, torch.ones(4, 2))
        weights.append(bottom.weight.detach().clone())
        assert "backward" not in vars(defense)
    (part,) = recorder.finish()
    assert part.step.tolist() == [9] * 4
    assert (part.direction == 1).all()
    assert torch.equal(*weights)


@given(st.lists(st.lists(st.integers(0, 6), max_size=12), max_size=6))
def test_passes_are_counted_row_by_row(batches: list[list[int]]) -> None:
    counts, seen = torch.zeros(0, dtype=torch.int64), dict.fromkeys(range(7), 0)
    for batch in batches:
        counts, before = _numbered(counts, torch.tensor(batch, dtype=torch.int64))
        for row, found in zip(batch, before.tolist(), strict=True):
            assert found == seen[row]
            seen[row] += 1
    assert counts.tolist() == [seen[row] for row in range(len(counts))]


def test_broken_recordings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no recorded gradients"):
        GradientRecord(tmp_path)
    recorder = GradientRecorder(tmp_path)
    with pytest.raises(InputError, match="3 ids for the gradients of 2 rows"):
        recorder.add(1, torch.arange(3), torch.zeros(2, 4))
    recorder.add(1, torch.arange(2), torch.zeros(2, 4))
    record = recorder.finish()
    with pytest.raises(InputError, match="holds a recording already"):
        GradientRecorder(tmp_path)
    path = record.paths[0]
    good = {"step": torch.zeros(2).long(), "ids": torch.arange(2), "norm": torch.ones(2), "direction": torch.ones(2, 4)}
    for wrong, problem in (
        ({"ids": torch.arange(3)}, "do not belong together"),
        ({"norm": torch.tensor([1.0, torch.nan])}, "not finite"),
        ({"ids": torch.tensor([0, -1])}, "below 0"),
    ):
        save_file({**good, **wrong}, path)
        with pytest.raises(InputError, match=problem):
            list(record)
    save_file({"ids": torch.arange(2)}, path)
    with pytest.raises(InputError, match="not a whole part"):
        list(record)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError, match="not a whole part"):
        list(record)


def test_of_a_long_training_four_epochs_are_kept_evenly_spread(tmp_path: Path) -> None:
    store = Store(tmp_path, "active")
    watcher = GradientsReturned(epochs=8)(store)
    held = {"bank": torch.ones(4, dtype=torch.bool)}
    watcher.begin(FederationInfo(lambda payloads, own: torch.zeros(0), {"bank": (3,)}, held, steps=16))
    for step in range(1, 17):
        ids = torch.tensor([0, 1] if step % 2 else [2, 3])
        watcher.on_payloads(step, ids, {}, torch.zeros(2))
        gradient = torch.ones(2, 3)
        assert watcher.on_gradient("bank", gradient) is gradient
    watcher.close()
    record = GradientRecord(gradients_folder(tmp_path, "bank"))
    assert record.passes() == 4
    steps = torch.cat([part.step for part in record])
    assert steps.unique().tolist() == [0, 1, 4, 5, 10, 11, 14, 15]
