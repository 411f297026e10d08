"""Measure how much faster two workers rebuild tables than one, and how much memory a worker needs.

Run: python benchmarks/cluster.py [--iterations N] [--trials N] [--repeats N]. A worker has one
thread. Each repeat measures one worker and then two workers, so that a slow moment of the machine
slows both measurements.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from runner.digest.cluster import spread_over
from runner.digest.k6 import digest_requests

ROOT = Path(__file__).resolve().parents[1]


def digest(raw: Path, folder: Path, number: int) -> dict[str, Any]:
    """Digest the file `raw` as trial `number`, and write the tables into `folder`.

    Return a dict with one entry. The key is the number as a text, and the value is the worker's
    peak resident size in bytes.
    """
    targets = [
        folder / f"{number}.{name}.parquet" for name in ("requests", "latency", "throughput")
    ]
    digest_requests(
        raw, targets, trial_id=f"t{number}", mode="keepalive", scratch=folder, threads=1
    )
    return {str(number): resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def main() -> None:
    """Parse the command line, write the raw file, measure one and two workers, print the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=500_000)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    # Python finds this module only after the line above.
    from k6_files import write_large  # noqa: PLC0415

    took: dict[int, list[float]] = {1: [], 2: []}
    peak = 0
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as name:
        raw = Path(name) / "k6.json.gz"
        write_large(raw, options.iterations, stock_tags=False)
        for _ in range(options.repeats):
            for workers, seconds in took.items():
                with spread_over("local", lambda _: None, workers=workers) as spread:
                    list(
                        spread(partial(digest, raw, Path(name)), range(-workers, 0))
                    )  # this call is not measured, because the workers import modules in it
                    begin = time.perf_counter()
                    found = list(spread(partial(digest, raw, Path(name)), range(options.trials)))
                    seconds.append(time.perf_counter() - begin)
                    peak = max(peak, *(size for each in found for size in each.values()))
    ratios = [one / two for one, two in zip(took[1], took[2], strict=True)]
    print(  # noqa: T201
        f"{options.trials} trials of {options.iterations:,} iterations: one worker "
        f"{median(took[1]):.1f} s, two {median(took[2]):.1f} s, {median(ratios):.2f} times as fast "
        f"({min(ratios):.2f} to {max(ratios):.2f}); a worker takes {peak / 1e6:.0f} MB at most"
    )


if __name__ == "__main__":
    main()
