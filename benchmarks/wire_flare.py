"""What our link between organisations costs, beside the engine below it and beside a bare gRPC stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch

from benchmarks.rows import Row, alternate
from benchmarks.wire_stations import (
    HOST,
    RawCell,
    Station,
    Task,
    Way,
    cell_answers,
    cell_asks,
    free_port,
    running,
    stand_by,
    stream_answers,
    stream_asks,
    take_orders,
    timed,
    wait_for_port,
)
from veracausa.wire.credentials import Credentials
from veracausa.wire.link import Link
from veracausa.wire.message import Kind, TensorSpec
from veracausa.wire.network import NetworkOptions

RELAY, ASKS, ANSWERS = "relay", "a", "b"
MEMBERS = (RELAY, ASKS, ANSWERS)
SCHEMES = ("tcp", "grpc")
TRIPS, LOADS = 100, 8
"""Crossings in one measurement."""


@dataclass(frozen=True)
class Comparison:
    """Which of the ways measured is shown beside which."""

    way: str
    against: str


def comparisons(scheme: str) -> list[Comparison]:
    """What is set beside what for a transport."""
    cell, relayed = f"raw CoreCell {scheme}", f"raw CoreCell {scheme} relayed"
    hop, direct = f"flare {scheme} one hop", f"flare {scheme} direct"
    return [
        Comparison(hop, cell),
        Comparison(direct, cell),
        Comparison(direct, "raw gRPC mTLS"),
        Comparison(f"{direct} sealed", direct),
        Comparison(f"{direct} sealed", "raw gRPC mTLS"),
        Comparison(f"flare {scheme} relayed sealed", f"{relayed} readable"),
        Comparison(f"{direct}, send() returns", direct),
        Comparison(cell, "raw gRPC mTLS"),
        Comparison(f"{cell}, our transport", cell),
    ]


def run(repeats: int, schemes: Sequence[str] = SCHEMES, trips: int = TRIPS, loads: int = LOADS) -> list[Row]:
    """For each transport: the round trip of 256 KiB and the throughput of 16 MiB, everything in turn."""
    rows = []
    with TemporaryDirectory() as scratch:
        identities = make_identities(Path(scratch))
        for scheme in schemes:
            with ways(scheme, identities) as open_ways:
                for name, task in (("round trip 256 KiB", Task(True, trips)), ("16 MiB", Task(False, loads))):
                    every = _measure(open_ways, task, repeats)
                    rows += build_rows(name, task, every, comparisons(scheme))
    return rows


def _measure(open_ways: Mapping[str, Way], task: Task, repeats: int) -> Measured:
    every: Measured = {}

    def side(name: str) -> float:
        seconds, sent = open_ways[name].measure(task)
        every.setdefault(name, []).append(seconds)
        if sent:
            every.setdefault(f"{name}, send() returns", []).append(sent)
        return 0.0

    alternate({name: partial(side, name) for name in open_ways}, repeats)
    return {name: rounds[1:] for name, rounds in every.items()}  # the first one warms up


Measured = dict[str, list[list[float]]]
"""For each way, each round: the seconds of every crossing."""


def build_rows(name: str, task: Task, every: Measured, compared: Sequence[Comparison]) -> list[Row]:
    """The comparisons between ways that were measured; of each round the median, of the rounds the median.

    `quiet_ratio` compares the fastest round of each: what a machine shows that others use meanwhile.
    """
    by_round = {way: [median(round_) for round_ in rounds] for way, rounds in every.items()}
    typical = {way: median(rounds) for way, rounds in by_round.items()}
    rows = []
    for comparison in compared:
        if comparison.way not in typical or comparison.against not in typical:
            continue
        ours = typical[comparison.way]
        pooled = sorted(second for round_ in every[comparison.way] for second in round_)
        extra = {
            "p50_ms": median(pooled) * 1e3,
            "p99_ms": pooled[int(0.99 * len(pooled))] * 1e3,
            "mib_per_second": (1 + task.echo) * task.nbytes / 2**20 / ours,
            "quiet_ratio": min(by_round[comparison.way]) / min(by_round[comparison.against]),
        }
        rows.append(Row(f"{comparison.way} {name}", ours, comparison.against, typical[comparison.against], extra))
    return rows


# ---- what is sent over a link to measure it, and the side that answers ----------------------------------------------

FLOATS = Kind("floats", {"x": TensorSpec(torch.float32, (None,))})
MORE = Kind("more", meta={"echo": int, "count": int})
DONE = Kind("done")
KINDS = (FLOATS, MORE, DONE)


def answer(link: Link, asker: str) -> None:
    """The other side: echo or acknowledge as often as asked, until asked for nothing."""
    link.declare(*KINDS)
    while count := (asked := link.receive(asker, MORE, 0).meta)["count"]:
        for step in range(int(count)):
            message = link.receive(asker, FLOATS, step)
            if asked["echo"]:
                link.send(asker, FLOATS, step, message.tensors)
            else:
                link.send(asker, DONE, step)
        link.send(asker, DONE, 0)
    link.close()


# ---- what is opened for a transport ----------------------------------------------------------------------------------


def make_identities(folder: Path, members: Sequence[str] = MEMBERS) -> dict[str, Credentials]:
    """Keys and certificates of all members, for this run alone."""
    from veracausa.federation.identity import make_authority, make_key, need_flare, sign

    need_flare()
    folder.mkdir(parents=True, exist_ok=True)
    authority = make_authority(folder / "authority", "bench")
    identities = {}
    for member in members:
        identity = folder / member / "identity"
        identity.parent.mkdir(parents=True)
        request = make_key(identity, member)
        (identity / "certificate.pem").write_bytes(sign(authority, request, member, [HOST], 1))
        (identity / "root.pem").write_bytes(authority.root.read_bytes())
        identities[member] = Credentials.of_folder(identity.parent)
    return identities


@contextmanager
def ways(scheme: str, identities: Mapping[str, Credentials]) -> Iterator[dict[str, Way]]:
    """Every way to cross with a transport, by name, all of them open."""
    opened: dict[str, Way] = {}
    with ExitStack() as stack:

        def enter(name: str, *stations: Station) -> None:
            opened[name] = stack.enter_context(running(*stations))

        def cell(member: str, kind: str, port: int) -> RawCell:
            name = "server" if member == RELAY else member
            return RawCell(name, kind, port, identities[member], member, RELAY)

        for name, kind in ((f"raw CoreCell {scheme}", scheme), (f"raw CoreCell {scheme}, our transport", f"v{scheme}")):
            at = (kind, free_port())
            enter(name, partial(cell_asks, cell(ASKS, *at), "server"), partial(cell_answers, cell(RELAY, *at)))
        # FLARE's own sealing of messages needs RSA keys, and ours are on P-256: its readable relay is what is compared.
        at = (scheme, free_port())
        enter(
            f"raw CoreCell {scheme} relayed readable",
            partial(cell_asks, cell(ASKS, *at), ANSWERS),
            partial(cell_answers, cell(ANSWERS, *at)),
            partial(cell_answers, cell(RELAY, *at)),
        )
        port = free_port()
        enter(
            "raw gRPC mTLS",
            partial(stream_asks, port, identities[ASKS]),
            partial(stream_answers, port, identities[ANSWERS]),
        )
        for name, route, peer, sealed in (
            ("one hop", "direct", RELAY, "relayed"),
            ("direct", "direct", ANSWERS, "relayed"),
            ("direct sealed", "direct", ANSWERS, "always"),
            ("relayed sealed", "relayed", ANSWERS, "relayed"),
        ):
            net = network(scheme, route, sealed)
            members = (ASKS, RELAY) if peer == RELAY else (ASKS, ANSWERS, RELAY)
            enter(f"flare {scheme} {name}", *(partial(station, net, m, identities[m], peer) for m in members))
        for way in opened.values():
            way.wait()
        yield opened


def network(scheme: str, route: str, end_to_end: str) -> NetworkOptions:
    """Three members on this machine; only with `route` direct a is told where b listens."""
    return NetworkOptions.model_validate(
        {
            "name": "bench",
            "server": RELAY,
            "scheme": scheme,
            "route": route,
            "members": {
                RELAY: {"address": f"{HOST}:{free_port()}"},
                ASKS: {},
                ANSWERS: {"address": f"{HOST}:{free_port()}"},
            },
            "wire": {"end_to_end": end_to_end, "patience_s": 3600.0},  # it waits while the others are measured
        }
    )


# ---- one member's process --------------------------------------------------------------------------------------------


def station(net: NetworkOptions, me: str, credentials: Credentials, peer: str, pipe: Connection) -> None:
    """A member's process: `a` asks the peer, the peer answers, the server relays."""
    from veracausa.wire.flare.cell import FlareSite
    from veracausa.wire.threads import share_one_heap

    share_one_heap()
    torch.set_num_threads(1)
    for member in (RELAY, *([ANSWERS] if net.route == "direct" and peer == ANSWERS and me == ASKS else ())):
        if member != me:
            wait_for_port(int(str(net.members[member].address).rsplit(":")[1]))
    with FlareSite(me, net, credentials) as site:
        if me not in (ASKS, peer):
            stand_by(pipe)
            return
        link = site.connect([peer if me == ASKS else ASKS], "bench", 60.0)
        link.declare(*KINDS)
        if me == peer:
            pipe.send("ready")
            answer(link, ASKS)
            pipe.recv()
            return

        @contextmanager
        def crossing(task: Task) -> Iterator[Callable[[int], object]]:
            array = torch.rand(task.nbytes // 4)
            link.send(peer, MORE, 0, echo=int(task.echo), count=task.count)
            returned.clear()

            def cross(step: int) -> None:
                returned.append(timed(lambda: link.send(peer, FLOATS, step, {"x": array})))
                link.receive(peer, FLOATS if task.echo else DONE, step)

            yield cross
            link.receive(peer, DONE, 0)

        returned: list[float] = []
        take_orders(pipe, crossing, returned)
        link.send(peer, MORE, 0, echo=0, count=0)
        link.close()
