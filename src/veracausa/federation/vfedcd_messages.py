"""What a member of a discovery by VFedCD will send, said before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from veracausa.discovery.engines.mpc.servers import named_servers
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.federation.columns import SiteColumns
from veracausa.wire.message import MESSAGE, Declared

_WORD = 8


def declared_vfedcd(me: str, parties: Sequence[str], method: VFedCD, columns: SiteColumns | None) -> Iterator[Declared]:
    """Kinds, receivers, shapes and bytes; of sizes that are a partner's own, as if they were this party's."""
    others = tuple(name for name in parties if name != me)
    everybody = (*others, *([VALIDATOR] if me != VALIDATOR else []))
    yield Declared("lives", everybody, "a number", "run", MESSAGE * len(everybody))
    if columns is None:
        yield Declared("order seed", others, "a number", "run", MESSAGE * len(others))
        if method.strong == "replicated":
            yield from _replicated(me, parties, method, columns)
        yield from _validator(others, method)
        return
    if method.strong == "replicated":
        yield from _replicated(me, parties, method, columns)
        return
    if method.strong:
        yield Declared("common seed", others, "32 bytes", "run", 32 * len(others))
        yield Declared("opening", others, "shares of masked numbers", "epoch", None)
        yield Declared("sums", others, "shares of sums over rows", "epoch", None)
        yield Declared("squares", (VALIDATOR,), "shares of squared strengths of all edges", "epoch", None)
        yield Declared("losses", (VALIDATOR,), "sums over held-out rows", "run", None)
        return
    yield from _party(others, method, columns)


def _party(others: tuple[str, ...], method: VFedCD, columns: SiteColumns) -> Iterator[Declared]:
    settings = method.settings()
    own, numbers, rows = len(columns.names), settings.bottleneck or settings.width, columns.count
    train = rows - round(settings.held_out * rows)
    batch = min(settings.batch, train)
    steps = train // batch
    looks = 1 if settings.structure_every == "epoch" else max(1, steps // min(settings.structure_every, steps))
    features, weights = batch * own * numbers * _WORD, own * own * numbers * _WORD
    once = len(others)
    yield Declared("toss", others, "a commitment to a nonce", "run", 32 * once)
    yield Declared("toss shown", others, "the nonce", "run", 32 * once)
    yield Declared("key", others, "a public key", "run", None)
    yield Declared("agreed", others, "a fingerprint", "run", 32 * once)
    how = "UNENCRYPTED" if method.encryption == "none" else f"encrypted ({method.encryption})"
    yield Declared("columns", others, f"its {own} columns, {how}", "run", None)
    yield Declared("triples", others, f"masked products, {how}", "epoch", None)
    if once > 1 and not settings.reveal_per_source:
        yield Declared("pad secret", others, "32 bytes", "run", 32 * once)
    yield Declared("first share", others, "shares of first weights", "run", weights * once)
    yield Declared(
        "masked", others, "shares under masks used once", "epoch", steps * once * (weights + features + MESSAGE)
    )
    yield Declared("answer", others, "shares of features", "epoch", steps * once * (features + MESSAGE))
    seen = (2 * once * own * own + own * own) * _WORD
    what = "weights" if method.validator == "M1" else "squared strengths"
    times = numbers if method.validator == "M1" else 1
    yield Declared("norms", (VALIDATOR,), f"shares of {what}, and a loss", "epoch", looks * (seen * times + MESSAGE))
    if settings.held_out:
        yield Declared("losses", (VALIDATOR,), "sums over held-out rows", "run", settings.candidates * _WORD)


def _replicated(me: str, parties: Sequence[str], method: VFedCD, columns: SiteColumns | None) -> Iterator[Declared]:
    """What a member sends in the strong mode without a dealer, as a server, as a party and as the validator."""
    servers = named_servers(method.settings().servers, tuple(parties))
    to_servers = tuple(name for name in servers if name != me)
    if me in servers:
        following = servers[(servers.index(me) + 1) % len(servers)]
        told = tuple(name for name in parties if name != me)
        yield Declared("server key", (following,), "32 bytes", "run", 32)
        yield Declared("server words", to_servers, "masked shares", "epoch", None)
        yield Declared("sums", told, "shares of sums over rows", "epoch", None)
        if me != VALIDATOR:
            yield Declared("strength shares", (VALIDATOR,), "shares of squared strengths of all edges", "epoch", None)
    if columns is None:
        yield Declared("given shares", to_servers, "shares of factors and of graphs", "epoch", None)
        return
    yield Declared("column shares", to_servers, f"shares of its {len(columns.names)} columns", "run", None)
    yield Declared("rate shares", to_servers, "shares of what its columns' residuals weigh", "epoch", None)
    yield Declared("loss", (VALIDATOR,), "sums of training losses", "epoch", None)
    yield Declared("losses", (VALIDATOR,), "sums over held-out rows", "run", None)


def _validator(parties: tuple[str, ...], method: VFedCD) -> Iterator[Declared]:
    if method.strong == "replicated":
        yield Declared("order", parties, "the edges that the order leaves", "run", None)
        yield Declared("graphs", parties, "how many graphs are compared", "run", MESSAGE * len(parties))
    elif method.strong:
        yield Declared("seeds", parties, "64 bytes", "run", 64 * len(parties))
        yield Declared("dealt", parties[:1], "shares of products", "epoch", None)
        yield Declared("given", parties, "masked factors", "epoch", None)
        yield Declared("order", parties, "the edges that the order leaves", "run", None)
    else:
        yield Declared("factors", parties, "a factor for each edge of the party's", "epoch", None)
        if method.settings().held_out:
            yield Declared("candidates", parties, "graphs to compare", "run", None)
    yield Declared("result", parties, "the graph, as far as the party is told it", "run", None)
