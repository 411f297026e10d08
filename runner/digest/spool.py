"""Rows too many for memory, in an Arrow IPC file on disk, gone through batch by batch as often as wanted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

REQUESTS = pa.schema(
    [
        ("end_ns", pa.int64()),
        *[(f"{part}_ms", pa.float64()) for part in ("duration", "blocked", "connecting", "tls")],
        *[(f"{part}_ms", pa.float64()) for part in ("sending", "waiting", "receiving")],
        ("status", pa.int16()),
        ("error_code", pa.int16()),
    ]
)
"""One row a request, in the file's order: wall-clock end and k6's own durations; error_code 0 where there is none."""

ITERATIONS = pa.schema([("end_ns", pa.int64()), ("length_ms", pa.float64())])
"""One row a completed iteration: wall-clock end and iteration_duration."""


class Spool:
    """Columns of a spooled file, each batch a dict of NumPy arrays; only one batch is in memory.

    Read, not mapped: a mapped file counts as the process's memory as far as it was looked at, and grows with the trial.
    """

    def __init__(self, path: Path, *columns: str) -> None:
        """Choose columns by name; without any, all of them."""
        self._path, self._columns = path, columns

    def __iter__(self) -> Iterator[dict[str, NDArray[Any]]]:
        for batch in self.batches():
            yield {name: batch.column(name).to_numpy() for name in batch.schema.names}

    def batches(self) -> Iterator[Any]:
        """Yield the Arrow batches."""
        with pa.OSFile(str(self._path)) as source:
            chosen = [pa.ipc.open_file(source).schema.get_field_index(name) for name in self._columns] or None
            reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=chosen))
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)
