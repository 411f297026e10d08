"""The runner's side of the probe: start it beside a load, write what it saw."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from runner.measure.generators import Shot
from runner.measure.instrument import Instrument, instrument
from runner.measure.leftovers import Ledger
from runner.store import replacing

HZ = 40.0
"""Few enough to be no load, often enough for a percentile a second or two."""


class Probe:
    """The runner's handle on the probing process."""

    def __init__(self, process: Instrument, shot: Shot, out: Path) -> None:
        self._process = process
        self._shot = shot
        self._out = out

    def begin(self) -> None:
        """Send the first request, and from now on one after the other."""
        shot = self._shot
        self._process.tell({"method": shot.method, "path": shot.path, "body": shot.body, "host": shot.host})

    def stop(self) -> None:
        """End the probe and write its samples; what it used of a CPU itself is in the file's metadata."""
        answer = json.loads(self._process.tell({"stop": True}))
        cost = {name: str(answer[name]) for name in ("cpu_ns", "lived_ns")}
        columns = {name: pa.array(values, pa.int64()) for name, values in answer["samples"].items()}
        table = pa.table(columns).replace_schema_metadata(cost)
        with replacing(self._out) as temporary:
            pq.write_table(table, temporary, compression="zstd")


@contextlib.contextmanager
def probing(out: Path, port: int, cpus: Sequence[int], ledger: Ledger, *, shot: Shot) -> Iterator[Probe]:
    """Run a probe on `cpus` that sends `shot` HZ times a second, and writes `out` (probe.parquet) when stopped."""
    arguments = (f"{HZ:g}", ",".join(map(str, cpus)), str(port), shot.address)
    with instrument("runner.measure.probe", arguments, ledger) as process:
        yield Probe(process, shot, out)
