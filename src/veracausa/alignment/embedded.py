"""An alignment of several sets on one machine, for one operator: the same programs, in threads or in processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from veracausa.alignment.program import FEW, Aligned, AlignmentProgram
from veracausa.alignment.settings import AlignmentSettings, OwnOptions
from veracausa.events import Event, Observer, event_of
from veracausa.runs.machine import usable_cores
from veracausa.wire.launch import Launch
from veracausa.wire.link import Link


class _Party:
    """Hands what its program ended with to whoever started it."""

    def __init__(self, program: AlignmentProgram) -> None:
        self.program = program

    def __call__(self, link: Link, notify: Observer) -> None:
        found = self.program(link, notify)
        notify(
            {
                "event": "aligned",
                "party": link.me,
                "rows": found.rows.tolist(),
                "own": found.own,
                "announced": dict(found.announced),
                "common": dict(found.common),
                "warnings": list(found.warnings),
                "bytes": link.ledger.bytes_sent,
            }
        )


def align_embedded(
    ids: Mapping[str, Sequence[str]],
    settings: AlignmentSettings,
    own: OwnOptions | None = None,
    launch: Launch | None = None,
    notify: Observer = lambda event: None,
    sources: Mapping[str, str] | None = None,
) -> dict[str, Aligned]:
    """Every party's rows in the agreed order. The cores are shared out between the parties."""
    own = own or OwnOptions()
    if own.workers is None and sum(map(len, ids.values())) >= FEW:
        own = own.model_copy(update={"workers": max(1, usable_cores() // len(ids))})
    programs = {}
    for name in settings.parties:
        # How many rows the active party has cannot be hidden where they are the agreed order.
        hides = settings.mode == "all" or name != settings.parties[0]
        options = own if hides else own.model_copy(update={"pad_to": 0})
        source = (sources or {}).get(name, f"ids of {name}")
        programs[name] = _Party(AlignmentProgram(ids[name], settings, options, source))
    found: dict[str, Aligned] = {}

    def hear(event: Event) -> None:
        if event["event"] == "aligned":
            rows = torch.tensor(event["rows"], dtype=torch.int64)
            found[event["party"]] = Aligned(
                rows, event["own"], event["announced"], event["common"], tuple(event["warnings"])
            )
            notify(event_of("aligned", {key: value for key, value in event.items() if key != "rows"}))
        else:
            notify(event)

    (launch or Launch()).run(programs, hear)
    return {name: found[name] for name in settings.parties}
