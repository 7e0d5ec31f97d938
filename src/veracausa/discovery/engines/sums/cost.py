"""What a discovery from sums will take, said before anything is spent: seconds, bytes, releases."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from veracausa.crypto.agreement import AGREEMENT
from veracausa.crypto.moments.packing import INTEGER, QUERY_BYTES, REPLY_BYTES, PairPacking
from veracausa.discovery.engines.sums.plan import SumsPlan
from veracausa.wire.message import MESSAGE

CORES = 2
"""That all parties share, where one machine runs them."""
KEY_BYTES = 790_000
"""Of a BFV public key, about."""
_SEARCH = 2.5e-4
"""Seconds of a search for each function of a column, to the power of two: measured, and within a factor of three."""


@dataclass(frozen=True)
class SumsCost:
    """Of one discovery."""

    seconds: float
    bytes: int
    """Of all parties together."""
    releases: int
    features: int
    """Of all parties together."""

    def state(self) -> dict[str, Any]:
        return asdict(self)


def search_seconds(columns: int, functions: int, starts: int, resamples: int) -> float:
    """Of one core, about."""
    once = _SEARCH * columns**2.2 * functions
    return float(once * (starts + resamples))


def expected_cost(plan: SumsPlan) -> SumsCost:
    """From the plan alone: widths are those of columns that are numbers without gaps."""
    widths = plan.likely_widths
    moments = plan.moments(widths)
    work, sent = 0.0, 0
    for pair in moments.pairs:
        packing = moments.packing(*pair)
        ciphertexts = sum(packing.ciphertexts(last - first) for _, first, last in packing.packets())
        if moments.encryption == "bfv":
            work += packing_work(packing, ciphertexts)
            sent += ciphertexts * QUERY_BYTES + packing.replies * REPLY_BYTES
        else:
            sent += plan.rows * packing.columns * INTEGER + packing.columns * packing.factors * 8
            work += 1e-9 * plan.rows * packing.columns * packing.factors
        sent += 2 * packing.columns * packing.factors * 8 + (3 * packing.packet_count + 4) * MESSAGE
    members = len(plan.members)
    keys = KEY_BYTES if moments.encryption == "bfv" else 0
    sent += members * (members - 1) * (keys + (len(AGREEMENT) + 2) * MESSAGE)
    sent += sum(width * (width + 1) * 4 for width in widths.values())
    if plan.settings.receiver == "all":
        sent += (len(plan.parties) - 1) * moments.width * (moments.width + 1) * 4
    resamples = plan.settings.bootstrap
    searching = search_seconds(plan.d, plan.functions, plan.settings.starts, resamples)
    searching *= len(plan.parties) / CORES if plan.settings.receiver == "all" else 1
    seconds = plan.releases * work / min(CORES, len(plan.parties) - 1 or 1) + searching
    return SumsCost(seconds, plan.releases * sent, plan.releases, moments.width)


def packing_work(packing: PairPacking, ciphertexts: int) -> float:
    """Seconds of a core for one pair, without the line between organisations."""
    line = (ciphertexts * QUERY_BYTES + packing.replies * REPLY_BYTES) / 12.5e6
    return max(0.0, packing.seconds - line)
