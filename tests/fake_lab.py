"""A lab in a temporary folder whose server, k6 and wrk are small scripts: the whole pipeline without real load.

What goes wrong is asked for by the file `fault` beside the tools (fakes/faults.py).
"""

import json
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd
import real_lab
from real_lab import BENCH, bench

from runner.measurement import Measurement
from runner.model import Trial
from runner.store import decode

__all__ = ["BENCH", "bench"]
HERE, REPOSITORY = real_lab.HERE, real_lab.REPOSITORY
SERVER_TOML = """[server]
language = "Python"
framework = "http.server"
tier = "realistic"
implements = ["health", "count", "fallback", "experiments", "md5", "devices-insert", "stats"]

[run]
command = ["{python}", "server.py"]
"""


def campaign_of(*loads: dict[str, object]) -> str:
    """Return a campaign of the fake server."""
    return real_lab.campaign(["fake"], *loads, repeats=1, attempts=1)


K6_LOAD = real_lab.load("experiments", vus=2, iterations=60, warmup_s=0.1)
WRK_LOAD = real_lab.load("wrk-matrix", modes=["keepalive", "close"], connections=[1, 4], duration_s=0.3, warmup_s=0.1)
CAMPAIGN = campaign_of(K6_LOAD, WRK_LOAD)
K6 = "b01-fake-experiments-vus2"
WRK = "b01-fake-wrk-matrix-c4-keepalive"
CLOSE = "b01-fake-wrk-matrix-c4-close"
"""Three of the campaign's trials."""
ALONE = {K6: campaign_of(K6_LOAD)} | {
    trial: campaign_of({**WRK_LOAD, "connections": [4], "modes": [trial.rpartition("-")[2]]}) for trial in (WRK, CLOSE)
}
"""The campaign with one trial only."""


def make(root: Path, repeats: int = 1, campaign: str = CAMPAIGN) -> Path:
    """Make the lab under `root`; return the campaign's file, which repeats it so often."""
    server = root / "servers" / "fake"
    server.mkdir(parents=True)
    (server / "server.toml").write_text(SERVER_TOML.replace("{python}", sys.executable))
    shutil.copy(HERE / "fakes" / "server.py", server)
    (root / ".tools").mkdir()
    for name in ("k6", "wrk"):
        tool = root / ".tools" / name
        tool.write_text(f"#!{sys.executable}\n" + (HERE / "fakes" / f"{name}.py").read_text())
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    (root / ".tools" / "lib").mkdir()
    for module in (HERE / "k6_files.py", HERE / "fakes" / "faults.py"):
        shutil.copy(module, root / ".tools" / "lib")
    shutil.copy(REPOSITORY / "servers" / "schema.sql", root / "servers")
    shutil.copytree(REPOSITORY / "notebooks", root / "notebooks")
    (root / "data").mkdir(exist_ok=True)
    shutil.copy(REPOSITORY / "data" / "published.csv", root / "data")
    path = root / "fakes.toml"
    path.write_text(re.sub("(?m)^repeats = .*", f"repeats = {repeats}", campaign))
    return path


def fault(root: Path, name: str) -> None:
    """Ask for a fault from now on, in every trial or as `FAULT bNN`; `fakes/` has them. The empty name is none."""
    (root / ".tools" / "fault").write_text(name)


def run(root: Path, campaign: Path, *more: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    """Run a campaign with plain processes: what happened, and what `--json` printed."""
    real_lab.must_be_alone()
    done = bench(root, "run", str(campaign), "--engine", "process", "--json", *more)
    return done, json.loads(done.stdout) if done.stdout else None


def records(path: Path | str) -> dict[str, Any]:
    """What is kept of each trial's last attempt, by the trial's name."""
    found = [json.loads(file.read_text()) for file in Path(path).glob("trials/*/trial.json")]
    return {r["trial_id"].split(".a")[0]: r for r in sorted(found, key=itemgetter("attempt"))}


def measured(record: dict[str, Any]) -> tuple[Trial, Measurement]:
    """The trial of a record, and what was measured of it."""
    trial = decode(Trial, record, "the trial", more=True)
    return trial, decode(Measurement, record["measurement"], "the measurement")


def trials_of(path: Path | str) -> pd.DataFrame:
    """The table of a run's trials, the last attempt of each."""
    return real_lab.standing(pd.read_parquet(Path(path) / "tables" / "trials.parquet"))


def wait_for(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait until the condition holds; AssertionError where it does not in so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()
