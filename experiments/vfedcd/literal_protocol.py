"""What the published protocol costs, and what its opened values give away.

    python experiments/vfedcd/literal_protocol.py cost --out results/vfedcd/literal
    python experiments/vfedcd/literal_protocol.py attacks --out results/vfedcd/literal

`cost` runs a step under Paillier beside the same table on shares, and extrapolates by counts and measured rates.
`attacks` runs the same integers in clear (a test says that they are the same), and every attacker uses nothing but what
its party sees, but for known rows where a row says so. Tables are made up: nothing here is anybody's.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from veracausa.arrays import Array
from veracausa.data.causal import load_causal
from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.engines.literal.launch import run_literal
from veracausa.discovery.engines.literal.numbers import PaillierNumbers, encoded
from veracausa.discovery.engines.literal.party import LiteralParty, norms
from veracausa.discovery.engines.shares.plan import make_plan
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.runs.machine import describe_machine

SEED = 11
KNOWN = 15
"""Rows that an attacker knows, where it works by known rows."""


def table(attributes: int, edges: int, rows: int, parties: int) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Columns of a synthetic graph, dealt to parties in order."""
    data = load_causal("synthetic", attributes=attributes, edges=edges, rows=rows, seed=SEED)
    values = (data.values - data.values.mean(0)) / data.values.std(0)
    return {f"p{at}": part for at, part in enumerate(np.array_split(values, parties, axis=1))}, data.names


