"""Hinder a server of a running lab at known times: stop it, or burn CPU beside it."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

FOUND_EVERY_S = 0.05


@dataclass(frozen=True)
class Hindered:
    """What hindered the server, as it happened: seconds since the epoch."""

    kind: str
    begin_s: float
    end_s: float


class Hinderer(threading.Thread):
    """Stops the server `program` for a while, and later keeps its CPU busy, once it serves a load.

    Times are seconds since the server began to use CPU time, because the load begins with that.
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
        self._program = program
        self._stop_at_s = stop_at_s
        self._stop_s = stop_s
        self._busy_at_s = busy_at_s
        self._busy_s = busy_s

    def run(self) -> None:
        server = self._served()
        begun_s = time.monotonic()
        _sleep_until(begun_s + self._stop_at_s)
        self._stop_server(server)
        _sleep_until(begun_s + self._busy_at_s)
        self._burn_beside(server)

    def _served(self) -> psutil.Process:
        """Wait until the server has used 0.3 s of CPU time, which a warm-up does not."""
        while True:
            for process in psutil.process_iter(["exe", "ppid"]):
                if process.info["exe"] == str(self._program) and _cpu_s(process) > 0.3:
                    return process
            time.sleep(FOUND_EVERY_S)

    def _stop_server(self, server: psutil.Process) -> None:
        begin_s = time.time()
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(self._stop_s)
        os.kill(server.pid, signal.SIGCONT)
        self.done.append(Hindered("stopped", begin_s, time.time()))

    def _burn_beside(self, server: psutil.Process) -> None:
        (cpu,) = os.sched_getaffinity(server.pid)
        code = f"import time\nend = time.time() + {self._busy_s}\nwhile time.time() < end: pass"
        begin_s = time.time()
        subprocess.run(["taskset", "-c", str(cpu), sys.executable, "-c", code], check=True)
        self.done.append(Hindered("busy", begin_s, time.time()))


def _cpu_s(process: psutil.Process) -> float:
    """Return the CPU time of a process; 0 if it has ended."""
    try:
        return float(sum(process.cpu_times()[:2]))
    except psutil.Error:
        return 0.0


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))
