"""Tests of the sampler, whose values are compared with those of psutil and with known loads.

In some tests, processes begin, end or fork while they are sampled.
"""

import itertools
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import psutil
import pyarrow.parquet as pq
import pytest
import real_lab
from fake_lab import wait_for

from runner.digest.resources import read_counters
from runner.measure import cgroups, procfs
from runner.measure.leftovers import ledger
from runner.measure.loading import write_rows
from runner.measure.machine import place
from runner.measure.process_engine import pinned
from runner.measure.procfs import KeptFile, Memory, descendants
from runner.measure.quotas import QuotaGroup, Quotas, Throttling
from runner.measure.sampler import StatsPoll
from runner.measure.sites import Clock, Site
from runner.measure.subjects import (
    CgroupSubject,
    HostSubject,
    ProcessSubject,
    open_files,
    source_of,
)
from runner.model import LabError

MIB = 2**20
# A program that forks `children` child processes. Each child has 2 MiB of its own memory, and all
# processes share 20 MiB. A line of input ends the program.
FAMILY = """
import mmap, os, sys, time
shared = mmap.mmap(-1, 20 * 2**20)
shared.write(b"x" * (20 * 2**20))
for _ in range({children}):
    if os.fork() == 0:
        alone = bytearray(b"y" * (2 * 2**20))
        sum(shared[::4096])
        print("ready", flush=True)
        time.sleep(60)
print("ready", flush=True)
sys.stdin.readline()
"""
BUSY = "while True: pass"


@contextmanager
def running(code, lines=0):
    """Run Python code, and yield its process once it has printed `lines` lines."""
    pipe = subprocess.PIPE
    with real_lab.process(
        sys.executable, "-c", code, stdin=pipe, stdout=pipe, start_new_session=True
    ) as made:
        for _ in range(lines):
            made.stdout.readline()
        yield made


@pytest.fixture
def group(root):
    with ledger() as book, cgroups.temporary("test", book.add_group) as made:
        if made is None:
            pytest.skip("control groups cannot be made here")
        yield made


def join(group, process):
    (group.folder / "cgroup.procs").write_text(str(process.pid))


SUBJECTS = {name: name for name in ("server", "database", "host", "sampler")}


class Sampling:
    """A real sampler at 20 Hz, with its ledger.

    A subject is a program or machine that is sampled, such as `server` or `host`. After `stop`,
    `rows` returns the samples of a subject.
    """

    def __init__(self, book, ask, path):
        self.book = book
        self._ask = ask
        self.path = path

    def add(self, subject, pid):
        self._ask({"add": subject, "pid": pid})

    def stop(self):
        write_rows([(json.loads(self._ask({"stop": True})), SUBJECTS, Clock())], self.path)

    def rows(self, subject):
        return [row for row in pq.read_table(self.path).to_pylist() if row["subject"] == subject]


@pytest.fixture
def sampling(root):
    with ledger() as book, Site(book).instrument("sampler", 20, place(1).generator) as ask:
        yield Sampling(book, ask, root / "r.parquet")


def held(name, code, sampling, root):
    """Start Python code in the same way in which the process engine starts a server.

    The output of the code goes to `log`. The code does not run until the test calls `release` of
    the yielded process.
    """
    argv = [sys.executable, "-c", code]
    return pinned(
        name,
        argv,
        cpus=place(1).server,
        env={},
        folder=root,
        log=root / "log",
        ledger=sampling.book,
    )


# --- reading files of the kernel: control groups, and files that stay open ------------------------

VERSION_1 = b"nr_periods 1\nnr_throttled 1\nthrottled_time 4500000\n"
WITHOUT_CPU = b"usage_usec 1234567\nuser_usec 1000000\nsystem_usec 234567\n"
VERSION_2 = WITHOUT_CPU + b"nr_periods 20\nnr_throttled 3\nthrottled_usec 4500\nnr_bursts 0\n"


@pytest.mark.parametrize(
    ("version", "stat", "cores", "throttled"),
    [
        (1, VERSION_1, 0.5, 4_500_000),
        (2, VERSION_2, 0.5, 4_500_000),
        (2, VERSION_2, None, 0),
        (2, WITHOUT_CPU, 0.5, None),
    ],
    ids=["version 1", "version 2", "no quota", "version 2 without its controller"],
)
def test_a_group_counts_time_throttling_memory_and_threads(
    tmp_path, version, stat, cores, throttled
):
    files = {
        "cpuacct.usage": b"1234567000\n",
        "cpu.stat": stat,
        "cgroup.procs": b"%d\n" % os.getpid(),
    }
    for name, text in files.items():
        (tmp_path / name).write_bytes(text)
    limiting = (QuotaGroup(version, tmp_path, cores),) if cores else ()
    throttling = Throttling(Quotas(limiting, known=True))
    subject = CgroupSubject(cgroups.Cgroup(version, tmp_path), throttling=throttling)
    reading = subject.read()
    assert (reading.cpu_ns, reading.throttled_ns) == (1_234_567_000, throttled)
    assert reading.rss_bytes == pytest.approx(psutil.Process().memory_info().rss, rel=0.05)
    assert reading.threads == psutil.Process().num_threads()
    if version == 2:
        (tmp_path / "cpu.stat").write_bytes(b"")
        with pytest.raises(OSError, match="usage_usec"):
            subject.read()


