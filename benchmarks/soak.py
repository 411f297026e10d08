"""Run one very long trial, to check that the runner's memory does not grow and all counts agree.

Run: python benchmarks/soak.py [--iterations N] [--vus N] [--server NAME]. The program runs a
campaign with a single trial, reads the runner's resident memory once a second, and adds a row to
docs/soak.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "soak.md"
CAMPAIGN = """title = "soak: one trial of {iterations} iterations"
servers = ["{server}"]

[[load]]
workload = "experiments"
vus = {vus}
iterations = {iterations}
warmup_s = 2
"""
_ABOUT = """# Soak

One trial, as long as an hour carries: `make soak`. *Runner* is the resident memory of the process
that a user starts, which digests too: early under load, late under load, and at its highest in the
digest. *Counts* is how many of the trial's invariants held.
"""
_COLUMNS = (
    "day",
    "server",
    "iterations",
    "load",
    "runner early",
    "late",
    "digest",
    "runner then",
    "k6's samples",
    "counts",
)
HEAD = f"{_ABOUT}\n| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|\n"


@dataclass(frozen=True)
class Seen:
    """The runner's resident memory at an instant, in bytes."""

    wall_s: float
    rss_bytes: int


def main() -> int:
    """Run the campaign, and add its row to docs/soak.md; return the exit code of the run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=10_000_000)
    parser.add_argument("--vus", type=int, default=500)
    parser.add_argument("--server", default="gin")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        campaign = Path(folder) / "soak.toml"
        campaign.write_text(CAMPAIGN.format(**vars(asked)), encoding="utf-8")
        command = [sys.executable, "-m", "runner.cli", "run", str(campaign), "--json"]
        runner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        seen = list(watch(runner))
        assert runner.stdout is not None
        result = json.loads(runner.stdout.read())
    row = describe(Path(result["path"]), asked.server, seen)
    PAGE.write_text(
        (PAGE.read_text(encoding="utf-8") if PAGE.exists() else HEAD) + row, encoding="utf-8"
    )
    sys.stdout.write(row)
    return runner.returncode


def watch(runner: subprocess.Popen[str]) -> Sequence[Seen]:
    """Read the runner's resident memory once a second until the runner ends.

    Return all readings.
    """
    found = []
    while runner.poll() is None:
        try:
            status = Path(f"/proc/{runner.pid}/status").read_text()
        except OSError:
            break
        kib = next(
            (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")), 0
        )
        found.append(Seen(time.time(), 1024 * kib))
        time.sleep(1.0)
    return found


def describe(run: Path, server: str, seen: Sequence[Seen]) -> str:
    """Return a run's row for the table in docs/soak.md, with memory in MB and durations in s."""
    (path,) = run.glob("trials/*/trial.json")
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    measurement = record["measurement"]
    checks = record["checks"]
    begin, end = (measurement[f"load_{name}_wall_ns"] / 1e9 for name in ("started", "ended"))
    length = end - begin
    early = [each.rss_bytes for each in seen if begin <= each.wall_s <= begin + 0.1 * length]
    late = [each.rss_bytes for each in seen if end - 0.1 * length <= each.wall_s <= end]
    after = [each for each in seen if each.wall_s > end]
    digest_s = datetime.fromisoformat(record["ended_at"]).timestamp() - end
    cells = (
        datetime.now(UTC).date().isoformat(),
        server,
        f"{record['metrics'].get('requests') or 0:,}",
        f"{length:,.0f} s",
        f"{max(early, default=0) / 1e6:.0f} MB",
        f"{max(late, default=0) / 1e6:.0f} MB",
        f"{digest_s:.0f} s",
        f"{max((each.rss_bytes for each in after), default=0) / 1e6:.0f} MB",
        f"{record['raw']['k6.json.gz']['bytes'] / 1e6:,.0f} MB",
        f"{sum(check['ok'] for check in checks)} of {len(checks)}, {record['status']}",
    )
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    sys.exit(main())
