"""A lab in a temporary folder with the repository's own servers, tools and notebooks: runs do not land in data/."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parent
K6_SERIES = sorted(path.name for path in (REPOSITORY / "setup" / "k6").iterdir())
"""Every series of k6 that the lab drives: a folder each."""
BENCH = [sys.executable, "-m", "runner.cli"]
KNOWN = """[server]
language = "Python"
framework = "asyncio"
tier = "raw"
implements = ["health", "count", "experiments", "stats"]

[run]
command = ["{python}", "{script}", "{name}", "{delays}"]
"""


def k6_of(series: str) -> Path:
    """Return the k6 of a series that `make k6-both` built; the test is skipped where it did not."""
    path = REPOSITORY / ".tools" / f"k6-{series}"
    if not path.is_file():
        pytest.skip(f"k6 {series} is not built: run `make k6-both`")
    return path


def make(root: Path, *, k6: Path | None = None) -> Path:
    """Make the lab under `root` and return `root`; with `k6` that one is its own."""
    (root / "servers").mkdir()
    for server in (REPOSITORY / "servers").iterdir():
        (root / "servers" / server.name).symlink_to(server)
    (root / "notebooks").symlink_to(REPOSITORY / "notebooks")
    if k6 is not None:
        (root / ".tools").mkdir()
        (root / ".tools" / "k6").symlink_to(k6)
    elif (REPOSITORY / ".tools").exists():
        (root / ".tools").symlink_to(REPOSITORY / ".tools")
    (root / "data").mkdir()
    shutil.copy(REPOSITORY / "data" / "published.csv", root / "data")
    return root


def add_known_server(root: Path, name: str, delays_ms: list[int]) -> None:
    """Add a server whose requests take `delays_ms` in turn, as a user would: a folder, nothing else."""
    folder = root / "servers" / name
    folder.mkdir()
    delays = ",".join(map(str, delays_ms))
    script = HERE / "fakes" / "known_server.py"
    (folder / "server.toml").write_text(KNOWN.format(python=sys.executable, script=script, name=name, delays=delays))


def bench(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in `root`."""
    env = {**os.environ, "BENCH_ROOT": str(root), "COLUMNS": "200"}
    return subprocess.run(
        [*BENCH, *arguments], cwd=root, env=env, capture_output=True, text=True, timeout=280, check=False
    )


def must_be_alone() -> None:
    """AssertionError where tests run beside this one that are not marked."""
    from disturbance import Repeats  # pytest's plugin: not imported before it is one

    assert Repeats.measuring, "a campaign measures: mark the test `load` or `timed`"


def run(root: Path, campaign: str, *more: str) -> tuple[subprocess.CompletedProcess[str], pd.DataFrame]:
    """Write a campaign, run it and return what happened with the table of its trials."""
    must_be_alone()
    path = root / "test.toml"
    path.write_text(campaign)
    done = bench(root, "run", str(path), "--json", *more)
    result = json.loads(done.stdout)
    return done, standing(pd.read_parquet(Path(result["path"]) / "tables" / "trials.parquet"))


def standing(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the last attempt of each trial, with the trial's name as `name`.

    Those before it were disturbed by the machine, by nothing else.
    """
    trials = trials.assign(name=trials["trial_id"].str.replace(r"\.a\d+$", "", regex=True))
    earlier = trials.sort_values("attempt", kind="stable").duplicated("name", keep="last").reindex(trials.index)
    machines = "hypervisor|other programs|sampler took|probe sent|dropped no packets"
    blamed = trials.loc[earlier, "error"].str.contains(machines)
    assert blamed.all(), list(trials.loc[earlier, "error"])
    return trials[~earlier].reset_index(drop=True)


def is_quiet(trials: pd.DataFrame) -> pd.Series:
    """Return which trials lost less than 5 % of the CPUs' time to the hypervisor."""
    return trials["host_steal_pct"] < 5 * (os.cpu_count() or 1)


def undisturbed(trials: pd.DataFrame) -> pd.Series:
    """Return which trials lost less than 5 % of the CPUs' time to the hypervisor; there must be one.

    Of the others no verdict but `inconclusive` can be expected, unless a side was busy all the same.
    """
    quiet = is_quiet(trials)
    assert quiet.any(), "this machine is too busy for this test: the hypervisor disturbed each trial"
    stolen = trials[~quiet & (trials["verdict"] == "inconclusive")]
    assert stolen["verdict_reason"].str.contains("the hypervisor took").all()
    return quiet
