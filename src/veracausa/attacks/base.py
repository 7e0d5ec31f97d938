"""The contract of every attack: what it declares, what it is granted, and what it may look at.

An attack declares what it needs (`Attack.needs`) and is handed a view. A field of a view that belongs to a grant exists
only where the view has that grant: reading another one is an error that names the grant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Flag, auto
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn

from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.registry import Options

if TYPE_CHECKING:
    from veracausa.attacks.transcript import Transcript
    from veracausa.defenses.base import Defense


class Grant(Flag):
    """What an attacker is given beyond what it receives; declared by the attack, checked, printed."""

    NONE = 0
    ARCHITECTURE = auto()
    LABELS = auto()
    AUXILIARY = auto()
    LABELLED_AUXILIARY = auto()
    DEFENSE = auto()
    WEIGHTS = auto()
    QUERIES = auto()
    TAMPER = auto()
    KNOWN_ROWS = auto()
    """A few of the victim's rows: of its training rows, or of a discovery's source."""
    FIRST_WEIGHTS = auto()
    """Of a discovery: the weights that the source drew before the first step."""
    VALIDATOR = auto()
    """Of a discovery: what the validator was sent."""
    OTHER_PARTIES = auto()
    """Of a discovery: what other parties opened, who are in league with the attacker."""
    SECOND_HEAD = auto()
    """Of blind training: answers under another head for the same rows, which takes a second consent."""
    SECOND_RELEASE = auto()
    """Of blind training: the moments of the same rows but one, which takes a second consent."""

    @property
    def words(self) -> tuple[str, ...]:
        """The grants by name, for a report."""
        return tuple((grant.name or "").lower().replace("_", " ") for grant in self)


class NotGranted(InputError, AttributeError):
    """An attack read a field that its view does not have; `hasattr` is how an attack asks beforehand."""


_ABSENT: Any = object()


def granted(*ways: Grant, optional: bool = False) -> Any:
    """A field of a view that exists with each of these grants; `optional`: where there is something to give."""
    return field(default=_ABSENT, metadata={"ways": ways, "optional": optional})


def recorded(what: str) -> Any:
    """A field of a view that exists where somebody kept it; `what` says what was to be kept."""
    return field(default=_ABSENT, metadata={"recorded": what})


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class View:
    """All that an attack may look at; it never holds a party. A field without its grant does not exist."""

    grants: Grant

    def __post_init__(self) -> None:
        for each in fields(self):
            ways, optional = each.metadata.get("ways"), "recorded" in each.metadata
            refused = ways is not None and not any(way in self.grants for way in ways)
            if refused or ((ways is not None or optional) and vars(self)[each.name] is None):
                object.__setattr__(self, each.name, _ABSENT)

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if value is _ABSENT:
            raise NotGranted(self._why_not(name))
        return value

    def _why_not(self, name: str) -> str:
        (about,) = (each.metadata for each in fields(self) if each.name == name)
        if "recorded" in about:
            return f"the attack reads `{name}`, and {about['recorded']} was not recorded"
        ways = " or ".join(" and ".join(way.words) for way in about["ways"])
        if any(way in self.grants for way in about["ways"]):
            return f"the attack reads `{name}`; its view grants {ways} and was made without it"
        return f"the attack reads `{name}` without the grant for it: {ways}"

    def check(self, needs: Grant) -> None:
        """Refuse a view that was made without something that it grants, as far as somebody needs it."""
        for each in fields(self):
            ways = each.metadata.get("ways", ())
            wanted = any(way in needs for way in ways) and not each.metadata["optional"]
            if wanted and vars(self)[each.name] is _ABSENT:
                raise NotGranted(self._why_not(each.name))

    def replaced(self, **changes: Any) -> Self:
        """The same view with some fields changed."""
        return type(self)(**{**vars(self), **changes})

    def limited_to(self, grants: Grant) -> Self:
        """The same view with no more than these grants."""
        return self.replaced(grants=self.grants & grants)


V = TypeVar("V", bound=View)


class Attack(Generic[V]):
    """The base of all attacks: what a class declares of itself, and how it begins.

    Declarations are class attributes; nothing else in the program knows an attack by its name.
    """

    kind: ClassVar[str] = "attack"
    """What an error message calls it."""
    title: ClassVar[str] = ""
    """Its name in a table; empty: the registered name."""
    needs: ClassVar[Grant] = Grant.NONE
    uses: ClassVar[Grant] = Grant.NONE
    """What it makes use of where it is granted, and can do without."""
    quick: ClassVar[Mapping[str, Any]] = {}
    """Settings of a weaker attacker, for a first look at small data (`--quick`). Each class declares its own."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def begin(self, view: V) -> None:
        """Get ready; refuses a view that lacks what this attack needs. Subclasses extend it."""
        if missing := self.needs & ~view.grants:
            words = ", ".join(missing.words)
            raise InputError(f"{self.kind} {self.options.name!r} needs {words}, which it is not granted")
        view.check(self.needs)

    def notes(self) -> Mapping[str, float]:
        """A few numbers that say how the attack itself went, for the record."""
        return {}


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class AdversaryView(View):
    """What the active party, or somebody in its place, may look at when it wants a passive party's rows."""

    victim: str
    payload_shape: tuple[int, ...]
    row_shape: tuple[int, ...]
    pixels: bool
    """Whether the rows are pictures in [0, 1]; else standardised columns of a table."""
    rng: torch.Generator
    device: torch.device
    auxiliary: Tensor = granted(Grant.AUXILIARY, Grant.LABELLED_AUXILIARY)
    """Rows like the victim's, none of them a victim's."""
    auxiliary_labels: Tensor = granted(Grant.LABELLED_AUXILIARY)
    """Their classes or targets."""
    labels: Tensor = granted(Grant.LABELS)
    """Classes or targets by position in the training split."""
    classes: int = 0
    """How many classes there are; 0 in a regression."""
    bottom: Callable[[torch.Generator], nn.Module] = granted(Grant.ARCHITECTURE)
    """A fresh bottom model of the victim's architecture, on the device."""
    defense: Callable[[nn.Module, torch.optim.Optimizer, torch.Generator], Defense] = granted(Grant.DEFENSE)
    """The victim's defense with its settings, bound to a model of the attacker's own."""
    stacked: int = 1
    """How many payloads stand side by side in one input (`FeatureAttack.beside`)."""
    from_first: bool = False
    """Whether those of the first exchange are among them."""
    epochs: int = 1
    """How often each training row has crossed when the attack reads; the agreed job says it."""
    batch_size: int = 0
    """How many rows cross together in training, as agreed; 0 where it is not known."""
    transmit: Callable[[Tensor], Tensor] = granted(Grant.WEIGHTS)
    """The victim's map from rows to payloads, differentiable, without its noise. Where a payload depends on those it is
    sent with, the map of one batch of the victim's own."""
    transcript: Transcript = recorded("what crossed while the victim trained")
    partners: Mapping[str, Transcript] = recorded("what crossed from the other passive parties")
    known_ids: Tensor = granted(Grant.KNOWN_ROWS)
    """Positions in the training split of rows that the attacker knows, none of them a victim's."""
    known: Tensor = granted(Grant.KNOWN_ROWS)
    """These rows."""
    oracle: Callable[[], Tensor] = granted(Grant.WEIGHTS | Grant.DEFENSE)
    """The payloads the victim's own trained model and defense give for the auxiliary rows, drawn anew at each call."""
    fresh: bool = False
    """Whether the defense is random, so that two payloads of one row differ."""
    redrawn: bool = False
    """Whether two calls of `oracle` differ: for noise that belongs to a row, too, since nobody knows the victims'."""
    progress: ProgressCallback = field(default=lambda share: None)
    oracle_at: Mapping[str, Callable[[], Tensor]] = granted(Grant.WEIGHTS | Grant.DEFENSE, optional=True)
    """As `oracle`, at snapshots of the training, by their names in the transcript, in order."""


