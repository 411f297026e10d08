"""Read CPU samples in any format that the lab knows.

For each format, FORMATS names a function that reads the format. The format of a file is recognized
by the content of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from runner.importing.cpu.docker import read_docker_csv, read_docker_json
from runner.importing.cpu.pidstat import read_pidstat
from runner.importing.cpu.prometheus import read_prometheus
from runner.importing.cpu.psrecord import read_psrecord
from runner.importing.cpu.series import Series, chosen
from runner.importing.cpu.table import read_table
from runner.model import LabError

LARGEST_BYTES = 256 * 2**20
"""A file of samples may have at most this many bytes."""
FORMATS: Mapping[str, Callable[[str], list[Series]]] = {
    "psrecord": read_psrecord,
    "Prometheus": read_prometheus,
    "docker stats": read_docker_json,
    "pidstat": read_pidstat,
    "docker stats (CSV)": read_docker_csv,
}
"""The functions that read the formats, by the names of the formats.

Each function gets a text. If the text has another format, the function returns no series.
"""


@dataclass(frozen=True)
class CpuFile:
    """A file with CPU samples of a server, and the options that say how to read the file."""

    path: Path
    columns: Mapping[str, str] | None = None
    """The names of columns that `--map` gives, if the file is a CSV of an unknown format.

    Each key is the lab's name of a column, such as `cpu`, and the value is the name of this column
    in the CSV. None if the file has one of the FORMATS.
    """
    server: str | None = None
    """Name of the server's process or container in the file.

    None if the user gave no name. This is allowed only if the file has a single series of samples.
    """


@dataclass(frozen=True)
class CpuSamples:
    """The samples of the server, and the name of the tool that took the samples."""

    tool: str
    series: Series


def read_cpu(file: CpuFile) -> CpuSamples:
    """Return the server's samples in a file; raise LabError if the file has no such samples."""
    try:
        if file.path.stat().st_size > LARGEST_BYTES:
            raise LabError(
                f"{file.path} is larger than {LARGEST_BYTES >> 20} MiB: remove samples from the "
                "file."
            )
        text = file.path.read_text("utf-8", "replace")
    except OSError as error:
        raise LabError(f"{file.path} cannot be read: {error.strerror}.") from None
    try:
        tool, series = _recognized(text, file.columns)
        return CpuSamples(tool, chosen(series, file.server))
    except LabError as error:
        raise LabError(f"{file.path}: {error}", error.exit_code) from None


def _recognized(text: str, columns: Mapping[str, str] | None) -> tuple[str, list[Series]]:
    """Return the name of a text's format, and the series in the text.

    If `columns` is given, the text is read as a CSV with these columns. Raise LabError if this CSV
    has no samples, or if `columns` is None and the text has none of the FORMATS.
    """
    if columns is not None:
        if series := read_table(text, columns):
            return "CSV", series
        raise LabError("the file has no samples.", 1)
    for tool, read in FORMATS.items():
        if series := read(text):
            return tool, series
    raise LabError(
        "the file has no CPU samples in a known format (docker stats, pidstat -h, "
        "psrecord, Prometheus): if it is another CSV, name its columns by --map "
        "time=COLUMN,cpu=COLUMN.",
        1,
    )


def write_samples(samples: CpuSamples, target: Path) -> None:
    """Write the samples as a trial's raw file, with their times unchanged.

    The file's metadata contain the name of the tool, the clock of the times, and the series' note.
    """
    series = samples.series
    rows = len(series.at_s)
    table = pa.table(
        {
            "subject": ["server"] * rows,
            "mono_ns": (series.at_s * 1e9).astype("int64"),
            "cpu_ns": (series.cpu_s * 1e9).astype("int64"),
            "rss_bytes": pa.array(series.rss_bytes, from_pandas=True),
        }
    )
    known = {"tool": samples.tool, "clock": series.clock, "note": series.note}
    pq.write_table(table.replace_schema_metadata(known), target, compression="zstd")
