"""`veracausa federation run`: one party takes part in the agreed job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veracausa.cli.allow_model import AllowModel
from veracausa.cli.federation.waiting import waiting_words
from veracausa.cli.interruption import GoOn, resumable
from veracausa.events import Event

if TYPE_CHECKING:
    from rich.table import Table

    from veracausa.federation.consent import Agreement
    from veracausa.federation.site_program import SiteProgram


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
) -> None:
    """Take part in the agreed job: wait for the others, see the terms, say yes, run.

    A party that is killed or cut off starts the same command again; all go on from the last checkpoint that all hold.
    """
    with resumable(GoOn(by_itself=True)):
        _take_part(folder, yes, job_seed, listen, allow_model)


def _take_part(folder: Path, yes: bool, job_seed: bool, listen: str | None, allow_model: str | None) -> None:
    from veracausa.cli import console
    from veracausa.cli.progress import ProgressDisplay
    from veracausa.federation.programs import party_program
    from veracausa.federation.session_attempt import Site, run_site

    site = Site.read(folder, listen)
    prepared = party_program(folder, site.me, secret=not job_seed, allow_model=allow_model)
    if notice := site.credentials.expires_soon():
        console.err.print(f"note: {notice}", markup=False, soft_wrap=True)

    def approve(agreement: Agreement) -> bool:
        show_terms(agreement, prepared)
        if yes:
            return True
        if not sys.stdin.isatty():
            console.err.print("nobody can be asked here; start with --yes to agree to these terms", markup=False)
            return False
        try:
            return typer.confirm("Do you agree?", err=True)
        except typer.Abort:  # the question was closed without an answer
            return False

    with ProgressDisplay() as progress:

        def hear(event: Event) -> None:
            line = _in_words(event)
            if line:
                console.err.print(line, markup=False, soft_wrap=True)
            progress(event)

        run_site(site, prepared, approve, hear)
    console.out.print(f"done: {prepared.path}", markup=False)


def show_terms(agreement: Agreement, prepared: SiteProgram) -> None:
    """Everything that a yes is said to: what is run, with whom, and what leaves this party."""
    from rich.console import Group

    from veracausa.cli import console

    console.err.print(f"\njob and federation   {agreement.hash}", markup=False)
    console.err.print(Group(_what_is_run(prepared), _partners(agreement), _what_leaves(agreement)))
    _show_ids(agreement)
    about_ids = prepared.ids.notes(agreement.ids) if prepared.ids is not None else ()
    for warning in (*prepared.warnings, *about_ids):
        console.err.print(f"note: {warning}", markup=False, soft_wrap=True)
    if agreement.start is not None:
        console.err.print(f"goes on from step {agreement.start}, which all hold", markup=False)


def _what_is_run(prepared: SiteProgram) -> Table:
    from veracausa.cli import console

    table = console.plain_table(title="what is run")
    for name, value in prepared.described:
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
    told = [
        f"{who} {ids:,}" + (f" (test rows {tests:,})" if tests else "") for who, (ids, tests) in both.items() if ids
    ]
    if told:
        console.err.print(f"ids to be matched    {', '.join(told)}", markup=False, soft_wrap=True)


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
