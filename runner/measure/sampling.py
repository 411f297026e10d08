"""The runner's side of the sampler: start it, name subjects, write what it saw.

The file is written here, as the sampler itself must not import pyarrow: 0.8 s and 50 MB a trial.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from runner.measure.instrument import Instrument, instrument
from runner.measure.leftovers import Ledger
from runner.model import Subject
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

    def __init__(self, process: Instrument, out: Path) -> None:
        self._process = process
        self._out = out

    def add(self, subject: Subject, pid: int, *, alone: bool = True, cpus: Sequence[int] | None = None) -> None:
        """Sample the control group or process tree of `pid` as `subject` from now on; returns after its first row.

        Where it is not `alone` in its group, it is the tree. With `cpus`, those that it was given, each row says how
        many others the process may use.
        """
        self._process.tell({"add": subject, "pid": pid, "alone": alone, "cpus": cpus})

    def poll(self, port: int) -> None:
        """Ask the server's /stats as well from now on, over one connection kept open."""
        self._process.tell({"poll": port})

    def stop(self) -> None:
        """Have a last row taken, and write the file."""
        rows = json.loads(self._process.tell({"stop": True}))
        columns = {name: pa.array(values, _TYPES.get(name, pa.int64())) for name, values in rows.items()}
        with replacing(self._out) as temporary:
            pq.write_table(pa.table(columns), temporary, compression="zstd")


@contextlib.contextmanager
def sampling(out: Path, hz: float, cpus: Sequence[int], ledger: Ledger) -> Iterator[Sampler]:
    """Run a sampler on `cpus` that writes the raw counters to `out` (resources.parquet) when stopped."""
    with instrument("runner.measure.sampler", (str(hz), ",".join(map(str, cpus))), ledger) as process:
        yield Sampler(process, out)
