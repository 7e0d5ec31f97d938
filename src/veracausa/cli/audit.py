"""`veracausa audit`: what an attacker reads from the payloads of a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer


def audit(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    attacks: Annotated[str, typer.Option("--attacks", metavar="A,B", help="Which attacks to run.")] = "inverse",
    auxiliary: Annotated[
        int, typer.Option(min=4, help="Rows the attacker learns from: test rows, at most half of them.")
    ] = 4000,
    victims: Annotated[int, typer.Option(min=1, help="Rows to reconstruct: of training, and as many of test.")] = 2000,
    parties: Annotated[
        str | None, typer.Option("--parties", metavar="A,B", help="Whose payloads to attack; default: all passive.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="ATTACK.SETTING=VALUE", help="One setting of an attack; repeatable."),
    ] = None,
    double: Annotated[
        bool, typer.Option("--double", help="Also train with twice the epochs, until it hardly changes the figure.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as the last line.")] = False,
) -> None:
    """Attack a finished run: what the strongest attacker we have so far reads from the payloads.

    It is given the victim's trained model and defense, more than any partner has. A low figure says that this attack
    failed, not that every attack must.
    """
    from veracausa.audit.run import audit_run
    from veracausa.cli import console
    from veracausa.runs.folder import Run

    with _Bar() as bar:
        found = audit_run(
            Run(run), _names(attacks), auxiliary, victims, settings or (), _names(parties or ""), double, bar
        )
    if as_json:
        console.print_json_line({"run": str(run), **found})
        return
    _print(run, found)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _print(run: Path, found: Mapping[str, Any]) -> None:
    from rich.table import Table

    from veracausa.cli import console

    several = len(found["attacks"]) > 1
    table = Table(*(["attack"] if several else []), "party", box=None, pad_edge=False)
    for name in ("samples", "mse", "psnr", "ssim", "leakage", "blind mse"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("blind guess")
    for attack, entry in found["attacks"].items():
        for party, own in entry["parties"].items():
            for split in ("train", "test"):
                if split in own:
                    table.add_row(*([attack] if several else []), party, *_cells(split, own[split]))
    console.out.print(table)
    strongest = found["strongest"]
    worst = found["attacks"][strongest["attack"]]
    console.out.print(
        f"\nThe strongest attack, {strongest['attack']}, reads {100 * strongest['leakage']:.1f} % of what can be read "
        f"from the payloads of {worst['party']} (0 %: no more than a guess without them; 100 %: a perfect copy).",
        markup=False,
        soft_wrap=True,
    )
    if not strongest["leakage"]:
        console.out.print(
            "It does no better than a guess without the payloads. That is an attack that failed; whether it works here "
            "at all, an audit of the same job without a defense shows.",
            markup=False,
            soft_wrap=True,
        )
    for attack, entry in found["attacks"].items():
        for party, own in entry["parties"].items():
            if "strength" in own:
                console.out.print(_strength(attack, party, own), markup=False, soft_wrap=True)
    console.out.print(f"Details: {run / 'attacks'}, {run / 'summary.json'}", markup=False, soft_wrap=True)


def _cells(split: str, scores: Mapping[str, Any]) -> list[str]:
    def shown(name: str, digits: int) -> str:
        return f"{scores[name]:.{digits}f}" if name in scores else "–"

    leaked = f"{100 * scores['leakage']:.1f} %"
    errors = [shown("mse", 4), shown("psnr", 1), shown("ssim", 3), leaked, shown("blind_mse", 4)]
    return [f"{scores['samples']} {split}", *errors, str(scores["blind"])]


def _strength(attack: str, party: str, own: Mapping[str, Any]) -> str:
    tried = ", ".join(f"{100 * try_['leakage']:.1f} % at {try_['epochs']:.0f} epochs" for try_ in own["strength"])
    verdict = "it has settled" if own["settled"] else "it still moves by two points or more: train it longer"
    return f"{attack} on {party}: {tried}; {verdict}."


class _Bar:
    """A bar an attack on a terminal; else a line an attack."""

    def __init__(self) -> None:
        from rich.progress import Progress

        from veracausa.cli.console import err

        self._console = err
        self._bar = Progress(console=err, transient=True) if err.is_terminal else None
        self._task: Any = None

    def __enter__(self) -> _Bar:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Mapping[str, Any]) -> None:
        what, share = f"{event['attack']} on {event['party']}", event["share"]
        if self._bar is None:
            if not share:
                self._console.print(what, markup=False)
            return
        if not share:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(what, total=1.0)
        self._bar.update(self._task, completed=share)