@dataclass(frozen=True)
class Exchange:
    """What the active party knows of one training exchange with the victim."""

    step: int
    ids: Tensor
    payload: Tensor
    """The victim's, detached."""
    labels: Tensor | None
    others: Mapping[str, Tensor] = field(default_factory=dict)
    """The other passive parties' payloads for the same ids."""


class Beside(NamedTuple):
    """What stands beside a victim's last payload of a row, in one input of the attack."""

    parties: bool = False
    """What all other passive parties send for the same people."""
    moments: bool = False
    """What was sent at every snapshot of the training that was kept."""


class FeatureAttack(Attack[AdversaryView]):
    """The base of attacks on rows: it reads what a passive party holds out of the payloads it sends.

    One attack object reads one victim's payloads.
    """

    live: ClassVar[bool] = False
    """Whether it must be there while the victim trains; else it comes afterwards, to a run or a transcript."""
    uses_transcript: ClassVar[bool] = False
    """Whether it reads what crossed in the whole training: an audit then records a transcript."""
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    """Whose rows it reads: of people who took part in the training, and of others."""
    snapshots: ClassVar[bool] = False
    """Whether it is also run on the models that were kept at snapshots of the training."""
    by_default: ClassVar[Literal["", "always", "fast"]] = ""
    """Whether an audit runs it unasked: always, or where it takes minutes at most (a GPU, or `--quick`)."""
    until_converged: ClassVar[str] = ""
    """The setting that is doubled until the leakage hardly moves (`--double`); empty: the attack has none."""

    @property
    def most_victims(self) -> int | None:
        """How many rows of a split it is given; None: as many as the audit has."""
        return None

    @property
    def beside(self) -> Beside:
        """What it is given beside the victim's last payload of a row: as more channels, or more numbers."""
        return Beside()

    def draws(self, seen: int) -> int:
        """How many payloads of an id it averages, where the defense is random and it saw so many."""
        return seen

    def told(self, labels: Tensor | None) -> None:
        """The labels of the rows that are to be reconstructed next, where the attacker knows them. With LABELS."""

    def reconstruct(self, payload: Tensor, ids: Tensor) -> Tensor:
        """The victim's rows behind these payloads, in the rows' own range.

        `ids` are positions in the training split; −1 stands for somebody who took no part in the training.
        """
        raise NotImplementedError


