"""Idle CPUs: whether they are kept awake is seen in the kernel's counts, and nobody is left holding them."""

import contextlib
import os
import time
from pathlib import Path

import hit_lab
import pytest

from runner.measure import idle

needs_device = pytest.mark.skipif(not os.access(idle.DEVICE, os.W_OK), reason="/dev/cpu_dma_latency may not be written")


@needs_device
def test_cpus_that_poll_enter_no_idle_state():
    with contextlib.closing(idle.IdleCpus()) as cpus:
        cpus.ask("polling")
        assert (cpus.state, cpus.problem) == ("polling", None)
        before = idle._entered()
        time.sleep(0.5)
        assert idle._entered() == before
        cpus.ask("system")
        assert cpus.state == "system"
        assert holders([os.getpid()]) == []
        cpus.ask("polling")
        assert holders([os.getpid()]) == [os.getpid()]
    assert holders([os.getpid()]) == []


def holders(pids):
    """Return which of some processes have the device open; other files of theirs may close while one looks."""

    def is_open(link):
        with contextlib.suppress(FileNotFoundError):
            return link.readlink() == idle.DEVICE

    return [pid for pid in pids if any(map(is_open, Path(f"/proc/{pid}/fd").glob("*")))]


@pytest.mark.fault("idle CPUs cannot be kept awake", "one warning says why and how to allow it; the run goes on")
def test_a_device_that_may_not_be_opened_is_one_warning(monkeypatch, tmp_path):
    monkeypatch.setattr(idle, "DEVICE", tmp_path / "none")
    with contextlib.closing(idle.IdleCpus()) as cpus:
        cpus.ask("polling")
        cpus.ask("polling")
        assert cpus.state == "system"
        warning = idle.remedy(cpus.problem)
    assert "none cannot be opened (no such file or directory)" in warning
    assert "sudo chmod o+w" in warning


@pytest.mark.parametrize(
    ("name", "latency", "rises", "problem"),
    [
        ("haltpoll idle", 1, True, "they still sleep (state1)"),
        ("haltpoll idle", 1, False, None),
        ("POLL", 0, True, "they still sleep (this kernel has no idle states to choose from)"),
    ],
)
def test_cpus_that_sleep_all_the_same_are_seen(monkeypatch, tmp_path, name, latency, rises, problem):
    """A kernel that does not heed the file must not be said to poll."""
    state = tmp_path / "cpu0" / "cpuidle" / "state1"
    state.mkdir(parents=True)
    (state / "name").write_text(name)
    (state / "latency").write_text(str(latency))
    (state / "usage").write_text("5")
    device = tmp_path / "device"
    device.touch()
    monkeypatch.setattr(idle, "DEVICE", device)
    monkeypatch.setattr(idle, "STATES", tmp_path)
    monkeypatch.setattr(idle.time, "sleep", lambda _: (state / "usage").write_text("50") if rises else None)
    with contextlib.closing(idle.IdleCpus()) as cpus:
        cpus.ask("polling")
        assert (cpus.problem, cpus.state) == (problem, "polling" if problem is None else "system")
    assert device.read_bytes() == bytes(4)


@pytest.mark.long
@needs_device
@pytest.mark.timed
@pytest.mark.fault("the runner is killed while it keeps idle CPUs awake", "they may sleep again at once")
def test_the_runner_alone_holds_the_device_and_nobody_after_it(tmp_path):
    lab = hit_lab.Lab(tmp_path, "load")
    others = [each.pid for each in lab.processes()]
    assert holders([lab.runner.pid, *others]) == [lab.runner.pid]
    lab.runner.kill()
    lab.ended()
    assert holders(others) == []
    lab.assert_nothing_is_left()
