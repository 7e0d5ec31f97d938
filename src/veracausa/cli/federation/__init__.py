"""`veracausa federation`: one job across organisations."""

from __future__ import annotations

import typer

from veracausa.cli.federation import export_import, membership, predict, site

app = typer.Typer(
    no_args_is_help=True, help="One job across organisations: invite them, join, agree, run. Keys never leave home."
)
app.command("init")(membership.init)
app.command("join")(membership.join)
app.command("approve")(membership.approve)
app.command("revoke")(membership.revoke)
app.command("serve")(site.serve)
app.command("run")(site.run)
app.command("status")(site.status)
app.command("export")(export_import.export)
app.command("import")(export_import.import_)
app.command("predict")(predict.predict)
