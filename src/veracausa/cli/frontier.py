"""`veracausa frontier`: sweep defenses and their settings, and say which one to take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veracausa.cli.allow_model import AllowModel
from veracausa.cli.interruption import GoOn, resumable
from veracausa.errors import InputError

if TYPE_CHECKING:
    from veracausa.events import Event
    from veracausa.experiments.advice import Frontier


def frontier(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job, a TOML file.")],
    defenses: Annotated[
        str, typer.Option("--defenses", metavar="A,B", help="Which defenses to try; undefended is always tried.")
    ],
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="When to stop: 20m, 90s, 1h30m.")] = "20m",
    accuracy: Annotated[
        float | None, typer.Option(min=0, max=1, help="Wanted: at least this accuracy, with the least leakage.")
    ] = None,
    leakage: Annotated[
        float | None, typer.Option(min=0, max=1, help="Wanted: at most this leakage, with the most accuracy.")
    ] = None,
    at_least: Annotated[
        float | None, typer.Option("--at-least", min=0, max=1, help="Wanted: at least this score, whichever it is.")
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What counts: accuracy, balanced_accuracy or auc. Default: accuracy if the classes are balanced.",
        ),
    ] = None,
    cuts: Annotated[str | None, typer.Option("--cuts", metavar="3,6", help="Cuts to try; default: the job's.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How often every setting is tried, from the job's seed on.")] = 1,
    auxiliary: Annotated[int, typer.Option(min=4, help="Rows the attacker learns from.")] = 4000,
    victims: Annotated[int, typer.Option(min=1, help="Rows to reconstruct.")] = 2000,
    parties: Annotated[
        str | None, typer.Option("--parties", metavar="A,B", help="Whose payloads to attack; default: all passive.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Lay one setting over the job; repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write; default: frontiers/NAME.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the trials that are there; do the rest.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Weaker attackers, for a first look at small data.")] = False,
    allow_model: AllowModel = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as the last line.")] = False,
) -> None:
    """Find the defense and the setting for a wanted accuracy or leakage.

    Every trial trains the job and attacks what its parties send. All defenses get the same number of trials. If
    you ask for neither, it looks for the least leakage within two points of the undefended accuracy. Where classes are
    unbalanced, the AUC of two classes or the balanced accuracy of more takes the place of accuracy. Leakage is what
    these attacks could read. A low figure does not say that every attack must fail.
    """
    from veracausa.cli import console
    from veracausa.cli.progress import ProgressDisplay
    from veracausa.experiments.find_frontier import frontier as find_frontier
    from veracausa.experiments.frontier_page import as_json as for_machines

    folder: list[Path] = []
    go_on = GoOn(names_folder=False)
    with resumable(go_on), ProgressDisplay() as progress:

        def hear(event: Event) -> None:
            if event["event"] == "folder" and not folder:
                folder.append(Path(event["path"]))
            progress(event)

        found = find_frontier(
            job,
            _words(defenses),
            budget,
            accuracy=accuracy,
            leakage=leakage,
            at_least=at_least,
            score=score,
            cuts=_cuts(cuts),
            seeds=seeds,
            auxiliary=auxiliary,
            victims=victims,
            parties=_words(parties or ""),
            overrides=settings or (),
            out=out,
            resume=resume,
            quick=quick,
            observer=go_on.heard(hear),
            allow_model=allow_model,
        )
    page = folder[0] / "frontier.html"
    if as_json:
        console.print_json_line({"frontier": str(folder[0]), "page": str(page), **for_machines(found)})
        return
    print_frontier(found)
    console.out.print(f"Page: {page}, tables beside it", markup=False, soft_wrap=True)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _cuts(text: str | None) -> tuple[int, ...]:
    try:
        cuts = tuple(dict.fromkeys(int(word) for word in _words(text or "")))
    except ValueError:
        raise InputError(f"--cuts {text}: write numbers of units, as 3,6") from None
    if text is not None and (not cuts or min(cuts) < 1):
        raise InputError(f"--cuts {text}: write numbers of units from 1 on, as 3,6")
    return cuts


def print_frontier(found: Frontier) -> None:
    """The points, the comparison, the recommendation."""
    from rich.table import Table

    from veracausa.cli import console
    from veracausa.experiments.frontier_page import EXPLAINED, cells_of, defense_name, matched_title, titles

    def say(sentence: str) -> None:
        console.say(sentence)

    table = Table(box=None, pad_edge=False)
    for number, title in enumerate(titles(found)):
        table.add_column(title, justify="right" if number in (2, 3) else "left", no_wrap=number in (2, 3))
    for point in found.points:
        table.add_row(*cells_of(point, found))
    console.out.print(table)
    at, what = matched_title(found.constraint)
    matched = Table(f"\n{at}", box=None, pad_edge=False)
    matched.add_column(f"\n{what}", justify="right")
    for name, value in found.matched.items():
        matched.add_row(defense_name(name), value.describe())
    console.out.print(matched)
    say("")
    for why, which in found.skipped.items():
        say(f"Not tried: {', '.join(which)}: {why}")
    for warning in found.warnings:
        say(warning)
    say(EXPLAINED)
    say(f"\n{found.recommendation.sentence}\n{found.recommendation.why}")
    if found.snippet:
        say(f"\n{found.snippet}")
