"""A federation of processes in which the lab brings every date of birth of a century, and is refused by default."""

from __future__ import annotations

import importlib.util
import random
import time
from datetime import date, timedelta
from pathlib import Path

import pytest
import tomli_w
from fabric import make_fabric
from faults import Federation, found

pytestmark = [
    pytest.mark.federation,
    pytest.mark.skipif(
        importlib.util.find_spec("nvflare") is None, reason='needs nvflare: pip install "veracausa[federation]"'
    ),
]
JOB = """
data = { name = "csv", label = "ill", id = "born" }
model = { name = "mlp" }
parties = { active = "clinic", passive = ["lab"] }
training = { epochs = 1, batch_size = 64 }
"""
DAYS = [str(date(1920, 1, 1) + timedelta(days)) for days in range(36_525)]


def test_all_dates_of_a_century_are_refused(tmp_path: Path) -> None:
    job, members = tmp_path / "job.toml", ("clinic", "lab")
    job.write_text(JOB)
    patients = random.Random(0).sample(DAYS, 500)
    (tmp_path / "clinic.csv").write_text("\n".join(["born,ill", *(f"{day},{n % 2}" for n, day in enumerate(patients))]))
    (tmp_path / "lab.csv").write_text("\n".join(["born,a", *(f"{day},{n % 7}" for n, day in enumerate(DAYS))]))
    fabric = make_fabric(members[0], members[1:])
    federation = Federation(tmp_path, fabric, members, options=())
    try:
        found(tmp_path, job, fabric, "tcp", patience=60.0, members=members)
        for member in members:
            own = {"data": {"path": str(tmp_path / f"{member}.csv"), "id": "born"}}
            (tmp_path / member / "party.toml").write_text(tomli_w.dumps(own))
            federation.start(member)
        deadline = time.monotonic() + 300
        while "clinic" not in federation.failed():
            assert time.monotonic() < deadline, federation.log("clinic")
            time.sleep(0.2)
        assert federation.running["clinic"].returncode == 1
    finally:
        federation.end()
        fabric.close()
    said = " ".join(federation.log("clinic").split())
    assert "'lab' brings 36,525 ids, at most 10,000, 20 times what is brought here, are taken" in said
    assert "raise max_ids (--max-ids, or [alignment] in party.toml)" in said
    # Neither was there a yes, nor has anything of an id left, at either of the two.
    assert not (tmp_path / "clinic" / "agreed.json").exists()
    for member in members:
        record = tmp_path / member / "run" / "parties" / member / "alignment.jsonl"
        assert not record.exists() or "align" not in record.read_text()
