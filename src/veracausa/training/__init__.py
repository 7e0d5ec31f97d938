"""Split and blind training: from a job to a run folder, and from a trained run to predictions.

`train` starts all parties here, `protocols` says what differs between the protocols, `split/` and `blind/` hold the
parties of each, `checkpoints` goes back in a run, `predict` serves it, and `baselines` trains what a federation is
measured against. Others may import `train`, `predict`, `protocols`, `hooks`, `checkpoints`, `evaluate` and the parties.
"""