class Predict(Protocol):
    """The top model as it stands at the call."""

    def __call__(self, payloads: Mapping[str, Tensor], numbers: Tensor | None = None) -> Tensor:
        """Its outputs for every passive party's payloads, in eval mode; differentiable in them, itself untouched.

        `numbers` says which auxiliary rows they are of, which matters where the active party holds features itself.
        """


@dataclass(frozen=True)
class AttackersPart:
    """What an active party that holds features has beside a victim's rows: its own part of the same people's."""

    auxiliary: Tensor
    """Of the view's auxiliary rows."""
    rows: Callable[[Tensor], Tensor]
    """Of training rows, by position."""
    bottom: Callable[[torch.Generator], nn.Module]
    """A fresh model of the victim's kind for such rows."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LiveView(AdversaryView):
    """The view of an active party that trains."""

    predict: Predict
    victim_rate: float | None = None
    """The learning rate of the victim's Adam, which the agreed job says; None where its optimiser is another."""
    others: Mapping[str, Tensor] = field(default_factory=dict)
    """Auxiliary rows of the other passive parties, of the same people as `auxiliary`."""
    other_bottoms: Mapping[str, Callable[[torch.Generator], nn.Module]] = field(default_factory=dict)
    """Fresh bottom models of their architecture."""
    own: AttackersPart | None = None
    """Where the active party holds features itself."""


class LiveAttack(FeatureAttack):
    """An attack that watches a training. `begin` only builds; what it learns must come back from `state`.

    In every exchange comes first `tamper`, with the grant for it, then `observe`.
    """

    live: ClassVar[bool] = True
    reads_with: ClassVar[Grant] = Grant.NONE
    """What `read_with` needs when the training is over; NONE: the attack reads with what it learnt meanwhile."""
    history: Sequence[Sequence[float]] = ()
    """A few numbers for every epoch, for the record."""
    view: LiveView

    def begin(self, view: AdversaryView) -> None:
        super().begin(view)
        if not isinstance(view, LiveView):
            raise InputError(
                f"attack {self.options.name!r} needs the top model while it trains: run it as a live attack"
            )
        self.view = view

    def pretrain(self) -> None:
        """Long work before the first exchange; the parties have not met yet, so nobody waits."""

    def tamper(self, gradient: Tensor, exchange: Exchange) -> Tensor:
        """The gradient that the victim gets in place of the honest one. With TAMPER."""
        return gradient

    def observe(self, exchange: Exchange) -> None:
        """See one exchange of the training, and learn from it."""

    def conclude(self) -> None:
        """Long work after the last exchange."""

    def read_with(self, view: AdversaryView) -> None:
        """Learn to read, by a view of the run that this attack left behind. With `reads_with`."""

    def state(self) -> dict[str, Any]:
        """What it needs to go on after a resume."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""
