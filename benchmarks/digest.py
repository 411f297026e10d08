"""Measure the speed and memory of the k6 digest, compared with a bare DuckDB COPY and with pandas.

All readers read the same file, which is like a file that k6 writes. The reader "our digest" reads
the file as the samples of one of the lab's trials. The reader "imported file" digests the file as
`bench import` does. The measurement does not include two further steps of `bench import`: to copy
the file first, and to build the tables of the run in the end.

Run: python benchmarks/digest.py [--iterations N] [--repeats N] [--tags stock|trimmed] [--keep
FOLDER]. Each reader runs in a process of its own. In each repeat all readers run one after another,
so that a slow moment of the machine slows all readers. The table shows medians over the repeats.
Wall time counts from the start of reading to the last table. Memory is the process's peak resident
size.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
PANDAS_LINES = 500_000
"""pandas reads only this number of lines, because the whole file would take minutes.

The measured time of pandas is scaled up to the whole file.
"""

_MEASURE = """
import resource, sys, time
from pathlib import Path
raw, out = Path(sys.argv[1]), Path(sys.argv[2])
{imports}
begin = time.perf_counter()
{work}
wall = time.perf_counter() - begin
usage = resource.getrusage(resource.RUSAGE_SELF)
print(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
"""
_READERS = {
    "our digest": (
        "from runner.digest.k6 import digest_requests",
        "digest_requests(raw, [out / f'{name}.parquet' for name in ('requests', 'latency', "
        "'throughput')], trial_id='benchmark', mode='keepalive', scratch=out)",
    ),
    "imported file": (
        """
from runner.digest.imported import cell_of, digest_imported
from runner.model import Trial
from runner.store import RunFolder
run = RunFolder(out)
trial = Trial("benchmark", 1, 1, cell_of("imported"))
run.trial(trial.trial_id).mkdir(parents=True)
(run.trial(trial.trial_id) / "k6.json.gz").symlink_to(raw.absolute())""",
        "digest_imported(run, trial)",
    ),
    "bare DuckDB COPY": (
        "import duckdb",
        """
limits = {"threads": 2, "memory_limit": "400MB", "temp_directory": str(out)}
connection = duckdb.connect(config=limits)
connection.execute("SET enable_progress_bar = false")
columns = '''{metric: 'VARCHAR', type: 'VARCHAR', data: 'STRUCT("time" VARCHAR, "value" DOUBLE,
             tags STRUCT(status VARCHAR, error_code VARCHAR))'}'''
connection.execute(
    f"COPY (SELECT metric, data.time, data.value, data.tags.status, data.tags.error_code"
    f" FROM read_json($raw, format = 'newline_delimited', columns = {columns}))"
    f" TO '{out}/copy.parquet'",
    {"raw": str(raw)},
)""",
    ),
    "pandas.read_json": (
        "import pandas",
        f"rows = sum(len(chunk) for chunk in"
        f" pandas.read_json(raw, lines=True, chunksize=100_000, nrows={PANDAS_LINES}))",
    ),
}
BESIDE = "bare DuckDB COPY"
Costs = tuple[float, float, int]
"""Wall time and CPU time in seconds, and peak resident size in bytes."""


def main() -> None:
    """Parse the command line, write the file unless it exists, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=1_000_000)
    parser.add_argument("--tags", choices=("stock", "trimmed"), default="stock")
    parser.add_argument(
        "--keep", type=Path, help="folder in which the generated file stays for the next time"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--only", choices=tuple(_READERS), action="append", help="leave out the other readers"
    )
    options = parser.parse_args()
    if options.iterations < 1 or options.repeats < 1:
        parser.error("--iterations and --repeats must be 1 or more")
    with _folder(options.keep) as folder:
        raw, facts = _generated(folder, options.iterations, options.tags)
        size = facts["uncompressed_bytes"]
        _show(
            f"{options.iterations:,} iterations, {facts['lines']:,} lines, {size / 1e6:,.0f} MB of "
            f"JSON, {raw.stat().st_size / 1e6:,.0f} MB compressed"
        )
        results: dict[str, list[Costs]] = {name: [] for name in options.only or _READERS}
        for _ in range(options.repeats):
            for name, costs in results.items():
                costs.append(_measure(name, raw))
    _report(results, size, facts["lines"])


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="bench-digest-") as name:
            yield Path(name)
    else:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep


def _generated(folder: Path, iterations: int, tags: str) -> tuple[Path, dict[str, int]]:
    """Return the path of a generated file that is like k6's output, and facts about this file.

    The facts are the number of `lines` and the `uncompressed_bytes`. If the folder contains a file
    that was generated with the same arguments, use that file. Otherwise generate the file.
    """
    raw = folder / f"k6-{tags}-{iterations}.json.gz"
    note = raw.with_suffix(".facts")
    if not note.exists():
        sys.path.insert(0, str(ROOT / "tests" / "support"))
        # Python finds this module only after the line above.
        from k6_files import write_large  # noqa: PLC0415

        lines, size = write_large(raw, iterations, stock_tags=tags == "stock")
        note.write_text(json.dumps({"lines": lines, "uncompressed_bytes": size}))
    return raw, json.loads(note.read_text())


def _measure(name: str, raw: Path) -> Costs:
    """Read the file `raw` by the reader `name` in a fresh process; return the reader's costs."""
    imports, work = _READERS[name]
    with tempfile.TemporaryDirectory(prefix="bench-digest-out-") as out:
        program = _MEASURE.format(imports=imports, work=work)
        done = subprocess.run(
            [sys.executable, "-c", program, str(raw), out],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
    wall, cpu, peak = done.stdout.split()
    return float(wall), float(cpu), int(peak)


def _report(results: dict[str, list[Costs]], size: int, lines: int) -> None:
    """Print a row per reader, with its costs, and with its costs relative to the reader `BESIDE`.

    In each repeat, the cost of the reader is divided by the cost of `BESIDE`. The row shows the
    median, the minimum and the maximum of these ratios. If other programs use the machine, the
    ratios of CPU times are more reliable than those of wall times.
    """
    _show(
        f"{'reader':<20}{'wall s':>9}{'CPU s':>9}{'MB/s':>9}{'peak MB':>9}  wall and CPU time "
        f"beside {BESIDE}'s"
    )
    for name, costs in results.items():
        factor = max(1.0, lines / PANDAS_LINES) if name.startswith("pandas") else 1.0
        note = f"  (scaled from {PANDAS_LINES:,} lines)" if factor > 1 else ""
        wall, cpu, peak = (median(column) for column in zip(*costs, strict=True))
        beside = results.get(BESIDE, costs)
        ratios = [factor * ours[0] / theirs[0] for ours, theirs in zip(costs, beside, strict=True)]
        of_cpu = [factor * ours[1] / theirs[1] for ours, theirs in zip(costs, beside, strict=True)]
        _show(
            f"{name:<20}{wall * factor:>9.1f}{cpu * factor:>9.1f}"
            f"{size / 1e6 / (wall * factor):>9.0f}{peak / 1e6:>9.0f} "
            f" x {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}),"
            f" x {median(of_cpu):.2f} ({min(of_cpu):.2f} to {max(of_cpu):.2f}){note}"
        )


def _show(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
