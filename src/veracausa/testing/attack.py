"""What every attack must keep to, as one call: for our tests and for those who write plug-ins.

::

    from veracausa.testing import check_attack

    def test_my_attack():
        check_attack(MyAttack, {"epochs": 1})
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from veracausa import seeding
from veracausa.attacks import attacks, blind_attacks, column_attacks, label_attacks
from veracausa.attacks.base import (
    AdversaryView,
    Attack,
    AttackersPart,
    Exchange,
    FeatureAttack,
    Grant,
    LiveAttack,
    LiveView,
    NotGranted,
    View,
)
from veracausa.attacks.blind import BlindAttack, BlindReading, BlindView
from veracausa.attacks.columns import ColumnAttack, ColumnGuess
from veracausa.attacks.gradient_record import GradientRecorder
from veracausa.attacks.labels import LabelAttack, LabelGuess, PassiveView
from veracausa.attacks.transcript import Head, Transcript, TranscriptWriter
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.errors import InputError
from veracausa.registry import Options
from veracausa.runs.store import deserialize_state, serialize_state
from veracausa.testing.blind_attacks import OF_BLIND, ToyBlindTraining
from veracausa.testing.column_attacks import OF_COLUMNS, check_guesses, toy_column_view

ROWS, BATCH, CLASSES, STEPS = 24, 8, 2, 4
Make = Callable[[], Attack[Any]]

OF_ROWS = ~Grant.NONE & ~(Grant.FIRST_WEIGHTS | Grant.VALIDATOR | Grant.OTHER_PARTIES)
OF_ROWS &= ~(Grant.SECOND_HEAD | Grant.SECOND_RELEASE)
OF_LABELS = Grant.LABELLED_AUXILIARY


def check_attack(
    attack: str | type[Attack[Any]],
    options: Mapping[str, Any] | Options | None = None,
    toys: Sequence[str] = ("tables", "pictures"),
) -> None:
    """Raise `AssertionError`, with what is wrong, unless the attack keeps to its contract.

    Parameters
    ----------
    attack
        A class, or the name of a registered attack on rows; every other attack is given as its class.
    options
        Settings of its `Options`; choose small ones, every attack is run several times.
    toys
        Of an attack on rows or on blind training: the rows it suits, of `tables`, `pictures` and, of the first, `colour
        pictures`.

    Examples
    --------
    >>> check_attack("likelihood", {"iterations": 5})
    """
    cls, make = _maker(attack, options)
    _check_declarations(cls, make().options)
    with tempfile.TemporaryDirectory() as folder:
        if issubclass(cls, FeatureAttack):
            for number, name in enumerate(toys):
                try:
                    _check_rows(cast(Callable[[], FeatureAttack], make), _Toy(name, Path(folder) / str(number)))
                except AssertionError as error:
                    raise AssertionError(f"{name}: {error}") from error
        elif issubclass(cls, LabelAttack):
            _check_labels(cast(Callable[[], LabelAttack], make), Path(folder))
        elif issubclass(cls, BlindAttack):
            for name in toys:
                _check_blind(cast(Callable[[], BlindAttack], make), ToyBlindTraining(name != "tables"))
        else:
            _check_columns(cast(Callable[[], ColumnAttack], make))


def _maker(attack: str | type[Attack[Any]], options: Mapping[str, Any] | Options | None) -> tuple[type, Make]:
    if isinstance(attack, str):
        cls: type[Attack[Any]] = attacks.get(attack)
        known = attacks.options(attack)
    else:
        cls, known = attack, getattr(attack, "Options", None) or _registered(attack)
    name = attack if isinstance(attack, str) else attack.__name__
    settings = options if isinstance(options, Options) else known(name=name, **(options or {}))
    return cls, lambda: cls(settings)


def _registered(cls: type[Attack[Any]]) -> type[Options]:
    for registry in (attacks, label_attacks, column_attacks, blind_attacks):
        for name in registry.names():
            if registry.get(name) is cls:
                return registry.options(name)
    return Options


def _check_declarations(cls: type[Attack[Any]], options: Options) -> None:
    surfaces = {FeatureAttack: (OF_ROWS, "reconstruct"), LabelAttack: (OF_LABELS, "infer")}
    surfaces |= {ColumnAttack: (OF_COLUMNS, "guess"), BlindAttack: (OF_BLIND, "guess")}
    found = [(base, *about) for base, about in surfaces.items() if issubclass(cls, base)]
    assert found, "an attack must be a FeatureAttack, a LabelAttack, a ColumnAttack or a BlindAttack"
    base, possible, verb = found[0]
    assert (cls.__doc__ or "").strip(), "it needs a docstring: lists print its first line"
    assert getattr(cls, verb) is not getattr(base, verb), f"it must define `{verb}`"
    strange = (cls.needs | cls.uses) & ~possible
    assert not strange, f"no {base.__name__} can be granted {', '.join(strange.words)}"
    if issubclass(cls, FeatureAttack):
        assert cls.live == issubclass(cls, LiveAttack), "`live` must say whether it is a LiveAttack"
        tampers = issubclass(cls, LiveAttack) and cls.tamper is not LiveAttack.tamper
        assert tampers == (Grant.TAMPER in cls.needs), "it must need TAMPER just where it defines `tamper`"
        setting = cls.until_converged
        number = isinstance(getattr(options, setting, None), int) if setting else True
        assert number, f"`until_converged` is {setting!r}, which is no whole number among its settings"
        if issubclass(cls, LiveAttack):
            reads = cls.read_with is not LiveAttack.read_with
            assert reads == bool(cls.reads_with), "it must declare `reads_with` just where it defines `read_with`"
    unknown = set(cls.quick) - (set(type(options).model_fields) - {"name"})
    assert not unknown, f"`quick` names {', '.join(sorted(unknown))}, which is no setting of it"
    try:
        type(options).model_validate({**options.model_dump(), **cls.quick})
    except ValidationError as error:
        raise AssertionError(f"`quick` has a value that is refused: {error.errors()[0]['msg']}") from None


def _check_grants(make: Make, view: View) -> None:
    """It refuses a view that lacks anything it needs."""
    for grant in make().needs:
        try:
            attack, less = make(), view.limited_to(~grant)
            if isinstance(attack, ColumnAttack | BlindAttack):
                attack.read(cast(Any, less))
            else:
                attack.begin(less)
        except InputError:
            continue
        raise AssertionError(f"it begins without {' and '.join(grant.words)}, which it needs")


@contextmanager
def _watched(view: View, *given: Tensor) -> Iterator[None]:
    """Nothing that the attack is given changes meanwhile, nor PyTorch's own generator; an undeclared field is named."""
    held = [
        value for value in (vars(view)[each.name] for each in fields(view)) if isinstance(value, Tensor | np.ndarray)
    ]
    before = [_copy(value) for value in (*held, *given)]
    generator = torch.get_rng_state()
    try:
        yield
    except NotGranted as error:
        raise AssertionError(f"it reads what it does not declare: {error}") from error
    assert torch.equal(torch.get_rng_state(), generator), "it draws from PyTorch's own generator, not from `view.rng`"
    same = all(
        np.array_equal(_copy(now), then, equal_nan=True) for now, then in zip((*held, *given), before, strict=True)
    )
    assert same, "it changes what it is given"


