"""Find this machine's facts, choose CPUs for each role, and diagnose what distorts the numbers."""

import os
import platform
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

from runner.measure.procfs import ROOT, number_after
from runner.measurement import Placement
from runner.model import LabError

STEAL_OVER_S = 0.5
STEAL_PCT = 1.0
"""The lab warns if the hypervisor takes more than this percentage of the CPU time.

A larger share slows a trial by more than the usual difference between two servers.
"""
PORTS_A_SECOND = 28_000
"""Number of ports that a load in close mode needs; in this mode, each request opens a connection.

Such a load opens about 28,000 connections per second, and the port of a closed connection can be
used again after one second. The kernel's default range contains about 28,000 ports, too.
"""
OTHER_FILES = 200  # open files of a generator besides its connections
_CPU = "sys/devices/system/cpu"
_CLOCK_SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"


def _read(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text.isdigit() else None


def _entry(path: Path, key: str, mark: str = ":") -> str | None:
    """Return the value of `key` in a file that has lines such as `key: value`.

    `mark` separates the key from the value. Return None if no line of the file has the key.
    """
    lines = (line.partition(mark) for line in _read(path).splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == key), None)


def ephemeral_ports(root: Path = ROOT) -> tuple[int, int]:
    """Return the first and last port for outgoing connections."""
    low, high = (_read(root / "proc/sys/net/ipv4/ip_local_port_range") or "32768 60999").split()
    return int(low), int(high)


def _smt_siblings(cpus: list[int], root: Path) -> list[list[int]]:
    """Return groups of CPUs, each of which contains the hardware threads of one core.

    Only the CPUs in `cpus` are considered. A CPU is left out if no other CPU in `cpus` belongs to
    the same core.
    """
    cores = set()
    for cpu in cpus:
        # The file contains a list of ranges, for example `0-1,8`.
        listed = _read(root / _CPU / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu)
        ends = [part.partition("-") for part in listed.split(",")]
        threads = {
            each for first, _, last in ends for each in range(int(first), int(last or first) + 1)
        }
        cores.add(tuple(sorted(threads & set(cpus))))
    return [list(core) for core in sorted(cores) if len(core) > 1]


class MachineFacts(TypedDict):
    """The facts of `runner.manifest.Machine`; a fact that the kernel does not report is None."""

    cpu_model: str
    cpus: int
    smt_siblings: list[list[int]]
    memory_bytes: int | None
    kernel: str
    os: str
    hypervisor: bool | None
    governor: str | None
    turbo: bool | None
    cgroup_version: int | None
    clock_source: str | None
    somaxconn: int
    ephemeral_ports: tuple[int, int]
    tcp_tw_reuse: int | None
    nf_conntrack_max: int | None
    open_files: int


class Hello(TypedDict):
    """A host's report about itself: machine, usable CPUs, boot id and bytes of available memory."""

    facts: MachineFacts
    cpus: list[int]
    boot: str
    memory: int


def facts(root: Path = ROOT) -> MachineFacts:
    """Return the machine's facts for the manifest.

    The list of facts is fixed, so that environment variables and user names are never included. A
    fact is None if the kernel does not report it. On CPUs other than x86, some facts are missing.
    The folder `root` contains `proc`, `sys` and `etc`.
    """
    cpus = sorted(os.sched_getaffinity(0))
    memory_kib = number_after(b"MemTotal:", _read(root / "proc/meminfo").encode())
    flags = _entry(root / "proc/cpuinfo", "flags")
    is_xen = (root / "sys/hypervisor/type").exists()
    of_cpus = root / _CPU
    governors = {_read(of_cpus / f"cpu{cpu}/cpufreq/scaling_governor") for cpu in cpus} - {""}
    no_turbo = _number(of_cpus / "intel_pstate/no_turbo")
    boost = _number(of_cpus / "cpufreq/boost")
    turbo = None if boost is None else boost != 0
    # The first key whose file exists is the version of control groups that counts the CPU time.
    marks = {2: "sys/fs/cgroup/cgroup.controllers", 1: "sys/fs/cgroup/cpuacct"}
    return {
        "cpu_model": _entry(root / "proc/cpuinfo", "model name") or platform.machine(),
        "cpus": len(cpus),
        "smt_siblings": _smt_siblings(cpus, root),
        "memory_bytes": None if memory_kib is None else 1024 * memory_kib,
        "kernel": _read(root / "proc/sys/kernel/osrelease") or platform.release(),
        "os": (_entry(root / "etc/os-release", "PRETTY_NAME", "=") or platform.system()).strip('"'),
        "hypervisor": is_xen or (None if flags is None else "hypervisor" in flags.split()),
        "governor": ", ".join(sorted(governors)) or None,
        "turbo": turbo if no_turbo is None else no_turbo == 0,
        "cgroup_version": next(
            (version for version, path in marks.items() if (root / path).exists()), None
        ),
        "clock_source": _read(root / _CLOCK_SOURCE) or None,
        "somaxconn": _number(root / "proc/sys/net/core/somaxconn") or 0,
        "ephemeral_ports": ephemeral_ports(root),
        "tcp_tw_reuse": _number(root / "proc/sys/net/ipv4/tcp_tw_reuse"),
        "nf_conntrack_max": _number(root / "proc/sys/net/netfilter/nf_conntrack_max"),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
    }


