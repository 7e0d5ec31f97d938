"""Attacks of a passive party on the labels behind the gradients that came back to it: one file an attack."""
