"""`veracausa federation predict`: joint predictions for new rows, every party from its own site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veracausa.cli.allow_model import AllowModel
from veracausa.cli.federation.site import ON_THE_WAY, waiting_words
from veracausa.cli.interruption import GoOn, resumable
from veracausa.cli.predict import told
from veracausa.errors import InputError
from veracausa.events import Event


def predict(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="This party's folder of the federation.")],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FILE", help="This party's new rows; default: the test rows.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="At the active party; default: FOLDER/run/predictions.csv."),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write ids as they are, also where a spreadsheet would run one as a formula.")
    ] = False,
    allow_model: AllowModel = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as the last line.")] = False,
) -> None:
    """Predict rows that all parties have, together. Every party runs this; the active one gets the predictions."""
    with resumable(GoOn(by_itself=True)):
        _predict(folder, data, out, raw, allow_model, as_json)


def _predict(
    folder: Path, data: Path | None, out: Path | None, raw: bool, allow_model: str | None, as_json: bool
) -> None:
    from veracausa.cli.console import err, news, print_json_line
    from veracausa.federation.inference import SitePrediction
    from veracausa.federation.session_attempt import Site, connected

    site = Site.read(folder)
    party = SitePrediction(folder, site.me, data, allow_model)
    if out is not None and not party.active:
        raise InputError(f"--out: the predictions are {party.parties[0]}'s; leave it out")
    target = out or party.run.path / "predictions.csv"
    if not target.parent.is_dir():
        raise InputError(f"{target.parent}: no such folder to write the predictions into; make it")

    def tell(event: Event) -> None:
        if line := waiting_words(event):
            heard = news if event["event"] in ON_THE_WAY else err
            heard.print(line, markup=False, soft_wrap=True)

    with connected(site, party.peers, "predict", tell) as link:
        predictions = party(link, _warn)
    if predictions is None:
        err.print(f"done: {party.parties[0]} has the predictions", markup=False)
        if as_json:
            print_json_line({"rows": None})
        return
    predictions.to_csv(target, raw)
    summary = {"rows": len(predictions.ids), "predictions": str(target), **predictions.scores}
    if as_json:
        print_json_line(summary)
        return
    err.print(told(predictions, target), markup=False, soft_wrap=True)


def _warn(event: Event) -> None:
    from veracausa.cli.console import err

    if event["event"] == "warning":
        err.print(f"warning: {event['text']}", markup=False, soft_wrap=True)
