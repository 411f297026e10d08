"""Tests of the signs of life (heartbeats) between the runner and its stations.

The tests use simulated clocks, except those in which a station is a real process of this machine.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from built import ROOT
from fake_lab import wait_for

from runner.measure import cgroups
from runner.measure.heartbeat import LEASE_S, LOOK_S, LOST_S, SAID_S, Silence, Vigil
from runner.measure.station import processes_of
from runner.measure.station_client import StationClient
from runner.model import CannotGoOnError


class Clock:
    """A clock whose time changes only if a test sets it."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


class Line:
    """A channel to a fake station. The station shows a sign of life only if a test says so."""

    complaint = b""

    def __init__(self, clock=time.monotonic):
        self.silence = Silence(clock)
        self.is_over = False
        self.is_closed = False
        self.sent = []
        self.answers = queue.SimpleQueue()

    def send(self, line):
        self.sent.append(line)

    def take(self, timeout_s):
        return self.answers.get(timeout=timeout_s)

    def close(self):
        self.is_closed = True


class World:
    """Some hosts, and a Vigil: the part of the runner that notices hosts that are silent.

    The vigil uses a clock that stands still between the steps of a test.
    """

    def __init__(self, *names):
        self.clock = Clock()
        self.said = []
        self.vigil = Vigil(self.said.append, self.clock)
        self.lines = {name: Line(self.clock) for name in names}
        self.abandoned = []
        for name, line in self.lines.items():
            self.vigil.watch(name, line, lambda name=name: self.abandoned.append(name))

    def pass_s(self, seconds, silent=()):
        """Let time pass; all hosts except the `silent` ones show signs of life meanwhile."""
        end_s = self.clock.now_s + seconds
        while self.clock.now_s < end_s:
            self.clock.now_s += LOOK_S
            for name, line in self.lines.items():
                if name not in silent:
                    line.silence.heard()
            self.vigil.look()


def test_the_deadlines_are_those_that_the_documentation_promises():
    """The runner must notice the loss of a host within 10 s.

    After 15 s, nothing of the lab may be left on the host. The runner must give up a host earlier
    than the host's station gives up the runner.
    """
    assert LOST_S + 2 * LOOK_S < 10 and LOST_S + 2 * LOOK_S < LEASE_S < 15 - 3 - 2 * LOOK_S


def test_a_silent_host_is_said_at_once_and_given_up_within_ten_seconds():
    world = World("server", "generator 2")
    world.pass_s(5)
    began = time.strftime("%H:%M:%S", time.localtime(world.clock.now_s))
    world.pass_s(SAID_S + 1, silent={"generator 2"})
    assert world.said == [
        f"The host of the generator 2 has not responded since {began}: the run ends if the host "
        "stays silent for 8 s."
    ]
    assert world.vigil.loss == "" and world.abandoned == []
    world.pass_s(10 - SAID_S - 1, silent={"generator 2"})
    assert world.vigil.loss == (
        f"The host of the generator 2 stopped responding at {began}: check its network, its power "
        "and its Docker engine."
    )
    assert world.abandoned == ["generator 2"] and world.lines["generator 2"].is_closed
    assert not world.lines["server"].is_closed
    assert world.said[1:] == [
        "The host of the generator 2 has not responded for too long, so the run ends."
    ]
    with pytest.raises(CannotGoOnError, match="generator 2 stopped responding"):
        world.vigil.require()


def test_a_host_that_comes_back_in_time_is_not_lost():
    """If a silent host responds again in time, it is not lost.

    The length of the longest silence must be known, because it may have disturbed the load.
    """
    world = World("server")
    world.pass_s(LOST_S - 1, silent={"server"})
    world.pass_s(30)
    silence = world.lines["server"].silence
    assert silence.take_longest_s() == LOST_S - 1 + LOOK_S
    world.pass_s(5)
    assert silence.take_longest_s() == LOOK_S
    assert len(world.said) == 2 and world.said[1] == "The host of the server responds again."
    assert world.vigil.loss == "" and world.abandoned == []


def test_all_hosts_are_named_if_the_runners_own_cable_is_pulled():
    world = World("server", "generator 1", "generator 2")
    world.pass_s(10, silent=set(world.lines))
    assert world.abandoned == ["server", "generator 1", "generator 2"]
    assert "the server and the host of the generator 1 and the host of" in world.vigil.loss


def test_a_station_that_ends_is_lost_at_once():
    world = World("database")
    world.lines["database"].is_over = True
    world.pass_s(LOOK_S)
    assert "The host of the database stopped responding" in world.vigil.loss


def test_a_host_whose_channel_the_runner_closes_is_not_lost():
    world = World("server")
    world.vigil.forget(world.lines["server"])
    world.pass_s(60, silent={"server"})
    assert world.vigil.loss == "" and world.said == []


