"""Tests of perf on real processes whose CPU time and system calls are known.

Further tests check what the lab says if perf is missing or forbidden.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time

import psutil
import pytest

from runner.digest.perf_files import read_events, read_stacks
from runner.measure import perf
from runner.measure.doctor import examine_perf
from runner.measure.leftovers import ledger
from runner.measure.perf import ALL_CALLS, Perf, refusal

needs_perf = pytest.mark.skipif(refusal() is not None, reason=f"perf: {refusal()}")
BURN = "while True: pass"
CALLS = "import os\nwhile os.read(0, 1): os.getppid()"


@pytest.fixture
def tool():
    with ledger() as book:
        yield Perf(shutil.which("perf"), tuple(os.sched_getaffinity(0)), book)


@contextlib.contextmanager
def running(program, **given):
    with subprocess.Popen([sys.executable, "-c", program], **given) as process:
        try:
            yield process
        finally:
            process.kill()


def cpu_s(pid):
    return time.clock_gettime((~pid << 3) | 2)


@needs_perf
@pytest.mark.timed
def test_samples_add_up_to_the_cpu_time(tool, tmp_path):
    out = tmp_path / "perf.txt.gz"
    with running(BURN) as process, tool.recording(process.pid, out):
        before = cpu_s(process.pid)
        time.sleep(0.6)
        used = cpu_s(process.pid) - before
    sampled = read_stacks(out, 0.0, 1e12).cpu_ns.total() / 1e9
    assert sampled == pytest.approx(used, rel=0.05, abs=0.01)


@needs_perf
def test_perf_counts_the_calls_that_were_made(tool, tmp_path):
    """perf must count the system calls of a process that makes two calls per byte it receives."""
    out = tmp_path / "perf-stat.json"
    with running(CALLS, stdin=subprocess.PIPE) as process:
        process.stdin.write(b"x" * 10)
        process.stdin.flush()
        time.sleep(0.5)  # after this pause, the process waits in read()
        with tool.counting(process.pid, out):
            process.stdin.write(b"x" * 500)
            process.stdin.flush()
            time.sleep(0.3)
        process.stdin.close()
    counts = {event.name: event.count for event in read_events(out)}
    assert counts[ALL_CALLS] == pytest.approx(1000, abs=2)
    assert counts["syscalls:sys_enter_read"] == pytest.approx(500, abs=2)


@needs_perf
@pytest.mark.timed
def test_a_child_that_ends_while_perf_starts_is_left_out(tool, tmp_path, monkeypatch):
    """If a child process ends before perf observes it, perf records the other processes only.

    Processes of PostgreSQL often end so early.
    """
    looks = []

    def listed(pid):
        looks.append(pid)
        return [pid, gone.pid] if len(looks) < 3 else [pid]

    with running("pass") as gone:
        gone.wait()
    monkeypatch.setattr(perf, "descendants", listed)
    before = psutil.Process().num_fds()
    with running(BURN) as process, tool.recording(process.pid, tmp_path / "perf.txt.gz"):
        time.sleep(0.3)
    assert len(looks) == 3
    assert read_stacks(tmp_path / "perf.txt.gz", 0.0, 1e12).cpu_ns.total() > 0
    assert psutil.Process().num_fds() == before, "a pipe was left open"


@needs_perf
def test_a_process_that_ended_is_an_error(tool, tmp_path):
    with running("pass") as process:
        process.wait()
        with (
            pytest.raises(perf.LabError, match="perf"),
            tool.recording(process.pid, tmp_path / "perf.txt.gz"),
        ):
            pass
    assert not list(tmp_path.iterdir())


def test_without_perf_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(perf, "find_program", lambda _: None)
    assert refusal() == "perf is not installed: install it with `apt-get install linux-perf`."


def test_a_kernel_that_forbids_perf_is_named(monkeypatch, tmp_path):
    level = tmp_path / "perf_event_paranoid"
    level.write_text("3\n")
    monkeypatch.setattr(perf, "find_program", lambda _: "/bin/false")
    monkeypatch.setattr(perf, "PARANOID", level)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "perf_event_paranoid is 3" in refusal()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "PERFMON" in refusal()


def test_doctor_names_the_remedy():
    why = "perf is not installed: install it with `apt-get install linux-perf`."
    assert (examine_perf(why).level, examine_perf(why).text) == ("warning", why)
    assert examine_perf(None).level == "ok"
