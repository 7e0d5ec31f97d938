"""Experiments: one engine turns a grid of settings into cells, cells into tables, and tables into pages.

A cell is kept under the hash of its settings, so nothing is run twice. `reproduce` runs a published table or figure
again; `frontier` sweeps the settings of defenses within a budget of time and chooses one.
"""