def opened(path):
    """Return the number of open file descriptors that this process has for the file at `path`.

    Other files are not counted, because other tests may open and close them meanwhile.
    """
    return sum(opened.path == str(path) for opened in psutil.Process().open_files())


def test_a_kept_file_is_read_anew_and_is_closed_with_its_owner(tmp_path):
    path = tmp_path / "file"
    path.write_text("1")
    kept = KeptFile(path)
    path.write_text("22")
    assert (kept.read(), opened(path)) == (b"22", 1)
    del kept
    assert opened(path) == 0
    with pytest.raises(FileNotFoundError):
        KeptFile(tmp_path / "missing")


# --- values that must agree with psutil's ---------------------------------------------------------


def busy_s():
    times = psutil.cpu_times()
    return sum(getattr(times, name) for name in ("user", "nice", "system", "irq", "softirq"))


def test_the_host_agrees_with_psutil():
    """The host's values must lie between psutil's values before and afterwards.

    The tolerance is 10 ms for each of five kinds of CPU time, because psutil's values are multiples
    of clock ticks.
    """
    host = HostSubject()
    before = busy_s(), psutil.cpu_times().steal, psutil.cpu_stats().ctx_switches
    reading = host.read()
    after = busy_s(), psutil.cpu_times().steal, psutil.cpu_stats().ctx_switches
    said = reading.cpu_ns / 1e9, reading.steal_ns / 1e9, reading.switches
    assert all(a - 0.05 <= b <= c + 0.05 for a, b, c in zip(before, said, after, strict=True))
    memory = psutil.virtual_memory()
    assert reading.rss_bytes == pytest.approx(memory.total - memory.available, abs=100 * MIB)


def test_memory_of_many_processes_agrees_with_psutil():
    """The lab must find that many processes use as much memory as psutil says.

    This must hold if the lab reads all processes at once, and if it reads them in portions.
    """
    children = 3 * procfs.AT_ONCE
    with running(FAMILY.format(children=children), lines=children + 1) as leader:
        pids = list(descendants(leader.pid))
        facts = [psutil.Process(pid).memory_info() for pid in pids]
        expected = sum(f.rss - f.shared for f in facts) + max(f.shared for f in facts)
        use = Memory(lambda: pids, 0).at(0)
        assert use.resident_bytes == pytest.approx(expected, rel=0.02)
        assert use.threads == children + 1
        spaced = Memory(lambda: pids, 1)
        assert [spaced.at(now).threads for now in range(1, 20)] == [children + 1] * 19


def test_bit_by_bit_a_change_is_known_after_a_pass():
    pids = [os.getpid()] * (2 * procfs.AT_ONCE)
    memory = Memory(lambda: list(pids), 1)
    threads = psutil.Process().num_threads()
    known = [memory.at(100).threads]
    pids += [os.getpid()] * procfs.AT_ONCE
    known += [memory.at(now).threads for now in range(200, 205)]
    assert known == [threads * 2 * procfs.AT_ONCE] * 4 + [threads * 3 * procfs.AT_ONCE] * 2


def test_memory_holds_for_as_long_as_was_asked():
    pids = [os.getpid()]
    memory = Memory(lambda: list(pids), 100)
    first = memory.at(1000)
    more = bytearray(b"z" * (64 * MIB))
    assert memory.at(1099) == first
    assert memory.at(1100).resident_bytes > first.resident_bytes + 50 * MIB
    assert len(more) == 64 * MIB
    assert Memory(list, 0).at(0) == procfs.MemoryUse(), "a group without processes has none"


@pytest.mark.parametrize("kernel_lists_children", [True, False])
def test_descendants_are_those_that_psutil_finds(kernel_lists_children, tmp_path):
    own_children = procfs.OWN_CHILDREN if kernel_lists_children else tmp_path / "missing"
    grandparent = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    code = f"import sys; sys.argv = ['', {FAMILY.format(children=3)!r}]\n{grandparent}"
    with running(code, lines=4) as leader:
        found = list(descendants(leader.pid, own_children))
        assert found[0] == leader.pid
        assert sorted(found[1:]) == sorted(
            c.pid for c in psutil.Process(leader.pid).children(recursive=True)
        )
        assert len(found) == 5


