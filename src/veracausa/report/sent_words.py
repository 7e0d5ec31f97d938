"""What a party of a split training sent, in words that need no knowledge of the protocol."""

from __future__ import annotations

import math
from typing import Any

from veracausa.runs.record import RunRecord

SENT = {
    "representation": "what its model made of each of its rows, the payload",
    "gradient": "how each payload should have been different, which tells of the labels",
    "request": "which rows to send",
    "hello": "how many numbers it sends for a row, and which rows it has",
    "ready": "that it is ready, or still prepares",
}
"""Kinds of messages in words; all others are called by their names."""

SHORT = {
    "representation": "payloads of rows",
    "gradient": "gradients",
    "request": "which rows",
    "hello": "greetings",
    "ready": "greetings",
}
"""The same where there is little room."""


def split_sent(run: RunRecord, party: str) -> list[dict[str, Any]]:
    """What the party sent, the largest first: in words, to whom, in how many messages and bytes."""
    found: dict[tuple[str, str], list[int]] = {}
    payload = run.parties[party].get("payload")
    for line in run.sent.get(party, ()):
        words = SENT.get(line.kind, line.kind)
        if line.kind == "representation" and isinstance(payload, list) and all(isinstance(n, int) for n in payload):
            count = math.prod(payload)
            words += f": {count:,} number{'' if count == 1 else 's'} a row, in every epoch"
        total = found.setdefault((words, line.to), [0, 0])
        total[0] += line.messages
        total[1] += line.bytes
    rows = [
        {"party": party, "what": words, "to": to, "messages": messages, "bytes": size}
        for (words, to), (messages, size) in found.items()
    ]
    return sorted(rows, key=lambda row: -row["bytes"])