def weakly_joined(attributes: int, rows: int, parties: int) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Normal columns, each with a quarter of the variance from one before it: what others hold says little of them."""
    rng = np.random.default_rng(SEED)
    values = rng.normal(size=(rows, attributes))
    for at in range(1, attributes):
        values[:, at] = 0.5 * values[:, rng.integers(at)] + np.sqrt(0.75) * values[:, at]
    values = (values - values.mean(0)) / values.std(0)
    names = tuple(f"x{at}" for at in range(attributes))
    return {f"p{at}": part for at, part in enumerate(np.array_split(values, parties, axis=1))}, names


# ---- cost ------------------------------------------------------------------------------------------------------------


def operations(d: int, parties: int, n: int, h: int) -> dict[str, int]:
    """Of a step, all parties together; equal numbers of attributes."""
    between = d * d - d * d // parties
    masked = parties * (parties - 1) * n * d * h + between * h
    multiplied = (parties - 1) * n * d * d * h + n * h * between
    return {"encrypted": n * d * h + between * h, "multiplied": multiplied, "masked": masked, "decrypted": masked}


def sent_bytes(d: int, parties: int, n: int, h: int, bits: int) -> int:
    """Of a step, without headers."""
    count = operations(d, parties, n, h)
    ciphertexts = count["masked"] + (parties - 1) * n * d * h + (d * d - d * d // parties) * h
    return ciphertexts * 2 * bits // 8 + 8 * ((parties - 1) * n * d * h + 2 * parties * d * d)


def rates(bits: int, seconds: float = 2.0) -> dict[str, float]:
    """Seconds of each operation on this machine."""
    own, other = PaillierNumbers(bits), PaillierNumbers(bits)
    other.meet("own", own.key())
    rng = np.random.default_rng(0)
    values = encoded(rng.normal(size=(1, 4)), 40)
    held = np.array(other.read("own", own.encrypt(values), 4), dtype=object).reshape(1, 4)
    x = encoded(rng.normal(size=(1, 1)), 24)
    many = encoded(rng.normal(size=(1, 16)), 24)
    deep = np.repeat(held[:, :1], 16, axis=0)
    one = np.zeros((1, 1), dtype=object)
    masked = timed(lambda: other.masked_product("own", x, held[:, :1], one), seconds)
    longer = timed(lambda: other.masked_product("own", many, deep, one), seconds)
    product = (longer - masked) / 15
    hidden = other.masked_product("own", x, held[:, :1], one)
    return {
        "encrypted": timed(lambda: own.encrypt(values), seconds) / 4,
        "multiplied": product,
        "masked": masked - product,
        "decrypted": timed(lambda: own.decrypt(hidden, 1), seconds),
    }


def timed(act: Callable[[], object], seconds: float) -> float:
    """Processor seconds of one call."""
    count, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        act()
        count += 1
    return (time.process_time() - start) / count


def a_step(run: Callable[[int], Any], first: int, last: int, steps: int) -> dict[str, float]:
    """Bytes, messages and processor seconds of one step, all members: the difference of two lengths of a fit."""
    found = []
    for epochs in (first, last):
        start = time.process_time()
        result = run(epochs)
        spent = time.process_time() - start
        sums = {name: sum(sent[name] for sent in result.sent.values()) for name in ("bytes", "messages")}
        found.append({**sums, "seconds": spent})
    count = (last - first) * steps
    return {name: (found[1][name] - found[0][name]) / count for name in found[0]}


def cost(out: Path, quick: bool) -> dict[str, Any]:
    """One step of both protocols on one table, and what follows for fifteen columns of three parties."""
    d, parties, n, h = 6, 3, 16, 10
    held, names = table(d, 9, 20, parties)
    rows: list[dict[str, Any]] = []

    def settings(epochs: int, encryption: str) -> Settings:
        return Settings(profile="literal", protocol="literal", epochs=epochs, width=h, batch=n, key_bits=1024,
                        encryption=encryption)  # fmt: skip

    plans = [("literal", "none", 1, 11), ("literal", "paillier", 1, 2)]
    for protocol, encryption, first, last in plans[: 1 if quick else 2]:

        def run(epochs: int, encryption: str = encryption) -> Any:
            return run_literal(held, names, settings(epochs, encryption), seed=SEED)

        rows.append({"protocol": protocol, "encryption": encryption, **a_step(run, first, last, 1)})
        print(rows[-1], flush=True)
    for encryption in ("none", "bfv"):

        def ours(epochs: int, encryption: str = encryption) -> Any:
            return run_federation(held, names, settings(epochs, encryption).model_copy(update={"protocol": "shares"}),
                                  seed=SEED)  # fmt: skip

        rows.append({"protocol": "shares", "encryption": encryption, **a_step(ours, 1, 21, 1)})
        print(rows[-1], flush=True)
    larger: list[dict[str, Any]] = []
    wide, wide_names = table(15, 60, 200, 3)
    for encryption in ("none", "bfv"):

        def ours_wide(epochs: int, encryption: str = encryption) -> Any:
            chosen = settings(epochs, encryption).model_copy(update={"protocol": "shares"})
            return run_federation(wide, wide_names, chosen, seed=SEED)

        larger.append({"protocol": "shares", "encryption": encryption, **a_step(ours_wide, 1, 4, 10)})
        print(larger[-1], flush=True)
    for bits in (1024, 2048, 3072):
        each = rates(bits)
        for size, many in ((d, rows), (15, larger)):
            count = operations(size, parties, n, h)
            seconds = sum(count[name] * each[name] for name in count)
            many.append({"protocol": "literal, by counts", "encryption": f"paillier {bits}",
                         "bytes": sent_bytes(size, parties, n, h, bits), "seconds": seconds})  # fmt: skip
        print(bits, each, larger[-1], flush=True)
        larger[-1]["rates"] = each
    return {"six columns": rows, "fifteen columns": larger, "operations": operations(15, parties, n, h)}


# ---- attacks ---------------------------------------------------------------------------------------------------------


class Curious:
    """Party p0, which follows the protocol and keeps what it sees. It solves for the columns of p1."""

    def __init__(self, victim: str) -> None:
        self.victim = victim
        self.products: dict[int, list[Array]] = {}
        """By batch: Σ f fᵀ and Σ r fᵀ of HE2SS's remainders in the forward pass."""
        self.gradients: dict[int, list[Array]] = {}
        """By batch: Σ g gᵀ and Σ g rᵀ of those in the backward pass."""
        self.features: dict[int, Array] = {}
        """By batch: the last ones."""
        self.splits: list[Array] = []

    def watch(self, party: LiteralParty) -> None:
        party.see = self.see

    def see(self, what: str, told: Mapping[str, Any]) -> None:
        if what == "split":
            self.splits.append(told["values"].copy())
            return
        values, batch = np.array(told["values"]), told["batch"]
        if what == "features":
            self.features[batch] = values
        elif told["from"] != self.victim:
            return
        elif what == "remaining":
            f = told["fragments"].reshape(len(told["fragments"]), -1)
            self._add(self.products, batch, f @ f.T, values @ f.T)
        elif what == "gradient":
            g = told["known"]
            self._add(self.gradients, batch, g @ g.T, g @ values.reshape(-1, g.shape[1]).T)

    @staticmethod
    def _add(kept: dict[int, list[Array]], batch: int, *terms: Array) -> None:
        before = kept.get(batch, [np.zeros_like(term) for term in terms])
        kept[batch] = [one + term for one, term in zip(before, terms, strict=True)]

    def from_products(self, mask: float) -> dict[int, Array]:
        """The likeliest rows, if columns are standardised: remainders are x·f less noise, and f is the party's own."""
        return {batch: c @ np.linalg.inv(g + mask**2 * np.eye(len(g))) for batch, (g, c) in self.products.items()}

    def from_gradients(self, mask: float) -> dict[int, Array]:
        """The same of remainders xᵀ·g, where g is the party's own gradient."""
        return {batch: np.linalg.solve(g + mask**2 * np.eye(len(g)), c) for batch, (g, c) in self.gradients.items()}


