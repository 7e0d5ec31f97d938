"""Pages and figures of runs: self-contained HTML that opens from disk.

Pages are made from what run folders hold (`veracausa.runs.record`), never from a run in memory, and need no torch.
`page` has templates and numbers in words, `figures` draws every chart, and `run_page`, `discovery_page` and `compare`
are the three pages.
"""