def place(server_cpus: int, database_cpus: int = 0) -> Placement:
    """Divide the CPUs of this machine among the server, the database and the generator.

    The server gets the first `server_cpus` CPUs, the database gets the next `database_cpus` CPUs,
    and the generator gets the other CPUs. If this would leave no CPU for the generator, the
    database and the generator share the CPUs that the server does not use. They do not share the
    server's CPUs, because the server would then look slow. But if the machine has only one CPU, the
    server, the database and the generator share this CPU. Raise LabError if the machine has several
    CPUs and the server would get all of them.
    """
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    if len(cpus) == 1:
        return Placement(cpus, cpus, cpus[:database_cpus])
    if server_cpus >= len(cpus):
        raise LabError(
            f"The campaign gives the server {server_cpus} CPUs, but at least one of this "
            f"machine's {len(cpus)} CPUs must be left for the load generator: lower "
            "server_cpus."
        )
    server = cpus[:server_cpus]
    rest = cpus[server_cpus:]
    if database_cpus >= len(rest):
        return Placement(server, rest, rest)
    return Placement(server, rest[database_cpus:], rest[:database_cpus])


def raise_open_files() -> None:
    """Raise the limit of open files to the allowed maximum, for this process and its children."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@dataclass(frozen=True)
class Diagnosis:
    """The result of checking one thing that a campaign needs, or that can distort its numbers.

    `subject` names what was checked, for example `open files` or `k6`. If `level` is `ok`, `text`
    is the value that was found. Otherwise `text` is a sentence that says what is wrong and what to
    do. The level `missing` means that a campaign cannot run.
    """

    subject: str
    level: Literal["ok", "warning", "missing"]
    text: str


def judged(subject: str, harmless: bool, value: str, sentence: str) -> Diagnosis:
    """Return a Diagnosis: `ok` with `value` if `harmless`, otherwise a warning with `sentence`."""
    return Diagnosis(subject, "ok", value) if harmless else Diagnosis(subject, "warning", sentence)


def warnings(
    placement: Placement,
    connections: int,
    opened: int = 0,
    root: Path = ROOT,
    sleep: Callable[[float], object] = time.sleep,
) -> list[str]:
    """Return a warning, with a remedy, for each fact of this machine that distorts a campaign.

    The arguments are those of `examine`.
    """
    examined = examine(placement, connections, opened, root, sleep)
    return [found.text for found in examined if found.level != "ok"]


def examine(
    placement: Placement,
    connections: int,
    opened: int,
    root: Path = ROOT,
    sleep: Callable[[float], object] = time.sleep,
) -> list[Diagnosis]:
    """Check this machine for half a second, and return a diagnosis of each checked fact.

    The diagnosis of a harmless fact has the level `ok`. The campaign has at most `connections`
    connections open at the same time. Each of its trials opens at most `opened` connections in
    total (counters.connections_of). `opened` is large if a load uses close mode, in which each
    request opens a connection. The folder `root` contains `proc`, `sys` and `etc`. `sleep` waits
    for STEAL_OVER_S, during which the use of the CPUs is observed.
    """
    found = facts(root)
    return [
        *_of_placement(found["smt_siblings"], placement),
        *_of_cpus(found, root, sleep),
        *_of_connections(found, connections, opened, root),
    ]


def cpu_list(cpus: Sequence[int]) -> str:
    """Return CPUs as shown to readers: `CPU 0, 1`."""
    return f"CPU {', '.join(map(str, cpus))}"


def _of_placement(cores: Sequence[Sequence[int]], placement: Placement) -> list[Diagnosis]:
    """Check whether server, generator and database have CPUs of their own.

    Also check whether the server shares a core with the generator or the database. For each core
    with several hardware threads, `cores` contains the CPUs of the core.
    """
    both = {*placement.server, *placement.generator}
    if not placement.disjoint and len(both) > 1:
        alone = min(both - set(placement.generator), default=min(both))
        text = (
            f"The server may run on {cpu_list(placement.server)}, and the generator runs on "
            f"{cpu_list(placement.generator)}: if they share a CPU, no verdict is possible. "
            f"Start the server under `taskset -c {alone}`, or move the running server by "
            f"`taskset -a -c -p {alone} PID`."
        )
    elif not placement.disjoint:
        text = (
            "There is only one CPU, which server and load generator share, so that no "
            "verdict is possible: use a machine (or a `taskset`) with two or more CPUs."
        )
    else:
        text = (
            "The database shares the load generator's CPUs, because there are too few "
            "CPUs: use a machine with three or more."
        )
    parts = {
        "server": placement.server,
        "generator": placement.generator,
        "database": placement.database,
    }
    value = ", ".join(f"{who} on {cpu_list(cpus)}" for who, cpus in parts.items() if cpus)
    found = [judged("cpus", placement.disjoint and not placement.database_shared, value, text)]
    others = {*placement.generator, *placement.database} - set(placement.server)
    sides = [(sorted({*core} & {*placement.server}), sorted({*core} & others)) for core in cores]
    ours, theirs = next((pair for pair in sides if all(pair)), ([], []))
    text = (
        f"The server's {cpu_list(ours)} and the load's {cpu_list(theirs)} are hyper-threads "
        "of one core, so each slows the other: switch hyper-threads off by `echo off | "
        "sudo tee /sys/devices/system/cpu/smt/control`, or run the lab under `taskset -c` "
        "with one CPU of each core."
    )
    return [
        *found,
        judged("hyper-threads", not ours, "the server shares no core with its load", text),
    ]


def _of_cpus(facts: MachineFacts, root: Path, sleep: Callable[[float], object]) -> list[Diagnosis]:
    """Check the CPUs' frequency, their use by other programs, and the instruments' priority."""
    before = _cpu_times(root)
    sleep(STEAL_OVER_S)
    after = _cpu_times(root)
    rose = [b - a for a, b in zip(before, after, strict=True)]
    stolen = [100 * times[-1] / max(1, sum(times)) for times in (after, rose)]
    took = f"{stolen[0]:.1f} % since boot, {stolen[1]:.1f} % now"
    governor = facts["governor"]
    turbo = facts["turbo"]
    cpus = facts["cpus"]
    load = float((_read(root / "proc/loadavg") or "0").split()[0])
    average = f"load average {load:.1f} on {cpus} CPUs"
    unseen = "none that this system can see"
    sentences = {
        "governor": (
            f"The CPU governor is {governor}, which changes the clock speed during the run: "
            "set another one by `sudo cpupower frequency-set -g performance`."
        ),
        "turbo": (
            "Turbo is on, so the clock speed falls while the CPU warms up and while more "
            f"cores work: switch it off by writing 1 to /{_CPU}/intel_pstate/no_turbo, or 0 "
            f"to /{_CPU}/cpufreq/boost."
        ),
        "steal": (
            f"The hypervisor took CPU time from this machine ({took}), which makes a server "
            "look slow or idle: use a machine with dedicated CPUs, or a less busy host."
        ),
        "load": (
            f"The machine was busy before the run ({average}): wait until it is idle, or "
            "end the programs that `top` shows."
        ),
        "priority": (
            "The lab's sampler and probe may not use real-time priority, so they sometimes "
            "wait while the generator uses their CPU: allow `rtprio 1` in "
            "/etc/security/limits.conf, or give a container `--cap-add SYS_NICE`."
        ),
    }
    return [
        judged(
            "governor", governor in (None, "performance"), governor or unseen, sentences["governor"]
        ),
        judged("turbo", not turbo, unseen if turbo is None else "off", sentences["turbo"]),
        judged(
            "steal", max(stolen) <= STEAL_PCT, f"the hypervisor took {took}", sentences["steal"]
        ),
        judged("load", load <= 0.5 * cpus, average, sentences["load"]),
        judged(
            "priority",
            _may_run_first(),
            "sampler and probe have priority over the generator",
            sentences["priority"],
        ),
    ]


def _cpu_times(root: Path) -> list[int]:
    """Return CPU ticks since boot, summed over all CPUs.

    The fields are user, nice, system, idle, iowait, irq, softirq and steal.
    """
    first, *_ = (_read(root / "proc/stat") or "cpu 0 0 0 0 0 0 0 0").splitlines()
    return [int(value) for value in first.split()[1:9]]


def _may_run_first() -> bool:
    """Return whether this process may use real-time priority, as `idle.become_instrument` does."""
    policy = os.sched_getscheduler(0)
    parameters = os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        return False
    os.sched_setscheduler(0, policy, parameters)
    return True


def _of_connections(
    facts: MachineFacts, connections: int, opened: int, root: Path
) -> list[Diagnosis]:
    """Check whether the kernel's limits allow as many connections as the generator opens."""
    files = facts["open_files"]
    backlog = facts["somaxconn"]
    tracked = facts["nf_conntrack_max"]
    needed = connections + OTHER_FILES
    waiting = number_after(b" tw ", _read(root / "proc/net/sockstat").encode()) or 0
    can_wait = f"{backlog} connections can wait until the server accepts them"
    can_track = f"the kernel can track {tracked} connections (a trial opens up to {opened})"
    room = "the kernel does not track connections" if tracked is None else can_track
    allowed = f"a process may open up to {files} files ({connections} connections need {needed})"
    sentences = {
        "files": (
            f"`ulimit -Hn` allows {files} open files, but {connections} connections need "
            f"{needed}: as root, run `ulimit -n {max(65_536, needed)}`, or set `nofile` in "
            "/etc/security/limits.conf."
        ),
        "backlog": (
            f"net.core.somaxconn is {backlog}, so a burst of {connections} new connections "
            "overflows the server's queue of unaccepted connections: run `sudo sysctl -w "
            f"net.core.somaxconn={max(4096, connections)}`."
        ),
        "tracking": (
            f"The kernel tracks at most {tracked} connections (nf_conntrack_max), each for "
            "two minutes after its end, and drops packets if the table is full; a trial "
            f"opens up to {opened} connections. Run `sudo sysctl -w "
            f"net.netfilter.nf_conntrack_max={max(262_144, 2 * opened)}`."
        ),
    }
    return [
        judged("open files", files >= needed, allowed, sentences["files"]),
        judged("somaxconn", backlog >= connections, can_wait, sentences["backlog"]),
        _ports(facts, waiting, connections, opened),
        judged("tracking", tracked is None or tracked >= opened, room, sentences["tracking"]),
    ]


