"""From a party's folder to its program, for training or discovery."""

from __future__ import annotations

import tomllib
from pathlib import Path

from veracausa.errors import InputError
from veracausa.federation.site_program import SiteProgram, allowed_model, read_file

"""The run folder of a site, inside its own."""
SEED, SEED_BYTES = "seed", 32
"""The file of a seed that only this party knows, beside its checkpoints, and its size."""
"""The file of the secret that a leader orders common rows by, or of these words where they lie as in its table."""


def party_program(folder: Path, me: str, secret: bool = True, allow_model: str | None = None) -> SiteProgram:
    """The party `me` as its folder describes it, checked as far as it can be alone.

    What it draws for itself, and the order of rows if it leads, follow from secrets of its own. Without `secret` they
    follow from the job's seed and its file, which makes a run repeatable and hides neither: for simulations. A model
    that is code runs only if `allow_model` or the folder's `party.toml` names the same one.
    """
    path = folder / "job.toml"
    try:
        kind = tomllib.loads(read_file(path).decode()).get("kind", "split")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not valid TOML: {error}") from None
    if kind == "discovery":
        from veracausa.federation.discovery_site import DiscoverySite

        return DiscoverySite(folder, me, secret)
    from veracausa.federation.training_site import SplitSite

    return SplitSite(folder, me, secret, allow_model or allowed_model(folder))
