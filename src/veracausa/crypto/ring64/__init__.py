"""Computing on shares modulo 2^64: sums, products and roundings of numbers that nobody knows.

A dealer hands out correlated randomness ahead; the parties then exchange masked numbers only.
"""
