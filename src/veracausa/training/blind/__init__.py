"""Blind training: bottoms learn at home, the head is computed from encrypted sums over rows.

`rows` makes columns of a party's own rows, `labels` says what passive parties may know of labels, `head` solves the
head from moments, `active` and `passive` are the parties, `answers` has the integers of scores from an encrypted head,
`predict` the session that opens them, and `book` what a passive party remembers of its answers.
"""
