"""Vertical data: each party's columns or pixels of the same people."""
