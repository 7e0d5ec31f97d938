"""What a defense may do beyond its contract. Callers ask `isinstance(defense, Prepares)`.

A protocol of one method needs no more than that method. A protocol of several has defaults: inherit it beside `Defense`
and override what you need, as in `class MyDefense(Defense, Prepares)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Generator, Tensor, nn

from veracausa.events import ProgressCallback

if TYPE_CHECKING:
    from veracausa.data.vertical import Part
    from veracausa.defenses.risk_map import Power, Transmit


def no_progress(share: float) -> None:
    """The progress callback that nobody listens to."""


@runtime_checkable
class Scheduled(Protocol):
    """Its settings depend on how often a row is sent."""

    def on_schedule(self, exchanges: int) -> None:
        """Called once, first, with the number of times each training row will be sent. Not called outside a job."""


@runtime_checkable
class HasLayers(Protocol):
    """It adds layers of its own behind the bottom model."""

    def layers(self, shape: tuple[int, ...]) -> nn.Module | None:
        """Layers for a bottom whose output for one row has this shape; None for none.

        Their weights come from PyTorch's default generator, which the party sets to its own meanwhile. The party makes
        them the last module of its bottom: `bind`, the optimiser, checkpoints and attackers' copies of the architecture
        get the bottom with them. Keep no reference to them: the object that is bound may be another than this one.
        """


@runtime_checkable
class Prepares(Protocol):
    """It works on the party's own training rows once, before the first exchange."""

    def prepare(self, data: Part, progress: ProgressCallback = no_progress) -> None:
        """Do that work, and report the share that is done."""

    def prepared(self) -> dict[str, Any]:
        """What `prepare` made. It never changes afterwards: a run keeps it once, beside the checkpoints."""
        return {}

    def load_prepared(self, kept: Mapping[str, Any], data: Part | None = None) -> None:
        """Take over what `prepared` returned, in place of `prepare`. Without `data` nothing will be trained again."""

    def quality_checks(self) -> dict[str, float | bool | str]:
        """How good what `prepare` made is, for the report. A flag that is true warns of what went wrong."""
        return {}


@runtime_checkable
class Penalizes(Protocol):
    """It adds a loss of its own to the party's training."""

    def penalty(self, r: Tensor, x: Tensor) -> Tensor | None:
        """The loss to add to what the partners' gradient asks for; None for none."""


@runtime_checkable
class Stochastic(Protocol):
    """Two payloads of one row may differ: it adds noise, or draws a mask at random."""

    @property
    def is_stochastic(self) -> bool:
        """Whether two training exchanges send different payloads for one row."""
        return True

    def resampling(self, rng: Generator) -> AbstractContextManager[None]:
        """Inside the block `infer` draws from `rng`, anew at each call, noise that belongs to a row included.

        An audit uses it for what an attacker saw in training, where the defense `is_stochastic`, and for rows that an
        attacker learns from. Outside the block `infer` gives a row the same payload every time.
        """
        raise NotImplementedError

    def distinct_payloads(self, exchanges: int) -> int:
        """How many different payloads so many training exchanges show of one row."""
        return exchanges

    def noise_power(self, r: Tensor, x: Tensor) -> Power | None:
        """E[(uᵀε)²] of the noise ε on payloads `r` of rows `x`, as a function of vectors u; None without noise.

        `veracausa.defenses.risk_map.independent_noise` gives it for noise that is independent in every entry.
        """
        return None


@runtime_checkable
class BatchDependent(Protocol):
    """What it sends for a row depends on the rows that are sent with it."""

    def frozen_map(self, x: Tensor, ids: Tensor) -> Transmit:
        """`deterministic_payload` as a map of any rows and ids, held as it is while the rows `x` are sent together."""


@runtime_checkable
class Learns(Protocol):
    """Exchanges may teach it what changes payloads, as they teach a pruner."""

    @property
    def learns(self) -> bool:
        """Whether they do with these settings. Whoever runs the defense elsewhere then has to repeat the exchanges."""


@runtime_checkable
class Advances(Protocol):
    """Its schedule decides what is sent."""

    def advance_to(self, epochs: int, batch: int) -> None:
        """Stand where a party stands after so many epochs in batches of this size.

        For an attacker's shadow: it runs this defense on a model of its own without having trained it.
        """


@runtime_checkable
class Diagnoses(Protocol):
    """It can say how it does."""

    def diagnose(self, x: Tensor, ids: Tensor) -> dict[str, float]:
        """A few numbers on these training rows. It changes no state."""


PROTOCOLS = (Scheduled, HasLayers, Prepares, Penalizes, Stochastic, BatchDependent, Learns, Advances, Diagnoses)
RENAMED = {
    "plan": "on_schedule",
    "held": "frozen_map",
    "white_box": "frozen_map",
    "transmitted": "deterministic_payload",
    "redrawing": "resampling",
    "observations": "distinct_payloads",
    "random": "is_stochastic",
    "gates": "quality_checks",
    "stand_at": "advance_to",
}
"""Methods of the earlier contract, and what they are called now."""


def members(protocol: type) -> list[str]:
    """The methods of a protocol."""
    return [name for name in vars(protocol) if not name.startswith("_")]


def contract_fault(defense: type) -> str:
    """Why methods of this class would never be called, in a sentence; empty where all is well."""
    for old, new in RENAMED.items():
        if hasattr(defense, old):
            return f"{defense.__name__} has {old!r}, which is called {new!r} now: rename it"
    if hasattr(defense, "noise_std") and not hasattr(defense, "noise_power"):
        return f"{defense.__name__} states its noise by 'noise_std': state it by 'noise_power' of Stochastic"
    for protocol in PROTOCOLS:
        lacking = [name for name in members(protocol) if not hasattr(defense, name)]
        if lacking and len(lacking) < len(members(protocol)):
            given = next(name for name in members(protocol) if name not in lacking)
            return (
                f"{defense.__name__} has {given!r} and lacks {', '.join(map(repr, lacking))}: inherit "
                f"{protocol.__name__} of veracausa.defenses.protocols beside Defense"
            )
    return ""


def is_stochastic(defense: object) -> bool:
    """Whether two training exchanges send different payloads for one row."""
    return isinstance(defense, Stochastic) and defense.is_stochastic


def resampling(defense: object, rng: Generator) -> AbstractContextManager[None]:
    """The block in which the defense's `infer` draws from `rng`, where it draws at all."""
    return defense.resampling(rng) if isinstance(defense, Stochastic) else nullcontext()
