"""The runner's side of the probe: start it beside a load, write what it saw."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from runner.measure.generators import Shot
from runner.measure.instrument import Instrument, instrument
from runner.measure.leftovers import Ledger
from runner.measurement import PROBE_HZ
from runner.store import replacing


class Probe:
    """The runner's handle on the probing process."""

    def __init__(self, process: Instrument) -> None:
        self._process = process

    def begin(self, shot: Shot, port: int) -> None:
        """Send the first request to a server, and from now on one after the other."""
        request = {"method": shot.method, "path": shot.path, "body": shot.body, "host": shot.host}
        self._process.tell({**request, "port": port, "address": shot.address})

    def pause(self) -> dict[str, Any]:
        """Send no more, once the answers are there; return the samples by column and what they cost."""
        return dict(json.loads(self._process.tell({"pause": True})))


def write_samples(answers: Sequence[dict[str, Any]], out: Path) -> None:
    """Write what one or more `pause` returned to `out` (probe.parquet); the probe's own CPU time is its metadata.

    `series` counts the answers from 0.
    """
    cost = {name: str(sum(answer[name] for answer in answers)) for name in ("cpu_ns", "lived_ns")}
    tables = []
    for series, answer in enumerate(answers):
        samples = {**answer["samples"], "series": [series] * len(answer["samples"]["status"])}
        tables.append(pa.table({name: pa.array(values, pa.int64()) for name, values in samples.items()}))
    with replacing(out) as temporary:
        pq.write_table(pa.concat_tables(tables).replace_schema_metadata(cost), temporary, compression="zstd")


@contextlib.contextmanager
def probing(cpus: Sequence[int], ledger: Ledger) -> Iterator[Probe]:
    """Run a probe on `cpus` that sends PROBE_HZ requests a second, until the context ends."""
    with instrument("runner.measure.probe", (f"{PROBE_HZ:g}", ",".join(map(str, cpus))), ledger) as process:
        yield Probe(process)
