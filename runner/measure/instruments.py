"""The instruments beside a load, sampler and probe: processes that answer each JSON line with one line.

Nothing here imports pyarrow, which would cost 0.8 s and 50 MB a trial, and is not on other hosts.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from runner.measure.leftovers import Ledger
from runner.model import LabError

PATIENCE_S = 60.0
"""An instrument answers within milliseconds, the sampler's last answer within a second: it writes its samples."""
Ask = Callable[[Mapping[str, Any]], str]
"""Sends a command to an instrument and returns its answer; LabError where it has ended before its time."""


@contextlib.contextmanager
def started(name: str, hz: float, cpus: Sequence[int], ledger: Ledger) -> Iterator[Ask]:
    """Run `runner.measure.NAME` on `cpus`, `hz` times a second; the end of its standard input ends it, or a kill."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"runner.measure.{name}", str(hz), ",".join(map(str, cpus))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    ledger.add_process(process.pid)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield lambda command: _ask(name, process, command)
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _ask(name: str, process: subprocess.Popen[str], command: Mapping[str, Any]) -> str:
    assert process.stdin is not None and process.stdout is not None
    answer = ""
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], PATIENCE_S)[0]:
            raise LabError(f"The {name} did not answer within {PATIENCE_S:.0f} s.", exit_code=1)
        answer = process.stdout.readline()
    if not answer:
        raise LabError(f"The {name} ended before its time.", exit_code=1)
    return answer.strip()


class Sampler:
    """A running sampler."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def add(self, subject: str, pid: int, *, alone: bool = True, cpus: Sequence[int] | None = None) -> None:
        """Sample the control group or process tree of `pid` as `subject` from now on; returns after its first row.

        Where it is not `alone` in its group, it is the tree. With `cpus`, those that it was given, each row says how
        many others the process may use. A subject of the same name is sampled no more.
        """
        self._ask({"add": subject, "pid": pid, "alone": alone, "cpus": cpus})

    def poll(self, subject: str, address: str, port: int) -> None:
        """Ask a server's /stats as well from now on, over one connection kept open; of another one no more."""
        self._ask({"poll": port, "address": address, "of": subject})

    def pause(self) -> None:
        """Ask no server's /stats any more."""
        self._ask({"poll": None})

    def stop(self) -> dict[str, list[Any]]:
        """Have a last row taken; return all rows of all subjects by the columns of resources.parquet."""
        return dict(json.loads(self._ask({"stop": True})))
