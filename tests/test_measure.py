"""Starting, sampling and ending processes: known CPU use comes back, and nothing outlives its runner."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from built import bare_lab

from runner.digest.resources import read_counters
from runner.measure import instruments
from runner.measure.instruments import Sampler
from runner.measure.lab import open_lab
from runner.measure.leftovers import (
    dead_ledgers,
    identity,
    ledger,
    lives,
    pid_namespace,
    reap,
    session_members,
    start_ticks,
    sweep_temporary,
)
from runner.measure.loading import write_rows
from runner.measure.machine import ephemeral_ports, place
from runner.measure.process_engine import pinned
from runner.measure.procfs import Memory
from runner.measure.sampler import StatsPoll
from runner.measure.sites import Clock
from runner.measure.subjects import HostSubject, ProcessSubject
from runner.model import LabError

ENV = {"PATH": os.environ["PATH"]}
# Busy for 30 ms of every 100 ms, on its own CPU clock: 30 % of a core.
DUTY = """
import time
begin = time.monotonic()
for i in range(int({seconds} / 0.1)):
    end = time.process_time() + 0.03
    while time.process_time() < end: pass
    time.sleep(max(0, begin + (i + 1) * 0.1 - time.monotonic()))
print(time.process_time())
"""


SUBJECTS = {name: name for name in ("server", "database", "host", "sampler")}


def start(argv, book, tmp_path, cpus=(0,)):
    return pinned("test", argv, cpus=cpus, env=ENV, folder=tmp_path, log=tmp_path / "log", ledger=book, grace_s=0.3)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


@pytest.mark.timed
def test_a_known_duty_cycle_comes_back(root):
    with (
        ledger() as book,
        start([sys.executable, "-c", DUTY.format(seconds=3)], book, root) as process,
        instruments.started("sampler", 20, place(1).generator, book) as ask,
    ):
        Sampler(ask).add("server", process.pid)
        begin = time.monotonic_ns()
        process.release()
        process.popen.wait(timeout=30)
        write_rows([(Sampler(ask).stop(), SUBJECTS, Clock())], root / "r.parquet")
    # The process's own account (CLOCK_PROCESS_CPUTIME_ID) is the independent truth, whatever else the machine does.
    said_s = float((root / "log").read_text())
    counter = read_counters(root / "r.parquet", begin)["server"]
    assert counter.between(0, counter.t_s[-1]) == pytest.approx(said_s, abs=0.02)
    assert said_s == pytest.approx(0.9, abs=0.15)
    took_s = (time.monotonic_ns() - begin) / 1e9
    ticks = pq.read_table(root / "r.parquet")["subject"].to_pylist().count("host")
    assert 0.9 * 20 * 3 <= ticks <= 20 * took_s + 3


@pytest.mark.timed
def test_process_fallback_agrees_with_the_kernels_account(root):
    with ledger() as book, start([sys.executable, "-c", DUTY.format(seconds=1.5)], book, root) as process:
        subject = ProcessSubject(process.pid)
        before = subject.read()
        process.release()
        time.sleep(1.2)
        after = subject.read()
    used = (after.cpu_ns - before.cpu_ns) / (after.mono_ns - before.mono_ns)
    assert used == pytest.approx(0.3, abs=0.08)  # interpreter start included
    assert after.rss_bytes > 1_000_000
    assert after.threads == 1


def test_host_counts_at_least_what_one_busy_process_uses():
    subject = HostSubject()
    before = subject.read()
    end = time.process_time() + 0.5
    while time.process_time() < end:
        pass
    assert subject.read().cpu_ns - before.cpu_ns >= 0.4e9


def test_pinning_and_environment_hold(root):
    code = "import os; print(sorted(os.sched_getaffinity(0)), sorted(k for k in os.environ if k != 'LC_CTYPE'))"
    cpu = max(os.sched_getaffinity(0))
    with ledger() as book, start([sys.executable, "-c", code], book, root, cpus=(cpu,)) as process:
        process.release()
        process.popen.wait(timeout=20)
    said = (root / "log").read_text()
    assert f"[{cpu}]" in said
    assert "'PATH'" in said
    assert "HOME" not in said


def test_children_that_ignore_sigterm_are_ended_too(root):
    script = "trap '' TERM; sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & wait; while :; do sleep 0.1; done"
    with ledger() as book:
        with start(["sh", "-c", script], book, root) as process:
            process.release()
            assert wait_until(lambda: len(session_members(process.pid, process.started)) >= 3)
            family = session_members(process.pid, process.started)
        assert not any(alive(pid) for pid in family)


RUNNER = """
import sys, time
from pathlib import Path
from runner.measure.lab import open_lab
from runner.measure.process_engine import pinned
with open_lab("process") as opened:
    folder = Path({folder!r})
    with pinned("server", ["sh", "-c", "sleep 300 & sleep 300"], cpus=(0,), env={{"PATH": {path!r}}},
                folder=folder, log=folder / "log", ledger=opened.ledger) as process:
        process.release()
        print(process.pid, process.group.folder if process.group else "", flush=True)
        time.sleep(300)