def _copy(value: Any) -> Any:
    return value.detach().clone().numpy() if isinstance(value, Tensor) else value.copy()


def _check_notes(attack: Attack[Any]) -> None:
    for name, value in attack.notes().items():
        number = isinstance(value, int | float) and math.isfinite(value)
        assert number, f"its note {name!r} is {value!r}, no number"


class _Toy:
    """A party with a few rows, an untrained model, and what crossed in two exchanges."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.pixels, self.folder = kind != "tables", folder
        self.shape = {"tables": (6,), "pictures": (1, 8, 4), "colour pictures": (3, 8, 4)}[kind]
        draw = torch.rand if self.pixels else torch.randn
        self.rows, self.auxiliary = (draw(ROWS, *self.shape, generator=seeding.generator(n)) for n in range(2))
        self.labels = torch.arange(ROWS) % CLASSES
        self.model = self.bottom(seeding.generator(2)).eval()
        with torch.no_grad():
            self.payloads = self.model(self.rows)
        self.weights = torch.randn(2 * self.payloads[0].numel(), CLASSES, generator=seeding.generator(3))
        head = Head(victim="victim", payload_shape=tuple(self.payloads.shape[1:]), moments={"start": 1, "end": 2})
        writer = TranscriptWriter(folder, head)
        for step in (1, 2):
            writer.add(Exchange(step, torch.arange(ROWS), self.payloads, None))
        writer.close()

    def bottom(self, rng: torch.Generator) -> nn.Module:
        with seeding.drawing_from(rng):
            if not self.pixels:
                return nn.Linear(6, 4)
            return nn.Sequential(nn.Conv2d(self.shape[0], 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())

    def defense(self, model: nn.Module, optimizer: torch.optim.Optimizer, rng: torch.Generator) -> Defense:
        made: Defense = defenses.get("none")(defenses.options("none")(name="none"))
        made.bind(model, optimizer, rng)
        return made

    def oracle(self) -> Tensor:
        with torch.no_grad():
            payloads: Tensor = self.model(self.auxiliary)
        return payloads

    def predict(self, payloads: Mapping[str, Tensor], numbers: Tensor | None = None) -> Tensor:
        return torch.cat([payloads[name].flatten(1) for name in ("victim", "other")], 1) @ self.weights

    def view(self) -> LiveView:
        return LiveView(
            grants=OF_ROWS,
            victim="victim",
            payload_shape=tuple(self.payloads.shape[1:]),
            row_shape=self.shape,
            pixels=self.pixels,
            rng=seeding.generator(4),
            device=torch.device("cpu"),
            auxiliary=self.auxiliary.clone(),
            auxiliary_labels=self.labels.clone(),
            labels=self.labels.clone(),
            classes=CLASSES,
            bottom=self.bottom,
            defense=self.defense,
            batch_size=BATCH,
            transmit=self.model,
            transcript=Transcript(self.folder),
            partners={"other": Transcript(self.folder)},
            known_ids=torch.arange(0, ROWS, 2),
            known=self.rows[::2].clone(),
            oracle=self.oracle,
            oracle_at={"start": self.oracle, "end": self.oracle},
            predict=self.predict,
            others={"other": self.auxiliary.clone()},
            other_bottoms={"other": self.bottom},
            own=AttackersPart(self.auxiliary.clone(), lambda positions: self.rows[positions], self.bottom),
        )

    def exchange(self, step: int) -> Exchange:
        ids = (torch.arange(BATCH) + step * BATCH) % ROWS
        return Exchange(step, ids, self.payloads[ids], self.labels[ids], {"other": self.payloads[ids].clone()})


def _check_rows(make: Callable[[], FeatureAttack], toy: _Toy) -> None:
    _check_grants(make, toy.view())
    first, second = (_read(make, toy) for _ in range(2))
    assert torch.equal(first, second), "the same view and the same generator give other rows"


def _read(make: Callable[[], FeatureAttack], toy: _Toy) -> Tensor:
    """The attack's rows, of people who took part in the training and of one who did not."""
    attack = make()
    whole = toy.view()
    view: AdversaryView = whole.limited_to(attack.needs | attack.uses)
    with _watched(view):
        attack.begin(view)
        if isinstance(attack, LiveAttack):
            attack = _lived(attack, make, view, toy)
            if attack.reads_with:
                attack.read_with(whole.limited_to(attack.reads_with))
    payload, ids = toy.payloads.clone(), torch.arange(ROWS)
    ids[-1] = -1
    with _watched(view, payload, ids):
        attack.told(toy.labels)
        rows = attack.reconstruct(payload, ids)
    wanted = (ROWS, *toy.shape)
    assert tuple(rows.shape) == wanted, f"`reconstruct` gives rows of shape {tuple(rows.shape)}, not {wanted}"
    assert rows.isfinite().all(), "`reconstruct` gives rows that are not finite"
    if toy.pixels:
        assert bool((rows >= 0).all() & (rows <= 1).all()), "`reconstruct` gives pixels outside [0, 1]"
    _check_notes(attack)
    return rows.detach()


