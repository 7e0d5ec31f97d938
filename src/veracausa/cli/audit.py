"""`veracausa audit`: train a job and its undefended baseline, or take a finished run, and attack it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veracausa.cli.allow_model import AllowModel
from veracausa.cli.interruption import GoOn, resumable
from veracausa.cli.track import Track, tracked
from veracausa.errors import InputError
from veracausa.events import Observer

if TYPE_CHECKING:
    from veracausa.audit.snapshots import Snapshot
    from veracausa.runs.folder import Run


_WIDE = 100
"""Columns of a terminal that has room for all scores."""


def audit(
    what: Annotated[Path, typer.Argument(metavar="JOB|RUN", help="A job (a TOML file), or a finished run's folder.")],
    attacks: Annotated[
        str | None,
        typer.Option(
            "--attacks", metavar="A,B", help="Which attacks; default: inverse, with a GPU or --quick unsplit too."
        ),
    ] = None,
    auxiliary: Annotated[
        int | None,
        typer.Option(
            min=4,
            help="Rows the attacker learns from, of the test rows; default: 4000, of a blind run 10000.",
            show_default=False,
        ),
    ] = None,
    from_training: Annotated[
        bool,
        typer.Option(
            "--from-training",
            help="Auxiliary rows that the test rows lack come from training rows, none of them a victim.",
        ),
    ] = False,
    classify: Annotated[
        bool,
        typer.Option("--classify", help="Also how often a classifier sees the right class in pictures that were read."),
    ] = False,
    victims: Annotated[int, typer.Option(min=1, help="Rows to reconstruct: of training, and as many of test.")] = 2000,
    known: Annotated[
        int | None,
        typer.Option(
            min=4, help="Training rows that the attack known_rows knows beforehand; default: 500.", show_default=False
        ),
    ] = None,
    parties: Annotated[
        str | None, typer.Option("--parties", metavar="A,B", help="Whose payloads to attack; default: all passive.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="One setting of an attack, or of the job; repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A job's run folder; default: runs/NAME, numbered if taken.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what an earlier audit finished; do the rest.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Weaker attackers, for a first look at small data.")] = False,
    until_converged: Annotated[
        bool,
        typer.Option(
            "--until-converged",
            "--double",
            help="Also train with twice the epochs, until it hardly changes the figure.",
        ),
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            "--twin",
            metavar="RUN",
            help="An undefended run of the same job, to compare with; default: train one.",
        ),
    ] = None,
    labels: Annotated[
        bool, typer.Option("--labels/--no-labels", help="Also what passive parties learn of the labels.")
    ] = True,
    allow_model: AllowModel = None,
    track: Track = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as the last line.")] = False,
) -> None:
    """Attack what the parties of a job send, and say what could be read back.

    A job is trained first, and beside it the same job without any defense: an attack that fails there, too, says
    nothing about the defense. The headline is the most that is read of any party at any snapshot of the training. A
    finished run is attacked as it is: of one that kept no snapshots the last model only. A low figure says that these
    attacks failed, not that every attack must. Of a blind training, what was opened of sums and scores is attacked,
    with and without its protections. Of a discovery, each party's view of the others' columns is attacked,
    with and without counter-measures.
    """
    from veracausa.cli import console
    from veracausa.cli.progress import ProgressDisplay

    names, chosen, given = _names(attacks or ""), _names(parties or "") or None, list(settings or ())
    if attacks is not None and not names:
        raise InputError("--attacks: name at least one attack")
    if is_discovery(what):
        from veracausa.cli.audit_discovery import audit_a_discovery

        if chosen is not None or until_converged or baseline is not None:
            raise InputError(
                f"{what}: it is a discovery; --parties, --until-converged and --baseline are for split models"
            )
        if track:
            raise InputError(f"{what}: it is a discovery, whose audit has no scores to --track; leave it out")
        audit_a_discovery(what, names, given, out, resume, quick, as_json)
        return
    go_on = GoOn(what if what.is_dir() else None, names_folder=not what.is_dir())
    finished = what if what.is_dir() else None
    with (
        resumable(go_on),
        ProgressDisplay() as progress,
        tracked(go_on.heard(progress), track, finished) as heard,
    ):
        common: dict[str, Any] = {"victims": victims, "parties": chosen, "labels": labels}
        common |= {"until_converged": until_converged, "quick": quick}
        common |= {} if auxiliary is None else {"auxiliary": auxiliary}
        common |= {} if known is None else {"known": known}
        common |= {"from_training": True} if from_training else {}
        common |= {"classify": True} if classify else {}
        if what.is_dir():
            if out is not None:
                raise InputError(f"--out: {what} is a finished run, its audit goes into its own folder")
            run = _audit_run(what, names, given, common, baseline, resume, heard, allow_model)
        elif not what.exists():
            raise InputError(f"{what}: there is neither a job file nor a run folder of this name; correct the path")
        else:
            from veracausa.audit.job import audit_job
            from veracausa.runs.folder import Run

            beside = None if baseline is None else Run(baseline, allow_model)
            started: dict[str, Any] = {"resume": resume, "baseline": beside, "allow_model": allow_model}
            run = audit_job(what, names or None, out, overrides=given, observer=heard, **started, **common)
    found = run.summary
    page = run.path / "report.html"
    if as_json:
        console.print_json_line({"run": str(run.path), "report": str(page), **found})
        return
    if "blind_audit" in found:
        from veracausa.cli.audit_blind import print_blind_audit

        print_blind_audit(run, found)
    else:
        print_audit(run, found)
    console.out.print(f"Report: {page}", markup=False, soft_wrap=True)


def _audit_run(
    path: Path,
    names: list[str],
    given: list[str],
    common: Mapping[str, Any],
    baseline: Path | None,
    resume: bool,
    observer: Observer,
    allow_model: str | None,
) -> Run:
    from veracausa.audit.blind_record import audit_blind_run, is_blind
    from veracausa.audit.job import audit_run, blind_settings, on_gpu
    from veracausa.audit.settings import AuditSettings, default_attacks
    from veracausa.runs.folder import Run

    run = Run(path, allow_model)
    if is_blind(run.job):
        audit_blind_run(run, blind_settings(names, given, baseline, common), resume=resume, observer=observer)
        run.report()
        return run
    names = names or default_attacks(common["quick"] or on_gpu(run.job))
    beside = None if baseline is None else Run(baseline, allow_model)
    audit_run(run, AuditSettings(names, given, **common), baseline=beside, resume=resume, observer=observer)
    run.report()
    return run


def is_discovery(what: Path) -> bool:
    """Whether this is a discovery's job or run."""
    import tomllib

    path = what / "config.toml" if what.is_dir() else what
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")).get("kind") == "discovery"
    except (OSError, ValueError):
        return False


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def print_audit(run: Run, found: Mapping[str, Any]) -> None:
    """A table of all attacks, and the verdict."""
    from rich.markup import escape
    from rich.table import Table

    from veracausa.audit.baseline import undefended_leakage
    from veracausa.audit.snapshots import coverage_sentence, snapshots, worst
    from veracausa.cli import console

    several = len(found["attacks"]) > 1
    table = Table(*(["attack"] if several else []), "party", box=None, pad_edge=False)
    # What was read must not be squeezed out by how it was measured, which audit.md has, too.
    scores = ("mse", "blind_mse", "ssim") if console.out.width >= _WIDE else ()
    for name in ("samples", "leakage", "when", "last model", "undefended", *scores):
        table.add_column(name.removesuffix("_mse"), justify="right", no_wrap=True)
    for attack, entry in found["attacks"].items():
        for party, own in entry["parties"].items():
            for split in ("train", "test"):
                if read := snapshots({party: own}, split):
                    beside = undefended_leakage(entry, party, split)
                    named = [*([attack] if several else []), party, f"{own[split]['samples']} {split}"]
                    table.add_row(*map(escape, named), *_cells(worst(read), read[-1], beside, scores))
    console.out.print(table)

    say = console.say
    say(f"\n{found['verdict']}")
    say("0 % is no more than a guess without the payload, 100 % a perfect copy.")
    if said := coverage_sentence(found["coverage"]):
        say(said)
    if found.get("label_verdict"):
        say(found["label_verdict"])
    for attack, entry in found["attacks"].items():
        if entry.get("works") is False:
            say(f"{attack} does not work here: without a defense it is not surely better than a blind guess either.")
        for party, own in entry["parties"].items():
            if "strength" in own:
                say(_strength(attack, party, own))
    say(f"Details: {run.path / 'audit.md'}, {run.path / 'samples.parquet'}, {run.path / 'summary.json'}")


def _cells(most: Snapshot, end: Snapshot, undefended: float | None, scores: Sequence[str]) -> list[str]:
    def shown(name: str) -> str:
        return f"{most.scores[name]:.{3 if name == 'ssim' else 4}f}" if name in most.scores else "–"

    shares = [f"{100 * most.leakage:.1f} %", most.short.removesuffix(" exchange"), f"{100 * end.leakage:.1f} %"]
    beside = f"{100 * undefended:.1f} %" if undefended is not None else ""
    return [*shares, beside, *map(shown, scores)]


def _strength(attack: str, party: str, own: Mapping[str, Any]) -> str:
    tried = ", ".join(f"{100 * try_['leakage']:.1f} % at {try_['epochs']:.0f} epochs" for try_ in own["strength"])
    verdict = "it has settled" if own["settled"] else "it still moves by two points or more: train it longer"
    return f"{attack} on {party}: {tried}; {verdict}."
