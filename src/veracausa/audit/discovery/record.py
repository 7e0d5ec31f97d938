"""What an audit of a discovery leaves in its folder: numbers, a table and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from veracausa.audit.discovery.cases import AuditOptions
from veracausa.audit.discovery.learned import headline, learned
from veracausa.audit.discovery.markdown import audit_markdown
from veracausa.audit.discovery.page import write_audit_page
from veracausa.data.causal import CausalData
from veracausa.discovery.job import DiscoveryJob
from veracausa.runs import folder
from veracausa.runs.atomic import atomic_write
from veracausa.runs.machine import describe_machine


def write_audit(
    out: Path,
    job: DiscoveryJob,
    data: CausalData,
    parties: Mapping[str, Sequence[str]],
    options: AuditOptions,
    names: Sequence[str],
    found: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Write it all; gives the summary."""
    from veracausa import __version__

    summary: dict[str, Any] = {
        "kind": "discovery audit",
        "headline": headline(found),
        "learned": learned(found, options.known_rows),
        "attributes": len(data.names),
        "rows": len(data.values),
        "parties": {name: list(columns) for name, columns in parties.items()},
        "known_rows": options.known_rows,
        "attacks": list(names),
        "cases": [{name: value for name, value in case.items() if name != "asked"} for case in found],
    }
    atomic_write(out / "config.toml", job.to_toml().encode())
    folder.write_json(out / "environment.json", {"veracausa": __version__, **describe_machine(cuda=False)})
    folder.write_json(out / "summary.json", summary)
    atomic_write(out / "audit.md", audit_markdown(summary).encode())
    write_audit_page(out, summary)
    return summary
