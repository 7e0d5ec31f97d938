"""Which settings a sweep tries, and in which order: everybody's first before anybody's second, equally many each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from veracausa.config import Job
from veracausa.defenses import defenses
from veracausa.errors import InputError
from veracausa.registry import Options


@dataclass(frozen=True)
class Setting:
    """A defense with its options, and the cut it defends."""

    options: Options
    cut: int

    @property
    def defense(self) -> str:
        return self.options.name

    @property
    def values(self) -> dict[str, Any]:
        """The swept settings and their values."""
        return {name: getattr(self.options, name) for name in type(self.options).swept}

    def written(self, with_cut: bool = False) -> str:
        """In words: `epsilon = 2.0, cut 6`."""
        words = [f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}" for name, value in self]
        return ", ".join([*words, *([f"cut {self.cut}"] if with_cut else [])])

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.values.items())

    def job(self, base: Job, seed: int) -> Job:
        """The base job with this defense at every passive party, this cut and this seed; what a trial trains."""
        party = {name: own.model_copy(update={"defense": None}) for name, own in base.party.items()}
        model = base.model.model_copy(update={"cut": self.cut})
        changed = {"defense": self.options, "party": party, "model": model, "seed": seed}
        return base.model_copy(update=changed)


def settings_of(defense: str, base: Job, cuts: Sequence[int]) -> list[Setting]:
    """What there is to try of a defense: its main setting's values, the middle ones first, then its other settings'.

    Where the job has this defense already, the settings that are not swept stay the job's.
    """
    known = defenses.options(defense)
    own = base.defense
    start: dict[str, Any] = own.model_dump(exclude_unset=True) if own.name == defense else {"name": defense}
    trees = [{**start, name: value} for name in known.swept for value in _spread_out(known.sweep.get(name, ()))]
    made = []
    for tree in trees or [start]:
        try:
            options = known.model_validate(tree)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(map(str, problem["loc"]))
            raise InputError(
                f"--defenses {defense}: {where}: {problem['msg'].removeprefix('Value error, ')}; set it in the job, "
                "under a [defense] of this name"
            ) from None
        if options not in made:
            made.append(options)
    return [Setting(options, cut) for options in made for cut in cuts]


def rounds_of(settings: Mapping[str, Sequence[Setting]]) -> list[list[Setting]]:
    """The settings in rounds, one of each defense in a round, and as many rounds for each that has something to tune.

    Fewest decides: a defense with more values than another leaves the last ones untried, since the one that is tried
    more often looks better by that alone. A defense without settings is in as many rounds as there are cuts.
    """
    tuned = [len(own) for own in settings.values() if any(type(setting.options).swept for setting in own)]
    most = min(tuned, default=max((len(own) for own in settings.values()), default=0))
    return [[own[number] for own in settings.values() if number < len(own)] for number in range(most)]


def _spread_out(values: Sequence[Any]) -> list[Any]:
    """The middle first, then the ends, then what is farthest from all before: every beginning covers the range."""
    left = list(range(len(values)))
    if not left:
        return []
    order = [left.pop(len(left) // 2)]
    while left:
        following = max(left, key=lambda number: (min(abs(number - done) for done in order), -number))
        left.remove(following)
        order.append(following)
    return [values[number] for number in order]
