"""What runs with what: found out by asking and by tiny trials, never typed."""

from veracausa.support.fit import why_not

__all__ = ["why_not"]
