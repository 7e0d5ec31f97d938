"""Exact arithmetic for secrets: a prime field, fixed-point numbers in it, shares, and what encrypts them."""
