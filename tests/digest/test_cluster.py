"""Tests of rebuilding tables on Dask workers.

The tables must be the same as those that a single process rebuilds, even if workers die.
"""

import os
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

cloudpickle = pytest.importorskip("cloudpickle", reason="the extra `cluster` is not installed")
from distributed import LocalCluster  # noqa: E402

from runner.digest.cluster import spread_over  # noqa: E402
from runner.digest.tables import rebuild  # noqa: E402
from runner.model import LabError  # noqa: E402
from runner.store import RunFolder, sha256  # noqa: E402

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = [pytest.mark.timed, pytest.mark.long]


def tables(run: RunFolder) -> dict[str, str]:
    found = [path for path in sorted(run.tables.rglob("*.parquet")) if "parts" not in path.parts]
    return {str(path.relative_to(run.tables)): sha256(path) for path in found}


@pytest.fixture
def copied(finished: Any, tmp_path: Path) -> RunFolder:
    """Return a copy of a finished run whose tables a single process has rebuilt."""
    run = RunFolder(Path(shutil.copytree(finished.folder, tmp_path / "copy")))
    rebuild(run)
    return run


def test_the_tables_are_those_of_one_process_byte_by_byte(copied: RunFolder) -> None:
    serial = tables(copied)
    said = []
    shutil.rmtree(copied.tables)
    with spread_over("local", said.append) as spread:
        rebuild(copied, spread=spread, threads=1)
    assert tables(copied) == serial and len(serial) > 4
    trials = len(list(copied.path.glob("trials/*")))
    assert said[-1] == f"[{trials}/{trials}] sessions and trials rebuilt"


def test_workers_elsewhere_do_it_too_and_refuse_a_changed_file(
    copied: RunFolder,
) -> None:
    serial = tables(copied)
    with LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        with spread_over(cluster.scheduler_address, print) as spread:
            rebuild(copied, spread=spread, threads=1)
        assert tables(copied) == serial
        raw = next(copied.path.glob("trials/*/k6.json.gz"))
        raw.write_bytes(raw.read_bytes()[:-1] + b"!")
        with (
            spread_over(cluster.scheduler_address, print) as spread,
            pytest.raises(LabError, match="differs from the sealed one, so the file has changed"),
        ):
            rebuild(copied, spread=spread, threads=1)
    assert tables(copied) == serial


def die_once(folder: Path, item: int) -> dict[str, Any]:
    """Kill the worker at the first call with `item`, and succeed at the second call.

    A file in `folder` tells the calls apart, because they run in different processes.
    """
    marker = folder / str(item)
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
    return {str(item): os.getpid()}


def test_a_task_whose_worker_dies_runs_again_on_another(tmp_path: Path) -> None:
    with spread_over("local", print) as spread:
        found = list(spread(partial(die_once, tmp_path), [1, 2]))
    assert sorted(name for each in found for name in each) == ["1", "2"]


def die(item: int) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def test_a_task_that_ends_every_worker_is_a_sentence() -> None:
    with (
        spread_over("local", print) as spread,
        pytest.raises(LabError, match="the worker that ran it was lost 4 times"),
    ):
        list(spread(die, [1]))


def test_no_scheduler_there_is_a_sentence(bench: Any, copied: RunFolder) -> None:
    for address in ("tcp://127.0.0.1:9", "no address"):
        code, _, err = bench(str(copied.path), "--cluster", address, command="report")
        assert (
            code == 1
            and f"No Dask scheduler answers at {address}" in err
            and "Traceback" not in err
        )