def explained(guess: Array, truth: Array) -> float:
    """The mean squared correlation of guessed and true columns."""
    return float(np.mean([np.corrcoef(g, t)[0, 1] ** 2 if g.std() > 0 else 0.0
                          for g, t in zip(guess.T, truth.T, strict=True)]))  # fmt: skip


def by_regression(seen: Array, truth: Array, known: Array) -> float:
    """Of columns read off what was seen by a line through known rows; scored on the others."""
    basis = np.column_stack([np.ones(len(seen)), seen])
    fitted = np.linalg.lstsq(basis[known], truth[known], rcond=1e-6)[0]
    others = np.setdiff1d(np.arange(len(seen)), known)
    return explained(basis[others] @ fitted, truth[others])


def attacked(parties: int, mask: float, epochs: int, width: int) -> dict[str, Any]:
    """What p0 and the validator make of one training."""
    held, names = weakly_joined(6, 100, parties)
    settings = Settings(profile="literal", protocol="literal", epochs=epochs, width=width)
    plan = make_plan(held, names, settings, None, SEED)
    curious, members = Curious("p1"), {}
    everybody: list[list[Array]] = []

    def watch(party: LiteralParty) -> None:
        members[party.name] = party
        if party.name == "p0":
            curious.watch(party)
        else:
            mine: list[Array] = []
            everybody.append(mine)
            party.see = lambda what, told: mine.append(told["values"].copy()) if what == "split" else None

    start = time.process_time()
    result = run_literal(held, names, settings, seed=SEED, watch=watch, mask=mask)
    truth, own = held["p1"], held["p0"]
    rows = np.concatenate([plan.batches[at] for at in sorted(curious.features)])

    def placed(guess: Mapping[int, Array]) -> Array:
        return np.concatenate([guess[at] for at in sorted(guess)])

    known = np.arange(KNOWN)
    features = placed(curious.features)
    weights = np.sum([member.fragments for member in members.values()], axis=0)
    used = weights_used(members)
    off = ~np.eye(plan.d, dtype=bool)
    mine = np.array(curious.splits)
    whole = mine + np.sum([np.array(one) for one in everybody], axis=0)
    return {
        "parties": parties, "mask": mask, "epochs": epochs, "steps": len(mine), "width": width,
        "own columns, known rows": by_regression(own[rows], truth[rows], known),
        "features, known rows": by_regression(np.column_stack([features, own[rows]]), truth[rows], known),
        "forward remainders": explained(placed(curious.from_products(mask)), truth[rows]),
        "backward remainders": explained(placed(curious.from_gradients(mask)), truth[rows]),
        "split, one step": correlation(mine[-1], whole[-1], off),
        "split, mean of all steps": correlation(mine.mean(0), whole.mean(0), off),
        "published strength over norm, median": float(np.median(result.strengths[off] / norms(weights)[off])),
        "published strength against norm, rank correlation": float(
            spearmanr(result.strengths[off], norms(weights)[off]).statistic
        ),
        "features off by stale copies": float(np.linalg.norm(used - weights) / np.linalg.norm(weights)),
        "largest fragment": float(max(np.abs(member.fragments).max() for member in members.values())),
        "processor seconds": time.process_time() - start,
    }  # fmt: skip


def weights_used(members: Mapping[str, LiteralParty]) -> Array:
    """The encoders that sources multiply by: their own fragments, and the others' as they were sent last."""
    found = np.zeros_like(next(iter(members.values())).fragments)
    for name, member in members.items():
        own = member.own
        found[own] = member.fragments[own] + sum(other.sent[name] for peer, other in members.items() if peer != name)
    return found


def correlation(one: Array, other: Array, at: Array) -> float:
    return float(np.corrcoef(one[at], other[at])[0, 1])


def attacks(out: Path, quick: bool) -> dict[str, Any]:
    rows = []
    plans = [(2, 1.0, 1), (2, 1.0, 10), (2, 1.0, 100), (2, 1.0, 500), (3, 1.0, 1), (3, 1.0, 10), (3, 1.0, 100),
             (3, 1.0, 500), (3, 10.0, 100), (3, 100.0, 100)]  # fmt: skip
    for parties, mask, epochs in plans[: 2 if quick else len(plans)]:
        rows.append(attacked(parties, mask, epochs, 10))
        print(json.dumps(rows[-1], indent=1), flush=True)
    return {"attacks": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["cost", "attacks"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="the first rows only")
    given = parser.parse_args()
    found = {"cost": cost, "attacks": attacks}[given.what](given.out, given.quick)
    given.out.mkdir(parents=True, exist_ok=True)
    record = {"seed": SEED, "command": f"python experiments/vfedcd/literal_protocol.py {given.what}", **found}
    record["machine"] = describe_machine()
    (given.out / f"{given.what}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
