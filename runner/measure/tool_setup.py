"""Set up the programs that the lab drives, by running the scripts of setup/.

The scripts build k6, vegeta and oha from locked modules, and install the other programs as packages
of the system.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from runner.measure.tools import Tool, find_tool, need_tool
from runner.model import LabError
from runner.places import places

SCRIPTS: dict[str, tuple[str, ...]] = {
    "k6": ("k6.sh",),
    "vegeta": ("vegeta.sh",),
    "oha": ("oha.sh",),
    **{name: ("system.sh", name) for name in ("wrk", "nginx", "postgres", "perf")},
}
"""For each program, the script of setup/ that sets the program up, and the script's arguments.

The script finds, builds or installs the program.
"""
LOOKED_EVERY_S = 0.5


@dataclass(frozen=True)
class Step:
    """The state of a program's set-up."""

    name: str
    seconds: float
    lines: int
    """Number of lines that the compiler or the package manager has written so far.

    A build of k6 writes about 500 lines.
    """


def set_up(name: str, report: Callable[[Step], None] = lambda _: None) -> Tool:
    """Return a program; build or install it first if it is missing, or if its version is unfit.

    If the program is in the lab's own folder of tools, build it again if its locked modules have
    changed. While the program is built or installed, call `report` twice a second. Raise LabError
    if the lab does not set up a program of this name, or if the set-up fails.
    """
    if name not in SCRIPTS:
        raise LabError(f"The lab cannot set up {name!r}: choose from {', '.join(SCRIPTS)}.")
    found = find_tool(name)
    if found is not None and found.unfit is None and found.path.parent != places().tools:
        return found
    with _alone(places().tools):
        _run(name, report)
    return need_tool(name)


@contextlib.contextmanager
def _alone(tools: Path) -> Iterator[None]:
    """Wait until no other process sets up programs in this folder, and then lock the folder.

    Other processes that want to set up programs wait until the context ends.
    """
    tools.mkdir(parents=True, exist_ok=True)
    with (tools / ".lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _run(name: str, report: Callable[[Step], None]) -> None:
    """Run the script of a program; if the script fails, raise LabError with the script's error."""
    script, *arguments = SCRIPTS[name]
    tools = places().tools
    log = tools / f"setup-{Path(script).stem}.log"
    log.unlink(missing_ok=True)
    begun = time.monotonic()
    command = ["bash", str(places().setup / script), *arguments]
    with tempfile.TemporaryFile("w+") as errors, _group(command, tools, errors) as process:
        while process.poll() is None:
            # The script creates the log only when it begins to build or install the program. If the
            # program exists already, or if the script finds that it cannot set the program up, the
            # script never creates a log.
            if log.exists():
                lines = log.read_bytes().count(b"\n")
                report(Step(name, time.monotonic() - begun, lines))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOOKED_EVERY_S)
        errors.seek(0)
        said = errors.read().strip().splitlines()
    if process.returncode != 0:
        reason = said[-1].removeprefix("Error: ") if said else f"{script} failed"
        raise LabError(f"{reason.rstrip('.')}.")


@contextlib.contextmanager
def _group(
    command: Sequence[str], tools: Path, errors: IO[str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program in a process group of its own, and let it write its errors to a file.

    If the program still runs when the context ends, end the whole group.
    """
    process = subprocess.Popen(
        command,
        env={**os.environ, "BENCH_TOOLS": str(tools)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
