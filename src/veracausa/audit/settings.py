"""Which attacks an audit runs, with which settings: `inverse.epochs=50` and the like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError

from veracausa.attacks import attacks
from veracausa.attacks.base import Attack, Grant
from veracausa.config import parse_setting
from veracausa.errors import InputError
from veracausa.registry import Options, did_you_mean


def attack_options(names: Sequence[str], overrides: Sequence[str] = ()) -> dict[str, Options]:
    """The settings of each attack, `NAME.SETTING=VALUE` laid over its defaults; a typo is refused."""
    if not names:
        raise InputError(f"name at least one attack (there are: {', '.join(attacks.names())})")
    chosen: dict[str, dict[str, Any]] = {}
    for name in names:
        attacks.get(name)
        chosen[name] = {"name": name}
    for override in overrides:
        (attack, *path), value = parse_setting(override, "ATTACK.SETTING=VALUE")
        setting = ".".join(path)
        if not setting:
            raise InputError(f"--set {override}: write it as ATTACK.SETTING=VALUE")
        if attack not in chosen:
            raise InputError(f"--set {override}: attack {attack!r} is not run{did_you_mean(attack, chosen)}")
        known = set(attacks.options(attack).model_fields) - {"name"}
        if setting not in known:
            raise InputError(f"--set {override}: no such setting{did_you_mean(setting, known)}")
        chosen[attack][setting] = value
    found = {}
    for name, settings in chosen.items():
        try:
            found[name] = attacks.options(name).model_validate(settings)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(map(str, (name, *problem["loc"])))
            raise InputError(f"--set {where}={settings.get(str(problem['loc'][0]))}: {problem['msg']}") from None
    return found


def attack_class(name: str) -> type[Attack]:
    """The attack's class."""
    return cast(type[Attack], attacks.get(name))


def check_grants(options: Mapping[str, Options]) -> None:
    """Refuse an attack that an audit cannot give what it needs, before anything is attacked or trained."""
    from veracausa.audit.scene import GRANTED

    for name in options:
        attack = attack_class(name)
        granted = GRANTED | Grant.TAMPER if attack.live else GRANTED
        if missing := attack.needs & ~granted:
            raise InputError(f"attack {name!r} needs {', '.join(missing.words)}, which an audit cannot give it")


def most_victims(options: Options) -> int | None:
    """How many rows of a split an attack is given: one batch, if it learns no decoder and searches for every row."""
    attack = attack_class(options.name)
    learns = attack.live or attack.needs & (Grant.AUXILIARY | Grant.LABELLED_AUXILIARY)
    return None if learns else getattr(options, "batch_size", None)


QUICK = ("inverse.epochs=12", "inverse.channels=16", "inverse.blocks=1", "unsplit.main=10", "unsplit.batch_size=64")
"""Attackers for a quick look at tiny data: weaker than those that figures are compared by."""


def quick_overrides(names: Sequence[str]) -> tuple[str, ...]:
    """The settings of `QUICK` for these attacks; what a user sets comes after them and wins."""
    return tuple(setting for setting in QUICK if setting.partition(".")[0] in names)


OVER_TRAINING = ("inverse",)
"""Attacks that are also run on the models kept at snapshots of the training."""

SNAPSHOTS = (0.0, 0.1, 0.5)
"""The first exchange, a tenth and half of the training; the end is attacked anyway."""

REMEMBERING = ("averaging", "differencing", "mismatch")
"""Attacks on what crossed in the whole training, not on the last payload alone."""
