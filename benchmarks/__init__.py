"""Benchmarks of veracausa, outside the package: `make bench NAME=runtime` times one of them.

Each module is one benchmark, and its `run` returns rows: our seconds beside those of what we compare with. The command
line is in `__main__`.
"""
