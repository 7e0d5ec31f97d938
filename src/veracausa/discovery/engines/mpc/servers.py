"""Which three compute on replicated shares, what crosses between them and the others, and who rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from veracausa.arrays import Mask
from veracausa.crypto.ring64.arithmetic import Masked
from veracausa.crypto.ring64.fixed64 import SEED_BYTES, Words, fresh_seed
from veracausa.crypto.ring64.replicated import SERVERS
from veracausa.discovery.engines.mpc.network import Pass
from veracausa.discovery.engines.shares.plan import VALIDATOR, Plan
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.errors import InputError
from veracausa.wire.message import Kind, TensorSpec


def servers_of(plan: Plan) -> tuple[str, ...]:
    """The three that compute: those the settings name, or the first three parties, or both parties and the validator.

    Any two of them together can open everything.
    """
    return named_servers(plan.settings.servers, plan.parties)


def named_servers(named: tuple[str, ...], parties: tuple[str, ...]) -> tuple[str, ...]:
    """As `servers_of`; who does not exist or is named twice is refused."""
    if not named:
        return (*parties, VALIDATOR)[:SERVERS]
    if len(named) != SERVERS or len(set(named)) != SERVERS:
        raise InputError(f"servers = {list(named)}: replicated shares take three; name three members once each")
    for name in named:
        if name not in (*parties, VALIDATOR):
            raise InputError(f"servers: {name!r} is no member; name parties ({', '.join(parties)}) or {VALIDATOR!r}")
    return named


def computing(settings: Settings, parties: tuple[str, ...]) -> list[str] | None:
    """Who must not collude: the three servers, or the dealer. None: not the strong mode."""
    if settings.strong == "replicated":
        return list(named_servers(settings.servers, parties))
    return [VALIDATOR] if settings.strong else None


def rounders(plan: Plan) -> NDArray[np.int64]:
    """(d,): the server that drowns the last bits of what is opened about each attribute, never the one it goes to."""
    servers = servers_of(plan)
    each = [(servers.index(name) + 1) % SERVERS if name in servers else 0 for name in plan.parties]
    return np.repeat(each, plan.sizes)


def rounding_seed(seed: int | None, server: str, restart_index: int) -> bytes:
    """What a server draws masks of roundings from; another start of the run has another one."""
    return fresh_seed(seed, "roundings of a server", server, restart_index)


class OutsideNetwork:
    """In the place of the network at a member that does not compute: it is opened its own sums, and no more."""

    def __init__(self, allowed: Mask, open_sums: Callable[[], Words]) -> None:
        self.allowed, self._open_sums = allowed, open_sums
        self.shares: dict[str, Words] = {}

    def forward(self, *given: Any, **how: Any) -> None:
        return

    def squared_residuals(self, there: Pass | None) -> Words:
        return self._open_sums()

    def backward(self, *given: Any) -> None:
        return

    def squares(self) -> tuple[None, None]:
        return None, None

    def scale(self, *given: Any) -> None:
        return

    def restrict(self, allowed: Mask) -> None:
        self.allowed = allowed

    def under(self, graph: Masked, encoder: Masked) -> None:
        return


_WORDS = TensorSpec(torch.int64, (None,), max_free=1 << 28)

KEY = Kind("server key", {"seed": TensorSpec(torch.uint8, (SEED_BYTES,))})
"""From a server to the next one, once a start: what they draw alike, and the third server does not know."""
SERVER = Kind("server words", {"words": _WORDS}, secret_shared=True)
"""Between two servers: masked summands."""
COLUMNS = Kind("column shares", {"words": _WORDS}, secret_shared=True)
"""From a party to a server, once a start: two of three summands of its columns."""
RATES = Kind("rate shares", {"words": TensorSpec(torch.int64, (None,))}, secret_shared=True)
"""From a party to a server: two of three summands of what its residuals weigh."""
LOSS = Kind("loss", {}, {"loss": float})
"""From a party to the validator: its training loss since the last structure update, summed."""
GRAPHS = Kind("graphs", {}, {"count": int})
"""From the validator to everybody: how many graphs are compared."""


def strength_shares(plan: Plan) -> Kind:
    """From a server to the validator: a summand of all squared strengths."""
    return Kind("strength shares", {"words": TensorSpec(torch.int64, (plan.d, plan.d))}, secret_shared=True)


def given_shares(plan: Plan) -> Kind:
    """From the validator to a server: two of three summands of factors or of graphs."""
    return Kind("given shares", {"words": TensorSpec(torch.int64, (2, None, plan.d, plan.d))}, secret_shared=True)
