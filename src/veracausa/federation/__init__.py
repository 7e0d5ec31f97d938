"""One job across organisations: identity, invitation, consent, and each party's program at its own site.

`Site` is a member's folder, `SiteProgram` what it runs, and `run_site` takes part until the job is done, also after
faults. No party sees another's data: what it will send is declared, and agreed to, before anything runs.
"""
