"""The networks of the bnlearn repository: rows drawn from known discrete networks, from asia to pathfinder.

They are files of the Bayesian Interchange Format (BIF), read here too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from veracausa.data.causal import CausalData, CausalOptions, causal_data, held, topological_order
from veracausa.data.files import data_folder
from veracausa.errors import InputError
from veracausa.registry import did_you_mean
from veracausa.seeding import derive

_VARIABLE = re.compile(r"variable\s+(\S+)\s*\{\s*type\s+discrete\s*\[\s*\d+\s*\]\s*\{([^}]*)\}\s*;")
_PROBABILITY = re.compile(r"probability\s*\(\s*([^)|\s]+)\s*(?:\|([^)]*))?\)\s*\{([^}]*)\}")
_ROW = re.compile(r"(?:\(([^)]*)\)|(table|default))([^;]*);")


class BnlearnOptions(CausalOptions):
    network: str = "asia"
    rows: int = Field(1000, ge=2)
    as_numbers: bool = False
    """Take categories as numbers, in the file's order; default: three or more categories have no order."""


@causal_data.register("bnlearn", BnlearnOptions)
def bnlearn(options: BnlearnOptions) -> CausalData:
    """Categories become 0, 1, 2, ... in the file's order, which is a scale only where the file's author meant one."""
    known = sorted(path.stem for path in (data_folder() / "bnlearn").glob("*.bif"))
    if known and options.network not in known:
        raise InputError(f"bnlearn: network {options.network!r}: no such file{did_you_mean(options.network, known)}")
    network = read_bif(held(f"bnlearn/{options.network}.bif"))
    rng = np.random.default_rng(derive(options.seed, "bnlearn", options.network))
    values = network.sample(options.rows, rng).astype(np.float64)
    drawn = f"bnlearn: {options.rows} rows drawn from {options.network}, seed {options.seed}"
    numbered = "categories are numbered from 0 in the file's order"
    nominal = () if options.as_numbers else tuple(name for name, node in network.nodes.items() if len(node.states) > 2)
    if options.as_numbers:
        numbered += " and taken as numbers"
    elif nominal:
        numbered += f"; {len(nominal)} of {len(network.names)} columns have three or more, without an order"
    return CausalData(values, network.names, network.adjacency(), (drawn, numbered), nominal)


@dataclass(frozen=True)
class Node:
    """A discrete variable: its categories, its parents, and the probabilities given each of their combinations."""

    states: tuple[str, ...]
    parents: tuple[str, ...]
    table: NDArray[np.float64]
    """One axis a parent, in their order, and the last for the node itself."""


@dataclass(frozen=True)
class BayesianNetwork:
    nodes: Mapping[str, Node]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.nodes)

    def adjacency(self) -> NDArray[np.bool_]:
        position = {name: at for at, name in enumerate(self.nodes)}
        edges = np.zeros((len(position), len(position)), dtype=bool)
        for name, node in self.nodes.items():
            for parent in node.parents:
                edges[position[parent], position[name]] = True
        return edges

    def sample(self, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Rows of category numbers, causes drawn before their effects (ancestral sampling)."""
        order = topological_order(self.adjacency())
        assert order is not None, "read_bif refuses a cycle"
        names = self.names
        position = {name: at for at, name in enumerate(names)}
        drawn = np.zeros((rows, len(names)), dtype=np.int64)
        for at in order:
            node = self.nodes[names[at]]
            given = node.table[tuple(drawn[:, position[parent]] for parent in node.parents)]
            below = np.broadcast_to(given, (rows, len(node.states))).cumsum(axis=1)
            point = rng.random(rows)[:, None] * below[:, -1:]
            drawn[:, at] = (point >= below).sum(axis=1)
        return drawn


def read_bif(path: Path) -> BayesianNetwork:
    """The network in a BIF file; what is wrong in it is named."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); get the file again") from None
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    states = {name: _words(listed) for name, listed in _VARIABLE.findall(text)}
    nodes: dict[str, Node] = {}
    for name, parents, body in _PROBABILITY.findall(text):
        given = _words(parents)
        for word in (name, *given):
            if word not in states:
                raise InputError(f"{path}: probability of {name}: no variable {word!r}; repair the file")
        nodes[name] = Node(states[name], given, _table(path, name, given, body, states))
    without = [name for name in states if name not in nodes]
    if not states or without:
        lacking = f"variable {without[0]!r} has no probabilities" if without else "it holds no variables"
        raise InputError(f"{path}: {lacking}; it is no whole BIF file")
    network = BayesianNetwork({name: nodes[name] for name in states})
    if topological_order(network.adjacency()) is None:
        raise InputError(f"{path}: the network has a cycle; repair the file")
    return network


def _table(
    path: Path, name: str, parents: tuple[str, ...], body: str, states: Mapping[str, tuple[str, ...]]
) -> NDArray[np.float64]:
    shape = tuple(len(states[word]) for word in (*parents, name))
    table = np.full(shape, np.nan)
    number = {parent: {state: at for at, state in enumerate(states[parent])} for parent in parents}
    rows = _ROW.findall(body)
    # A default stands for what no other row says, so it is laid down first.
    for combination, keyword, numbers in sorted(rows, key=lambda row: row[1] != "default"):
        try:
            values = np.array([float(value) for value in _words(numbers)])
            if keyword == "table":
                table[...] = values.reshape(shape)
            elif keyword == "default":
                table[...] = values
            else:
                chosen = zip(parents, _words(combination), strict=True)
                table[tuple(number[parent][state] for parent, state in chosen)] = values
        except (ValueError, KeyError):
            said = f"({combination})" if combination else keyword
            raise InputError(f"{path}: probability of {name}: row {said} does not fit; repair the file") from None
    if np.isnan(table).any() or (table < 0).any() or not np.allclose(table.sum(axis=-1), 1, atol=0.01):
        raise InputError(f"{path}: probability of {name}: some rows are missing or do not add up to 1; repair the file")
    return table


def _words(listed: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in listed.split(",") if word.strip())
