"""Tests of programs that the lab runs as plain processes: their CPUs, environment, and end.

No process may outlive the runner that started it. When the runner has ended, idle CPUs may sleep
again.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import hit_lab
import psutil
import pytest
import real_lab
from built import bare_lab
from fake_lab import wait_for

from runner.measure import idle, leftovers
from runner.measure.engine import free_port
from runner.measure.lab import open_lab
from runner.measure.leftovers import (
    ProcessEntry,
    dead_ledgers,
    ledger,
    lives,
    session_members,
    start_ticks,
)
from runner.measure.machine import ephemeral_ports, place
from runner.measure.process_engine import pinned
from runner.model import LabError

ENV = {"PATH": os.environ["PATH"]}


def start(argv, book, tmp_path, cpus=(0,)):
    return pinned(
        "test",
        argv,
        cpus=cpus,
        env=ENV,
        folder=tmp_path,
        log=tmp_path / "log",
        ledger=book,
        grace_s=0.3,
    )


def test_pinning_and_environment_hold(root):
    code = (
        "import os; print(sorted(os.sched_getaffinity(0)), sorted(k for k in os.environ if k != "
        "'LC_CTYPE'))"
    )
    cpu = max(os.sched_getaffinity(0))
    with ledger() as book, start([sys.executable, "-c", code], book, root, cpus=(cpu,)) as process:
        process.release()
        process.popen.wait(timeout=20)
    said = (root / "log").read_text()
    assert f"[{cpu}]" in said and "'PATH'" in said and "HOME" not in said


def test_children_that_ignore_sigterm_are_ended_too(root):
    script = (
        "trap '' TERM; sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & wait; while :; do "
        "sleep 0.1; done"
    )
    with ledger() as book:
        with start(["sh", "-c", script], book, root) as process:
            process.release()
            wait_for(lambda: len(session_members(process.pid, process.started)) >= 3)
            family = list(map(psutil.Process, session_members(process.pid, process.started)))
        assert not any(
            each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family
        )


RUNNER = """
import sys, time
from pathlib import Path
from runner.measure.lab import open_lab
from runner.measure.process_engine import pinned
with open_lab("process") as opened:
    folder = Path({folder!r})
    with pinned("server", ["sh", "-c", "sleep 300 & sleep 300"],
                cpus=(0,), env={{"PATH": {path!r}}},
                folder=folder, log=folder / "log", ledger=opened.ledger) as process:
        process.release()
        print(process.pid, process.group.folder if process.group else "", flush=True)
        time.sleep(300)
