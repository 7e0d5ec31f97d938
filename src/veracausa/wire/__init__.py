"""Messages between parties: what may cross, how it is written, and the links that carry it.

A party sees a `Link` and nothing else of the others. Every message has a declared `Kind`, is checked at both ends, and
stands in the sender's `Ledger`. Links exist between threads, between processes, and (`flare`) between organisations.
"""
