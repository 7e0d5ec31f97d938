"""Parties in different organisations: a link over NVIDIA FLARE's cells, with mutual TLS."""
