"""Causal discovery: one graph over the columns of one party or of many.

`discover` writes a run folder. `methods` holds the estimators behind one contract, `base`. `engines` are the ways to
run the main one, `vfedcd`. Others may use `discover`, `run_job`, `methods`, `build`, and the classes of `base` and
`result`.
"""

DEFAULT_METHOD = "auto"
"""The method of a job that names none."""
