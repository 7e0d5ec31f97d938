"""Known vulnerabilities of what is locked, by pip-audit; and an honest word where nobody could be asked.

pip-audit says "No known vulnerabilities found" and leaves with 0 also when it could ask about no package at all. Here
that is another outcome: NOT AUDITED. Exit code 1 only for vulnerabilities that were found.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOCKS = ("requirements.lock", "requirements-torch.lock")
PATIENCE_S = 60.0
"""Seconds for all packages of a file; an advisory source that does not answer must not hold up `make lint`."""


@dataclass(frozen=True)
class Outcome:
    """What is known of one lock file."""

    state: str
    """`clean`, `vulnerable`, `partly audited` or `NOT AUDITED`."""
    said: str

    @property
    def failed(self) -> bool:
        return self.state == "vulnerable"


def judge(report: Mapping[str, Any]) -> Outcome:
    """The outcome of what pip-audit reported."""
    packages = report["dependencies"]
    found = [
        f"{package['name']} {package['version']}: {one['id']}, mended in: {', '.join(one['fix_versions']) or 'nothing'}"
        for package in packages
        for one in package.get("vulns", ())
    ]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    asked = len(packages) - len(skipped)
    if found:
        return Outcome("vulnerable", "\n  ".join([f"{len(found)} known vulnerabilities", *found]))
    if not asked:
        return Outcome("NOT AUDITED", f"the advisory source knew none of {len(packages)} packages; is it reachable?")
    if skipped:
        return Outcome("partly audited", f"{asked} of {len(packages)} packages; not asked about: {', '.join(skipped)}")
    return Outcome("clean", f"{asked} packages, no known vulnerability")


def audit(lock: Path) -> Outcome:
    """Ask about all pins of a lock file."""
    if importlib.util.find_spec("pip_audit") is None:
        return Outcome("NOT AUDITED", 'pip-audit is not installed; run: pip install "veracausa[dev]"')
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(lock), "--disable-pip", "--require-hashes"]
    command += ["--format", "json", "--progress-spinner", "off", "--timeout", "3"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        return Outcome("NOT AUDITED", f"the advisory source did not answer in {PATIENCE_S:g} s")
    try:
        return judge(json.loads(done.stdout))
    except (ValueError, KeyError, TypeError):
        last = (done.stderr.strip() or "pip-audit said nothing").splitlines()[-1]
        return Outcome("NOT AUDITED", f"pip-audit failed: {last[:200]}")


def main() -> int:
    folder, failed = Path(__file__).parents[1], False
    for name in LOCKS:
        outcome = audit(folder / name)
        failed |= outcome.failed
        print(f"audit: {name}: {outcome.state}: {outcome.said}")
        if outcome.state == "NOT AUDITED":
            print("audit: this is not a clean result; run `make lint` again where an advisory source can be reached")
            break  # the next file would wait as long for the same
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
