"""What all parties of a discovery from sums agree on before any row is touched."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from veracausa.crypto.moments import MomentAccount, MomentPlan, most_bits
from veracausa.crypto.moments.plan import ROWS_A_COLUMN
from veracausa.crypto.zcdp import zcdp_epsilon, zcdp_rho
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.engines.sums.clipping import curve_unit, usual_clip
from veracausa.discovery.methods.moments.expansion import POWERS, PRODUCTS, functions_for
from veracausa.discovery.methods.moments.resampling import MOST_WEIGHT as MOST_WEIGHT
from veracausa.discovery.methods.moments.settings import SumsSettings
from veracausa.errors import InputError

LIMIT = 64.0
"""Features beyond are moved there, so that all sums fit the field."""
ROWS_A_COLUMN_OPEN = 25
"""Where parties themselves see the sums, a party's own features explain at most 2 % of another's by chance."""
FEWEST_FUNCTIONS = 4
"""Of a number, before its square and its cube are worth a place."""
MOST_UNDER_NOISE = 6
"""Functions of a number: each one more makes all sums noisier."""
MOST_PARTIES = 16


@dataclass(frozen=True)
class SumsPlan:
    """Who holds which columns, how many rows there are, and how they are summed up and searched."""

    settings: SumsSettings
    columns: Mapping[str, tuple[str, ...]]
    """By party, in the order of all columns."""
    rows: int
    seed: int
    """Public: the search and the rows' weights in resamples follow from it."""
    rows_digest: str = ""
    """Names the rows for the account of releases, for instance by a digest of the aligned ids."""
    block_rows: int = 8192

    @cached_property
    def parties(self) -> tuple[str, ...]:
        return tuple(self.columns)

    @property
    def members(self) -> tuple[str, ...]:
        """The parties, and the validator where there is one."""
        return self.parties if self.settings.receiver == "all" else (*self.parties, VALIDATOR)

    @property
    def receiver(self) -> str:
        """Who opens the sums first."""
        return self.parties[0] if self.settings.receiver == "all" else VALIDATOR

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All columns, party by party."""
        return tuple(name for own in self.columns.values() for name in own)

    @property
    def d(self) -> int:
        return len(self.names)

    def own(self, party: str) -> slice:
        """Where a party's columns lie among all."""
        start = 0
        for one, columns in self.columns.items():
            if one == party:
                return slice(start, start + len(columns))
            start += len(columns)
        return slice(0, 0)

    @property
    def releases(self) -> int:
        """How often sums are opened: once, and once more for each resample of the rows."""
        return 1 + (self.settings.bootstrap if self.settings.resampling_between == "rows" else 0)

    @property
    def rows_a_feature(self) -> int:
        """Rows for each feature of two parties. Weighted sums of the same rows are as many equations more."""
        return (self.settings.rows_a_function or self.fewest_rows) * self.releases

    @property
    def fewest_rows(self) -> int:
        """The least that `rows_a_function` may be."""
        return ROWS_A_COLUMN_OPEN if self.settings.receiver == "all" else ROWS_A_COLUMN

    @property
    def together(self) -> int:
        """The largest number of columns that two parties have together."""
        sizes = sorted((len(own) for own in self.columns.values()), reverse=True)
        return sum(sizes[:2])

    @property
    def room(self) -> int:
        """So many features a column may have on average, so that sums do not tell rows."""
        return self.rows // (self.rows_a_feature * self.together)

    @property
    def powers(self) -> bool:
        """Whether squares and cubes of numbers are summed up, too. Where rows are few, curves are worth more, and
        noise on cubes tells directions that are none."""
        if self.settings.epsilon is not None:
            return False
        return self.room >= FEWEST_FUNCTIONS + POWERS or self.settings.allow_small_n

    @property
    def functions(self) -> int:
        """Functions of a number at most. A party takes fewer where its features would be too many."""
        if self.settings.functions is not None:
            return self.settings.functions
        most = max(1, min(functions_for(self.rows, 1, None, 1), self.room - (POWERS if self.powers else 0)))
        if self.epsilon_each is None:
            return most
        return next((count for count in range(min(most, MOST_UNDER_NOISE), 1, -1) if self._quiet(count)), 1)

    def _quiet(self, functions: int) -> bool:
        """Whether noise on the sums of a line and one of so many functions hardly ever looks like an edge.

        By chance a sum of two uncorrelated features has the deviation √n, and BIC asks a coefficient for ln(n) times
        that, squared. Noise of two parties may add a sixth of it: features that are correlated raise it.
        """
        return self._quiet_within(self._clip(functions), functions)

    def _quiet_within(self, clip: float, functions: int) -> bool:
        assert self.epsilon_each is not None
        account = MomentAccount.planned(self.epsilon_each, self.settings.delta, clip, len(self.parties), False)
        deviation = account.deviation * curve_unit(functions)
        return 2 * deviation**2 <= self.rows * math.log(max(self.rows, 2)) / 6

    def _clip(self, functions: int) -> float:
        if self.settings.clip is not None:
            return self.settings.clip
        widest = max(len(own) for own in self.columns.values())
        wide = usual_clip(widest, functions, self.products)
        # Where noise drowns even straight lines, less of it is worth more than rows that are left as they are.
        loud = functions == 1 and not self._quiet_within(wide, 1)
        return usual_clip(widest, functions, self.products, longer=1.0) if loud else wide

    @property
    def clip(self) -> float | None:
        """The largest norm of a party's part of a row; None: the sums are exact."""
        return None if self.settings.epsilon is None else self._clip(self.functions)

    @property
    def products(self) -> bool:
        """Whether a party with rows enough also sums up products of two of its columns. Under noise they must be asked
        for: every feature more makes all sums noisier."""
        return self.settings.epsilon is None if self.settings.products is None else self.settings.products

    def most_features(self, party: str) -> int:
        """Of one party, so that with any other they have rows enough."""
        widest = max(self.room, self.functions + POWERS + 1) if self.settings.allow_small_n else self.room
        return widest * len(self.columns[party])

    @property
    def likely_widths(self) -> dict[str, int]:
        """Features of each party if all its columns are numbers without gaps."""
        each, found = self.functions + POWERS * self.powers, {}
        for party, own in self.columns.items():
            most, width = self.most_features(party), each * len(own)
            multiplied = width + len(PRODUCTS) * math.comb(len(own), 2)
            found[party] = max(1, multiplied if self.products and multiplied <= most else min(width, most))
        return found

    def moments(self, widths: Mapping[str, int]) -> MomentPlan:
        """One release of the sums, once the widths of all are known."""
        settings = self.settings
        limit = LIMIT * (math.sqrt(MOST_WEIGHT) if self.releases > 1 else 1.0)
        every = {party: widths[party] for party in self.parties}
        if settings.receiver == "validator":
            every[VALIDATOR] = 0
        return MomentPlan(
            parties=tuple(every),
            widths=every,
            rows=self.rows,
            receiver=self.receiver,
            encryption=settings.encryption,
            value_bits=min(settings.value_bits, most_bits(self.rows, limit)),
            limit=limit,
            clip=self.clip,
            epsilon=self.epsilon_each,
            delta=settings.delta,
            block_rows=self.block_rows,
            allow_small_n=settings.allow_small_n,
            budget=settings.budget,
            rows_digest=self.rows_digest,
            receiver_noise=settings.receiver == "all",
        )

    def spends(self, moments: MomentPlan) -> MomentAccount | None:
        """What all releases together tell of a row at most; None: the sums are exact."""
        account = moments.account
        if account is None or self.settings.epsilon is None:
            return None
        return replace(account, rho=account.rho * self.releases, epsilon=self.settings.epsilon)

    @property
    def epsilon_each(self) -> float | None:
        """Of each release; all of them together spend the settings' ε."""
        settings = self.settings
        if settings.epsilon is None or self.releases == 1:
            return settings.epsilon
        return zcdp_epsilon(zcdp_rho(settings.epsilon, settings.delta) / self.releases, settings.delta)

    def check(self) -> None:
        """Refuse what can not be summed up, or would tell rows."""
        if len(self.parties) < 2:
            raise InputError("parties: a federation needs two at least; for one, fit without parties")
        if len(self.parties) > MOST_PARTIES:
            raise InputError(
                f"parties: {len(self.parties)} are too many to sum up pair by pair; at most {MOST_PARTIES}"
            )
        if VALIDATOR in self.parties:
            raise InputError(f"parties: {VALIDATOR!r} is the name of the party that opens the sums; choose another")
        for party, own in self.columns.items():
            if not own:
                raise InputError(f"party {party!r} holds no column; leave it out")
        if len(set(self.names)) != self.d:
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise InputError(f"names: {twice!r} is held twice; leave it with one party")
        if self.rows < 1:
            raise InputError("there are no rows; align the parties' ids first")
        asked = self.settings.rows_a_function
        if asked is not None and asked < self.fewest_rows and not self.settings.allow_small_n:
            raise InputError(
                f"rows_a_function = {asked}: with receiver = {self.settings.receiver!r} sums over so few rows tell "
                f"rows; take {self.fewest_rows} at least, or allow_small_n = true"
            )
        if self.room < 1 and not self.settings.allow_small_n:
            least = self.rows_a_feature * self.together
            raise InputError(
                f"{self.rows} rows are so few that sums over them tell rows: two parties have {self.together} columns "
                f"together, and {least} rows are needed; give more rows, fewer columns"
                + (", fewer resamples (bootstrap)" if self.releases > 1 else "")
                + (f", a smaller rows_a_function ({asked})" if (asked or 0) > self.fewest_rows else "")
                + ", or allow_small_n = true"
            )
        epsilon, budget = self.settings.epsilon, self.settings.budget
        if epsilon is not None and budget is not None and budget < epsilon:
            raise InputError(f"epsilon = {epsilon:g} is more than the agreed budget {budget:g}; take a smaller one")
        wanted = self.settings.functions
        if wanted is not None and wanted > self.room and not self.settings.allow_small_n:
            raise InputError(
                f"functions = {wanted}: {self.rows} rows allow {self.room} features of a column, with {self.together} "
                f"columns of two parties together; take at most {self.room}, more rows, or allow_small_n = true"
            )
        # With the fewest features there can be: what else is wrong is said before anybody starts.
        self.moments({party: len(own) for party, own in self.columns.items()}).check()

    def described(self) -> dict[str, Any]:
        """What must be the same for a run to go on."""
        own = {name: getattr(self, name) for name in ("rows", "seed", "rows_digest", "block_rows")}
        return (
            own
            | {"columns": {party: list(names) for party, names in self.columns.items()}}
            | {f"settings.{name}": value for name, value in self.settings.model_dump().items()}
        )

    def digest(self, *more: Any) -> bytes:
        """SHA-256 of everything that is agreed, and of what else must be the same."""
        words = json.dumps(["veracausa sums 1", self.described(), list(self.parties), *more], sort_keys=True)
        return hashlib.sha256(words.encode()).digest()