def test_open_files_are_those_that_psutil_counts():
    with running(FAMILY.format(children=2), lines=3) as leader:
        family = [psutil.Process(pid) for pid in descendants(leader.pid)]
        assert open_files(leader.pid) == sum(each.num_fds() for each in family)
    assert open_files(leader.pid) is None


# --- processes that begin or end while they are sampled -------------------------------------------


def test_an_ended_childs_cpu_stays_counted():
    code = """
import os, time
if os.fork() == 0:
    end = time.process_time() + 0.4
    while time.process_time() < end: pass
    os._exit(0)
os.wait()
print("ended", flush=True)
time.sleep(60)
"""
    with running(code) as leader:
        subject = ProcessSubject(leader.pid)
        readings = []
        while (
            len(psutil.Process(leader.pid).children())
            or not readings
            or readings[-1].cpu_ns < 0.2e9
        ):
            readings.append(subject.read())
            time.sleep(0.01)
        leader.stdout.readline()
        readings += [subject.read() for _ in range(3)]
    assert readings[-1].cpu_ns > 0.35e9
    assert all(a.cpu_ns <= b.cpu_ns for a, b in itertools.pairwise(readings))
    with pytest.raises(OSError, match=r"Errno"):
        subject.read()


def test_processes_that_join_a_group_are_seen(group):
    """A process that joins a control group must be found within 3 s.

    The difficulty is that version 1 of control groups returns an old list of processes, if the file
    with the list stays open and is read more than once a second.
    """
    with running(BUSY) as first, running(BUSY) as second:
        join(group, first)
        subject = CgroupSubject(group, memory_ns=40_000_000)
        assert subject.read().threads == 1
        join(group, second)
        wait_for(lambda: subject.read().threads == 2, 3)


# --- the sampler itself ---------------------------------------------------------------------------

# Source of a program that uses 30 ms of CPU time, by its own CPU clock, in every 100 ms, which is
# 30 % of a core.
DUTY = """
import time
begin = time.monotonic()
for i in range(int({seconds} / 0.1)):
    end = time.process_time() + 0.03
    while time.process_time() < end: pass
    time.sleep(max(0, begin + (i + 1) * 0.1 - time.monotonic()))
print(time.process_time())
"""


def test_a_group_agrees_with_its_process(group):
    with running(BUSY) as process:
        join(group, process)
        source = source_of(process.pid)
        times = psutil.Process(process.pid).cpu_times
        assert source.name == f"cgroup-v{group.version}"
        begin = source.read()
        said = [times()]
        time.sleep(0.5)
        said.append(times())
        end = source.read()
        said = [sum(each[:2]) for each in (*said, times())]
    used = (end.cpu_ns - begin.cpu_ns) / 1e9
    assert said[1] - said[0] - 0.03 <= used <= (end.mono_ns - begin.mono_ns) / 1e9 + 0.01
    assert end.cpu_ns / 1e9 <= said[2] + 0.03
    cgroups.remove(group.folder)
    with pytest.raises(OSError, match=r"Errno"):
        source.read()


@pytest.mark.timed
def test_a_known_duty_cycle_comes_back(root, sampling):
    """The lab's two ways to read a process's CPU time must agree with the process's own clock.

    By its own CPU-time clock, the process uses 30 % of a core. The sampler reads the CPU time from
    the process's control group. `ProcessSubject` reads it from the process itself.
    """
    with held("duty", DUTY.format(seconds=3), sampling, root) as process:
        sampling.add("server", process.pid)
        fallback = ProcessSubject(process.pid)
        before = fallback.read()
        begin = time.monotonic_ns()
        process.release()
        time.sleep(2)
        after = fallback.read()
        process.popen.wait(timeout=30)
        sampling.stop()
    said_s = float((root / "log").read_text())
    counter = read_counters(sampling.path, begin)["server"]
    assert counter.between(0, counter.t_s[-1]) == pytest.approx(said_s, abs=0.02)
    assert said_s == pytest.approx(0.9, abs=0.15)
    ticks = len(sampling.rows("host"))
    assert 0.9 * 20 * 3 <= ticks <= 20 * (time.monotonic_ns() - begin) / 1e9 + 3
    used = (after.cpu_ns - before.cpu_ns) / (after.mono_ns - before.mono_ns)
    assert used == pytest.approx(0.3, abs=0.08)  # `used` includes the start of the interpreter
    assert (after.rss_bytes > 1_000_000, after.threads) == (True, 1)


