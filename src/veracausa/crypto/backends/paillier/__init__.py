"""Paillier's cryptosystem, packed: compact on the wire for small batches, and slow."""

from veracausa.crypto.backends.paillier.encryption import Paillier

__all__ = ["Paillier"]