"""


def start_runner(root):
    code = RUNNER.format(folder=str(root), path=os.environ["PATH"])
    runner = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert runner.stdout is not None
    pid, _, group = runner.stdout.readline().strip().partition(" ")
    return runner, int(pid), Path(group) if group else None


@pytest.mark.fault(
    "SIGINT, SIGTERM, SIGHUP or SIGKILL of the runner", "no process, group or ledger is left"
)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_however_the_runner_ends_nothing_is_left(root, number):
    runner, server, group = start_runner(root)
    started = start_ticks(server)
    wait_for(lambda: len(session_members(server, started)) >= 2)
    runner.send_signal(number)
    runner.wait(timeout=20)
    wait_for(lambda: not session_members(server, started))
    wait_for(lambda: group is None or not group.exists())
    wait_for(lambda: not list((root / "data" / ".live").iterdir()))


@pytest.mark.fault("SIGKILL of runner and watchdog", "the next run removes what they left")
def test_the_next_run_reaps_what_runner_and_watchdog_left(root):
    runner, server, _ = start_runner(root)
    started = start_ticks(server)
    (watchdog,) = [
        each for each in psutil.Process(runner.pid).children() if "watchdog" in each.cmdline()
    ]
    watchdog.kill()
    runner.kill()
    runner.wait(timeout=20)
    assert session_members(server, started)
    assert len(dead_ledgers()) == 1
    with open_lab("process") as opened:
        assert any(str(server) in what for what in opened.reaped)
    assert not session_members(server, started)


@pytest.mark.fault("another program now has a pid of the ledger", "this program is not ended")
def test_a_strangers_process_is_never_reaped(root):
    """A process is not ended if the ledger contains its pid, but with another start time."""
    with real_lab.process("sleep", "30", start_new_session=True) as stranger:
        with ledger() as book:
            book.add(ProcessEntry(stranger.pid, start_ticks(stranger.pid) - 5))
        assert stranger.poll() is None


def test_a_ledger_of_a_living_runner_is_not_dead(root):
    with ledger() as book:
        assert dead_ledgers() == []
        copy = book.path.with_name(f"{os.getpid()}-1.jsonl")
        started = start_ticks(os.getpid())
        copy.write_text(book.path.read_text().replace(f":{started}", f":{started - 1}"))
        assert (dead_ledgers(), leftovers.reap(copy)) == ([copy], [])


@pytest.mark.fault("two runs at once", "the second is refused and names the first")
def test_a_second_session_is_refused_and_names_the_first(root):
    with (
        open_lab("process"),
        pytest.raises(LabError, match=f"pid {os.getpid()}"),
        open_lab("process"),
    ):
        pass


@pytest.mark.fault(
    "a process with another numbering of processes shares engine and disks",
    "its programs and containers are left alone",
)
def test_what_may_live_is_left(root, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    started = start_ticks(ended.pid) or 0
    ended.wait()
    namespace = leftovers.pid_namespace()
    boot, _, _ = leftovers.identity(os.getpid()).partition(":")
    assert lives(leftovers.identity(os.getpid()))
    assert not lives(f"{boot}:{namespace}:{ended.pid}:{started}")
    assert lives(f"{boot}:{namespace + 1}:{ended.pid}:{started}")
    assert not lives(f"another-boot:{namespace}:{ended.pid}:{started}")
    with ledger() as book:
        copy = book.path.with_name(f"{ended.pid}-{started}.jsonl")
        copy.write_text(book.path.read_text().replace(f":{namespace}:", f":{namespace + 1}:"))
        assert dead_ledgers() == []
    copy.unlink()
    mine = f"bench-{namespace}-{os.getpid()}-{start_ticks(os.getpid())}-x"
    theirs = f"bench-{namespace + 1}-{ended.pid}-{started}-x"
    dead = f"bench-{namespace}-{ended.pid}-{started}-x"
    for name in (mine, theirs, dead, "bench-of-somebody-else"):
        (tmp_path / name).mkdir()
    assert leftovers.sweep_temporary() == [f"folder {tmp_path / dead}"]
    assert not (tmp_path / dead).exists()


@pytest.mark.fault(
    "another checkout measures at the same time", "the second is warned, and its manifest says so"
)
def test_a_second_lab_on_the_machine_is_warned(root, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    other = bare_lab(tmp_path / "other")
    with open_lab("process") as first:
        monkeypatch.setenv("BENCH_ROOT", str(other))
        with open_lab("process") as second:
            (added,) = [each for each in second.warnings if each not in first.warnings]
    assert "Another lab is measuring on this machine" in added


def test_free_ports_lie_outside_the_range_of_clients():
    assert all(10_000 <= free_port() < max(ephemeral_ports()[0], 12_000) for _ in range(20))


def test_server_and_generator_get_different_cpus():
    cpus = os.sched_getaffinity(0)
    placement = place(1)
    assert placement.disjoint == (len(cpus) > 1)
    assert set(placement.server) | set(placement.generator) == cpus
    if len(cpus) > 1:
        with pytest.raises(LabError, match="lower server_cpus"):
            place(len(cpus))


# --- keeping idle CPUs out of sleep states --------------------------------------------------------

needs_device = pytest.mark.skipif(
    not os.access(idle.DEVICE, os.W_OK), reason="/dev/cpu_dma_latency may not be written"
)

needs_idle_states = pytest.mark.skipif(
    not idle.idle_states(), reason="this kernel has no idle states to choose from"
)


@needs_device
@needs_idle_states
def test_cpus_that_poll_enter_no_idle_state():
    with contextlib.closing(idle.IdleCpus()) as cpus:
        cpus.ask("polling")
        assert (cpus.state, cpus.problem) == ("polling", None)
        before = idle.idle_states()
        time.sleep(0.5)
        assert idle.idle_states() == before
        cpus.ask("system")
        assert cpus.state == "system"
        assert holders([os.getpid()]) == []
        cpus.ask("polling")
        assert holders([os.getpid()]) == [os.getpid()]
    assert holders([os.getpid()]) == []


def holders(pids):
    """Return each pid of `pids` whose process has the file /dev/cpu_dma_latency open.

    It is no error if a process closes a file while this function reads the list of its open files.
    """

    def is_open(link):
        with contextlib.suppress(FileNotFoundError):
            return link.readlink() == idle.DEVICE

    return [pid for pid in pids if any(map(is_open, Path(f"/proc/{pid}/fd").glob("*")))]


@pytest.mark.fault(
    "idle CPUs cannot be kept awake", "one warning says why and how to allow it; the run goes on"
)
def test_a_device_that_may_not_be_opened_is_one_warning(tmp_path):
    with contextlib.closing(idle.IdleCpus(device=tmp_path / "none")) as cpus:
        cpus.ask("polling")
        cpus.ask("polling")
        assert cpus.state == "system"
        warning = idle.remedy(cpus.problem)
    assert "none cannot be opened (no such file or directory)" in warning
    assert "sudo chmod o+w" in warning


def test_a_kernel_without_idle_states_is_one_warning():
    """If the kernel has no idle states, one warning says so.

    The warning names no remedy, because no remedy exists.
    """
    warning = idle.remedy(idle.NO_STATES)
    assert "leaves the CPUs' sleep to the hypervisor" in warning and "many connections" in warning
    assert "chmod" not in warning


@pytest.mark.parametrize(
    ("name", "latency", "rises", "problem"),
    [
        ("haltpoll idle", 1, True, "the CPUs still enter sleep states (state1)"),
        ("haltpoll idle", 1, False, None),
        ("POLL", 0, True, idle.NO_STATES),
    ],
)
def test_cpus_that_sleep_all_the_same_are_seen(tmp_path, name, latency, rises, problem):
    """CPUs that sleep although the lab asked to keep them awake are not reported as polling."""
    state = tmp_path / "cpu0" / "cpuidle" / "state1"
    state.mkdir(parents=True)
    (state / "name").write_text(name)
    (state / "latency").write_text(str(latency))
    (state / "usage").write_text("5")
    device = tmp_path / "device"
    device.touch()

    def sleep(_seconds):
        if rises:
            (state / "usage").write_text("50")

    with contextlib.closing(idle.IdleCpus(device, tmp_path, sleep)) as cpus:
        cpus.ask("polling")
        assert (cpus.problem, cpus.state) == (problem, "polling" if problem is None else "system")
    assert device.read_bytes() == bytes(4)


@pytest.mark.long
@needs_device
@needs_idle_states
@pytest.mark.timed
@pytest.mark.fault(
    "the runner is killed while it keeps idle CPUs awake", "they may sleep again at once"
)
def test_the_runner_alone_holds_the_device_and_nobody_after_it(tmp_path):
    lab = hit_lab.Lab(tmp_path, "load")
    others = [each.pid for each in lab.processes()]
    assert holders([lab.runner.pid, *others]) == [lab.runner.pid]
    lab.runner.kill()
    lab.ended()
    assert holders(others) == []
    lab.assert_nothing_is_left()
