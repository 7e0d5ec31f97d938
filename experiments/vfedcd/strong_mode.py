"""What the strong mode finds and what it costs, one line of JSON each; 15 attributes, 60 edges, three parties.

python experiments/vfedcd/strong_mode.py accuracy tanh,sines,cubic 1,2 100,101,102,103,104
python experiments/vfedcd/strong_mode.py view 2 replicated
python experiments/vfedcd/strong_mode.py cost 4 replicated
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from veracausa.crypto.ring64.fixed64 import decode
from veracausa.data.causal import CausalData, load_causal
from veracausa.discovery.engines.centralized import CentralizedVFedCD
from veracausa.discovery.engines.launch import StrongProgram, run_federation
from veracausa.discovery.engines.mpc.network import WEIGHT_BITS
from veracausa.discovery.engines.mpc.party import StrongParty
from veracausa.discovery.engines.mpc.plaintext_twin import FloatTwin, StrongTwin
from veracausa.discovery.engines.mpc.replicated import ReplicatedMember
from veracausa.discovery.engines.mpc.schedule import strong_plan
from veracausa.discovery.engines.mpc.wave_network import WaveNetwork
from veracausa.discovery.graphs import greedy_cut
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.metrics.graphs import graph_scores

D, EDGES, SEED, TRAIN = 15, 60, 1, 800
TWINS: dict[str, tuple[str, type[StrongTwin]]] = {
    "sines": ("replicated", StrongTwin),
    "sines_in_floats": ("replicated", FloatTwin),
    "cubic": ("dealer", StrongTwin),
    "cubic_in_floats": ("dealer", FloatTwin),
}
"""Integers of the shares, or floats from the same first weights. tanh: the model in one place."""


def graph(seed: int) -> CausalData:
    return load_causal("synthetic", attributes=D, edges=EDGES, seed=seed)


def parties(data: CausalData) -> dict[str, np.ndarray]:
    return {f"p{at}": data.values[:, 5 * at : 5 * at + 5] for at in range(3)}


def scores(truth: np.ndarray, strengths: np.ndarray, allowed: np.ndarray, threshold: float) -> dict[str, float]:
    """By the threshold that was chosen, and by the best one of fifty, which nobody knows who has no true graph."""
    must, left = np.zeros_like(allowed), np.where(allowed, strengths, 0.0)

    def at(tau: float) -> dict[str, float]:
        return graph_scores(truth, greedy_cut(left, tau, must, ~allowed))

    found, best = at(threshold), min((at(tau) for tau in np.linspace(0.02, 1, 50)), key=lambda score: score["shd"])
    return {"shd": found["shd"], "f1": found["f1"], "best_shd": best["shd"], "best_f1": best["f1"]}


SETTINGS = Settings(searches=[])
"""The recommended ones, with one search, which the strong mode has."""


def accuracy(models: list[str], seeds: list[int], graphs: list[int]) -> None:
    """Of each graph, from the first weights that each seed draws."""
    for seed, number in itertools.product(seeds, graphs):
        data = graph(number)
        for name in models:
            strengths, allowed, threshold = fitted(name, data, seed)
            tell({"graph": number, "seed": seed, "model": name, **scores(data.truth, strengths, allowed, threshold)})


def fitted(name: str, data: CausalData, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Strengths, the edges that the order leaves, and the threshold."""
    if name == "tanh":
        model = CentralizedVFedCD(SETTINGS, D, np.random.default_rng(seed))
        fit = model.fit(data.values[None, :TRAIN], data.values[None, TRAIN:])
        return fit.strengths[0], fit.allowed[0], float(fit.thresholds[0])
    strong, made = TWINS[name]
    columns, plan_settings = parties(data), SETTINGS.model_copy(update={"strong": strong})
    plan = strong_plan(columns, data.names, plan_settings, TRAIN, seed)
    twin = made(plan, columns, ~np.eye(D, dtype=bool), np.zeros((D, D), dtype=bool), seed)
    twin.run()
    return twin.judge.strengths, twin.judge.structure.allowed[0], twin.judge.threshold


