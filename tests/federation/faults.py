"""A federation of three members that is killed, stopped and cut off at random, and what its weights are in the end.

    python tests/federation/faults.py --kills 20 --partitions 2 --scheme tcp --seed 0 --out results/federation

Members' folders are made by the command line's own functions, members are processes of the command line.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from fabric import Fabric, make_fabric
from typer.testing import CliRunner

from veracausa import train
from veracausa.cli.main import app

MEMBERS = ("bank", "hospital", "lab")
VERACAUSA = [sys.executable, "-m", "veracausa.cli.main"]
JOB = """
name = "faults"
seed = 3
[data]
name = "digits"
train = 600
[model]
name = "convnet"
cut = 6
[parties]
active = "bank"
passive = ["hospital", "lab"]
[training]
epochs = {epochs}
batch_size = 32
optimizer = {{ name = "adam", lr = 0.002 }}
[checkpoints]
every_steps = 5
keep = 2
[runtime]
device = "cpu"
cpu_threads = 1
"""


def command(*words: str) -> None:
    """A command of veracausa, in this process: a new one takes seconds to begin."""
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output


def found(
    work: Path, job: Path, fabric: Fabric, scheme: str, patience: float, members: Sequence[str] = MEMBERS
) -> None:
    """Make every member's folder, as the walk-through says."""
    server, *others = members
    address = f"{server}@{fabric.address}"
    command(
        "federation", "init", str(job), "--name", "faults", "--server", address, "--scheme", scheme,
        "--as", server, "--out", str(work / server), "--wire", f"patience_s={patience}", "--wire", "return_s=300",
    )  # fmt: skip
    for member in others:
        command(
            "federation", "join", str(work / server / "invitation.zip"), "--party", member, "--out", str(work / member)
        )
        request, signed = work / member / f"{member}.request.zip", work / f"{member}.signed.zip"
        command("federation", "approve", str(work / server), str(request), "--yes", "--out", str(signed))
        command("federation", "join", str(work / member), "--signed", str(signed))


@dataclass
class Federation:
    """Three members as processes, and what was done to them."""

    work: Path
    fabric: Fabric
    members: Sequence[str] = MEMBERS
    options: Sequence[str] = ("--job-seed",)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def start(self, member: str) -> None:
        words = [*VERACAUSA, "federation", "run", str(self.work / member), "--yes", *self.options]
        if member == self.members[0] and self.fabric.listen:
            words += ["--listen", self.fabric.listen]
        log = (self.work / f"{member}.log").open("ab")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.running[member] = subprocess.Popen(
            self.fabric.inside(member, words), stdout=log, stderr=log, env=environment, start_new_session=True
        )

    def note(self, what: str, member: str) -> None:
        event = {"at": round(time.monotonic() - self.began, 1), "what": what, "member": member, "held": self.held()}
        self.events.append(event)
        print(json.dumps(event), flush=True)

    def kill(self, member: str, away: float) -> None:
        self.note("killed", member)
        os.killpg(self.running[member].pid, signal.SIGKILL)
        self.running[member].wait()
        time.sleep(away)
        self.start(member)

    def stop_for(self, member: str, seconds: float) -> None:
        self.note("stopped", member)
        os.killpg(self.running[member].pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.killpg(self.running[member].pid, signal.SIGCONT)

    def partition(self, member: str, seconds: float) -> None:
        self.note("cut off", member)
        self.fabric.cut(member)
        time.sleep(seconds)
        self.fabric.heal(member)

    def held(self) -> dict[str, int]:
        """The newest checkpoint of every member."""
        newest = {}
        for member in self.members:
            folder = self.work / member / "run" / "parties" / member / "checkpoints"
            steps = [int(path.name.split("-")[1]) for path in folder.glob("step-*.safetensors")]
            newest[member] = max(steps, default=0)
        return newest

    def alive(self) -> bool:
        return all(process.poll() is None for process in self.running.values())

    def done(self) -> bool:
        return all(process.poll() == 0 for process in self.running.values())

    def failed(self) -> list[str]:
        return [member for member, process in self.running.items() if process.poll() not in (None, 0)]

    def end(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def log(self, member: str) -> str:
        return (self.work / f"{member}.log").read_text(errors="replace")


def weights(run: Path, member: str) -> str:
    return hashlib.sha256((run / "parties" / member / "model.safetensors").read_bytes()).hexdigest()


def undisturbed(work: Path, job: Path) -> dict[str, str]:
    """The weights of the same job with all parties in one place."""
    train(job, work / "embedded")
    return {member: weights(work / "embedded", member) for member in MEMBERS}


def disturb(federation: Federation, kills: int, partitions: int, rng: random.Random, limit: float) -> None:
    """Kill and cut at random moments, each after all have gone a little further, until the job is done."""
    todo = ["kill"] * kills + ["partition"] * partitions
    rng.shuffle(todo)
    further, deadline = 0, time.monotonic() + limit
    while not federation.done():
        if time.monotonic() > deadline or federation.failed():
            return
        time.sleep(0.1)
        if todo and federation.alive() and min(federation.held().values()) > further:
            further = min(federation.held().values())
            time.sleep(rng.uniform(0.0, 0.5))
            clients = federation.members[1:]
            if todo.pop() == "kill":
                federation.kill(rng.choice(federation.members), rng.uniform(0.0, 2.0))
            else:
                federation.partition(rng.choice(clients), rng.uniform(1.0, 6.0))


def fault_run(
    work: Path,
    kills: int,
    partitions: int,
    scheme: str,
    seed: int,
    epochs: int,
    limit: float,
    patience: float = 20.0,
) -> dict[str, Any]:
    """What was done, and whether the weights are those of an undisturbed run."""
    job = work / "job.toml"
    job.write_text(JOB.format(epochs=epochs))
    fabric = make_fabric(MEMBERS[0], MEMBERS[1:])
    federation = Federation(work, fabric)
    try:
        found(work, job, fabric, scheme, patience)
        expected = undisturbed(work, job)
        federation.began = time.monotonic()
        for member in MEMBERS:
            federation.start(member)
        disturb(federation, kills, partitions, random.Random(seed), limit)
        done = federation.done()
    finally:
        federation.end()
        fabric.close()
    got = {member: weights(work / member / "run", member) for member in MEMBERS} if done else {}
    attempts = (
        {m: json.loads((work / m / "federation-status.json").read_text())["attempt"] for m in MEMBERS} if done else {}
    )
    return {
        "scheme": scheme,
        "network": fabric.kind,
        "seed": seed,
        "kills": sum(event["what"] == "killed" for event in federation.events),
        "partitions": sum(event["what"] == "cut off" for event in federation.events),
        "seconds": round(time.monotonic() - federation.began, 1),
        "done": done,
        "same_weights": done and got == expected,
        "last_attempts": attempts,
        "events": federation.events,
        "logs": {} if done else {member: federation.log(member)[-3000:] for member in MEMBERS},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--scheme", default="tcp", choices=("tcp", "grpc"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--limit", type=float, default=1500.0)
    parser.add_argument("--out", type=Path, help="append the result to faults.jsonl in this folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        result = fault_run(
            Path(work), given.kills, given.partitions, given.scheme, given.seed, given.epochs, given.limit
        )
    print(json.dumps({name: value for name, value in result.items() if name != "events"}, indent=1))
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        with (given.out / "faults.jsonl").open("a") as file:
            file.write(json.dumps(result) + "\n")
    sys.exit(0 if result["same_weights"] else 1)


if __name__ == "__main__":
    main()
