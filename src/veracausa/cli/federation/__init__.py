"""`veracausa federation`: one job across organisations."""

from __future__ import annotations

import typer

from veracausa.cli.federation import export_import, membership, predict, site
from veracausa.cli.output_options import PlainGroup, add_command

app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    help="One job across organisations: invite them, join, agree, run. Keys never leave home.",
)
add_command(app, "init", membership.init)
add_command(app, "join", membership.join)
add_command(app, "approve", membership.approve)
add_command(app, "revoke", membership.revoke)
add_command(app, "serve", site.serve)
add_command(app, "run", site.run)
add_command(app, "status", site.status)
add_command(app, "export", export_import.export)
add_command(app, "import", export_import.import_)
add_command(app, "predict", predict.predict)