def _lived(attack: LiveAttack, make: Callable[[], FeatureAttack], view: AdversaryView, toy: _Toy) -> LiveAttack:
    """The attack after some exchanges, and brought back from its state in the middle of them."""
    attack.pretrain()
    for step in range(STEPS):
        if step == STEPS // 2:
            state, rng = serialize_state(attack.state()), view.rng.get_state()
            attack = cast(LiveAttack, make())
            attack.begin(view)
            attack.load_state(deserialize_state(state))
            view.rng.set_state(rng)
            again = serialize_state(attack.state())
            assert again == state, "`load_state` does not bring back what `state` gave"
        exchange = toy.exchange(step)
        with _watched(view, exchange.payload, exchange.ids):
            if Grant.TAMPER in attack.needs:
                sent = attack.tamper(torch.ones_like(exchange.payload), exchange)
                assert sent.shape == exchange.payload.shape, f"`tamper` gives a gradient of shape {tuple(sent.shape)}"
                assert sent.isfinite().all(), "`tamper` gives a gradient that is not finite"
            attack.observe(exchange)
    attack.conclude()
    return attack


def _check_labels(make: Callable[[], LabelAttack], folder: Path) -> None:
    labels = torch.arange(ROWS) % CLASSES
    gradients = torch.randn(ROWS, 4, generator=seeding.generator(0)) + 4 * (2 * labels - 1).unsqueeze(1)
    recorder = GradientRecorder(folder)
    for step in range(2):
        recorder.add(step, torch.arange(ROWS), gradients)
    record = recorder.finish()

    def view() -> PassiveView:
        return PassiveView(
            grants=OF_LABELS,
            party="attacker",
            classes=CLASSES,
            rng=seeding.generator(1),
            device=torch.device("cpu"),
            gradients=record,
            payloads=gradients.clone(),
            known_ids=torch.arange(4),
            known_labels=labels[:4],
        )

    _check_grants(make, view())
    needs, uses = make().needs, make().uses
    guesses = [_inferred(make, view().limited_to(grants)) for grants in dict.fromkeys((needs, needs | uses))]
    again = _inferred(make, view().limited_to(needs | uses))
    assert torch.equal(guesses[-1].classes, again.classes), "the same view and the same generator give other labels"


