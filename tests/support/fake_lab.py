"""A lab in a temporary folder whose server, k6 and wrk are small scripts.

It runs the whole pipeline without a real load. A test chooses a fault of these scripts by writing
the file `fault` in the folder of the tools (see fakes/faults.py).
"""

import contextlib
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import psutil
import real_lab
from built import bare_lab
from real_lab import BENCH, HERE, REPOSITORY, Run, bench, records

from runner.measurement import Measurement
from runner.model import Trial
from runner.store import decode

__all__ = ["BENCH", "bench", "records"]
Found = TypeVar("Found")
SERVER_TOML = """[server]
language = "Python"
framework = "http.server"
tier = "realistic"
implements = ["health", "count", "fallback", "experiments", "md5", "devices-insert", "stats"]

[run]
command = ["{python}", "server.py"]
"""


def campaign_of(*loads: dict[str, object]) -> str:
    return real_lab.campaign(["fake"], *loads, repeats=1, attempts=1)


K6_LOAD = real_lab.load("experiments", vus=2, iterations=60, warmup_s=0.1)
WRK_LOAD = real_lab.load(
    "wrk-matrix", modes=["keepalive", "close"], connections=[1, 4], duration_s=0.3, warmup_s=0.1
)
CAMPAIGN = campaign_of(K6_LOAD, WRK_LOAD)
K6 = "b01-fake-experiments-vus2"
WRK = "b01-fake-wrk-matrix-c4-keepalive"
CLOSE = "b01-fake-wrk-matrix-c4-close"
"""K6, WRK and CLOSE are the ids of three trials of CAMPAIGN."""
ALONE = {K6: campaign_of(K6_LOAD)} | {
    trial: campaign_of({**WRK_LOAD, "connections": [4], "modes": [trial.rpartition("-")[2]]})
    for trial in (WRK, CLOSE)
}
"""For each trial id, a campaign that has only this trial."""


def make(root: Path, repeats: int = 1, campaign: str = CAMPAIGN) -> Path:
    """Make the lab in `root`; return the path of its campaign, which has `repeats` blocks."""
    server = bare_lab(root) / "servers" / "fake"
    server.mkdir()
    (server / "server.toml").write_text(SERVER_TOML.replace("{python}", sys.executable))
    shutil.copy(HERE / "fakes" / "server.py", server)
    (root / ".tools" / "lib").mkdir(parents=True)
    for name in ("k6", "wrk"):
        text = (HERE / "fakes" / f"{name}.py").read_text()
        real_lab.program(root / ".tools" / name, f"#!{sys.executable}\n{text}")
    for module in (HERE / "k6_files.py", HERE / "fakes" / "faults.py"):
        shutil.copy(module, root / ".tools" / "lib")
    shutil.copy(REPOSITORY / "servers" / "schema.sql", root / "servers")
    path = root / "fakes.toml"
    path.write_text(re.sub("(?m)^repeats = .*", f"repeats = {repeats}", campaign))
    return path


def fault(root: Path, name: str) -> None:
    """Choose the fault that the lab's programs have from now on.

    With the name `FAULT`, the fault occurs in every trial. With the name `FAULT bNN`, it occurs
    only in the trials of block NN. An empty name means no fault. `fakes/` defines the faults.
    """
    (root / ".tools" / "fault").write_text(name)


def run(campaign: Path, *, code: int = 0) -> Run:
    """Run the campaign of a lab, with servers as plain processes.

    The command must end with exit code `code`.
    """
    return real_lab.run(campaign.parent, None, str(campaign), "--engine", "process", code=code)


@contextlib.contextmanager
def rebuilt(path: Path) -> Iterator[None]:
    """Remove a run's tables. The statements of the context must rebuild the tables.

    Check afterwards that the rebuilt tables are equal to the removed ones.
    """
    before = {table.name: pd.read_parquet(table) for table in (path / "tables").glob("*.parquet")}
    shutil.rmtree(path / "tables")
    yield
    for name, frame in before.items():
        pd.testing.assert_frame_equal(frame, pd.read_parquet(path / "tables" / name))


def measured(record: dict[str, Any]) -> tuple[Trial, Measurement]:
    """Return the trial and the measurement that are stored in the trial's record (trial.json)."""
    trial = decode(Trial, record, "the trial", more=True)
    return trial, decode(Measurement, record["measurement"], "the measurement")


def wait_for(
    condition: Callable[[], Found], seconds: float = 30, also: type[Exception] = OSError
) -> Found:
    """Wait until the condition is true, and return its value.

    Raise AssertionError if it is not true within `seconds`. The condition is evaluated again if it
    raises OSError (for example because a program does not listen yet), NoSuchProcess (because a
    program has just ended), or the exception `also`.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, psutil.NoSuchProcess, also):
            if found := condition():
                return found
        time.sleep(0.02)
    raise AssertionError(f"it does not hold within {seconds} s")
