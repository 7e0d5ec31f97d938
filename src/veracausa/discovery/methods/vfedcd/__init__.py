"""VFedCD: `estimator` is the method, `settings` all that may be chosen, `as_published` the paper's own variants."""
