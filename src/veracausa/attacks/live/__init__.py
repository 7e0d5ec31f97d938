"""Attacks that are there while the victim trains: they watch every exchange, and some send gradients of their own."""

from veracausa.attacks.live.view import LiveAttack, LiveView

__all__ = ["LiveAttack", "LiveView"]
