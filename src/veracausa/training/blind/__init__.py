"""Blind training: bottoms learn at home, the head is computed from encrypted sums over rows.

`labels` says what passive parties may know of labels, `head` solves the head from moments, `active` and `passive` are
the parties, `answers` predicts with an encrypted head.
"""
