"""Record call stacks and count events of a server's processes by perf."""

import contextlib
import gzip
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE

from runner.measure.leftovers import Ledger
from runner.measure.tools import find_program, remedy
from runner.model import LabError
from runner.store import replacing

HZ = 499
"""Samples per second of CPU time: a prime number, so that it is not in step with a timer."""
ALL_CALLS = "raw_syscalls:sys_enter"
CALLS = (
    *("read", "write", "readv", "writev", "recvfrom", "sendto", "recvmsg", "sendmsg", "sendfile"),
    *("epoll_wait", "epoll_pwait", "epoll_ctl", "poll", "ppoll", "futex", "io_uring_enter"),
    *("accept", "accept4", "close", "shutdown", "socket", "connect", "setsockopt", "getsockopt"),
    *("getpeername", "getsockname", "ioctl", "fcntl", "openat", "newfstat", "clock_gettime"),
    *("clock_nanosleep", "nanosleep", "sched_yield", "madvise", "mmap", "munmap", "tgkill"),
    *("rt_sigreturn", "rt_sigprocmask", "timerfd_settime", "getrandom", "getpid"),
)
"""System calls that are counted by name; ALL_CALLS also counts the others."""
SOFTWARE = ("context-switches", "cpu-migrations", "page-faults")
HARDWARE = ("instructions", "cycles", "branch-misses", "cache-misses")
TRACEPOINTS = Path("/sys/kernel/tracing/events")
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
PATIENCE_S = 20.0
"""Longest wait for an answer of perf, which normally comes within 0.1 s."""


def refusal() -> str | None:
    """Return why servers cannot be profiled, and what to do, in one sentence; None if they can."""
    perf = find_program("perf")
    if perf is None:
        return f"perf is not installed: {remedy('perf')}."
    argv = [str(perf), "stat", "-e", f"cpu-clock,{ALL_CALLS}", "true"]
    if subprocess.run(argv, capture_output=True, check=False, timeout=PATIENCE_S).returncode == 0:
        return None
    with contextlib.suppress(OSError):
        level = PARANOID.read_text().strip()
        if os.geteuid() != 0 and level != "-1":
            return (
                f"The kernel does not let this user profile (perf_event_paranoid is {level}): run "
                "as root, or set it with `sysctl kernel.perf_event_paranoid=-1`."
            )
    return (
        "The kernel refuses perf: run on the host, or give the container the capabilities PERFMON "
        "and SYS_ADMIN, with /sys/kernel/tracing mounted."
    )


def events() -> tuple[str, ...]:
    """Return the events that are counted: those of CALLS only if this kernel has them."""
    names = (f"sys_enter_{call}" for call in CALLS)
    known = (f"syscalls:{name}" for name in names if (TRACEPOINTS / "syscalls" / name).is_dir())
    return (ALL_CALLS, *known, *SOFTWARE, *HARDWARE)


@dataclass(frozen=True)
class Perf:
    """perf on the instruments' CPUs, so that it does not use the server's."""

    path: Path
    cpus: tuple[int, ...]
    ledger: Ledger

    @contextlib.contextmanager
    def recording(self, pids: Sequence[int], out: Path) -> Iterator[None]:
        """Record the call stacks of processes while the context is open, and write them to `out`.

        `out` is a gzipped text of `perf script`. It is written while the processes still run,
        because only then perf can find the files of a container. Raise LabError if perf fails.
        """
        with replacing(out) as text:
            data = text.with_suffix(".data")
            argv = ["record", "-q", "-F", str(HZ), "-e", "cpu-clock", "--call-graph", "fp"]
            argv += ["-k", "CLOCK_MONOTONIC", "--no-buildid-cache", "--no-buildid", "-o", str(data)]
            try:
                with self._enabled(argv, pids):
                    yield
                stacks = self._run("script", "-i", str(data), "--no-inline", *_FIELDS)
            finally:
                data.unlink(missing_ok=True)
            text.write_bytes(gzip.compress(stacks, 6, mtime=0))

    @contextlib.contextmanager
    def counting(self, pids: Sequence[int], out: Path) -> Iterator[None]:
        """Count events of processes while the context is open, and write them to `out`.

        `out` has one JSON object per line and event. Raise LabError if perf fails.
        """
        with replacing(out) as text:
            with self._enabled(["stat", "-j", "-e", ",".join(events()), "-o", str(text)], pids):
                yield
            lines = text.read_text().splitlines()
            text.write_text("\n".join(line for line in lines if line.startswith("{")) + "\n")

    @contextlib.contextmanager
    def _enabled(self, argv: Sequence[str], pids: Sequence[int]) -> Iterator[None]:
        """Run perf on processes; it counts only while the context is open."""
        to_perf, from_perf = os.pipe(), os.pipe()
        control = f"--control=fd:{to_perf[0]},{from_perf[1]}"
        command = [*self._prefix, *argv, "-D", "-1", control, "-p", ",".join(map(str, pids))]
        process = subprocess.Popen(
            command,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=PIPE,
            pass_fds=(to_perf[0], from_perf[1]),
            start_new_session=True,
        )
        self.ledger.add_process(process.pid)
        try:
            os.close(to_perf[0])
            os.close(from_perf[1])
            _tell(to_perf[1], from_perf[0], b"enable\n")
            yield
            _tell(to_perf[1], from_perf[0], b"disable\n")
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=PATIENCE_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            process.kill()
            _, said = process.communicate()
            raise LabError(f"perf stopped responding{_last(said)}.", exit_code=1) from error
        finally:
            process.kill()
            process.wait()
            os.close(to_perf[1])
            os.close(from_perf[0])
        if process.returncode not in (0, -signal.SIGINT, 128 + signal.SIGINT):
            raise LabError(f"perf {argv[0]} failed{_last(said)}.", exit_code=1)

    def _run(self, *arguments: str) -> bytes:
        done = subprocess.run(
            [*self._prefix, *arguments], capture_output=True, check=False, timeout=120
        )
        if done.returncode:
            raise LabError(f"perf {arguments[0]} failed{_last(done.stderr)}.", exit_code=1)
        return done.stdout

    @property
    def _prefix(self) -> list[str]:
        return ["taskset", "-c", ",".join(map(str, self.cpus)), str(self.path)]


_FIELDS = ("-F", "comm,pid,tid,time,period,ip,sym,dso")


def _tell(to_perf: int, from_perf: int, command: bytes) -> None:
    """Send perf a command and wait for its acknowledgement; raise OSError without one."""
    os.write(to_perf, command)
    if not select.select([from_perf], [], [], PATIENCE_S)[0] or not os.read(from_perf, 64):
        raise OSError("no acknowledgement")


def _last(said: bytes) -> str:
    """Return `: "the last line"` of a program's errors; empty if there is none."""
    lines = said.decode(errors="replace").strip().splitlines()
    return f': "{lines[-1][:200]}"' if lines else ""
