"""Attacks of the active party on the rows behind the payloads that it received: one file an attack."""
