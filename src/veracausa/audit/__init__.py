"""The audit: what attackers read of a trained model's parties, and of the parties of a discovery.

`job.audit_job` and `job.audit_run` audit a trained model, `discovery.audit_discovery` a discovery. Both record what was
asked and found, and end in a verdict. The package can be called: `veracausa.audit(job)` is `audit_job(job)`.
"""

`veracausa.audit` is a function, `veracausa.audit.job.audit_job`, and shares this package's namespace.
"""
