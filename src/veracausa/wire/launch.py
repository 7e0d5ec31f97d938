"""Start the parties of an embedded run, in threads or in processes, and bring back what they report."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Literal

import torch

from veracausa import errors as our_errors
from veracausa.errors import PeerLost, RunError, VeracausaError, WireError
from veracausa.events import Event, Observer, event_of
from veracausa.logs import configure_child
from veracausa.wire.codec import DEFAULT_MAX_BODY
from veracausa.wire.link import Link
from veracausa.wire.processes import ProcessLink, Wires, make_wires
from veracausa.wire.threads import Turns, first_cause, run_threads, share_one_heap, thread_links

Program = Callable[[Link, Observer], None]
"""A party: a straight program over a link, which may tell whoever started it how it is getting on."""


@dataclass(frozen=True)
class Launch:
    """How an embedded run is started."""

    link: Literal["threads", "processes"] = "threads"
    timeout: float = 120.0
    max_body: int = DEFAULT_MAX_BODY
    device: str = "cpu"
    cpu_threads: Mapping[str, int] | None = None

    def run(self, programs: Mapping[str, Program], notify: Observer = lambda event: None) -> None:
        """Run all parties to their end; raise what went wrong first."""
        if self.link == "threads":
            self._in_threads(programs, notify)
        else:
            self._in_processes(programs, notify)

    def _in_threads(self, programs: Mapping[str, Program], notify: Observer) -> None:
        turns = Turns() if self.device.startswith("cuda") else None
        links = thread_links(list(programs), self.timeout, turns=turns, max_body=self.max_body)
        lock = threading.Lock()

        def tell(event: Event) -> None:
            with lock:
                notify(event)

        def bound(program: Program) -> Callable[[Link], None]:
            return lambda link: program(link, tell)

        run_threads({name: bound(program) for name, program in programs.items()}, links, turns, self.cpu_threads)

    def _in_processes(self, programs: Mapping[str, Program], notify: Observer) -> None:
        context = multiprocessing.get_context("spawn")
        wires = make_wires(list(programs))
        processes: dict[str, BaseProcess] = {}
        reports: dict[str, Connection] = {}
        try:
            for name, program in programs.items():
                reports[name], child_end = context.Pipe(duplex=True)
                threads = self.cpu_threads[name] if self.cpu_threads else 0
                process = context.Process(
                    target=_child, args=(self, wires[name], program, child_end, threads), name=name, daemon=True
                )
                process.start()
                processes[name] = process
                child_end.close()
            for ends in wires.values():
                ends.close()  # a party's death must reach its peers as the end of the pipe
            failures = _attend(processes, reports, notify, self.timeout)
        finally:
            for child in processes.values():
                if child.is_alive():
                    child.kill()
                child.join()
        if failures:
            raise first_cause(sorted(failures, key=lambda failure: not isinstance(failure, _Killed)))


def _attend(
    processes: Mapping[str, BaseProcess], reports: Mapping[str, Connection], notify: Observer, timeout: float
) -> list[BaseException]:
    """Pass on what the children say until all have ended; after a first failure the rest get a while to end too."""
    failures: list[BaseException] = []
    open_ends = dict(reports)
    deadline: float | None = None
    while open_ends:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            break
        ready = wait(list(open_ends.values()), left)
        for name in [name for name, end in open_ends.items() if end in ready]:
            try:
                event = json.loads(open_ends[name].recv_bytes())
            except (EOFError, OSError):
                open_ends.pop(name)
                failure = _ending(name, processes[name])
                failures += [failure] if failure else []
            else:
                if event.get("event") == "failed":
                    failures.append(_rebuilt(event))
                elif event.get("event") == "ended":
                    open_ends.pop(name)
                else:
                    notify(event)
        if failures and deadline is None:
            deadline = time.monotonic() + 2 * timeout
    return failures


def _ending(name: str, process: BaseProcess) -> BaseException | None:
    process.join(5)
    code = process.exitcode
    if code is not None and code < 0:
        return _Killed(name, f"its process was ended by {signal.Signals(-code).name}")
    return _Killed(name, f"its process ended with exit code {code}")


class _Killed(PeerLost):
    """Seen by the one who started it: nearer to the cause than what the other parties saw."""


def _rebuilt(event: Event) -> BaseException:
    if event["type"] == "PeerLost":
        return PeerLost(event["peer"], event["message"])
    if event["type"] == "WireError":
        error = WireError(event["peer"], "")
        error.args = (event["message"],)
        return error
    known = getattr(our_errors, event["type"], None)
    if isinstance(known, type) and issubclass(known, VeracausaError):
        return known(event["message"])
    return RunError(f"{event['party']}: {event['type']}: {event['message']}")


def _child(launch: Launch, wires: Wires, program: Program, report: Connection, threads: int) -> None:
    """The whole life of a party's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who started it decides what an interrupt means
    threading.Thread(target=_die_with_parent, args=(report,), daemon=True).start()
    share_one_heap()
    configure_child()
    if threads:
        torch.set_num_threads(threads)

    def tell(event: Event) -> None:
        report.send_bytes(json.dumps(event).encode())

    link = ProcessLink(wires, None, launch.timeout, launch.max_body, torch.device(launch.device))
    try:
        program(link, tell)
        link.close()
    except BaseException as error:  # whatever it was, the other parties must hear of it
        link.give_up(error)
        detail = {"peer": "", "message": str(error)}
        if isinstance(error, PeerLost):
            detail = {"peer": error.peer, "message": error.reason}
        elif isinstance(error, WireError):
            detail["peer"] = error.field
        if os.environ.get("VERACAUSA_DEBUG") == "1":
            import traceback

            traceback.print_exc()
        tell(event_of("failed", {"party": wires.me, "type": type(error).__name__, **detail}))
    tell({"event": "ended"})


def _die_with_parent(report: Connection) -> None:
    """A run whose starter was killed must not go on writing into the folder that a resume may use."""
    try:
        report.poll(None)
        report.recv_bytes()
    except (EOFError, OSError):
        pass
    os._exit(1)
