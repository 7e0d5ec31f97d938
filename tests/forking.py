"""Programs in processes of their own that need not import torch again, which takes seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"
_PARENT = """
import gc, importlib, json, os, signal, sys, traceback
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.freeze()  # a copy that walks over what it has from here copies the memory too
for line in sys.stdin:
    order = json.loads(line)
    if "wait" in order:
        print(os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1]), flush=True)
    elif child := os.fork():
        print(child, flush=True)
    else:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background has Ctrl-C switched off
        os.chdir(order["where"])
        said = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, end in enumerate((nothing, said, said)):
            os.dup2(end, number)
        sys.argv = ["program", *order["arguments"]]
        code = 0
        try:
            exec(compile(order["code"], "<program>", "exec"), {"__name__": "__main__"})
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # to take torch apart in good order takes longer than most programs
"""


class Forks:
    """An interpreter that has imported `modules` and is asked for copies of itself, each to run a program."""

    def __init__(self, modules: Sequence[str]) -> None:
        path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
        self._parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT, *modules],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *error: object) -> None:
        self._parent.communicate(timeout=60)

    def start(self, code: str, where: Path, output: Path, arguments: Sequence[str] = ()) -> int:
        """The process id of a program that has begun; what it prints goes into `output`."""
        return self._ask(code=code, where=str(where), output=str(output), arguments=list(arguments))

    def wait(self, process: int) -> int:
        """Its exit code, once it has ended."""
        return self._ask(wait=process)

    def run(self, code: str, where: Path) -> tuple[int, str]:
        """The exit code of a program and what it printed."""
        output = where / "output.txt"
        return self.wait(self.start(code, where, output)), output.read_text(encoding="utf-8")

    def _ask(self, **order: Any) -> int:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(order) + "\n")
        self._parent.stdin.flush()
        return int(self._parent.stdout.readline())
