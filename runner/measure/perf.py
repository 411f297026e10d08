"""Record call stacks and count events of a server's processes with perf."""

from __future__ import annotations

import contextlib
import gzip
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Literal

from runner.measure.leftovers import Ledger
from runner.measure.procfs import descendants
from runner.measure.tools import find_program, remedy, run_within
from runner.model import LabError
from runner.store import replacing

HZ = 499
"""perf takes this many samples per second of CPU time.

The number is prime, so that the samples are not in step with a timer of the kernel or the server.
"""
ALL_CALLS = "raw_syscalls:sys_enter"
CALLS = (
    *("read", "write", "readv", "writev", "recvfrom", "sendto", "recvmsg", "sendmsg", "sendfile"),
    *("epoll_wait", "epoll_pwait", "epoll_ctl", "poll", "ppoll", "futex", "io_uring_enter"),
    *("accept", "accept4", "close", "shutdown", "socket", "connect", "setsockopt", "getsockopt"),
    *("getpeername", "getsockname", "ioctl", "fcntl", "openat", "newfstat", "clock_gettime"),
    *("clock_nanosleep", "nanosleep", "sched_yield", "madvise", "mmap", "munmap", "tgkill"),
    *("rt_sigreturn", "rt_sigprocmask", "timerfd_settime", "getrandom", "getpid"),
)
"""System calls that are counted by name; ALL_CALLS counts all system calls together."""
SOFTWARE = ("context-switches", "cpu-migrations", "page-faults")
HARDWARE = ("instructions", "cycles", "branch-misses", "cache-misses")
TRACEPOINTS = Path("/sys/kernel/tracing/events")
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
PATIENCE_S = 20.0
"""perf must answer within this time. Normally, perf answers within 0.1 s."""
READING_S = 120.0
"""perf must convert the samples of a slice into text within this time."""
STARTS = 5
"""perf is started at most this many times.

perf fails to start if one of the processes to be observed has just ended. In this case the lab
starts perf again.
"""


Observing = Literal["recorded", "counted"]
"""What perf does with a process: record its call stacks, or count its events."""


def refusal() -> str | None:
    """Return a sentence that says why servers cannot be profiled, and what to do.

    Return None if servers can be profiled.
    """
    try:
        perf = need_perf()
    except LabError as missing:
        return str(missing)
    argv = [str(perf), "stat", "-e", f"cpu-clock,{ALL_CALLS}", "true"]
    try:
        if run_within("perf stat", argv, PATIENCE_S).returncode == 0:
            return None
    except LabError as hung:
        return str(hung)
    with contextlib.suppress(OSError):
        level = PARANOID.read_text().strip()
        if os.geteuid() != 0 and level != "-1":
            return (
                "The kernel does not let this user profile (perf_event_paranoid is "
                f"{level}): run the lab as root, or run `sysctl "
                "kernel.perf_event_paranoid=-1`."
            )
    return (
        "The kernel does not let perf profile inside this container: run the lab on the "
        "host, or give the container the capabilities PERFMON and SYS_ADMIN, and mount "
        "/sys/kernel/tracing in it."
    )


def need_perf() -> Path:
    """Return the path of perf; raise LabError if it is not installed."""
    path = find_program("perf")
    if path is None:
        raise LabError(f"perf is not installed: {remedy('perf')}.")
    return path


def events() -> tuple[str, ...]:
    """Return the names of the events that perf counts.

    Some of the events are system calls (CALLS). Leave out system calls that this kernel lacks.
    """
    names = (f"sys_enter_{call}" for call in CALLS)
    known = (f"syscalls:{name}" for name in names if (TRACEPOINTS / "syscalls" / name).is_dir())
    return (ALL_CALLS, *known, *SOFTWARE, *HARDWARE)


