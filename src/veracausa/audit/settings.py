"""What may be chosen about an audit: which attacks run, with which settings, on whose rows, in which cases."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from veracausa.attacks import attacks
from veracausa.attacks.base import Grant
from veracausa.config import Job
from veracausa.errors import InputError, wrong_value
from veracausa.registry import Options, Registry, did_you_mean
from veracausa.written_settings import parse_setting

if TYPE_CHECKING:
    from veracausa.discovery.methods.vfedcd.settings import Settings

SNAPSHOTS = (0.0, 0.1, 0.5)
"""The first exchange, a tenth and half of the training; the end is attacked anyway."""
GRANTED = Grant.ARCHITECTURE | Grant.LABELS | Grant.AUXILIARY | Grant.LABELLED_AUXILIARY | Grant.DEFENSE | Grant.WEIGHTS
GRANTED |= Grant.KNOWN_ROWS
"""What can be granted after the fact, by a run's folder; queries and tampering take a training of their own."""
RENAMED = {"double": "until_converged", "twin": "baseline"}
"""Settings by the names that earlier versions gave them."""


@dataclass(frozen=True)
class AuditSettings:
    """How the passive parties of a trained model are attacked."""

    attacks: Sequence[str] = ("inverse",)
    overrides: Sequence[str] = ()
    """Settings of attacks, as `inverse.epochs=20`."""
    auxiliary: int = 4000
    """Rows that the attacker learns from: of the test split, at most half of it."""
    victims: int = 2000
    """Rows to reconstruct: of the training split, and as many of the rest of the test split."""
    parties: Sequence[str] | None = None
    """Whose payloads; None: every passive party's."""
    until_converged: bool = False
    """Train an attack again with twice the epochs, until that moves the leakage by less than two points."""
    quick: bool = False
    """Weaker attackers, for a first look at small data."""
    labels: bool = True
    """Also ask what passive parties learn of the labels, where the run kept the gradients that it returned."""
    known: int = 500
    """Training rows that an attacker knows beforehand, where an attack is granted some; none of them is a victim."""
    from_training: bool = False
    """Whether auxiliary rows that the test split lacks come from training rows that are no victims."""
    classify: bool = False
    """Whether a classifier of the auditor's own also says how often it sees the right class in what was read."""

    def options(self) -> dict[str, Options]:
        """The settings of each attack, checked: nothing is trained for an attack that cannot run."""
        if self.auxiliary < 4 or self.victims < 1 or self.known < 4:
            raise InputError("an audit needs at least 4 auxiliary rows, 4 known rows and 1 victim")
        quick = quick_overrides(self.attacks) if self.quick else ()
        found = attack_options(self.attacks, [*quick, *self.overrides])
        check_grants(found)
        return found

    def parties_of(self, job: Job, here: Sequence[str] | None = None) -> list[str]:
        """The passive parties to attack: the chosen ones, else those that are `here`, else all."""
        passive = list(job.parties.passive)
        for name in self.parties or ():
            if name not in passive:
                raise InputError(f"{name!r} is no passive party of this run{did_you_mean(name, passive)}")
        return list(self.parties or here or passive)


def attack_options(
    names: Sequence[str], overrides: Sequence[str] = (), registry: Registry[Any] = attacks
) -> dict[str, Options]:
    """The settings of each attack, `NAME.SETTING=VALUE` laid over its defaults; a typo is refused."""
    if not names:
        raise InputError(f"name at least one attack (there are: {', '.join(registry.names())})")
    chosen: dict[str, dict[str, Any]] = {registry.canonical(name): {} for name in names}
    for override in overrides:
        (attack, *path), value = parse_setting(override, "ATTACK.SETTING=VALUE")
        setting = ".".join(path)
        if not setting:
            raise InputError(f"--set {override}: write it as ATTACK.SETTING=VALUE")
        if attack in Job.model_fields and attack not in registry.names():
            raise InputError(
                f"--set {override}: a finished run keeps its job as it is; audit the job file instead, or name a "
                f"setting of an attack, as {next(iter(chosen))}.SETTING=VALUE"
            )
        if attack not in chosen:
            raise InputError(f"--set {override}: attack {attack!r} is not run{did_you_mean(attack, chosen)}")
        known = set(registry.options(attack).model_fields) - {"name"}
        if setting not in known:
            raise InputError(f"--set {override}: no such setting{did_you_mean(setting, known)}")
        chosen[attack][setting] = value
    return {name: checked_options(name, settings, registry) for name, settings in chosen.items()}


def checked_options(name: str, settings: Mapping[str, Any], registry: Registry[Any] = attacks) -> Options:
    """One attack's settings, checked."""
    try:
        return registry.options(name).model_validate({"name": name, **settings})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, (name, *problem["loc"])))
        raise InputError(f"--set {where}={settings.get(str(problem['loc'][0]))}: {wrong_value(problem)}") from None


