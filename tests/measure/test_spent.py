"""Tests of reading a process's CPU time, context switches and page faults from the kernel's files.

The values must agree with those that the process itself gets from getrusage.
"""

import subprocess
import sys

import pytest

from runner.digest.spent import spent_per_request
from runner.measure.spent import resident_bytes, spent_by
from runner.measurement import Spent

PROGRAM = """
import mmap, resource, sys, threading, time
def work():
    for _ in range(50):
        time.sleep(0.001)
    touched = mmap.mmap(-1, 400 * 4096)
    for page in range(400):
        touched[page * 4096] = 1
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    sys.stdin.readline()
for line in sys.stdin:
    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.5)
    took = resource.getrusage(resource.RUSAGE_SELF)
    print(took.ru_utime, took.ru_stime, took.ru_nvcsw, took.ru_minflt, flush=True)
    thread.join()
"""


@pytest.fixture
def working():
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe, text=True
    ) as process:
        yield process
        process.kill()


@pytest.mark.timed
def test_what_a_process_took_is_what_it_says(working):
    working.stdin.write("go\n")
    working.stdin.flush()
    user_s, system_s, switches, faults = map(float, working.stdout.readline().split())
    found = spent_by(working.pid)
    assert (found.user_ns + found.system_ns) / 1e9 == pytest.approx(user_s + system_s, abs=0.03)
    assert found.user_ns / 1e9 == pytest.approx(user_s, abs=0.03)
    assert found.voluntary_switches == pytest.approx(switches, abs=10)
    assert found.voluntary_switches > 50
    assert found.page_faults == pytest.approx(faults, abs=10)
    assert resident_bytes(working.pid) > 400 * 4096


def test_a_process_that_ended_took_nothing_known():
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        process.wait()
    assert spent_by(process.pid) is None


class Load:
    def __init__(self, spent):
        self.spent = spent


def test_slices_add_up_and_divide_by_all_requests():
    loads = [Load(Spent(8_000_000, 2_000_000, 30, 4, 5)), Load(Spent(2_000_000, 0, 10, 0, 5))]
    found = spent_per_request(loads, 20)
    assert found == {
        "server_user_ms_per_request": 0.5,
        "server_system_ms_per_request": 0.1,
        "server_voluntary_switches_per_request": 2.0,
        "server_involuntary_switches_per_request": 0.2,
        "server_page_faults_per_request": 0.5,
    }


def test_one_unknown_slice_makes_the_sum_unknown():
    assert spent_per_request([Load(Spent(1, 1, 1, 1, 1)), Load(None)], 20) == {}
