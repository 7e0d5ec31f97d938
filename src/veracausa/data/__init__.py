"""Vertical data: each party's columns or pixels of the same people.

`sources` has one file a data set, `causal` the tables with known graphs, and `load` gives every party its part of the
rows that a job names. Parties and their rows are `vertical.PartyData`.
"""
