"""From a discovery's sums to the views of attackers: the validator, a party in league with it, all parties but one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from veracausa.arrays import Array, Mask
from veracausa.attacks.base import Grant
from veracausa.attacks.columns import ColumnView
from veracausa.attacks.sums import ColumnCurve, ReleasedSums
from veracausa.audit.sums_system import SumsSystem, VictimColumn
from veracausa.crypto.moments import column_support
from veracausa.discovery.methods.moments.expansion import LEAST
from veracausa.discovery.methods.moments.resampling import row_weights
from veracausa.errors import InputError
from veracausa.seeding import derive

TARGETS = 20
"""Rows that are asked for where each costs the attacker a feature or a release."""
ANEW = 5
"""Of them where all functions are made anew for each."""
PARTY, VALIDATOR_ALONE = "a party and the validator", "the validator"
LEFT_OUT = 0.2
"""Of the rows, as people who are not among those summed up, where membership is asked."""
GRANTS = (
    Grant.VALIDATOR
    | Grant.KNOWN_ROWS
    | Grant.AUXILIARY
    | Grant.WEIGHTS
    | Grant.TAMPER
    | Grant.SECOND_RELEASE
    | Grant.OTHER_PARTIES
)


@dataclass(frozen=True)
class SumsSeat:
    """One attacker, what it may look at, and the truth that only the score is told."""

    attackers: tuple[str, ...]
    """Parties; none: the validator alone."""
    victims: tuple[str, ...]
    view: ColumnView
    columns: tuple[VictimColumn, ...]
    """Of all victims, with guesses numbered through."""
    expected: Array
    """(n, guesses): what own columns say with rows of other people; 0 for who has no columns."""
    alone: tuple[float, ...]
    """R² of each number by that."""
    member: Mask | None = None


@dataclass(frozen=True)
class SumsViews:
    """All views of one system, by the situations that attacks name."""

    system: SumsSystem
    seed: int
    known_rows: int
    releases: int
    """Weighted releases beside the first one, where the attacker has some."""

    @cached_property
    def targets(self) -> NDArray[np.int64]:
        rng = np.random.default_rng(derive(self.seed, "sums audit", "targets"))
        return np.sort(rng.choice(self.system.rows, min(TARGETS, self.system.rows // 2), replace=False))

    @property
    def makers(self) -> dict[str, Callable[[], list[SumsSeat]]]:
        """The seats of each situation."""
        return {
            PARTY: self.parties,
            VALIDATOR_ALONE: lambda: [self.validator()],
            "some rows known": lambda: [self.validator()],
            "all rows known but one": lambda: [self.knowing_all_but(self.validator(), 1)],
            "a row less": lambda: [self.validator()],
            "a row less, functions made anew": lambda: [self.made_anew(self.validator())],
            "members and others": lambda: [self.membership(self.validator())],
            "checked at home": self.parties,
            "unchecked": lambda: [self.unchecked(seat) for seat in self.parties()],
        }

    def parties(self) -> list[SumsSeat]:
        """Every party, in league with the validator, against each other one."""
        names = self.system.plan.parties
        return [self.party((one,), other) for one in names for other in names if one != other]

    def all_but_one(self) -> list[SumsSeat]:
        names = self.system.plan.parties
        return [self.party(tuple(one for one in names if one != victim), victim) for victim in names]

    def party(self, attackers: tuple[str, ...], victim: str) -> SumsSeat:
        """Attackers know their own functions exactly, and their own part of the noise."""
        system, source = self.system, self.system.parties[victim]
        own = np.concatenate([system.parties[party].features for party in attackers], axis=1)
        rng = self._rng(*attackers, victim)
        expected = system.expected(attackers, victim)
        view = ColumnView(
            grants=GRANTS,
            columns=len(source.numbers),
            own=own,
            rng=rng,
            own_features=own,
            numbers=source.numbers,
            positive=_squares(source.columns),
            sums=self._released(own, source.features, rng),
            weighted=lambda: self._weighted(attackers, victim, rng),
            cross_sums=self._cross_sums(source.features, rng, LEAST),
            smallest=LEAST,
            targets=self.targets,
            curves=tuple(column.curve for column in source.columns),
        )
        if system.others is not None:
            view = view.replaced(expected=expected)
        return SumsSeat(attackers, (victim,), view, source.columns, expected, system.alone(attackers, victim))

    def unchecked(self, seat: SumsSeat) -> SumsSeat:
        """The same where nobody looks at what is summed up."""
        source = self.system.parties[seat.victims[0]].features
        sums = self._cross_sums(source, self._rng("unchecked", *seat.attackers), 1)
        return replace(seat, view=seat.view.replaced(cross_sums=sums, smallest=1))

    def validator(self) -> SumsSeat:
        """The validator has no rows and no ids: the sums, and what it is granted."""
        system = self.system
        columns, starts, guessed = [], 0, 0
        for own in system.parties.values():
            columns += [_moved(column, starts, guessed) for column in own.columns]
            starts, guessed = starts + own.features.shape[1], guessed + len(own.numbers)
        every, rng = system.everybody, self._rng("validator")
        known = np.sort(rng.choice(system.rows, min(self.known_rows, system.rows - 1), replace=False))
        numbers = np.concatenate([column.curve.at[: len(column.curve.guesses)] for column in columns])
        view = ColumnView(
            grants=GRANTS,
            columns=guessed,
            own=np.zeros((system.rows, 0)),
            rng=rng,
            own_features=np.zeros((system.rows, 0)),
            numbers=numbers,
            positive=_squares(tuple(columns)),
            sums=self._alone(every, rng),
            second=lambda target: self._row_less(int(self.targets[target]), rng),
            targets=self.targets,
            curves=tuple(column.curve for column in columns),
            known=(known, every[known][:, numbers]),
            known_features=every[known],
        )
        nothing = np.zeros((system.rows, guessed))
        alone = tuple(0.0 for column in columns if not column.nominal)
        return SumsSeat((), system.plan.parties, view, tuple(columns), nothing, alone)

    def knowing_all_but(self, seat: SumsSeat, left: int) -> SumsSeat:
        """The validator knows all rows but so many."""
        every = self.system.everybody
        known = np.sort(self._rng("all but", left).permutation(self.system.rows)[left:])
        values = (known, every[known][:, seat.view.numbers])
        return replace(seat, view=seat.view.replaced(known=values, known_features=every[known]))

    def made_anew(self, seat: SumsSeat) -> SumsSeat:
        """Two releases between which every party makes its functions anew."""
        targets, rng = self.targets[:ANEW], self._rng("made anew")

        def second(target: int) -> tuple[ReleasedSums, ReleasedSums]:
            other = self.system.without(int(targets[target])).everybody
            if other.shape[1] != self.system.everybody.shape[1]:
                raise InputError("without this row a party makes fewer functions")
            return seat.view.sums, self._alone(other, rng)

        return replace(seat, view=seat.view.replaced(second=second, targets=targets))

    def membership(self, seat: SumsSeat) -> SumsSeat:
        """Sums of four fifths of the rows; of as many of them as of the others it is asked whether they are inside."""
        every, rng = self.system.everybody, self._rng("membership")
        order = rng.permutation(self.system.rows)
        count = max(2, int(LEFT_OUT * self.system.rows) // 2 * 2)
        outside, inside = order[:count], order[count:]
        member = np.arange(2 * count) // 2 % 2 == 0
        people = np.zeros((2 * count, every.shape[1]))
        people[member], people[~member] = every[inside[:count]], every[outside]
        sums = self._alone(every[inside], rng)
        return replace(seat, view=seat.view.replaced(people=people, sums=sums), member=member)

    # ---- what is released --------------------------------------------------------------------------------------------

    def _rng(self, *words: str | int) -> np.random.Generator:
        return np.random.default_rng(derive(self.seed, "sums audit", *words))

    def _released(self, own: Array, source: Array, rng: np.random.Generator) -> ReleasedSums:
        """Sums of the attackers' and the source's functions. Of the noise, the source's own is left."""
        whole = np.concatenate([own, source], axis=1)
        gram, noise, mine = whole.T @ whole, self.system.noise, own.shape[1]
        if noise:
            drawn = _symmetric(noise * rng.standard_normal(gram.shape))
            drawn[:mine, :mine] = 0
            gram = gram + drawn
        places = np.arange(len(gram))
        return ReleasedSums(gram, places[:mine], places[mine:], len(whole), noise)

    def _alone(self, every: Array, rng: np.random.Generator) -> ReleasedSums:
        """Sums of all functions as the validator has them, with the noise of both parties of a pair."""
        gram, noise = every.T @ every, self.system.noise
        if noise:
            owner = np.repeat(np.arange(len(self.system.widths)), list(self.system.widths.values()))
            both = np.where(owner[:, None] == owner, 1.0, 2.0**0.5)
            gram = gram + _symmetric(noise * both * rng.standard_normal(gram.shape))
        places = np.arange(len(gram))
        return ReleasedSums(gram, places[:0], places, len(every), noise * 2.0**0.5)

    def _row_less(self, row: int, rng: np.random.Generator) -> tuple[ReleasedSums, ReleasedSums]:
        """Two releases that differ by a row, by the same functions of all others."""
        every = self.system.everybody
        return self._alone(every, rng), self._alone(np.delete(every, row, axis=0), rng)

    def _weighted(self, attackers: tuple[str, ...], victim: str, rng: np.random.Generator) -> tuple[ReleasedSums, ...]:
        system, found = self.system, []
        for number in range(1, self.releases + 1):
            weights = row_weights(system.rows, system.plan.seed, number)
            roots = np.sqrt(weights)
            own = np.concatenate([system.weighted(party, roots) for party in attackers], axis=1)
            found.append(replace(self._released(own, system.weighted(victim, roots), rng), weights=weights))
        return tuple(found)

    def _cross_sums(self, source: Array, rng: np.random.Generator, least: int) -> Callable[[Array], Array]:
        noise = self.system.noise

        def sums(features: Array) -> Array:
            if column_support([features], least).thin(least):
                raise InputError(f"a feature tells fewer than {least} rows from the others")
            found = features.T @ source
            return np.asarray(found + noise * rng.standard_normal(found.shape))

        return sums


def _symmetric(noise: Array) -> Array:
    upper = np.triu(noise)
    return upper + np.triu(upper, 1).T


def _squares(columns: tuple[VictimColumn, ...]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, dtype=np.int64), *(column.squares for column in columns)])


def _moved(column: VictimColumn, functions: int, guesses: int) -> VictimColumn:
    """The same column among those of all parties."""
    curve: ColumnCurve = replace(column.curve, at=column.curve.at + functions, guesses=column.curve.guesses + guesses)
    return replace(column, curve=curve, squares=column.squares + functions)
