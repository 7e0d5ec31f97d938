"""Each attack on features, on a toy where it must succeed and on one where it must fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from veracausa.attacks import column_attacks
from veracausa.attacks.base import Grant
from veracausa.attacks.columns import Candidates, ColumnView, Opened
from veracausa.audit.column_scores import ColumnScore, best_own, random_guess, scored
from veracausa.errors import InputError

N, COLUMNS, TARGETS, H = 200, 3, 3, 4


def columns(rng: np.random.Generator, independent: bool = True) -> np.ndarray:
    """Flat-tailed and independent, or all of one normal cause."""
    x = rng.uniform(-1, 1, (N, COLUMNS)) if independent else rng.standard_normal((N, COLUMNS))
    if not independent:
        x[:, 1:] = 0.9 * x[:, :1] + 0.3 * x[:, 1:]
    return (x - x.mean(0)) / x.std(0)


def view(x: np.ndarray, mixed: np.ndarray, noise: float = 0.0, **given: Any) -> ColumnView:
    rng = np.random.default_rng(5)
    moved = [mixed + 0.3 * rng.standard_normal(mixed.shape) for _ in range(6)]
    shape = (len(x), TARGETS, H)
    opened = [x @ w.reshape(COLUMNS, -1) + noise * rng.standard_normal((len(x), TARGETS * H)) for w in moved]
    still = [x @ mixed.reshape(COLUMNS, -1) + noise * rng.standard_normal((len(x), TARGETS * H)) for _ in range(200)]
    return ColumnView(
        **{
            "grants": ~Grant.NONE,
            "columns": COLUMNS,
            "own": rng.standard_normal((len(x), 2)),
            "last": still[0].reshape(shape),
            "mean": np.mean(still, axis=0).reshape(shape),
            "history": np.stack(opened),
            "rng": rng,
            **given,
        }
    )


def attacked(name: str, seen: ColumnView, x: np.ndarray) -> ColumnScore:
    few = {"restarts": 2, "turns": 20} if name in ("unsplit", "norm_aware", "norm_averaging") else {}
    attack = column_attacks.get(name)(column_attacks.options(name)(name=name, **few))
    guess = attack.read(seen)
    assert guess is not None
    return scored(guess, x)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def weights(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((COLUMNS, TARGETS, H))


def test_an_attack_is_refused_what_it_is_not_granted(rng: np.random.Generator, weights: np.ndarray) -> None:
    seen = view(columns(rng), weights, grants=Grant.NONE)
    with pytest.raises(InputError, match="known rows"):
        attacked("known_rows", seen, columns(rng))


def test_ica_finds_independent_columns_and_not_dependent_normal_ones(
    rng: np.random.Generator, weights: np.ndarray
) -> None:
    independent, dependent = columns(rng), columns(rng, independent=False)
    assert attacked("ica", view(independent, weights), independent).mean > 0.97
    assert attacked("ica", view(dependent, weights), dependent).mean < 0.9


def test_unsplit_reads_one_column_and_is_lost_among_several(rng: np.random.Generator) -> None:
    x = columns(rng)
    seen = view(x, rng.standard_normal((COLUMNS, TARGETS, H)))
    several = attacked("unsplit", seen, x)
    lonely = ColumnView(
        **{**seen.__dict__, "columns": 1, "last": (x[:, :1] @ np.ones((1, TARGETS * H))).reshape(N, TARGETS, H)}
    )
    assert attacked("unsplit", lonely, x[:, :1]).mean > 0.99
    # Every invertible mixture of the columns fits as well.
    assert several.mean < 0.95


def test_known_rows_read_everything_once_there_are_more_of_them_than_columns(
    rng: np.random.Generator, weights: np.ndarray
) -> None:
    x = columns(rng)
    enough, few = np.arange(COLUMNS + 1), np.arange(2)
    assert attacked("known_rows", view(x, weights, known=(enough, x[enough])), x).mean > 0.9999
    assert attacked("known_rows", view(x, weights, known=(few, x[few])), x).mean < 0.95


def test_noise_hides_a_row_once_but_not_over_many_epochs(rng: np.random.Generator, weights: np.ndarray) -> None:
    x = columns(rng)
    seen = view(x, weights, noise=8.0, known=(np.arange(30), x[:30]))
    assert attacked("known_rows", seen, x).mean < 0.7
    assert attacked("averaging", seen, x).mean > 0.9


def test_few_numbers_an_epoch_are_many_over_a_training(rng: np.random.Generator) -> None:
    """One number a target and two targets for three columns: one epoch has too few, several have enough."""
    x = columns(rng)
    narrow = [rng.standard_normal((COLUMNS, 2)) for _ in range(4)]
    known = (np.arange(30), x[:30])
    seen = view(x, np.ones((COLUMNS, TARGETS, H)), known=known)
    seen = ColumnView(
        **{**seen.__dict__, "last": (x @ narrow[0])[:, :, None], "history": np.stack([x @ each for each in narrow])}
    )
    assert attacked("known_rows", seen, x).mean < 0.95
    assert attacked("stacking", seen, x).mean > 0.9999


def test_a_target_with_one_cause_is_a_copy_of_it(rng: np.random.Generator, weights: np.ndarray) -> None:
    x = columns(rng)
    weights[1:, 0] = 0.0
    score = attacked("single_parent", view(x, weights), x)
    assert score.by_attribute[0] > 0.9999
    assert score.by_attribute[1:] == (0.0, 0.0)  # the other targets have three causes each, and are no copies


def lived(rng: np.random.Generator, x: np.ndarray, first: np.ndarray) -> tuple[Opened, ...]:
    """Batches of ten rows; the weights grow after each, and every third time the validator has them scaled."""
    now, batches = first.copy(), []
    for number, rows in enumerate(np.arange(N).reshape(-1, 10)):
        steps = 0.01 * rng.standard_normal((10, TARGETS * H))
        factors = rng.uniform(0.9, 1, (COLUMNS, TARGETS)) if number % 3 == 2 else None
        batches.append(Opened(rows, x[rows] @ now, steps, factors))
        now = now + x[rows].T @ steps
        if factors is not None:
            now = (now.reshape(COLUMNS, TARGETS, H) * factors[..., None]).reshape(COLUMNS, -1)
    return tuple(batches)


def test_first_weights_give_every_batch_away_and_guessed_ones_none(
    rng: np.random.Generator, weights: np.ndarray
) -> None:
    x = columns(rng)
    first = 0.05 * weights.reshape(COLUMNS, -1)
    seen = view(x, weights, first=lived(rng, x, first), first_weights=first, first_range=float(np.abs(first).max()))
    assert attacked("known_start", seen, x).mean > 0.9999
    assert attacked("guessed_start", seen, x).mean < 0.7


def test_strengths_help_where_they_tell_causes_apart(rng: np.random.Generator) -> None:
    x = columns(rng)
    apart = rng.standard_normal((COLUMNS, TARGETS, H)) * np.eye(3)[..., None]
    alike = rng.standard_normal((COLUMNS, TARGETS, H))
    alike /= np.linalg.norm(alike, axis=2, keepdims=True)
    norms = {"strengths": np.linalg.norm(apart, axis=2)}
    assert attacked("norm_aware", view(x, apart, **norms), x).mean > 0.99
    assert attacked("norm_aware", view(x, alike, strengths=np.ones((COLUMNS, TARGETS))), x).mean < 0.9


def test_with_the_validators_weights_columns_are_solved_for(rng: np.random.Generator, weights: np.ndarray) -> None:
    x = columns(rng)
    first = 0.05 * weights.reshape(COLUMNS, -1)
    batches = lived(rng, x, first)
    assert attacked("party_and_validator", view(x, weights, looked=(first, batches)), x).mean > 0.9999
    other = 0.05 * rng.standard_normal(first.shape)
    assert attacked("party_and_validator", view(x, weights, looked=(other, batches)), x).mean < 0.9
    attack = column_attacks.get("party_and_validator")(column_attacks.options("party_and_validator")(name=""))
    assert attack.read(view(x, weights)) is None  # mode M2: it was sent none


def test_candidates_that_differ_by_one_edge_open_its_cause(rng: np.random.Generator, weights: np.ndarray) -> None:
    x = columns(rng)
    graphs = np.ones((3, COLUMNS, TARGETS), dtype=bool)
    graphs[1:, 0] = False
    graphs[2] = False  # attributes 1 and 2 leave together
    features = np.einsum("ni,gij,ijh->gnjh", x, graphs, weights)
    score = attacked("candidate_differencing", view(x, weights, candidates=Candidates(graphs, features)), x)
    assert score.by_attribute[0] > 0.9999
    assert score.by_attribute[1:] == (0.0, 0.0)


def test_blind_guesses(rng: np.random.Generator) -> None:
    x = columns(rng)
    assert random_guess(x, rng).mean < 0.2
    assert best_own(x[:, ::-1] * -2, x).by_attribute == pytest.approx((1.0, 1.0, 1.0))
