"""BFV with slots: thousands of products a ciphertext, without rotations and without evaluation keys."""

from veracausa.crypto.backends.bfv.encryption import BFV

__all__ = ["BFV"]
