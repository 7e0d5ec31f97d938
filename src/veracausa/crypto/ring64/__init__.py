"""Computing on additive shares modulo 2^64: sums, products and truncations of numbers that nobody knows.

A dealer sends correlated randomness in the offline phase. The parties then exchange masked numbers only.
"""
