"""Tests of the diagnosis of a machine, which is made from the kernel's files.

A fact that distorts measured numbers must be reported with its value and a remedy. A harmless fact
must cause no warning.
"""

import os
import platform
import time

import pytest
from real_lab import program

from runner.measure import doctor, machine
from runner.measure.tools import need_tool
from runner.measurement import Placement
from runner.model import LabError

APART = Placement((0,), (2,), (3,))
# Files of a good machine: four CPUs on four cores, no turbo, no stolen time, no other load.
FILES = {
    "etc/os-release": 'NAME="Example"\nPRETTY_NAME="Example Linux 1"\n',
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: Example CPU @ 2.50GHz\nflags\t\t: fpu sse2 ht\n",
    "proc/meminfo": "MemTotal:        8388608 kB\nMemFree: 1 kB\n",
    "proc/stat": "cpu  1000 0 500 8000 100 0 50 0 0 0\ncpu0 1 2 3\n",
    "proc/loadavg": "0.10 0.20 0.30 1/100 4711\n",
    "proc/sys/kernel/osrelease": "6.1.0-example\n",
    "proc/sys/net/core/somaxconn": "4096\n",
    "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
    "proc/sys/net/ipv4/tcp_tw_reuse": "2\n",
    "proc/sys/net/netfilter/nf_conntrack_max": "262144\n",
    "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
    **{
        f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor": "performance\n"
        for cpu in range(4)
    },
    **{
        f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": f"{cpu}\n"
        for cpu in range(4)
    },
}


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Return a folder with fake files of /proc, /sys and /etc, which describe a good machine.

    The system calls that the lab uses are replaced, so that their results agree with these files.
    """
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_OTHER)
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: None)
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (1024, 65_536))
    return tmp_path


def sleep(_seconds):
    """Return at once, because nothing changes on the fake machine while a caller waits."""


def warnings(root, placement=APART, connections=3000, opened=120_000, sleep=sleep):
    return machine.warnings(placement, connections, opened, root, sleep)


GOOD = {
    "cpu_model": "Example CPU @ 2.50GHz",
    "cpus": 4,
    "smt_siblings": [],
    "memory_bytes": 8 * 2**30,
    "kernel": "6.1.0-example",
    "os": "Example Linux 1",
    "hypervisor": False,
    "governor": "performance",
    "turbo": False,
    "cgroup_version": 2,
    "clock_source": "tsc",
    "somaxconn": 4096,
    "ephemeral_ports": (32768, 60999),
    "tcp_tw_reuse": 2,
    "nf_conntrack_max": 262_144,
    "open_files": 65_536,
}


def test_a_good_machine_has_no_warning_and_only_known_facts(fake):
    assert warnings(fake) == []
    assert machine.facts(fake) == GOOD


def test_what_a_machine_does_not_say_is_unknown_and_no_warning(fake):
    for name in ("no_turbo", "nf_conntrack_max", "scaling_governor", "thread_siblings_list"):
        for path in fake.rglob(name):
            path.unlink()
    (fake / "proc/cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    unknown = dict.fromkeys(("turbo", "governor", "nf_conntrack_max", "hypervisor"))
    assert machine.facts(fake) == GOOD | unknown | {"cpu_model": platform.machine()}
    assert warnings(fake) == []
    (fake / "proc/cpuinfo").write_text("flags\t\t: fpu hypervisor sse2\n")
    assert machine.facts(fake)["hypervisor"] is True, "a virtual machine is known by its flag"


CPU = "sys/devices/system/cpu"
PORTS = "proc/sys/net/ipv4/ip_local_port_range"
REUSE = "proc/sys/net/ipv4/tcp_tw_reuse"
TRACKED = "proc/sys/net/netfilter/nf_conntrack_max"
HAZARDS = [
    (
        f"{CPU}/cpu2/cpufreq/scaling_governor",
        "schedutil",
        "performance, schedutil",
        "frequency-set -g performance",
    ),
    (f"{CPU}/intel_pstate/no_turbo", "0", "Turbo is on", f"/{CPU}/intel_pstate/no_turbo"),
    ("proc/stat", "cpu  900 0 0 75 0 0 0 25 0 0", "2.5 % since boot, 0.0 % now", "dedicated CPUs"),
    ("proc/loadavg", "2.10 0 0 1/100 1", "load average 2.1 on 4 CPUs", "`top`"),
    ("proc/sys/net/core/somaxconn", "128", "somaxconn is 128", "sysctl -w net.core.somaxconn=4096"),
    (PORTS, "50000 60999", "11000 ports", "ip_local_port_range="),
    (REUSE, "0", "tcp_tw_reuse is 0", "sysctl -w net.ipv4.tcp_tw_reuse=2"),
    (TRACKED, "65536", "at most 65536 connections", "nf_conntrack_max=262144"),
]


@pytest.mark.parametrize(("path", "text", "value", "remedy"), HAZARDS)
def test_each_hazard_is_said_with_its_value_and_its_remedy(fake, path, text, value, remedy):
    (fake / path).write_text(text)
    (said,) = warnings(fake)
    assert value in said and remedy in said


@pytest.mark.parametrize("boost", [True, False])
def test_boost_of_another_vendor_is_turbo_too(fake, boost):
    (fake / CPU / "intel_pstate/no_turbo").unlink()
    (fake / CPU / "cpufreq").mkdir()
    (fake / CPU / "cpufreq/boost").write_text(f"{boost:d}\n")
    assert machine.facts(fake)["turbo"] is boost
    assert [f"0 to /{CPU}/cpufreq/boost" in said for said in warnings(fake)] == [True] * boost


def test_time_that_is_stolen_just_now_is_seen(fake):
    """There is a warning if CPU time is stolen now, even if little was stolen since boot.

    Here 0.1 % of the time since boot was stolen, but 5 % of the last 200 clock ticks.
    """
    stat = fake / "proc/stat"
    stat.write_text("cpu  5000 0 0 4800 0 0 0 0 0 0\n")

    def sleep(_seconds):
        stat.write_text("cpu  5100 0 0 4890 0 0 0 10 0 0\n")

    (said,) = warnings(fake, sleep=sleep)
    assert "0.1 % since boot, 5.0 % now" in said


def test_kept_connections_need_neither_ports_nor_a_table(fake):
    for path, text in ((REUSE, "0"), (PORTS, "50000 60999"), (TRACKED, "65536")):
        (fake / path).write_text(text)
    assert warnings(fake, connections=1000, opened=4000) == []
    assert "11000 ports" in warnings(fake, connections=8000, opened=0)[-1]


@pytest.mark.parametrize(
    ("reuse", "said"),
    [("0", ["27000 of 28232 ports for outgoing connections are still held"]), ("2", [])],
)
def test_ports_held_by_closed_connections_are_a_warning(fake, reuse, said):
    (fake / REUSE).write_text(reuse)
    (fake / "proc/net").mkdir()
    (fake / "proc/net/sockstat").write_text(
        "sockets: used 490\nTCP: inuse 407 orphan 0 tw 27000 alloc 407 mem 67\n"
    )
    found = warnings(fake, connections=1000, opened=4000)
    assert [text.partition(" by ")[0] for text in found] == said


def test_too_few_open_files_and_no_real_time_priority_are_said(fake, monkeypatch):
    def refuse(_pid, policy, _parameters):
        if policy != os.SCHED_OTHER:
            raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (1024, 1024))
    priority, files = warnings(fake)
    assert "rtprio 1" in priority
    assert (
        "allows 1024 open files, but 3000 connections need 3200: as root, run `ulimit -n 65536`"
        in files
    )


def test_asking_for_real_time_leaves_this_process_as_it_was():
    before = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.nice(0)
    machine.warnings(Placement((0,), (1,)), 10)
    assert (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.nice(0)) == before


@pytest.mark.parametrize(
    ("lists", "cores", "placement", "said"),
    [
        (
            ("0-1", "0-1", "2-3", "2-3"),
            [[0, 1], [2, 3]],
            Placement((0,), (1, 2)),
            "CPU 0 and the load's CPU 1",
        ),
        (
            ("0,2", "1,3", "0,2", "1,3"),
            [[0, 2], [1, 3]],
            Placement((0,), (1,), (2,)),
            "CPU 0 and the load's CPU 2",
        ),
        (("0-1", "0-1", "2-3", "2-3"), [[0, 1], [2, 3]], Placement((0, 1), (2, 3)), None),
        (("0,8", "1,9", "2,10", "3,11"), [], Placement((0,), (1, 2, 3)), None),
    ],
)
def test_hyper_threads_of_one_core_on_both_sides(fake, lists, cores, placement, said):
    """If a CPU of the server and a CPU of the load share a core, a warning names these CPUs.

    CPUs that the lab may not use do not matter.
    """
    for cpu, listed in enumerate(lists):
        (fake / CPU / f"cpu{cpu}/topology/thread_siblings_list").write_text(listed + "\n")
    assert machine.facts(fake)["smt_siblings"] == cores
    found = warnings(fake, placement)
    assert len(found) == bool(said)
    assert all(said in text and "smt/control" in text for text in found)


def test_too_few_cpus_are_said(fake):
    (one,) = warnings(fake, Placement((0,), (0,)))
    (shared,) = warnings(fake, Placement((0,), (1,), (1,)))
    assert "only one CPU" in one
    assert "shares the load generator's CPUs" in shared


def test_the_doctor_says_what_is_harmless_too(fake):
    (fake / "proc/sys/net/core/somaxconn").write_text("128")
    findings = {finding.subject: finding for finding in doctor.examine(4, fake, sleep)}
    assert findings["cpus"].level == "missing", "more CPUs for the server than there are"
    findings |= {finding.subject: finding for finding in doctor.examine(1, fake, sleep)}
    assert findings["somaxconn"].level == "warning"
    known = {
        "turbo": "off",
        "governor": "performance",
        "steal": "0.0 % since boot",
        "ports": "28232",
    }
    for subject, value in (
        known | {"tracking": "262144", "open files": "65536", "machine": "8 GiB"}
    ).items():
        assert findings[subject].level == "ok", subject
        assert value in findings[subject].text
    assert {findings[subject].level for subject in ("idle CPUs", "shares")} <= {"ok", "warning"}


@pytest.mark.parametrize(
    ("version", "taken"),
    [
        ("v1.8.0 (go1.26, linux/amd64)", True),
        ("v1.10.2 (go1.26)", True),
        ("v2.2.0 (commit/devel, go1.26)", True),
        ("v1.7.1 (go1.26)", False),
        ("v0.57.0 (go1.24)", False),
        ("v3.0.0 (go1.30)", False),
        ("without a number", False),
    ],
)
def test_a_series_of_k6_that_the_lab_does_not_know_is_refused(bare_lab, version, taken):
    (bare_lab / ".tools").mkdir()
    k6 = program(bare_lab / ".tools" / "k6", f"#!/bin/sh\necho 'k6 {version}'\n")
    examined = doctor.examine_tools(doctor.find_generators())
    (finding,) = (each for each in examined if each.subject == "k6")
    assert finding.level == ("ok" if taken else "missing")
    if taken:
        assert need_tool("k6").path == k6
    else:
        assert "the lab needs 1.8 to 2.x: run `bench setup k6`" in finding.text
        with pytest.raises(LabError, match=r"the lab needs 1\.8 to 2\.x: run `bench setup k6`"):
            need_tool("k6")


@pytest.mark.timed
def test_the_doctor_is_quick():
    begin = time.monotonic()
    doctor.examine()
    assert time.monotonic() - begin < 5  # it takes at most 2 s on a machine without other load
