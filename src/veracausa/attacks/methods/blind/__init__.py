"""Attacks on blind training: one file an attack."""
