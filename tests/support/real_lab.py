"""A lab in a temporary folder with the repository's servers, tools and notebooks.

The runs of this lab are not written into the repository's data/.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd
import preloaded
import psutil
import pytest

from runner.measure.tools import find_program

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
K6_SERIES = sorted(path.name for path in (REPOSITORY / "setup" / "k6").iterdir())
"""The series of k6 that the lab drives; each has a folder in setup/k6/."""
BENCH = [sys.executable, "-m", "runner.cli"]
_started: list["subprocess.Popen[str]"] = []
"""Commands that `start` has started since the last `end_started`."""


def k6_of(series: str) -> Path:
    """Return the path of the k6 of a series, which `make k6-both` builds.

    Skip the test if this k6 is not built.
    """
    path = REPOSITORY / ".tools" / f"k6-{series}"
    if not path.is_file():
        pytest.skip(f"k6 {series} is not built: run `make k6-both`")
    return path


def needs(*programs: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test if one of these programs is not installed."""
    missing = [name for name in programs if find_program(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


needs_two_cpus = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="server and generator need a CPU each"
)


def needs_docker() -> pytest.MarkDecorator:
    from docker.errors import DockerException  # imported here, because it takes a while

    from runner.measure.connecting import connect

    reason = ""
    try:
        connect().close()
    except DockerException as error:
        reason = f"no Docker engine answers: {str(error).splitlines()[0]}"
    return pytest.mark.skipif(bool(reason), reason=reason)


def other_addresses() -> list[str]:
    """Return this machine's IPv4 addresses except loopback."""
    found = (each for addresses in psutil.net_if_addrs().values() for each in addresses)
    return [
        each.address
        for each in found
        if each.family == socket.AF_INET and not each.address.startswith("127.")
    ]


def with_changed(module: str, change: str) -> list[str]:
    """Return a command that runs the lab's command line with a changed module.

    `change` is a Python statement, in which `m` is the module.
    """
    return [
        sys.executable,
        "-c",
        f"from runner import cli; import {module} as m; {change}; cli.main()",
    ]


def make(root: Path, *, k6: Path | None = None) -> Path:
    """Make the lab in `root`, and return `root`.

    If `k6` is given, this program is the lab's only tool. Otherwise the lab has the repository's
    tools.
    """
    (root / "servers").mkdir()
    for server in (REPOSITORY / "servers").iterdir():
        (root / "servers" / server.name).symlink_to(server)
    (root / "notebooks").symlink_to(REPOSITORY / "notebooks")
    if k6 is not None:
        (root / ".tools").mkdir()
        (root / ".tools" / "k6").symlink_to(k6)
    elif (REPOSITORY / ".tools").exists():
        (root / ".tools").symlink_to(REPOSITORY / ".tools")
    (root / "data").mkdir(exist_ok=True)
    shutil.copy(REPOSITORY / "data" / "published.csv", root / "data")
    return root


def program(path: Path, text: str) -> Path:
    """Write an executable script with this text, and return its path."""
    path.write_text(text)
    path.chmod(0o755)
    return path


@contextlib.contextmanager
def process(*command: object, cpus: str = "", **how: Any) -> Iterator["subprocess.Popen[Any]"]:
    """Run a program until the context ends, and then kill the program and its children.

    If `cpus` are given, the program runs only on these CPUs.
    """
    pinned = ["taskset", "-c", cpus] if cpus else []
    with subprocess.Popen([*pinned, *map(str, command)], **how) as made:
        try:
            yield made
        finally:
            below: list[psutil.Process] = []
            with contextlib.suppress(psutil.NoSuchProcess):
                below = psutil.Process(made.pid).children(recursive=True)
            made.kill()  # kill it before its children, because it might start new children
            for each in below:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()


def start(
    root: Path, *arguments: str, program: Sequence[str] = BENCH, **environment: str
) -> "subprocess.Popen[str]":
    """Start the lab's command line in `root`, as a fork of a preloaded process (preloaded.py)."""
    env = {**os.environ, "BENCH_ROOT": str(root), "COLUMNS": "200", **environment}
    pipe = subprocess.PIPE
    runner = preloaded.Popen(
        [*program, *arguments], cwd=root, env=env, stdout=pipe, stderr=pipe, text=True
    )
    _started.append(runner)
    return runner


def end_started() -> None:
    """Kill each command that `start` has started and that still runs.

    The lab's watchdog then ends and removes everything that the killed command left behind.
    """
    while _started:
        runner = _started.pop()
        if runner.poll() is None:
            runner.kill()
            runner.wait(timeout=10)


def ended(
    runner: "subprocess.Popen[str]", code: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Wait until a started command ends; return its exit code and output.

    The command must end without a traceback. If `code` is given, it must end with this exit code.
    """
    try:
        out, err = runner.communicate(timeout=280)
    finally:
        runner.kill()
    assert code in (None, runner.returncode) and "Traceback" not in err, out + err
    return subprocess.CompletedProcess(runner.args, runner.returncode, out, err)


def bench(
    root: Path, *arguments: str, code: int | None = None, **how: Any
) -> subprocess.CompletedProcess[str]:
    """Run the lab's command line in `root`.

    If `code` is given, the command must end with this exit code.
    """
    return ended(start(root, *arguments, **how), code)


def load(workload: str, **settings: object) -> dict[str, object]:
    """Return a load of a campaign. Its warm-up lasts 0.2 s, unless `settings` have a `warmup_s`."""
    return {"workload": workload, "warmup_s": 0.2, **settings}


def campaign(servers: list[str], *loads: dict[str, object], **settings: object) -> str:
    """Return a campaign as TOML: first its settings, then its loads."""

    def toml(value: object) -> str:
        if isinstance(value, dict):
            return f"{{{', '.join(f'{key} = {toml(each)}' for key, each in value.items())}}}"
        return json.dumps(value)

    def table(head: str, values: dict[str, Any]) -> str:
        lines = [
            f"{key} = {toml(value)}\n"
            for key, value in values.items()
            if head or not isinstance(value, dict)
        ]
        return "".join([head, *lines])

    top = {"title": "a test", "servers": servers, **settings}
    tables = [table(f"[{name}]\n", value) for name, value in top.items() if isinstance(value, dict)]
    return "\n".join([table("", top), *tables, *(table("[[load]]\n", each) for each in loads)])


@dataclass(frozen=True)
class Run:
    """A run in a lab, and the command that made it."""

    root: Path
    done: subprocess.CompletedProcess[str]

    @property
    def result(self) -> Any:
        """The result that `--json` printed."""
        return json.loads(self.done.stdout)

    @property
    def folder(self) -> Path:
        return Path(self.result["path"])

    @property
    def manifest(self) -> Any:
        return json.loads((self.folder / "run.json").read_text())

    @property
    def trials(self) -> pd.DataFrame:
        """The last attempt of each trial."""
        return standing(self.table("trials"))

    @property
    def records(self) -> list[dict[str, Any]]:
        """The record of each trial's last attempt, in the order of the trials' names."""
        return [record for _, record in sorted(records(self.folder).items())]

    def check(self, name: str) -> dict[str, Any]:
        """Return the first trial's check whose name begins with `name`."""
        return next(each for each in self.records[0]["checks"] if each["name"].startswith(name))

    def table(self, name: str) -> pd.DataFrame:
        return pd.read_parquet(self.folder / "tables" / f"{name}.parquet")


def records(path: Path) -> dict[str, Any]:
    """Return the record of each trial's last attempt.

    The keys are the trials' ids without the number of the attempt.
    """
    found = [json.loads(file.read_text()) for file in path.glob("trials/*/trial.json")]
    return {r["trial_id"].split(".a")[0]: r for r in sorted(found, key=itemgetter("attempt"))}


def run(root: Path, text: str | None, *arguments: str, code: int | None = 0, **how: Any) -> Run:
    """Run `bench run` in `root`, and return the run.

    If `text` is given, it is the campaign. If `code` is not None, the command must end with this
    exit code.
    """
    from disturbance import Disturbance  # imported late, because pytest loads it as a plugin

    assert Disturbance.measuring, "a campaign measures: mark the test `load` or `timed`"
    if text is not None:
        (root / "test.toml").write_text(text)
        arguments = ("test.toml", *arguments)
    done = bench(root, "run", "--json", *arguments, code=code, **how)
    assert done.stdout, done.stderr
    return Run(root, done)


def k6_durations(path: Path) -> pd.DataFrame:
    """Return the end (`time`) and the duration in ms (`value`) of each request in k6's samples.

    The file is read by pandas alone, without the lab's code.
    """
    lines = pd.read_json(path, lines=True, precise_float=True)
    points = lines[(lines["type"] == "Point") & (lines["metric"] == "http_req_duration")]
    return pd.DataFrame(
        {"time": points["data"].str["time"].map(pd.Timestamp), "value": points["data"].str["value"]}
    )


def standing(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the last attempt of each trial.

    The column `name` has the trial's id without the number of the attempt. Assert that all earlier
    attempts failed only because the machine disturbed them.
    """
    trials = trials.assign(name=trials["trial_id"].str.replace(r"\.a\d+$", "", regex=True))
    earlier = (
        trials.sort_values("attempt", kind="stable")
        .duplicated("name", keep="last")
        .reindex(trials.index)
    )
    machines = "hypervisor|other programs|sampler took|probe sent|dropped no packets"
    blamed = trials.loc[earlier, "error"].str.contains(machines)
    assert blamed.all(), list(trials.loc[earlier, "error"])
    return trials[~earlier].reset_index(drop=True)


def is_quiet(trials: pd.DataFrame) -> pd.Series:
    """Return a mask of the trials that lost less than 5 % of the CPUs' time to the hypervisor."""
    return trials["host_steal_pct"] < 5 * (os.cpu_count() or 1)


def undisturbed(trials: pd.DataFrame) -> pd.Series:
    """Return a mask of the trials that lost less than 5 % of the CPUs' time to the hypervisor.

    Assert that there is at least one such trial. Each other trial may have any verdict. If its
    verdict is `inconclusive`, assert that the hypervisor is the reason.
    """
    quiet = is_quiet(trials)
    assert quiet.any(), (
        "this machine is too busy for this test: the hypervisor disturbed each trial"
    )
    stolen = trials[~quiet & (trials["verdict"] == "inconclusive")]
    assert stolen["verdict_reason"].str.contains("the hypervisor took").all()
    return quiet