def test_a_runner_that_was_stopped_itself_blames_no_host():
    """A runner that was paused for 60 s (by SIGSTOP, say) must not declare a host lost at once.

    During the pause, the host may have sent signs of life that the runner has not read yet.
    """
    world = World("server")
    world.pass_s(2)
    world.clock.now_s += 60
    world.vigil.look()
    world.pass_s(SAID_S - 1, silent={"server"})
    assert world.vigil.loss == "" and world.said == []
    world.pass_s(10, silent={"server"})
    assert "The host of the server" in world.vigil.loss


def test_the_loss_of_a_host_ends_the_wait_for_another():
    """If one host is lost, the runner stops waiting for the answer of another host.

    If the runner waited on, it would wait for an hour, until the load of the other host ends.
    """
    vigil = Vigil(lambda _: None)
    lines = {name: Line() for name in ("generator 1", "generator 2")}
    for name, line in lines.items():
        vigil.watch(name, line, lambda: None)
    waiting = StationClient("generator 1", None, lines["generator 1"], "10.0.0.2", vigil)
    answer = waiting.begin("run", 3600)
    vigil.lose(lines["generator 2"])
    begun_s = time.monotonic()
    with pytest.raises(CannotGoOnError, match="The host of the generator 2 stopped responding"):
        answer()
    assert time.monotonic() - begun_s < 2
    with pytest.raises(CannotGoOnError, match="generator 2"):
        waiting.ask("now")
    assert len(lines["generator 1"].sent) == 1


@contextlib.contextmanager
def station(folder, lease_s):
    """Run a station as a process of this machine.

    The station gives up its runner after `lease_s` seconds without a sign of life.
    """
    program = f"from runner.measure import station as s; s.LEASE_S = {lease_s}; s.main()"
    env = {**os.environ, "LAB_WORK": str(folder), "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=pipe, stdout=pipe, env=env, text=True
    ) as made:
        try:
            made.stdout.readline()  # the station's first sign of life
            yield made
        finally:
            made.kill()


def ask(station, **what):
    station.stdin.write(json.dumps(what) + "\n")
    station.stdin.flush()


def load(station, folder):
    """Let a station start a long load; return the process of the load as soon as it runs."""
    (folder / "load").mkdir()
    command = {"argv": ["sleep", "1000"], "env": {}, "timeout_s": 2000}
    cpus = list(os.sched_getaffinity(0))
    asked = {"command": command, "cpus": cpus, "folder": "load"}
    ask(station, id=1, do="run", begin_mono_ns=None, sampled=False, **asked)
    runs = psutil.Process(station.pid)
    return wait_for(lambda: next((p for p in runs.children(True) if p.name() == "sleep"), None))


@pytest.mark.timed
@pytest.mark.fault(
    "a station hears nothing of its runner, whose connection is not reset",
    "after 10 s it ends all that the lab started on its host",
)
def test_a_station_without_its_runner_ends_what_it_started(tmp_path):
    """A station ends its load if it gets no more signs of life, even if its input stays open.

    The station is in the same situation if the network cable of its host is pulled.
    """
    with station(tmp_path, lease_s=2) as made:
        generator = load(made, tmp_path)
        for _ in range(6):  # 3 s, longer than the lease, but each sign of life renews the lease
            time.sleep(0.5)
            made.stdin.write("beat\n")
            made.stdin.flush()
        assert generator.is_running() and made.poll() is None
        assert made.wait(timeout=6) == 1
        psutil.wait_procs([generator], timeout=2)
        assert not generator.is_running() or generator.status() == psutil.STATUS_ZOMBIE


@pytest.mark.timed
def test_a_station_whose_runner_ended_does_not_wait_for_its_load(tmp_path):
    with station(tmp_path, lease_s=60) as made:
        generator = load(made, tmp_path)
        made.stdin.close()
        made.wait(timeout=6)
        assert not generator.is_running() or generator.status() == psutil.STATUS_ZOMBIE


def test_processes_of_a_container_are_found_by_its_group():
    """A container's processes are found by its id, because their control group's path contains it.

    In this test, the name of a group takes the place of a container's id.
    """
    with contextlib.ExitStack() as stack:
        groups = []
        group = stack.enter_context(cgroups.temporary("lease", groups.append))
        if group is None:
            pytest.skip(cgroups.NO_QUOTA)
        name = Path(groups[0]).name
        inside, outside = (
            stack.enter_context(subprocess.Popen(["sleep", "1000"])) for _ in range(2)
        )
        stack.callback(outside.kill)
        stack.callback(inside.kill)
        (Path(groups[0]) / "cgroup.procs").write_text(str(inside.pid))
        assert processes_of({name}) == [inside.pid]
        assert processes_of({"0" * 64}) == processes_of(set()) == []
        os.kill(inside.pid, signal.SIGKILL)
        time.sleep(0.1)
        assert processes_of({name}) == []  # a zombie does not count