def _inferred(make: Callable[[], LabelAttack], view: PassiveView) -> LabelGuess:
    attack, ids = make(), torch.arange(ROWS)
    with _watched(view, ids):
        attack.begin(view)
        guess = attack.infer(ids)
    found = guess.classes
    assert tuple(found.shape) == (ROWS,), f"`infer` gives classes of shape {tuple(found.shape)}, not {(ROWS,)}"
    whole = found.dtype == torch.int64 and int(found.min()) >= 0 and int(found.max()) < CLASSES
    assert whole, "`infer` must give whole numbers from 0 to the number of classes"
    if guess.score is not None:
        assert tuple(guess.score.shape) == (ROWS,), f"`infer` gives scores of shape {tuple(guess.score.shape)}"
    _check_notes(attack)
    return guess


def _check_columns(make: Callable[[], ColumnAttack]) -> None:
    _check_grants(make, toy_column_view())
    found: list[ColumnGuess | None] = []
    for _ in range(2):
        view, attack = toy_column_view(), make()
        assert attack.about, "`about` must say in one sentence what it does: a report prints it"
        with _watched(view):
            found.append(attack.read(view))
        _check_notes(attack)
    first, second = found
    if first is not None and second is not None:
        check_guesses(first, second)


def _check_blind(make: Callable[[], BlindAttack], toy: ToyBlindTraining) -> None:
    _check_grants(make, toy.view())
    first, second = (_read_blind(make(), toy.view()) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other), "the same view and the same generator give another reading"


def _read_blind(attack: BlindAttack, view: BlindView) -> list[Tensor]:
    """What it reads, as tensors; the view is limited to what the attack declares."""
    assert attack.about, "`about` must say in one sentence who does what: a report prints it"
    count = len(view.positions) if attack.surface == "training rows" else len(view.labels)
    if attack.surface == "training rows":
        few = {name: getattr(view, name)[:count] for name in ("labels", "own", "own_moments", "features", "small")}
        view = view.replaced(**few)
    with _watched(view):
        reading = attack.read(view)
    _check_notes(attack)
    return _blind_values(attack, reading, view, count)


def _blind_values(attack: BlindAttack, reading: BlindReading, view: BlindView, count: int) -> list[Tensor]:
    if attack.surface == "membership":
        assert reading.membership, "an attack on membership must give a statistic"
        values = list(reading.membership.values())
        assert all(tuple(value.shape) == (count,) for value in values), "a statistic has one number a target"
        assert all(bool(value.isfinite().all()) for value in values), "a statistic is not finite"
        return values
    if attack.surface == "labels":
        assert reading.labels is not None, "an attack on labels must give classes"
        found = reading.labels.classes
        assert tuple(found.shape) == (count,), f"it gives classes of shape {tuple(found.shape)}, not {(count,)}"
        assert 0 <= int(found.min()) <= int(found.max()) < view.classes, "it gives a class that does not exist"
        return [found]
    assert reading.rows is not None, "an attack on rows must give rows"
    wanted = (count, *view.row_shape)
    assert tuple(reading.rows.shape) == wanted, f"it gives rows of shape {tuple(reading.rows.shape)}, not {wanted}"
    assert reading.rows.isfinite().all(), "it gives rows that are not finite"
    if view.pixels:
        assert bool((reading.rows >= 0).all() & (reading.rows <= 1).all()), "it gives pixels outside [0, 1]"
    return [reading.rows]