@dataclass(frozen=True)
class Perf:
    """The program perf. It runs on the instruments' CPUs, so that the server's CPUs stay free."""

    path: Path
    cpus: tuple[int, ...]
    ledger: Ledger

    @contextlib.contextmanager
    def recording(self, pid: int, out: Path) -> Iterator[None]:
        """Record the call stacks of a process and its descendants while the context is open.

        When the context ends, write the output of `perf script` to `out`, gzipped. The processes
        must still run at that time, because perf can read a container's files only while the
        container runs. Raise LabError if perf fails.
        """
        with replacing(out) as text:
            data = text.with_suffix(".data")
            argv = ["record", "-q", "-F", str(HZ), "-e", "cpu-clock", "--call-graph", "fp"]
            argv += ["-k", "CLOCK_MONOTONIC", "--no-buildid-cache", "--no-buildid", "-o", str(data)]
            try:
                with self._enabled(argv, pid):
                    yield
                stacks = self._run("script", "-i", str(data), "--no-inline", *_FIELDS)
            finally:
                data.unlink(missing_ok=True)
            text.write_bytes(gzip.compress(stacks, 6, mtime=0))

    @contextlib.contextmanager
    def counting(self, pid: int, out: Path) -> Iterator[None]:
        """Count events of a process and its descendants while the context is open.

        When the context ends, write one line per event to `out`. Each line is a JSON object. Raise
        LabError if perf fails.
        """
        with replacing(out) as text:
            with self._enabled(["stat", "-j", "-e", ",".join(events()), "-o", str(text)], pid):
                yield
            lines = text.read_text().splitlines()
            text.write_text("\n".join(line for line in lines if line.startswith("{")) + "\n")

    @contextlib.contextmanager
    def _enabled(self, argv: Sequence[str], pid: int) -> Iterator[None]:
        """Let perf observe a process and its descendants while the context is open."""
        started = self._started(argv, pid)
        process = started.process
        try:
            yield
            started.tell(b"disable\n")
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=PATIENCE_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LabError(f"perf stopped responding{started.end()}.", exit_code=1) from error
        finally:
            started.end()
        if process.returncode not in (0, -signal.SIGINT, 128 + signal.SIGINT):
            raise LabError(f"perf {argv[0]} failed{_last(said)}.", exit_code=1)

    def _started(self, argv: Sequence[str], pid: int) -> _Started:
        """Start perf on a process and its descendants, and return as soon as perf observes them.

        perf does not start if a process has ended since the processes were listed. This happens
        with PostgreSQL, which has a process per connection. So if perf does not start, list the
        processes again and start perf again. Raise LabError if STARTS starts have failed.
        """
        for start in range(1, STARTS + 1):
            pids = ",".join(map(str, descendants(pid)))
            started = _Started.of([*self._prefix, *argv, "-D", "-1"], pids)
            self.ledger.add_process(started.process.pid)
            try:
                started.tell(b"enable\n")
                return started
            except OSError as error:
                said = started.end()
                if start == STARTS:
                    raise LabError(f"perf did not start{said}.", exit_code=1) from error
            except BaseException:
                started.end()
                raise
        raise AssertionError("a loop of at least one start")

    def _run(self, *arguments: str) -> bytes:
        argv = [*self._prefix, *arguments]
        done = run_within(f"perf {arguments[0]}", argv, READING_S)
        if done.returncode:
            raise LabError(f"perf {arguments[0]} failed{_last(done.stderr)}.", exit_code=1)
        return done.stdout

    @property
    def _prefix(self) -> list[str]:
        return ["taskset", "-c", ",".join(map(str, self.cpus)), str(self.path)]


_FIELDS = ("-F", "comm,pid,tid,time,period,ip,sym,dso")


@dataclass(frozen=True)
class _Started:
    """A running perf, with the pipes that control it."""

    process: subprocess.Popen[bytes]
    to_perf: FileIO
    from_perf: FileIO

    @classmethod
    def of(cls, argv: Sequence[str], pids: str) -> _Started:
        """Start perf on processes; perf observes nothing before it gets the command `enable`."""
        to_perf = os.pipe()
        from_perf = os.pipe()
        theirs = (to_perf[0], from_perf[1])
        process = subprocess.Popen(
            [*argv, f"--control=fd:{theirs[0]},{theirs[1]}", "-p", pids],
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=PIPE,
            pass_fds=theirs,
            start_new_session=True,
        )
        for each in theirs:
            os.close(each)
        return cls(process, FileIO(to_perf[1], "w"), FileIO(from_perf[0], "r"))

    def tell(self, command: bytes) -> None:
        """Send perf a command, and wait until perf acknowledges the command.

        Raise OSError if the acknowledgement does not come.
        """
        self.to_perf.write(command)
        ready = select.select([self.from_perf], [], [], PATIENCE_S)[0]
        if not ready or not self.from_perf.read(64):
            raise OSError("no acknowledgement")

    def end(self) -> str:
        """End perf if it still runs; return the last line of perf's errors as `: "LINE"`.

        Return an empty text if there are no errors, or if they have been read before.
        """
        said = b""
        self.process.kill()
        if self.process.stderr is not None and not self.process.stderr.closed:
            _, said = self.process.communicate()
        self.to_perf.close()
        self.from_perf.close()
        return _last(said)


def _last(said: bytes) -> str:
    """Return the last line of a program's errors as `: "LINE"`, for use in a message.

    Return an empty text if there are no errors.
    """
    lines = said.decode(errors="replace").strip().splitlines()
    return f': "{lines[-1][:200]}"' if lines else ""
