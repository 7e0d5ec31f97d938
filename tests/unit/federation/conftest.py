"""Organisations on one machine: a folder each, links in threads."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from veracausa.federation.site_program import SiteProgram, party_program
from veracausa.wire.link import Link
from veracausa.wire.threads import run_threads, thread_links

COLUMNS = {"bank": ("y", "income"), "lab": ("a", "b"), "clinic": ("kind", "c")}


def write_people(path: Path, people: Sequence[int], columns: Sequence[str], seed: int) -> Path:
    """A file of these people in an order of its own; a cell follows from the person and the column."""
    order = list(people)
    random.Random(seed).shuffle(order)
    lines = [",".join([f"p{n}", *(_cell(n, column) for column in columns)]) for n in order]
    path.write_text("\n".join([",".join(["id", *columns]), *lines]) + "\n")
    return path


def _cell(n: int, column: str) -> str:
    if column == "y":
        return "yes" if n % 3 else "no"
    if column == "kind":
        return "uvw"[n % 3] if n % 7 else ""
    return f"{(n * 7919 + ord(column[0]) * 31) % 97 / 7:.3f}"


class Organisations:
    """A folder an organisation, with the agreed job and what is its own."""

    def __init__(self, root: Path, job: Mapping[str, Any], owned: Mapping[str, Mapping[str, Any]]) -> None:
        self.root, self.names, self.job, self.owned = root, tuple(owned), job, owned
        for name, own in owned.items():
            folder = root / name
            folder.mkdir(parents=True)
            (folder / "job.toml").write_text(tomli_w.dumps(dict(job)))
            (folder / "party.toml").write_text(tomli_w.dumps(dict(own)))

    def prepared(self, secret: bool = False) -> dict[str, SiteProgram]:
        """Ready to run; by default as with `--job-seed`, so that a run in one place gives the same bits."""
        return {name: party_program(self.root / name, name, secret) for name in self.names}

    def links(self, timeout: float = 20) -> dict[str, Any]:
        return thread_links(self.names, timeout=timeout)

    def each(self, program: Callable[[str, Link], None], links: Mapping[str, Any] | None = None) -> None:
        """Run the program of every organisation, each with its own end of the links."""

        def bound(name: str) -> Callable[[Link], None]:
            return lambda link: program(name, link)

        run_threads({name: bound(name) for name in self.names}, dict(links or self.links()))

    def run(self, start: int | None = None, links: Mapping[str, Any] | None = None, heard: Any = None) -> None:
        """Start every organisation anew, as after a fault: align, then run from `start`."""
        sites = self.prepared()

        def program(name: str, link: Link) -> None:
            notify = (lambda event: heard.append((name, dict(event)))) if heard is not None else (lambda event: None)
            sites[name].align(link, notify)
            sites[name].run(link, notify, start)

        self.each(program, links)


@pytest.fixture
def people() -> Callable[..., Path]:
    return write_people


@pytest.fixture
def organisations(tmp_path: Path) -> Callable[..., Organisations]:
    """Makes the folders of a job whose parties have these people."""

    def make(
        job: Mapping[str, Any],
        passive: Sequence[str] = ("lab", "clinic"),
        rows: int = 60,
        lacking: Mapping[str, Sequence[int]] | None = None,
        **own: Any,
    ) -> Organisations:
        owned = {}
        (tmp_path / "files").mkdir()
        for seed, name in enumerate(("bank", *passive)):
            there = [n for n in range(rows) if n not in (lacking or {}).get(name, ())]
            path = write_people(tmp_path / "files" / f"{name}.csv", there, COLUMNS[name], seed)
            owned[name] = {"data": {"path": str(path), "id": "id"}, **own.get(name, {})}
        return Organisations(tmp_path / "sites", job, owned)

    return make


@pytest.fixture
def table_job() -> Callable[..., dict[str, Any]]:
    """A tiny training on tables."""

    def make(passive: Sequence[str] = ("lab", "clinic"), **settings: Any) -> dict[str, Any]:
        return {
            "name": "tiny",
            "seed": 3,
            "data": {"name": "csv", "label": "y", "validation": 0.2, **settings.pop("data", {})},
            "model": {"name": "mlp"},
            "parties": {"active": "bank", "passive": list(passive)},
            "training": {"epochs": 3, "batch_size": 16},
            "runtime": {"device": "cpu", "cpu_threads": 1},
            "risk": {"every": 0},
            **settings,
        }

    return make
