"""A party's own data, looked at where it joins: what cannot be used is said before anybody else waits for it."""

from __future__ import annotations

import tomllib
from pathlib import Path

from veracausa.config import load_job
from veracausa.data.tables import TableFileOptions
from veracausa.federation.site_program import party_tree, read_file


def check_own_data(folder: Path, me: str) -> None:
    """Refuse a table whose ids, label or columns cannot be used in the agreed job. No model is built, nothing kept.

    A party may join first and write later where its data lie. Then `run` is the first to look.
    """
    path = folder / "job.toml"
    data = party_tree(folder).get("data", {})
    if "path" not in data:
        return
    if tomllib.loads(read_file(path).decode()).get("kind") == "discovery":
        _check_columns(folder, me)
        return
    job = load_job(path)
    if me in (job.parties.active, *job.parties.passive) and isinstance(job.data, TableFileOptions):
        from veracausa.federation.rows import SiteTable
        from veracausa.federation.training_site import own_job

        SiteTable(own_job(folder, me), me, folder).check()


def _check_columns(folder: Path, me: str) -> None:
    from veracausa.federation.columns import SiteColumns
    from veracausa.federation.discovery_job import read_agreed
    from veracausa.federation.discovery_site import own_table

    job, method = read_agreed(folder / "job.toml")
    if me in job.parties:
        SiteColumns(job, method, own_table(folder), me, folder)


"""The table of party.toml. It is no part of a job: how rows are matched is settled before a job sees them."""
"""Ids of a party's rows, and of its test rows where they have a file of their own; else 0."""
