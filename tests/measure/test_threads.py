"""Tests of measuring how long threads run, and how long they wait for a CPU.

For a busy thread, these two times must add up to the time that has passed.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

from runner.measure.threads import MOST_THREADS, Threads

SPIN = "while True: pass"
SLEEPERS = f"""
import threading, time
for _ in range({MOST_THREADS + 5}):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def start():
    """Yield a function that starts a Python program on the first CPU that this process may use."""
    started = []

    def program(code):
        cpu = min(os.sched_getaffinity(0))
        command = ["taskset", "--cpu-list", str(cpu), sys.executable, "-c", code]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(process)
        return process

    yield program
    for process in started:
        process.kill()
        process.wait()


def cpu_s(pid):
    """Return the CPU time of a process in seconds, from its CPU-time clock."""
    return time.clock_gettime((~pid << 3) | 2)


@pytest.mark.timed
def test_running_and_waiting_are_all_of_the_time(start):
    busy = start(SPIN)
    start(SPIN)  # another process that uses the same CPU
    time.sleep(0.5)
    threads = Threads(busy.pid, lambda: [busy.pid])
    first = threads.read()
    begun_s, begun_cpu_s = time.monotonic(), cpu_s(busy.pid)
    time.sleep(1)
    second = threads.read()
    passed_s, ran_s = time.monotonic() - begun_s, cpu_s(busy.pid) - begun_cpu_s
    waited_s = (second.waited_ns - first.waited_ns) / 1e9
    assert waited_s > 0.2
    assert ran_s + waited_s == pytest.approx(passed_s, rel=0.05)
    assert second.busiest_thread_ns / 1e9 == pytest.approx(ran_s, rel=0.05)


def test_a_stopped_process_is_seen_and_waits_for_nothing(start):
    busy = start(SPIN)
    threads = Threads(busy.pid, lambda: [busy.pid])
    assert threads.read().stopped == 0
    os.kill(busy.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, busy.pid, os.WSTOPPED)
    first = threads.read()
    time.sleep(0.1)
    second = threads.read()
    assert (first.stopped, second.stopped) == (1, 1)
    assert second.waited_ns == first.waited_ns
    assert second.busiest_thread_ns == 0


def test_nothing_is_said_of_very_many_threads(start):
    sleepers = start(SLEEPERS)
    sleepers.stdout.readline()
    found = Threads(sleepers.pid, lambda: [sleepers.pid]).read()
    assert (found.waited_ns, found.busiest_thread_ns, found.stopped) == (None, None, 0)


def test_the_threads_of_an_ended_process_are_an_error(start):
    busy = start(SPIN)
    threads = Threads(busy.pid, lambda: [busy.pid])
    busy.kill()
    busy.wait()
    with pytest.raises(OSError, match="No such process"):
        threads.read()
