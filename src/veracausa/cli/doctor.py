"""`veracausa doctor`: whether this machine can run a job, line by line, with the fix for what is wrong."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str
    fix: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one line of JSON.")] = False,
    wire: Annotated[
        Path | None,
        typer.Option("--wire", metavar="FOLDER", help="Prove TLS at every live port of this federation instead."),
    ] = None,
) -> None:
    """Check Python, torch, memory, disk, data folder and encryption; say how to mend what is wrong.

    With --wire: try what must not get in at the federation's ports, with the identity of this folder.
    """
    from rich.markup import escape
    from rich.table import Table

    from veracausa.cli import console

    results = check_wire(wire) if wire is not None else [check() for check in CHECKS]
    failed = any(result.state == "fail" for result in results)
    if as_json:
        console.print_json_line({"ok": not failed, "checks": [asdict(result) for result in results]})
    else:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        colour = {"ok": "green", "warn": "yellow", "fail": "red"}
        for result in results:
            advice = f"\n{result.fix}" if result.fix else ""
            state = f"[{colour[result.state]}]{result.state}[/]"
            table.add_row(state, result.name, escape(result.found + advice))
        console.out.print(table)
    if failed:
        raise typer.Exit(1)


def check_python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if not (3, 11) <= sys.version_info[:2] < (3, 14):
        return Check("Python", "fail", version, "install Python 3.11, 3.12 or 3.13")
    return Check("Python", "ok", version)


def check_torch() -> Check:
    try:
        import torch
    except Exception as error:  # a torch built for another machine fails to load in many ways
        return Check("torch", "fail", f"does not import: {error}", "reinstall it: pip install torch")
    if not torch.cuda.is_available():
        built = f", built for CUDA {torch.version.cuda} but no device is seen" if torch.version.cuda else ""
        return Check("torch", "ok", f"{torch.__version__}, CPU only{built}")
    names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    return Check("torch", "ok", f"{torch.__version__}, CUDA {torch.version.cuda}: {names}")


def check_cores() -> Check:
    from veracausa.runs.machine import usable_cores

    cores = usable_cores()
    if cores < 2:
        return Check("cores", "warn", f"{cores}", "parties take turns on one core; two or more are faster")
    return Check("cores", "ok", f"{cores}")


def check_memory() -> Check:
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        total, free = page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return Check("memory", "warn", "unknown on this system", "make sure that there are 2 GiB or more")
    found = f"{total / 2**30:.1f} GiB, {_available(free) / 2**30:.1f} GiB available"
    if _available(free) < 2**30:
        return Check("memory", "warn", found, "close other programs, or take fewer rows with data.train = …")
    return Check("memory", "ok", found)


def check_disk() -> Check:
    free = shutil.disk_usage(Path.cwd()).free
    found = f"{free / 2**30:.1f} GiB free in {Path.cwd()}"
    if not os.access(Path.cwd(), os.W_OK):
        return Check("disk", "warn", f"{Path.cwd()} cannot be written to", "work in another folder, or give --out")
    if free < 200 * 2**20:
        return Check("disk", "fail", found, "free some space: a run keeps its checkpoints there")
    return Check("disk", "ok" if free > 2 * 2**30 else "warn", found)


def check_data_folder() -> Check:
    from veracausa.data.files import data_folder

    folder = data_folder()
    if folder.is_dir():
        return Check("data folder", "ok", f"{folder}")
    if os.environ.get("VERACAUSA_DATA"):
        return Check(
            "data folder", "warn", f"{folder} (VERACAUSA_DATA) does not exist", "create it, or name another one"
        )
    fix = "`veracausa data` shows what goes there; set VERACAUSA_DATA if your data lies elsewhere"
    return Check("data folder", "ok", f"{folder} (not there yet)", fix)


def check_shared_memory() -> Check:
    shared = Path("/dev/shm")
    if not shared.is_dir():
        return Check("shared memory", "ok", "not used on this system")
    free = shutil.disk_usage(shared).free
    found = f"{free / 2**20:.0f} MiB free in {shared}"
    if free < 64 * 2**20:
        fix = 'give the container more (--shm-size), or keep runtime.link = "threads"'
        return Check("shared memory", "warn", found, fix)
    return Check("shared memory", "ok", found)


def check_encryption() -> Check:
    """Whether blind training and an encrypted discovery can run: both need the library of BFV."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        import seal  # noqa: F401
    except Exception as error:  # a library built for another machine fails to load in many ways
        fix = 'blind training and encrypted discovery need it: pip install "veracausa[he]"'
        return Check("encryption", "warn", f"SEAL does not import: {error}", fix)
    try:
        found = f"SEAL {version('seal-python')}"
    except PackageNotFoundError:
        found = "SEAL, of an unknown version"
    return Check("encryption", "ok", f"{found}: blind training and discovery can be encrypted")


def check_wire(folder: Path) -> list[Check]:
    """Whether the federation's ports keep out whoever is not a member, and accept nobody under another's name."""
    from veracausa.federation import tls_check
    from veracausa.federation.identity import need_flare
    from veracausa.federation.members import read_network
    from veracausa.wire.credentials import Credentials

    need_flare()
    network, own = read_network(folder / "federation.toml"), Credentials.of_folder(folder)
    me = own.common_name
    own.check(me)
    notice = own.expires_soon()
    found = f"{me}: {own.fingerprint}, valid until {own.expires:%Y-%m-%d}"
    results = [Check("identity", "warn" if notice else "ok", found, notice)]
    for port in tls_check.ports(network):
        where = f"{port.member} at {port.address}"
        reason = tls_check.unreachable(port)
        if reason is None:
            proofs = tls_check.prove(port, network, own)
            results += [Check(f"{where}: {p.name}", "ok" if p.passed else "fail", p.found) for p in proofs]
        elif port.member == network.server:
            fix = "nothing is proved of a port that is closed: start it with `veracausa federation serve` or `run`"
            results.append(Check(where, "fail", reason, fix))
        elif network.route == "direct":
            results.append(Check(where, "warn", reason, "nothing is proved of a port that is closed"))
    return results


CHECKS: tuple[Callable[[], Check], ...] = (
    check_python,
    check_torch,
    check_cores,
    check_memory,
    check_disk,
    check_data_folder,
    check_shared_memory,
    check_encryption,
)


def _available(free: int) -> int:
    """What programs may still take: free pages count too little, because the page cache gives way."""
    meminfo = Path("/proc/meminfo")
    for line in meminfo.read_text().splitlines() if meminfo.exists() else ():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return free
