"""The runner's side of the sampler: start it, name subjects, write what it saw.

The file is written here, as the sampler itself must not import pyarrow: 0.8 s and 50 MB a trial.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from runner.measure.leftovers import Ledger
from runner.model import LabError, Subject
from runner.store import replacing

_TYPES = {
    "subject": pa.string(),
    "source": pa.string(),
    "gc_pause_total_ms": pa.float64(),
    "gc_cpu_s": pa.float64(),
}
"""Column types; whole numbers where nothing is said."""


class Sampler:
    """The runner's handle on the sampling process."""

    def __init__(self, process: subprocess.Popen[str], out: Path) -> None:
        self._process = process
        self._out = out

    def add(self, subject: Subject, pid: int) -> None:
        """Sample the control group or process tree of `pid` as `subject` from now on; returns after its first row."""
        if self._tell({"add": subject, "pid": pid}) != "ok":
            raise LabError(f"The sampler could not begin with the {subject}.", exit_code=1)

    def poll(self, port: int) -> None:
        """Ask the server's /stats as well from now on, over one connection kept open."""
        if self._tell({"poll": port}) != "ok":
            raise LabError("The sampler could not begin to poll /stats.", exit_code=1)

    def stop(self) -> None:
        """Have a last row taken, write the file and wait for the sampler's end."""
        rows = self._tell({"stop": True})
        self._process.wait(timeout=30)
        columns = {name: pa.array(values, _TYPES.get(name, pa.int64())) for name, values in json.loads(rows).items()}
        with replacing(self._out) as temporary:
            pq.write_table(pa.table(columns), temporary, compression="zstd")

    def _tell(self, command: dict[str, Any]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise LabError("The sampler ended before its time.", exit_code=1)
        return answer.strip()


@contextlib.contextmanager
def sampling(out: Path, hz: float, cpus: Sequence[int], ledger: Ledger) -> Iterator[Sampler]:
    """Run a sampler on `cpus` that writes the raw counters to `out` (resources.parquet) when stopped."""
    process = subprocess.Popen(
        [sys.executable, "-m", "runner.measure.sampler", str(hz), ",".join(map(str, cpus))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    ledger.add_process(process.pid)
    try:
        yield Sampler(process, out)
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
