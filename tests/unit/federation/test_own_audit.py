"""A passive party audits its own half at home, without anybody else's rows or labels."""

from __future__ import annotations

import pytest

from veracausa.audit.job import audit_run
from veracausa.audit.settings import AuditSettings
from veracausa.errors import InputError
from veracausa.runs.folder import Run


def test_a_party_audits_what_it_sent(organisations, table_job):
    sites = organisations(table_job())
    sites.run()
    (sites.root / "lab" / "federation.toml").touch()
    (sites.root / "bank" / "federation.toml").touch()
    found = audit_run(Run(sites.root / "lab" / "run"), AuditSettings(("inverse",), ["inverse.epochs=2"], 8, 20))
    assert list(found["attacks"]["inverse"]["parties"]) == ["lab"]
    with pytest.raises(InputError, match="no passive party's model"):
        audit_run(Run(sites.root / "bank" / "run"), AuditSettings(auxiliary=8, victims=20))


def test_other_data_are_not_audited_in_their_place(organisations, table_job):
    sites = organisations(table_job())
    sites.run()
    (sites.root / "lab" / "federation.toml").touch()
    (sites.root / "lab/run/parties/lab/alignment.safetensors").unlink()
    with pytest.raises(InputError, match="not the data of the run"):
        audit_run(Run(sites.root / "lab" / "run"), AuditSettings(auxiliary=8, victims=20))
