"""The link between organisations: NVIDIA FLARE's cells with mutual TLS, and sessions encrypted from end to end."""