"""


def start_runner(root):
    code = RUNNER.format(folder=str(root), path=os.environ["PATH"])
    runner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert runner.stdout is not None
    pid, _, group = runner.stdout.readline().strip().partition(" ")
    return runner, int(pid), Path(group) if group else None


@pytest.mark.fault("SIGINT, SIGTERM, SIGHUP or SIGKILL of the runner", "no process, group or ledger is left")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_however_the_runner_ends_nothing_is_left(root, number):
    runner, server, group = start_runner(root)
    started = start_ticks(server)
    assert wait_until(lambda: len(session_members(server, started)) >= 2)
    runner.send_signal(number)
    runner.wait(timeout=20)
    assert wait_until(lambda: not session_members(server, started))
    assert wait_until(lambda: group is None or not group.exists())
    assert wait_until(lambda: not list((root / "data" / ".live").iterdir()))


@pytest.mark.fault("SIGKILL of runner and watchdog", "the next run removes what they left")
def test_what_a_dead_runner_and_its_dead_watchdog_left_is_reaped_by_the_next(root):
    runner, server, _ = start_runner(root)
    started = start_ticks(server)
    watchdogs = [pid for pid in children_of(runner.pid) if "watchdog" in command_of(pid)]
    assert len(watchdogs) == 1
    os.kill(watchdogs[0], signal.SIGKILL)
    runner.kill()
    runner.wait(timeout=20)
    assert session_members(server, started)
    assert len(dead_ledgers()) == 1
    with open_lab("process") as opened:
        assert any(str(server) in what for what in opened.reaped)
    assert not session_members(server, started)


def children_of(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    return [int(child) for child in found]


def command_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


@pytest.mark.fault("a pid in the ledger belongs to a stranger by now", "the stranger lives")
def test_a_strangers_process_is_never_reaped(root):
    """The ledger names a pid that has meanwhile gone to another process: its start time differs."""
    stranger = subprocess.Popen(["sleep", "30"], start_new_session=True)
    try:
        with ledger() as book:
            book.add("process", pid=stranger.pid, start=start_ticks(stranger.pid) - 5)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_ledger_of_a_living_runner_is_not_dead(root):
    with ledger() as book:
        assert dead_ledgers() == []
        copy = book.path.with_name(f"{os.getpid()}-1.jsonl")
        started = start_ticks(os.getpid())
        copy.write_text(book.path.read_text().replace(f":{started}", f":{started - 1}"))
        assert dead_ledgers() == [copy]
        assert reap(copy) == []


@pytest.mark.fault("two runs at once", "the second is refused and names the first")
def test_a_second_session_is_refused_and_names_the_first(root):
    with open_lab("process"), pytest.raises(LabError, match=f"pid {os.getpid()}"), open_lab("process"):
        pass


@pytest.mark.fault("a process with another numbering of processes shares engine and disks", "what is its own stays")
def test_what_cannot_be_told_to_be_dead_is_left(root, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    started = start_ticks(ended.pid) or 0
    ended.wait()
    namespace = pid_namespace()
    boot, _, _ = identity(os.getpid()).partition(":")
    assert lives(identity(os.getpid()))
    assert not lives(f"{boot}:{namespace}:{ended.pid}:{started}")
    assert lives(f"{boot}:{namespace + 1}:{ended.pid}:{started}")
    assert not lives(f"another-boot:{namespace}:{ended.pid}:{started}")
    with ledger() as book:
        copy = book.path.with_name(f"{ended.pid}-{started}.jsonl")
        copy.write_text(book.path.read_text().replace(f":{namespace}:", f":{namespace + 1}:"))
        assert dead_ledgers() == []
    copy.unlink()
    mine = f"bench-{namespace}-{os.getpid()}-{start_ticks(os.getpid())}-x"
    theirs, dead = f"bench-{namespace + 1}-{ended.pid}-{started}-x", f"bench-{namespace}-{ended.pid}-{started}-x"
    for name in (mine, theirs, dead, "bench-of-somebody-else"):
        (tmp_path / name).mkdir()
    assert sweep_temporary() == [f"folder {tmp_path / dead}"]
    assert not (tmp_path / dead).exists()


@pytest.mark.fault("another checkout measures at the same time", "the second is warned, and its manifest says so")
def test_a_second_lab_on_the_machine_is_told(root, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    other = bare_lab(tmp_path / "other")
    with open_lab("process") as first:
        monkeypatch.setenv("BENCH_ROOT", str(other))
        with open_lab("process") as second:
            assert len(second.warnings) == len(first.warnings) + 1 or first.warnings
    assert "Another lab is measuring on this machine" in second.warnings[-1]


def test_free_ports_lie_outside_the_range_of_clients():
    from runner.measure.engine import free_port

    assert all(10_000 <= free_port() < max(ephemeral_ports()[0], 12_000) for _ in range(20))


def test_server_and_generator_get_cpus_of_their_own_wherever_there_are_two():
    cpus = os.sched_getaffinity(0)
    placement = place(1)
    assert placement.disjoint == (len(cpus) > 1)
    assert set(placement.server) | set(placement.generator) == cpus
    if len(cpus) > 1:
        with pytest.raises(LabError, match="lower server_cpus"):
            place(len(cpus))


# Four processes that share 100 MiB, each with 10 MiB of its own.
SHARING = """
import mmap, os, sys, time
shared = mmap.mmap(-1, 100 * 2**20)
shared.write(b"x" * (100 * 2**20))
for _ in range(3):
    if os.fork() == 0: break
