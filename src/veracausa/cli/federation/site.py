"""`veracausa federation run`, `serve` and `status`: one member's site while a job runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veracausa.cli.allow_model import AllowModel
from veracausa.cli.interruption import GoOn, resumable
from veracausa.cli.track import Track, tracked
from veracausa.cli.watch import Watch, WatchPort, watched
from veracausa.events import Event

if TYPE_CHECKING:
    from rich.table import Table

    from veracausa.federation.consent import Agreement
    from veracausa.federation.site_program import SiteProgram

ON_THE_WAY = frozenset({"waiting", "reached", "agreed", "starts"})
"""Events that `--quiet` leaves out; all others are trouble."""


def run(
    folder: Annotated[Path, typer.Argument(help="This party's folder of the federation.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Say yes to the terms without being asked; they are still shown.")
    ] = False,
    job_seed: Annotated[
        bool,
        typer.Option(
            "--job-seed",
            help="Draw first weights and a defense's noise from the job's seed, as a run in one place does: the same "
            "bits, but partners can draw them again. Where the active party (in a discovery: the first) does so, rows "
            "keep the order of its file, and partners learn it. Default: secrets of this party's own.",
        ),
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="The port to open, where a firewall forwards the agreed address to it.",
        ),
    ] = None,
    allow_model: AllowModel = None,
    watch: Watch = False,
    watch_port: WatchPort = None,
    track: Track = None,
) -> None:
    """Take part in the agreed job: wait for the others, see the terms, say yes, run.

    A party that is killed or cut off starts the same command again; all go on from the last checkpoint that all hold.
    """
    with resumable(GoOn(by_itself=True)):
        _take_part(folder, yes, job_seed, listen, allow_model, (watch, watch_port), track)


def _take_part(
    folder: Path,
    yes: bool,
    job_seed: bool,
    listen: str | None,
    allow_model: str | None,
    watch: tuple[bool, int | None],
    track: list[str] | None,
) -> None:
    from veracausa.cli import console
    from veracausa.cli.progress import ProgressDisplay
    from veracausa.federation.session_attempt import Site, run_site
    from veracausa.federation.site_program import party_program

    site = Site.read(folder, listen)
    program = party_program(folder, site.me, secret=not job_seed, allow_model=allow_model)
    if notice := site.credentials.expires_soon():
        console.say(f"note: {notice}", console.err)

    def approve(agreement: Agreement) -> bool:
        show_terms(agreement, program)
        if yes:
            return True
        if not sys.stdin.isatty():
            console.err.print("nobody can be asked here; start with --yes to agree to these terms", markup=False)
            return False
        try:
            return typer.confirm(program.question, err=True)
        except typer.Abort:  # the question was closed without an answer
            return False

    with (
        ProgressDisplay() as progress,
        watched(progress, *watch, f"veracausa federation run, {site.me}", program.path) as live,
        tracked(live, track, program.path) as observer,
    ):

        def hear(event: Event) -> None:
            line = _in_words(event)
            if line:
                heard = console.news if event["event"] in ON_THE_WAY else console.err
                console.say(line, heard)
            observer(event)

        run_site(site, program, approve, hear)
    console.out.print(f"done: {program.path}", markup=False)


def show_terms(agreement: Agreement, program: SiteProgram) -> None:
    """Everything that a yes is said to: what is run, with whom, and what leaves this party."""
    from rich.console import Group

    from veracausa.cli import console

    console.err.print(f"\njob and federation   {agreement.hash}", markup=False)
    console.err.print(Group(_what_is_run(program), _partners(agreement), _what_leaves(agreement)))
    _show_ids(agreement)
    about_ids = program.ids.notes(agreement.ids) if program.ids is not None else ()
    for warning in (*program.warnings, *about_ids):
        console.say(f"note: {warning}", console.err)
    if agreement.start is not None:
        console.err.print(f"goes on from step {agreement.start}, which all hold", markup=False)


def _what_is_run(program: SiteProgram) -> Table:
    from veracausa.cli import console

    table = console.plain_table(title="what is run")
    for name, value in program.described:
        console.add_plain_row(table, name, value)
    return table


def _partners(agreement: Agreement) -> Table:
    from veracausa.cli import console

    table = console.plain_table("member", "certificate (SHA-256)", "veracausa", title="partners")
    for peer, fingerprint in agreement.fingerprints.items():
        console.add_plain_row(table, peer, fingerprint, agreement.versions.get(peer, "?"))
    return table


def _what_leaves(agreement: Agreement) -> Table:
    from veracausa.cli import console
    from veracausa.report.page import format_bytes

    table = console.plain_table("kind", "to", "what", "bytes", "", title="what leaves this party")
    for sent in agreement.own.sends:
        size = "as the partner's" if sent.bytes is None else format_bytes(sent.bytes)
        console.add_plain_row(table, sent.kind, ", ".join(sent.to), sent.shape, size, f"each {sent.per}")
    return table


def _show_ids(agreement: Agreement) -> None:
    """How many ids each party brings: whoever brings one learns whether it is common."""
    from veracausa.cli import console

    both = {"here": agreement.own.ids, **agreement.ids}
    status_now = [
        f"{who} {ids:,}" + (f" (test rows {tests:,})" if tests else "") for who, (ids, tests) in both.items() if ids
    ]
    if status_now:
        console.err.print(f"ids to be matched    {', '.join(status_now)}", markup=False, soft_wrap=True)


def _in_words(event: Event) -> str:
    match event["event"]:
        case "waiting" | "unreachable" | "reached":
            return waiting_words(event)
        case "warning":
            return f"warning: {event['text']}"
        case "agreed":
            return "all have said yes"
        case "starts":
            return f"starts at step {event['step']}"
        case "lost":
            return f"{event['reason']}; waiting for its return"
    return ""


def serve(
    folder: Annotated[Path, typer.Argument(help="The serving member's folder of this federation.")],
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="The port to open, where a firewall forwards the agreed address to it.",
        ),
    ] = None,
) -> None:
    """Open the port that the others dial, and relay between them until stopped. Takes no part in the job itself.

    What is relayed is encrypted between its two ends: this member can see who talks to whom and how much, not what.
    """

    from veracausa.cli import console
    from veracausa.federation.session_attempt import Site
    from veracausa.federation.session_attempt import serve as relay

    site = Site.read(folder, listen)

    if notice := site.credentials.expires_soon():
        console.say(f"note: {notice}", console.err)

    def tell(event: Event) -> None:
        match event["event"]:
            case "serves":  # the port is open
                opened = event["at"] if listen is None else f"{event['at']} (open here: {listen})"
                line = f"{site.me} serves {site.network.name} at {opened}; stop with Ctrl-C"
            case "came":
                line = f"{event['member']} is here"
            case _:
                line = f"{event['member']} has left"
        console.say(line)

    try:
        relay(site, tell)
    except KeyboardInterrupt:
        console.out.print("stopped", markup=False)


def status(
    folder: Annotated[Path, typer.Argument(help="This party's folder of the federation.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one line of JSON.")] = False,
) -> None:
    """Say who is here, at which step, how fast messages cross, and how much was sent."""
    from veracausa.cli import console
    from veracausa.federation.status import ENDED, read_status
    from veracausa.report.page import format_bytes
    from veracausa.wire.credentials import Credentials

    status_now = read_status(folder)
    own = Credentials.of_folder(folder)
    notice = own.expires_soon()
    if as_json:
        certificate = {"valid_until": own.expires.isoformat(), "note": notice, "sha256": own.fingerprint}
        console.print_json_line({**status_now, "certificate": certificate})
        return
    state = (
        status_now["state"]
        if status_now["alive"] or status_now["state"] in ENDED
        else f"gone (was: {status_now['state']})"
    )
    console.out.print(
        f"{status_now['me']}: {state}, attempt {status_now['attempt']}, step {status_now['step']}", markup=False
    )
    if status_now.get("waits_for"):
        console.out.print(f"waiting for {', '.join(status_now['waits_for'])}", markup=False)
    if status_now.get("unreachable") and status_now["alive"]:
        out = status_now["unreachable"]
        console.out.print(f"cannot reach {out['member']} at {out['at']}: {out['why']}", markup=False, soft_wrap=True)
    if status_now.get("error"):
        console.say(status_now["error"])
    if "bytes_sent" in status_now:
        console.out.print(
            f"sent {format_bytes(status_now['bytes_sent'])} in {status_now['messages']} messages", markup=False
        )
    table = console.plain_table("member", "step", "round trip", "heard", "refused", "stale")
    for name, seen in status_now.get("members", {}).items():
        latency = "–" if seen["latency"] is None else f"{seen['latency'] * 1e3:.1f} ms"
        counts = (str(seen["refused"]), str(seen.get("stale", 0)))
        console.add_plain_row(table, name, str(seen["step"]), latency, f"{seen['silent']:.0f} s ago", *counts)
    if table.row_count:
        console.out.print(table)
    console.out.print(f"certificate valid until {own.expires:%Y-%m-%d}", markup=False)
    if notice:
        console.say(f"note: {notice}")


def waiting_words(event: Event) -> str:
    """The line for an event of waiting; empty where it is another event."""
    match event["event"]:
        case "waiting":
            return f"waiting for {', '.join(event['peers'])}{_so_far(event.get('seconds', 0.0))}"
        case "unreachable":
            why = f"cannot reach {_who(event)} at {event['at']}: {event['why']}"
            return f"{why}; trying again{_so_far(event['seconds'])}"
        case "reached":
            return f"{_who(event)} at {event['at']} can be reached again"
    return ""


def _who(event: Event) -> str:
    return "the coordinator" if event["member"] == "coordinator" else f"{event['member']}, which serves,"


def _so_far(seconds: float) -> str:
    if seconds < 5:
        return ""
    return f" ({seconds:.0f} s so far)" if seconds < 120 else f" ({seconds / 60:.0f} min so far)"
