"""An instrument of the lab as a process of its own, driven by JSON lines: the sampler and the probe."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.measure.leftovers import Ledger
from runner.model import LabError

PATIENCE_S = 60.0
"""An instrument answers within milliseconds, the sampler's last answer within a second: it writes its samples."""


class Instrument:
    """A running instrument: it answers each command with one line."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self._name = name
        self._process = process

    def tell(self, command: Mapping[str, Any]) -> str:
        """Send a command and return the answer; LabError where the instrument has ended before its time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            if not select.select([self._process.stdout], [], [], PATIENCE_S)[0]:
                raise LabError(f"The {self._name} did not answer within {PATIENCE_S:.0f} s.", exit_code=1)
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise LabError(f"The {self._name} ended before its time.", exit_code=1)
        return answer.strip()


@contextlib.contextmanager
def instrument(module: str, arguments: Sequence[str], ledger: Ledger) -> Iterator[Instrument]:
    """Run `python -m module` with `arguments`; the end of its standard input ends it, at last a kill."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    ledger.add_process(process.pid)
    try:
        yield Instrument(module.rpartition(".")[2], process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