own = bytearray(b"y" * (10 * 2**20))
sum(shared[::4096])
print(len(own), flush=True)
time.sleep(20)
"""


def test_memory_that_processes_share_is_counted_once(root, tmp_path):
    with ledger() as book, start([sys.executable, "-c", SHARING], book, tmp_path) as process:
        process.release()
        assert wait_until(lambda: (tmp_path / "log").read_text().count("\n") == 4)
        pids = session_members(process.pid, process.started)
        alone, _ = Memory(lambda: [process.pid], 0).at(0)
        together, threads = Memory(lambda: pids, 0).at(0)
    assert threads == 4
    mib = 2**20
    assert alone > 110 * mib
    # Three more processes: 10 MiB each, and a few for the interpreter, but no 100 MiB.
    assert alone + 30 * mib < together < alone + 90 * mib


def test_stats_are_polled_without_ever_waiting():
    """A server that answers late, and in pieces: the poll takes what is there and asks anew only after an answer."""
    body = b'{"requests":1,"connections":1,"gc":{"cycles":3,"pause_total_ms":0.5,"cpu_s":0.1},"pool":null}'
    with socket.create_server(("127.0.0.1", 0)) as listener:
        poll = StatsPoll(*listener.getsockname())
        channel, _ = listener.accept()
        with channel:
            channel.settimeout(2)
            poll.ask(0)
            assert channel.recv(1000).startswith(b"GET /stats HTTP/1.1\r\n")
            assert poll.take() is None
            channel.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:20])
            time.sleep(0.05)
            assert poll.take() is None
            poll.ask(100)
            channel.sendall(body[20:])
            time.sleep(0.05)
            assert poll.take() == {
                "gc_cycles": 3, "gc_pause_total_ms": 0.5, "gc_cpu_s": 0.1, "requests": 1, "connections": 1,
            }  # fmt: skip
            poll.ask(101)
            assert channel.recv(1000).count(b"GET") == 1
        time.sleep(0.05)
        assert poll.take() is None
        poll.ask(200)  # the server is gone: nothing happens
        assert poll.take() is None