@pytest.mark.timed
def test_cpu_is_read_at_every_tick_until_the_end(sampling):
    ended = subprocess.Popen(["true"])
    ended.wait()
    sampling.add("database", ended.pid)
    with running(f"print(flush=True)\n{BUSY}", lines=1) as server:
        sampling.add("server", server.pid)
        time.sleep(1.0)
    time.sleep(0.5)
    sampling.stop()
    host, server, sampler = map(sampling.rows, ("host", "server", "sampler"))
    assert len(host) >= len(server) + 7
    used = [row["cpu_ns"] for row in server]
    assert sum(a < b for a, b in itertools.pairwise(used)) >= 0.9 * (len(used) - 1)
    assert all(row["rss_bytes"] > MIB and row["threads"] == 1 for row in server)
    assert all(row["switches"] and row["steal_ns"] is not None and row["rss_bytes"] for row in host)
    assert len(sampler) == len(host) and sampler[-1]["cpu_ns"] > sampler[0]["cpu_ns"]
    assert sampling.rows("database") == [], "it was gone already"


@pytest.mark.timed
def test_the_sampler_takes_two_percent_of_a_core_at_most(sampling):
    """The sampler uses at most two percent of a core.

    The limit is four times what `make bench-sampler` measures, because the sampler is slower on
    machines on which other programs use the caches, too.
    """
    with running(FAMILY.format(children=20), lines=21) as database, running(BUSY) as server:
        sampling.add("server", server.pid)
        sampling.add("database", database.pid)
        time.sleep(3)
        sampling.stop()
    rows = [row for row in sampling.rows("sampler") if row["tick"] >= 10]
    assert rows[-1]["cpu_ns"] - rows[0]["cpu_ns"] <= 0.02 * (
        rows[-1]["mono_ns"] - rows[0]["mono_ns"]
    )


@pytest.mark.timed
def test_a_group_gets_its_share_of_a_core_and_no_more(root, sampling):
    """A busy process in a group that is limited to 0.3 of a core gets 0.3 of a core.

    The process measures its CPU time itself.
    """
    burn = (
        "import time; end = time.monotonic() + 3.0\nwhile time.monotonic() < end: "
        "pass\nprint(time.process_time())"
    )
    with held("share", burn, sampling, root) as process:
        if process.group is None or process.group.quota is None:
            pytest.skip("this user may set no CPU quota")
        process.limit(0.3)
        folders = process.group.folders
        process.release()
        process.popen.wait(timeout=30)
    assert float((root / "log").read_text()) == pytest.approx(0.9, abs=0.12)
    assert not any(folder.exists() for folder in folders)


def test_stats_are_polled_without_ever_waiting():
    """The poll never waits for a server that answers late and in pieces.

    The poll reads what has arrived, and sends another request only after a whole answer.
    """
    body = (
        b'{"requests":1,"connections":1,"gc":{"cycles":3,"pause_total_ms":0.5,"cpu_s":0.1},'
        b'"pool":null}'
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        poll = StatsPoll(*listener.getsockname())
        channel, _ = listener.accept()
        with channel:
            channel.settimeout(2)
            poll.ask(0)
            assert channel.recv(1000).startswith(b"GET /stats HTTP/1.1\r\n")
            assert poll.take() is None
            channel.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:20]
            )
            time.sleep(0.05)
            assert poll.take() is None
            poll.ask(100)
            channel.sendall(body[20:])
            time.sleep(0.05)
            found = {
                "gc_cycles": 3,
                "gc_pause_total_ms": 0.5,
                "gc_cpu_s": 0.1,
                "requests": 1,
                "connections": 1,
            }
            assert poll.take() == found
            poll.ask(101)
            assert channel.recv(1000).count(b"GET") == 1
        time.sleep(0.05)
        assert poll.take() is None
        poll.ask(200)  # this must do nothing, because the server has ended
        assert poll.take() is None


def test_a_quota_of_version_2_is_written_below_the_root(tmp_path):
    """With version 2 of control groups, groups with a quota are made directly below the root.

    They cannot be made below the group of this process, because this group contains processes and
    is not the root. Such a group cannot pass the CPU controller on to groups below it.
    """
    mounts = cgroups.mounts(tmp_path)
    ours = mounts / "user.slice"
    ours.mkdir(parents=True)
    for folder in (mounts, ours):
        (folder / "cpu.stat").write_text("usage_usec 1\n")
    (mounts / "cgroup.subtree_control").write_text("cpu memory")
    assert cgroups.limiting_parent(ours, tmp_path) == mounts
    (mounts / "cpu.max").write_text("max 100000")
    cgroups.Cgroup(2, mounts, mounts).limit(0.5)
    assert (mounts / "cpu.max").read_text() == "5000 10000"
    with pytest.raises(LabError, match="only by a CPU quota"):
        cgroups.Cgroup(2, mounts).limit(0.5)