def _ports(facts: MachineFacts, waiting: int, connections: int, opened: int) -> Diagnosis:
    """Check whether there are enough ports for outgoing connections.

    `waiting` is the number of ports that closed connections still hold, because the side that
    closes a connection keeps the connection's port for a minute (TIME-WAIT, RFC 9293). If
    net.ipv4.tcp_tw_reuse is 1, or 2 (loopback only, the default), such a port can be reused after a
    second. If net.ipv4.tcp_tw_reuse is 0, the port can be reused only after the minute.
    """
    reuse = facts["tcp_tw_reuse"]
    first, last = facts["ephemeral_ports"]
    ports = last - first + 1
    needed = max(2 * connections, min(opened, PORTS_A_SECOND))
    text = ""
    if reuse == 0 and ports - waiting < 2 * connections <= ports:
        text = (
            f"{waiting} of {ports} ports for outgoing connections are still held by "
            "connections that were closed within the last minute: wait a minute, or run "
            "`sudo sysctl -w net.ipv4.tcp_tw_reuse=2`."
        )
    elif ports < needed:
        text = (
            f"There are only {ports} ports for outgoing connections ({first} to {last}), "
            f"but {needed} are needed: run `sudo sysctl -w "
            "net.ipv4.ip_local_port_range='16384 65535'`."
        )
    elif reuse == 0 and ports < opened:
        text = (
            "net.ipv4.tcp_tw_reuse is 0, so a closed connection keeps its port for a "
            f"minute; there are {ports} ports, and a trial opens up to {opened} "
            "connections. Run `sudo sysctl -w net.ipv4.tcp_tw_reuse=2`."
        )
    return judged(
        "ports", not text, f"{ports} ports for outgoing connections ({first} to {last})", text
    )
