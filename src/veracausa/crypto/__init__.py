"""Exact arithmetic on secrets: a prime field and the ring of 64-bit words, shares of numbers, and encryption.

`ring`, `fixed_point`, `shares` and `triples` serve the discovery between two share holders. `ring64` serves the one
among all parties. `backends` holds the encryptions, each behind the contract `backends.base.Encryption`.
"""
