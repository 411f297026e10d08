"""The runner's side of the sampler: start it, name subjects, write what it saw.

The file is written here, as the sampler itself must not import pyarrow: 0.8 s and 50 MB a trial.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
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

    def __init__(self, process: Instrument) -> None:
        self._process = process

    def add(self, subject: str, pid: int, *, alone: bool = True, cpus: Sequence[int] | None = None) -> None:
        """Sample the control group or process tree of `pid` as `subject` from now on; returns after its first row.

        Where it is not `alone` in its group, it is the tree. With `cpus`, those that it was given, each row says how
        many others the process may use. A subject of the same name is sampled no more.
        """
        self._process.tell({"add": subject, "pid": pid, "alone": alone, "cpus": cpus})

    def poll(self, subject: str, port: int) -> None:
        """Ask a server's /stats as well from now on, over one connection kept open; of another one no more."""
        self._process.tell({"poll": port, "of": subject})

    def pause(self) -> None:
        """Ask no server's /stats any more."""
        self._process.tell({"poll": None})

    def stop(self) -> pa.Table:
        """Have a last row taken; return all rows of all subjects, the columns of resources.parquet."""
        rows = json.loads(self._process.tell({"stop": True}))
        return pa.table({name: pa.array(values, _TYPES.get(name, pa.int64())) for name, values in rows.items()})


def write_rows(rows: pa.Table, names: Mapping[str, Subject], out: Path) -> None:
    """Write the rows of the subjects in `names`, under the names that it gives them, to `out` (resources.parquet)."""
    subjects = rows["subject"].to_pylist()
    renamed = pa.array([names.get(subject) for subject in subjects], pa.string())
    chosen = rows.set_column(rows.schema.get_field_index("subject"), "subject", renamed).filter(renamed.is_valid())
    with replacing(out) as temporary:
        pq.write_table(chosen, temporary, compression="zstd")


@contextlib.contextmanager
def sampling(hz: float, cpus: Sequence[int], ledger: Ledger) -> Iterator[Sampler]:
    """Run a sampler on `cpus`, `hz` times a second, until the context ends."""
    with instrument("runner.measure.sampler", (str(hz), ",".join(map(str, cpus))), ledger) as process:
        yield Sampler(process)