def check_grants(options: Mapping[str, Options]) -> None:
    """Refuse an attack that an audit cannot give what it needs, before anything is attacked or trained."""
    for name in options:
        attack = attacks.get(name)
        granted = GRANTED | Grant.TAMPER if attack.live else GRANTED
        if missing := attack.needs & ~granted:
            raise InputError(f"attack {name!r} needs {', '.join(missing.words)}, which an audit cannot give it")


def quick_overrides(names: Sequence[str]) -> tuple[str, ...]:
    """The quick settings that these attacks declare; what a user sets comes after them and wins."""
    return tuple(
        f"{name}.{key}={json.dumps(value)}" for name in names for key, value in attacks.get(name).quick.items()
    )


def default_attacks(fast: bool, overrides: Sequence[str] = ()) -> list[str]:
    """The attacks that run by default, `fast`: those too that take long elsewhere; and each that a setting is for."""
    found = {name: attacks.get(name).by_default for name in attacks.names()}
    names = [name for name, when in found.items() if when == "always" or (fast and when == "fast")]
    return list(dict.fromkeys([*names, *(override.partition(".")[0].strip() for override in overrides)]))


AS_RUN = "as run"
STRONG = "strong mode"


class DiscoveryAuditSettings(Options):
    """What may be chosen about an audit of a discovery."""

    name: str = "audit"
    known_rows: int = Field(15, ge=2)
    """Rows of the others that attackers know where an attack is granted some."""
    cases: tuple[str, ...] = ()
    """By name; none: all that make sense for the job."""
    row_noise: tuple[float, ...] = (0.5, 2.0)
    strong_epochs: int = Field(2, ge=1)
    """Of the search and of the refit in the strong mode: what it opens is the same in every epoch, and it is slow."""
    releases: int = Field(20, ge=1)
    """Of a discovery from sums: resamples of which an attacker has the sums, where it has any."""
    seed: int = 0


@dataclass(frozen=True)
class AuditCase:
    """One training of the job with some settings changed, and why."""

    name: str
    says: str
    changes: Mapping[str, Any] = field(default_factory=dict)


def cases_of(
    settings: Settings, given: Mapping[str, Any], sizes: Sequence[int], options: DiscoveryAuditSettings
) -> list[AuditCase]:
    """The cases for a job with these settings; `sizes` are the parties' numbers of attributes."""
    from veracausa.discovery.privacy.countermeasures import widest

    found = [AuditCase(AS_RUN, "the job as it is")]
    if len(sizes) > 2:
        found.append(
            AuditCase(
                "each part opened", "a target opens each source's part, not their sum", {"reveal_per_source": True}
            )
            if not settings.reveal_per_source
            else AuditCase(
                "only sums opened", "a target opens the sum of all sources' parts", {"reveal_per_source": False}
            )
        )
    if given.get("validator", "M2") == "M2":
        found.append(AuditCase("validator M1", "the validator is sent all weights", {"validator": "M1"}))
    else:
        found.append(AuditCase("validator M2", "the validator is sent norms only", {"validator": "M2"}))
    if settings.threshold == "held_out_graphs":
        found.append(AuditCase("opened once", "rows kept apart are opened under one graph", {"threshold": "held_out"}))
    elif settings.held_out:
        says = "rows kept apart are opened under every candidate graph"
        found.append(AuditCase("every graph", says, {"threshold": "held_out_graphs"}))
    narrow = min(widest(size, sum(sizes) - size) for size in sizes)
    if narrow >= 1 and settings.bottleneck is None:
        numbers = min(narrow, settings.width)
        says = f"numbers opened of a target attribute and row: {numbers}"
        found.append(AuditCase("bottleneck", says, {"bottleneck": numbers}))
    if not settings.row_noise:
        for deviation in options.row_noise:
            says = f"noise of deviation {deviation:g} on every number that is opened"
            found.append(AuditCase(f"row noise {deviation:g}", says, {"row_noise": deviation}))
    if not settings.row_noise and settings.bottleneck is None and settings.sparsity == "group_lasso":
        found.append(
            AuditCase(STRONG, "everything stays on shares; of a batch one sum an attribute is opened to its party")
        )
    return chosen_cases(found, options.cases)


def chosen_cases(found: Sequence[AuditCase], wanted: Sequence[str]) -> list[AuditCase]:
    """Those that are named, in that order; none: all."""
    if not wanted:
        return list(found)
    names = {case.name: case for case in found}
    for name in wanted:
        if name not in names:
            raise InputError(f"--set audit.cases: no case of this job is named {name!r}{did_you_mean(name, names)}")
    return [names[name] for name in wanted]
