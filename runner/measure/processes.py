"""Start a local program pinned, in a session and control group of its own, and end it for certain."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.measure import cgroups
from runner.measure.leftovers import Ledger, kill_session, start_ticks
from runner.model import LabError

# The shell joins the folders of its control group (no spaces in their names), waits for a line (so that the sampler can
# watch from the first instruction on) and becomes the program: same pid throughout, and no CPU time escapes the group's
# counter.
_LAUNCHER = (
    'for folder in $1; do echo $$ > "$folder/cgroup.procs"; done; '
    'read -r _ || exit 1; shift; exec taskset -c "$@" < /dev/null'
)


@dataclass(frozen=True)
class Pinned:
    """A program held at its gate: it runs from `release` on."""

    popen: subprocess.Popen[bytes]
    group: cgroups.Cgroup | None
    started: int | None

    @property
    def pid(self) -> int:
        """The program's pid, which is also its session and process group."""
        return self.popen.pid

    def limit(self, cores: float) -> None:
        """Give the program at most so much CPU time from now on; LabError where that cannot be done."""
        if self.group is None:
            raise LabError(cgroups.NO_QUOTA, exit_code=1)
        self.group.limit(cores)

    def release(self) -> None:
        """Let the program begin."""
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.write(b"go\n")
            self.popen.stdin.close()

    def end(self, grace_s: float, asking: signal.Signals = signal.SIGTERM) -> int:
        """Ask the program to end by a signal, kill its whole session after `grace_s`; return its exit code."""
        if self.popen.poll() is None:
            self.popen.send_signal(asking)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(timeout=grace_s)
        kill_session(self.pid, self.started)
        try:
            return self.popen.wait(timeout=grace_s + 10)
        except subprocess.TimeoutExpired:
            raise LabError(f"Process {self.pid} cannot be killed: it waits for a device.", exit_code=1) from None


@contextlib.contextmanager
def pinned(
    name: str,
    argv: Sequence[str],
    *,
    cpus: Sequence[int],
    env: Mapping[str, str],
    folder: Path,
    log: Path,
    ledger: Ledger,
    grace_s: float = 2.0,
    asking: signal.Signals = signal.SIGTERM,
) -> Iterator[Pinned]:
    """Start `argv` on `cpus` in `folder` with exactly `env`, its output in `log`; nothing of it outlives the context.

    The program waits until `release` is called; at the end it is asked by the signal `asking` to end within `grace_s`.
    """
    with cgroups.temporary(name, ledger.add_group) as group, log.open("ab") as output:
        popen = subprocess.Popen(
            [
                "sh",
                "-c",
                _LAUNCHER,
                "sh",
                " ".join(map(str, group.folders)) if group else "",
                ",".join(map(str, cpus)),
                *argv,
            ],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(env),
            start_new_session=True,
        )
        ledger.add_process(popen.pid)
        process = Pinned(popen, group, start_ticks(popen.pid))
        try:
            yield process
        finally:
            process.end(grace_s, asking)
            if popen.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    popen.stdin.close()
