"""`veracausa federation`: one job across organisations, each command a module of this package."""

from __future__ import annotations

import typer

from veracausa.cli.federation import approve, export, import_, init, join, predict, revoke, run, serve, status

app = typer.Typer(
    no_args_is_help=True, help="One job across organisations: invite them, join, agree, run. Keys never leave home."
)
app.command("init")(init.init)
app.command("join")(join.join)
app.command("approve")(approve.approve)
app.command("revoke")(revoke.revoke)
app.command("serve")(serve.serve)
app.command("run")(run.run)
app.command("status")(status.status)
app.command("export")(export.export)
app.command("import")(import_.import_)
app.command("predict")(predict.predict)
