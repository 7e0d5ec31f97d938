"""The audit: what an attacker reads from the payloads that parties send, and the verdict on a defense.

`veracausa.audit` is a function, `veracausa.audit.job.audit_job`, and shares this package's namespace.
"""
