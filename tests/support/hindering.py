"""Hinder a server of a running lab at known times: pause it, and later use its CPU."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

FOUND_EVERY_S = 0.05
SERVED_CPU_S = 0.3
"""A server that has used more CPU time than this is under load, because a warm-up needs less."""


@dataclass(frozen=True)
class Hindered:
    """A time during which the server was hindered.

    Begin and end are in seconds since the epoch. `kind` is `stopped` if the server was paused by
    SIGSTOP, and `busy` if another program used the server's CPU.
    """

    kind: str
    begin_s: float
    end_s: float


class Hinderer(threading.Thread):
    """A thread that hinders the server `program` while it is under load.

    It first pauses the server by SIGSTOP, and later lets another program use the server's CPU.
    The pause begins at `stop_at_s` and lasts `stop_s`. The other program starts at `busy_at_s` and
    runs for `busy_s`. Both beginnings are in seconds since the server was first seen under load.
    """

    def __init__(
        self,
        program: Path,
        *,
        stop_at_s: float,
        stop_s: float,
        busy_at_s: float,
        busy_s: float,
    ) -> None:
        super().__init__(daemon=True)
        self.done: list[Hindered] = []
        self._is_over = threading.Event()
        self._program = program
        self._stop_at_s = stop_at_s
        self._stop_s = stop_s
        self._busy_at_s = busy_at_s
        self._busy_s = busy_s

    def run(self) -> None:
        server = self._served()
        if server is None:
            return
        begun_s = time.monotonic()
        _sleep_until(begun_s + self._stop_at_s)
        self._stop_server(server)
        _sleep_until(begun_s + self._busy_at_s)
        self._burn_beside(server)

    def end(self) -> None:
        """Wait until the last hindrance is over. If no server is under load yet, hinder none."""
        self._is_over.set()
        self.join()

    def _served(self) -> psutil.Process | None:
        """Wait until a server has used more than SERVED_CPU_S, and return its process.

        Return None if `end` is called before that.
        """
        while not self._is_over.wait(FOUND_EVERY_S):
            for pid in psutil.pids():
                if _program(pid) == self._program and (process := _busy(pid)) is not None:
                    return process
        return None

    def _stop_server(self, server: psutil.Process) -> None:
        begin_s = time.time()
        server.suspend()
        time.sleep(self._stop_s)
        server.resume()
        self.done.append(Hindered("stopped", begin_s, time.time()))

    def _burn_beside(self, server: psutil.Process) -> None:
        (cpu,) = os.sched_getaffinity(server.pid)
        code = f"import time\nend = time.time() + {self._busy_s}\nwhile time.time() < end: pass"
        begin_s = time.time()
        subprocess.run(["taskset", "-c", str(cpu), sys.executable, "-c", code], check=True)
        self.done.append(Hindered("busy", begin_s, time.time()))


def _program(pid: int) -> Path | None:
    """Return the program that a process runs now. Return None if the process has ended.

    `psutil.Process.exe` is not used, because it keeps its first answer. The first answer is wrong
    if the process was first seen between fork and exec: it is then the program of the parent.
    """
    try:
        return Path(f"/proc/{pid}/exe").readlink()
    except OSError:
        return None


def _busy(pid: int) -> psutil.Process | None:
    """Return the process if it has used more than SERVED_CPU_S of CPU time.

    Return None if it has used less, or if it has ended.
    """
    try:
        process = psutil.Process(pid)
        used = process.cpu_times()
    except psutil.Error:
        return None
    return process if used.user + used.system > SERVED_CPU_S else None


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))
