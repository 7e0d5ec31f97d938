"""`veracausa federation status`: how a run across organisations is getting on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def status(
    folder: Annotated[Path, typer.Argument(help="This party's folder of the federation.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one line of JSON.")] = False,
) -> None:
    """Say who is here, at which step, how fast messages cross, and how much was sent."""
    from veracausa.cli import console
    from veracausa.federation.status import ENDED, read_status
    from veracausa.report.page import format_bytes
    from veracausa.wire.credentials import Credentials

    told = read_status(folder)
    own = Credentials.of_folder(folder)
    notice = own.expires_soon()
    if as_json:
        certificate = {"valid_until": own.expires.isoformat(), "note": notice, "sha256": own.fingerprint}
        console.print_json_line({**told, "certificate": certificate})
        return
    state = told["state"] if told["alive"] or told["state"] in ENDED else f"gone (was: {told['state']})"
    console.out.print(f"{told['me']}: {state}, attempt {told['attempt']}, step {told['step']}", markup=False)
    if told.get("waits_for"):
        console.out.print(f"waiting for {', '.join(told['waits_for'])}", markup=False)
    if told.get("unreachable") and told["alive"]:
        out = told["unreachable"]
        console.out.print(f"cannot reach {out['member']} at {out['at']}: {out['why']}", markup=False, soft_wrap=True)
    if told.get("error"):
        console.out.print(told["error"], markup=False, soft_wrap=True)
    if "bytes_sent" in told:
        console.out.print(f"sent {format_bytes(told['bytes_sent'])} in {told['messages']} messages", markup=False)
    table = console.plain_table("member", "step", "round trip", "heard", "refused", "stale")
    for name, seen in told.get("members", {}).items():
        latency = "–" if seen["latency"] is None else f"{seen['latency'] * 1e3:.1f} ms"
        counts = (str(seen["refused"]), str(seen.get("stale", 0)))
        console.add_plain_row(table, name, str(seen["step"]), latency, f"{seen['silent']:.0f} s ago", *counts)
    if table.row_count:
        console.out.print(table)
    console.out.print(f"certificate valid until {own.expires:%Y-%m-%d}", markup=False)
    if notice:
        console.out.print(f"note: {notice}", markup=False, soft_wrap=True)
