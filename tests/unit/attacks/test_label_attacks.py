"""Attacks on the labels: a toy where each must succeed, a toy where each must fail, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from veracausa.attacks import attacks, label_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.gradient_record import GradientRecord, GradientRecorder, recording, spread_passes
from veracausa.attacks.labels import LabelAttack, PassiveView
from veracausa.attacks.methods.labels.model_completion import principal_components, surest
from veracausa.audit.labels import score_labels
from veracausa.defenses.methods.none import Undefended
from veracausa.errors import InputError
from veracausa.registry import Options
from veracausa.seeding import drawing_from


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def blobs(count: int, shares: list[float], distance: float = 2.5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of 6 columns, a Gaussian cloud a class; `shares` is each class's share."""
    labels = torch.multinomial(torch.tensor(shares), count, replacement=True, generator=rng(seed))
    centres = distance * torch.randn(len(shares), 6, generator=rng(seed + 1))
    return centres[labels] + torch.randn(count, 6, generator=rng(seed + 2)), labels


def train(
    rows: Tensor,
    labels: Tensor,
    folder: Path,
    *,
    epochs: int = 3,
    lr: float = 0.05,
    memory: int = 20_000,
    payload: int = 8,
) -> tuple[GradientRecord, Tensor]:
    """Train a toy federation of two linear models; gives what the passive party recorded and its payloads."""
    classes = int(labels.max()) + 1
    with drawing_from(rng(7)):
        bottom, top = nn.Linear(rows.shape[1], payload), nn.Linear(payload, classes)
    defense = Undefended(Options(name="none"))
    defense.bind(bottom, torch.optim.SGD(bottom.parameters(), lr), rng())
    optimizer = torch.optim.SGD(top.parameters(), lr)
    step = 0
    with recording(defense, GradientRecorder(folder, memory=memory)) as recorder:
        for epoch in range(epochs):
            for ids in torch.split(torch.randperm(len(rows), generator=rng(epoch)), 32):
                sent, context = defense.forward(rows[ids], ids, step)
                sent.requires_grad_()
                loss = nn.functional.cross_entropy(top(sent), labels[ids])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                defense.backward(context, sent.grad)
                step += 1
    with torch.no_grad():
        return recorder.finish(), bottom(rows)


def begun(name: str, classes: int, known: tuple[Tensor, Tensor] | None = None, grants=None, **seen) -> LabelAttack:
    attack = label_attacks.get(name)(label_attacks.options(name)(name=name))
    if known is not None:
        seen |= {"known_ids": known[0], "known_labels": known[1]}
    attack.begin(
        PassiveView(
            grants=Grant.LABELLED_AUXILIARY if grants is None and known is not None else grants or Grant.NONE,
            party="bank",
            classes=classes,
            rng=rng(3),
            device=torch.device("cpu"),
            **seen,
        )
    )
    return attack


def known_rows(labels: Tensor, each: int) -> tuple[Tensor, Tensor]:
    ids = torch.cat([(labels == label).nonzero().flatten()[:each] for label in torch.unique(labels)])
    return ids, labels[ids]


def unrelated(count: int, folder: Path, epochs: int = 2) -> GradientRecord:
    """Gradients that have nothing to do with any label."""
    recorder = GradientRecorder(folder)
    for epoch in range(epochs):
        for step, ids in enumerate(torch.split(torch.arange(count), 32)):
            recorder.add(epoch * 1000 + step, ids, torch.randn(len(ids), 8, generator=rng(epoch * 1000 + step)))
    return recorder.finish()


def test_they_are_registered_apart_from_the_attacks_on_rows() -> None:
    assert label_attacks.names() == ["gradient_direction", "gradient_norm", "model_completion"]
    assert not set(label_attacks.names()) & set(attacks.names())
    for name in label_attacks.names():
        assert (label_attacks.get(name).__doc__ or "").strip()
        assert isinstance(label_attacks.get(name).needs, Grant)


@pytest.mark.parametrize("classes", [2, 4])
def test_directions_group_the_classes(classes: int, tmp_path: Path) -> None:
    rows, labels = blobs(400, [1 / classes] * classes)
    record, _ = train(rows, labels, tmp_path)
    attack = begun("gradient_direction", classes, gradients=record)
    guess = attack.infer(torch.arange(400))
    assert guess.up_to_permutation
    assert score_labels(guess, labels, classes).accuracy > 0.95
    assert attack.notes()["separation"] > 0


def test_a_few_known_labels_name_the_groups(tmp_path: Path) -> None:
    rows, labels = blobs(400, [0.25] * 4)
    record, _ = train(rows, labels, tmp_path)
    for known in (known_rows(labels, 1), tuple(part[:3] for part in known_rows(labels, 1))):
        # With one class unknown the groups are still named: it is the one that is left.
        guess = begun("gradient_direction", 4, known, gradients=record).infer(torch.arange(400))
        assert not guess.up_to_permutation
        assert score_labels(guess, labels, 4).advantage > 0.9
    not_granted = begun("gradient_direction", 4, known, grants=Grant.ARCHITECTURE, gradients=record)
    assert not_granted.infer(torch.arange(400)).up_to_permutation