def cost(epochs: int, mode: str) -> None:
    """Processor time of every party's thread, bytes and messages, by step."""
    data, spent = graph(100), dict[str, float]()
    call = StrongProgram.__call__

    def timed(self: StrongProgram, *given: Any) -> None:
        start = time.thread_time()
        call(self, *given)
        spent[threading.current_thread().name] = time.thread_time() - start

    replaced: Callable[..., None] = timed
    StrongProgram.__call__ = replaced  # type: ignore[method-assign]
    settings = Settings(strong=mode, epochs=epochs, refit_epochs=0, held_out=0.2, threshold=0.3, searches=[])
    steps, wall = epochs * (TRAIN // settings.batch), time.monotonic()
    fit = run_federation(parties(data), data.names, settings, train_rows=TRAIN, timeout=600)
    wall = time.monotonic() - wall
    for name, told in fit.sent.items():
        tell(
            {
                "party": name,
                "cpu_ms": round(1000 * spent[name] / steps, 2),
                "kilobytes": round(told["bytes"] / steps / 1000, 1),
                "messages": round(told["messages"] / steps, 1),
            }
        )
    tell({"all": "threads", "steps": steps, "cpu_ms": round(1000 * sum(spent.values()) / steps, 1),
          "wall_ms": round(1000 * wall / steps, 1), "load": os.getloadavg()[0]})  # fmt: skip


def view(epochs: int, mode: str) -> None:
    """How well p0 guesses the others' attributes on 400 rows, by 400 others that it knows: R², mean of attributes."""
    data = graph(100)
    how: dict[str, Any] = {"epochs": epochs, "refit_epochs": 0, "threshold": 0.3, "structure_every": "epoch"}
    settings = Settings(strong=mode, searches=[], **how)
    plan = strong_plan(parties(data), data.names, settings, TRAIN, SEED)
    seen = (opened_by_dealer if mode == "dealer" else received_by_server)(settings.batch, settings.width)
    run_federation(parties(data), data.names, settings, train_rows=TRAIN, seed=SEED, timeout=600)
    twin = StrongTwin(plan, parties(data), ~np.eye(D, dtype=bool), np.zeros((D, D), dtype=bool), SEED)
    twin.run()
    order = [batch for batch, _ in plan.order(epochs - 1)]
    rows = np.concatenate([plan.batches[batch] for batch in order])
    values = data.values[rows]
    features = values @ decode(twin.network.shares["encoder"], WEIGHT_BITS)[:, :5].reshape(D, -1)
    known = {"its own attributes": values[:, :0], "and the features of the normal mode": features}
    # The rows kept apart come after all steps.
    last = seen[len(order) * (epochs - 1) : len(order) * epochs]
    for kind in range(min(map(len, last))):
        known[f"and word {kind} of each step and unit"] = np.concatenate([step[kind] for step in last]) / 2.0**63
    for name, numbers in known.items():
        design = np.column_stack([values[:, :5], numbers, np.ones(TRAIN)])
        weights = np.linalg.lstsq(design[: TRAIN // 2], values[: TRAIN // 2, 5:], rcond=None)[0]
        missed = np.square(values[TRAIN // 2 :, 5:] - design[TRAIN // 2 :] @ weights).mean(0)
        tell({"strong": mode, "p0 knows": name,
              "r2": round(float((1 - missed / values[TRAIN // 2 :, 5:].var(0)).mean()), 3)})  # fmt: skip


def of_rows(words: np.ndarray, batch: int) -> np.ndarray:
    """(batch, units of p0's five attributes) of words (attributes, batch, units)."""
    return words.reshape(D, batch, -1)[:5].swapaxes(0, 1).reshape(batch, -1)


def opened_by_dealer(batch: int, width: int) -> list[list[np.ndarray]]:
    """What will be opened to p0 in each step, in units of every row."""
    seen, current, add_up, learn = list[list[np.ndarray]](), list[np.ndarray](), StrongParty._add_up, StrongParty.learn

    def watched(self: StrongParty, share: np.ndarray) -> np.ndarray:
        total = add_up(self, share)
        if self.name == "p0" and total.size == D * batch * width:
            current.append(of_rows(total, batch))
        return total

    def learning(self: StrongParty, sums: np.ndarray) -> Any:
        if self.name == "p0":
            seen.append(current[-6:])  # of the way there
        return learn(self, sums)

    StrongParty._add_up, StrongParty.learn = watched, learning  # type: ignore[method-assign]
    return seen


def received_by_server(batch: int, width: int) -> list[list[np.ndarray]]:
    """What p0 will receive in each step as a server, in units of every row."""
    seen, current = list[list[np.ndarray]](), list[np.ndarray]()
    swap, learn, forward = ReplicatedMember._swap, ReplicatedMember.learn, WaveNetwork.forward

    def watched(self: ReplicatedMember, sent: Any, expected: Any) -> dict[int, np.ndarray]:
        found = swap(self, sent, expected)
        for words in found.values() if self.name == "p0" else ():
            if words.size % (D * batch * width) == 0:
                current.extend(of_rows(part, batch) for part in words.reshape(-1, D * batch * width))
        return found

    def beginning(self: WaveNetwork, *given: Any, **how: Any) -> Any:
        if getattr(self.arithmetic, "me", None) == 0:
            current.clear()
        return forward(self, *given, **how)

    def learning(self: ReplicatedMember, sums: np.ndarray) -> Any:
        if self.name == "p0":
            seen.append(list(current))
        return learn(self, sums)

    ReplicatedMember._swap, ReplicatedMember.learn = watched, learning  # type: ignore[method-assign]
    WaveNetwork.forward = beginning  # type: ignore[method-assign, assignment]
    return seen


def tell(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    if what == "accuracy":
        accuracy(given[0].split(","), *([int(number) for number in part.split(",")] for part in given[1:]))
    elif what == "view":
        view(int(given[0]), given[1])
    else:
        cost(int(given[0]), given[1])
