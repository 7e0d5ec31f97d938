"""Settings that hold for every test."""

from __future__ import annotations

from hypothesis import settings

# A deadline is a timed test in disguise: on a busy machine it fails without a fault.
settings.register_profile("veracausa", deadline=None)
settings.load_profile("veracausa")