def test_unrelated_gradients_tell_no_class(tmp_path: Path) -> None:
    labels = blobs(600, [0.5, 0.5])[1]
    record = unrelated(600, tmp_path)
    for known in (None, known_rows(labels, 3)):
        score = score_labels(
            begun("gradient_direction", 2, known, gradients=record).infer(torch.arange(600)), labels, 2
        )
        assert abs(score.advantage) < 0.15


def test_the_longest_gradients_are_the_rare_class(tmp_path: Path) -> None:
    rows, labels = blobs(600, [0.95, 0.05], distance=0.6)
    record, _ = train(rows, labels, tmp_path)
    score = score_labels(begun("gradient_norm", 2, gradients=record).infer(torch.arange(600)), labels, 2)
    assert score.auc is not None
    assert score.auc > 0.9
    assert score.accuracy > score.prior
    # Told by known labels that the long ones are class 0, it says so.
    known = known_rows(1 - labels, 3)
    turned = score_labels(begun("gradient_norm", 2, known, gradients=record).infer(torch.arange(600)), 1 - labels, 2)
    assert turned.accuracy == pytest.approx(score.accuracy)
    assert turned.auc == pytest.approx(score.auc)


def test_lengths_that_mean_nothing_tell_no_class(tmp_path: Path) -> None:
    labels = blobs(600, [0.8, 0.2])[1]
    score = score_labels(
        begun("gradient_norm", 2, gradients=unrelated(600, tmp_path)).infer(torch.arange(600)), labels, 2
    )
    assert score.auc == pytest.approx(0.5, abs=0.1)
    assert score.advantage < 0.1


def test_five_labels_a_class_complete_the_model(tmp_path: Path) -> None:
    rows, labels = blobs(400, [0.25] * 4, distance=1.5)
    _, payloads = train(rows, labels, tmp_path)
    known = known_rows(labels, 5)
    attack = begun("model_completion", 4, known, payloads=payloads)
    hidden = torch.ones(400, dtype=torch.bool)
    hidden[known[0]] = False
    ids = hidden.nonzero().flatten()
    score = score_labels(attack.infer(ids), labels[ids], 4)
    assert score.advantage > 0.6
    again = begun("model_completion", 4, known, payloads=payloads)
    assert torch.equal(again.infer(ids).classes, attack.infer(ids).classes)
    assert torch.equal(attack.infer(known[0]).classes, known[1])


def test_payloads_without_the_label_complete_nothing() -> None:
    labels = blobs(600, [0.5, 0.5])[1]
    known = known_rows(labels, 5)
    attack = begun("model_completion", 2, known, payloads=torch.randn(600, 2, 3, 3, generator=rng()))
    assert abs(score_labels(attack.infer(torch.arange(600)), labels, 2).advantage) < 0.2
    constant = begun("model_completion", 2, known, payloads=torch.ones(600, 5))
    assert constant.infer(torch.arange(600)).classes.shape == (600,)


def test_rows_that_were_never_seen_count_as_common(tmp_path: Path) -> None:
    rows, labels = blobs(300, [0.9, 0.1], distance=0.6)
    record, _ = train(rows, labels, tmp_path)
    beyond = torch.tensor([5000])
    assert begun("gradient_norm", 2, gradients=record).infer(beyond).classes.tolist() == [0]
    attack = begun("gradient_direction", 2, gradients=record)
    assert attack.infer(beyond).classes.item() == attack.infer(torch.arange(300)).classes.bincount().argmax()


def test_what_a_view_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="labelled auxiliary"):
        begun("model_completion", 2)
    with pytest.raises(InputError, match="known_ids"):
        begun("model_completion", 2, grants=Grant.LABELLED_AUXILIARY)
    with pytest.raises(InputError, match="outside the 3 payloads"):
        begun("model_completion", 2, (torch.tensor([3]), torch.tensor([0])), payloads=torch.zeros(3, 2))
    with pytest.raises(InputError, match="one each"):
        begun("model_completion", 2, (torch.tensor([0, 1]), torch.tensor([0])), payloads=torch.zeros(3, 2))
    for name in ("gradient_norm", "gradient_direction"):
        with pytest.raises(InputError, match="record them"):
            begun(name, 2)
    recorder = GradientRecorder(tmp_path)
    recorder.add(0, torch.arange(2), torch.randn(2, 4))
    with pytest.raises(InputError, match="2 classes apart, not 3"):
        begun("gradient_norm", 3, gradients=recorder.finish())
    with pytest.raises(InputError, match="at least 2 classes"):
        begun("gradient_direction", 0)
    with pytest.raises(InputError, match="fewer rows than the 3 classes"):
        begun("gradient_direction", 3, gradients=recorder.finish())


def test_passes_are_spread_from_first_to_last() -> None:
    assert spread_passes(10, 4) == [0, 3, 6, 9]
    assert spread_passes(2, 4) == [0, 1]
    assert spread_passes(5, 1) == [0]
    assert spread_passes(0, 4) == []


def test_components_keep_distances_and_the_surest_are_chosen_class_by_class() -> None:
    payloads = torch.randn(50, 3, 2, 2, generator=rng())
    found = principal_components(payloads, 64, torch.device("cpu"))
    assert found.shape == (50, 12)
    direct, kept = (torch.pdist(rows.double()) for rows in (payloads.flatten(1), found))
    assert torch.allclose(direct / direct.max(), kept / kept.max(), atol=1e-5)
    chosen = surest(torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([0, 0, 1, 1]), 0.5)
    assert chosen.tolist() == [True, False, True, False]
