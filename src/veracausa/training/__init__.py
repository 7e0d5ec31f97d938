"""Split training: from a job to a run folder, and from a trained run to predictions.

`train` starts all parties here, `split/` holds the two kinds of party, `checkpoints` goes back in a run, `predict`
serves it, and `baselines` trains what a federation is measured against. Others may import `train`, `predict`, `hooks`,
`checkpoints`, `evaluate` and the parties of `split`.
"""
