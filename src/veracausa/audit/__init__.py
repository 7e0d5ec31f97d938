"""The audit of a finished run: what an attacker reads from the payloads its parties send."""
