"""The status file of a site: what the programs of a discovery tell it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veracausa.discovery.engines.launch import Program, ShareProgram, StrongProgram
from veracausa.discovery.engines.mpc.schedule import strong_plan
from veracausa.discovery.engines.shares.plan import VALIDATOR, make_plan
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.federation.status import FILE, Status
from veracausa.wire.link import Link
from veracausa.wire.threads import run_threads, thread_links

SHARES = Settings(width=3, batch=8, epochs=2, refit_epochs=1, structure_every=2, candidates=3, searches=())
REPLICATED, DEALER = (SHARES.model_copy(update={"strong": strong}) for strong in ("replicated", "dealer"))


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("settings", [SHARES, REPLICATED, DEALER], ids=["shares", "replicated", "dealer"])
def test_a_discovery_says_how_far_it_is(tmp_path: Path, settings: Settings, tells: bool) -> None:
    values = np.random.default_rng(0).standard_normal((60, 4))
    columns = {"hospital": values[:, :2], "lab": values[:, 2:]}
    plan = (strong_plan if settings.strong else make_plan)(columns, tuple("abcd"), settings, 48, 1)
    given = ~np.eye(plan.d, dtype=bool), np.zeros((plan.d, plan.d), dtype=bool), 1

    def program(name: str) -> Program:
        if settings.strong:
            return StrongProgram(plan, name, columns.get(name), *given, tells_epochs=tells)
        two_valued = np.zeros(2, dtype=bool)
        return ShareProgram(plan, name, columns.get(name), *given, two_valued, tells_epochs=tells)

    def site(name: str) -> Callable[[Link], None]:
        def run(link: Link) -> None:
            with Status(tmp_path / name, name, link.peers) as status:
                program(name)(link, status.observer(lambda event: None))

        (tmp_path / name).mkdir()
        return run

    members = (*plan.parties, VALIDATOR)
    run_threads({name: site(name) for name in members}, thread_links(members, 30))
    said: dict[str, Any] = {name: json.loads((tmp_path / name / FILE).read_text()) for name in members}
    tell = members if tells else (VALIDATOR,)
    assert {name for name in members if "epoch" in said[name]} == set(tell)
    assert all(said[name]["epoch"] == said[name]["step"] == plan.epochs for name in tell)
