"""The results of measuring a load. They are passed to the digest, and stored in trial.json."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

NO_EXIT_CODE = 256
"""Recorded as the exit code of a server that has ended but is not the lab's child process.

The lab cannot learn the real exit code of such a server. No real exit code is this number.
"""

PROBE_HZ = 40.0
"""Highest rate of the probe, in requests/s.

At this rate, one or two seconds contain enough answers for a percentile of the response times.
"""
PROBE_SHARE = 0.01
"""The probe's rate is at most this share of the server's capacity, and of any offered rate."""
PROBE_CONNECTIONS = 100  # maximum number of concurrent requests of the probe
LEAST_PROBED = 10  # a median needs at least this many answers to the probe
PROBE_COLUMNS = ("scheduled_ns", "sent_ns", "received_ns", "status", "opened")
"""Columns of the probe's samples. Times are read from CLOCK_MONOTONIC.

`status` is 0 if there was no answer, and `opened` is 1 if the request opened a connection.
"""


def ended(code: int) -> str:
    """Return the end of a sentence about a server: `ended`, or `ended with exit code 1`."""
    return "ended" if code == NO_EXIT_CODE else f"ended with exit code {code}"


@dataclass(frozen=True)
class Placement:
    """CPUs of the server, of the generator, and of the database.

    The runner and the sampler use the generator's CPUs.

    If the lab chooses the CPUs, and there are at least two CPUs, server and generator share no CPU.
    If there are too few CPUs for the database, the database shares the generator's CPUs. If the lab
    did not start the server, `server` contains the CPUs on which the server's process may run. It
    is empty if this process was not found.
    """

    server: tuple[int, ...]
    generator: tuple[int, ...]
    database: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    """Ids of the machines of server, generator and database. Empty if all run on this machine."""

    def _named(self, role: int) -> set[tuple[str, int]]:
        """Return the CPUs of a role, each as (machine id, number of the CPU).

        `role` is 0 for the server, 1 for the generator, and 2 for the database. The machine id is
        empty if all roles run on this machine.
        """
        host = self.hosts[role] if self.hosts else ""
        return {(host, cpu) for cpu in (self.server, self.generator, self.database)[role]}

    @property
    def disjoint(self) -> bool:
        """True if server and generator share no CPU."""
        return not self._named(0) & self._named(1)

    @property
    def cpus(self) -> int:
        """Number of CPUs of all roles together."""
        return len(self._named(0) | self._named(1) | self._named(2))

    @property
    def database_shared(self) -> bool:
        """True if the database shares CPUs with the generator."""
        return bool(self._named(2) & self._named(1))


@dataclass(frozen=True)
class Quota:
    """A server's CPU quota that was not set by the lab.

    Such a quota is set on the server's control group, or on a group above this group.
    """

    cores: float | None = None  # the lowest quota of these groups; None if there is no quota
    known: bool = True  # False if a group could not be read, so that its quota may be lower
    shared: bool = False  # True if one of the server's quotas also applies to the lab itself


@dataclass(frozen=True)
class Counters:
    """Counts that are read before and after a load, from the server's /stats and from its host.

    The host counts accepted TCP connections (PassiveOpens) and dropped packets. A count is None if
    the server or the host does not provide the count.
    """

    requests: int | None
    connections: int | None
    passive_opens: int | None
    dropped_packets: int | None = None
    """Packets dropped by the kernel because its table of tracked connections was full."""


@dataclass(frozen=True)
class Spent:
    """Resources that a server's processes used: CPU time, context switches and page faults.

    `user_ns` is the CPU time in user mode, and `system_ns` the CPU time in kernel mode. At a
    voluntary context switch, a thread began to wait. At an involuntary context switch, the kernel
    preempted a thread.
    """

    user_ns: int
    system_ns: int
    voluntary_switches: int
    involuntary_switches: int
    page_faults: int

    def since(self, before: Spent) -> Spent:
        """Return the resources that were used between the reading `before` and this reading."""
        names = [each.name for each in fields(self)]
        return Spent(*(getattr(self, name) - getattr(before, name) for name in names))

    def plus(self, other: Spent) -> Spent:
        """Return the sum of these resources and those of `other`."""
        names = [each.name for each in fields(self)]
        return Spent(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass(frozen=True)
class Footprint:
    """Start-up time, memory and sizes of a server; unknown values are None."""

    start_ns: int | None = None
    """Duration from the start of the server's program to the server's first answer."""
    rss_started_bytes: int | None = None
    """Resident memory after the server's first answer, before any load."""
    rss_after_bytes: int | None = None
    """Resident memory after the server's last load."""
    binary_bytes: int | None = None
    image_bytes: int | None = None


@dataclass(frozen=True)
class DatabaseCounters:
    """The database's cumulative counters at one instant.

    `rows` is the number of rows with the load's tag. `statement_calls` and `statement_ms` are the
    number and the total execution time of INSERT statements (pg_stat_statements). `sessions` is the
    number of connections that the database has accepted since it was started (pg_stat_database).
    """

    rows: int
    statement_calls: int
    statement_ms: float
    sessions: int


@dataclass(frozen=True)
class DatabaseUse:
    """How a load used the database: the tag of its inserts, and the counters before and after."""

    tag: str
    version: str
    before: DatabaseCounters
    after: DatabaseCounters


@dataclass(frozen=True)
class GeneratorHost:
    """The host of a generator: its machine and its CPUs."""

    cpus: int  # number of CPUs that the generator may use
    host_cpus: int  # number of all CPUs of the host
    machine: str  # id of the machine, as in Placement.hosts


@dataclass(frozen=True)
class Between:
    """Facts about the hosts of a load: errors of their clocks, and traffic on their network.

    Bytes are counted on the server's host, and TCP segments on all hosts.
    """

    clock_error_ns: int
    """Largest error of a host's clock after conversion to the runner's clock."""
    clock_moved_ns: int
    """Largest drift of a host's clock against the runner's clock during the load."""
    received_bytes: int
    sent_bytes: int
    segments: int
    retransmitted: int
    transfer_bytes_s: float
    """Rate of a transfer between the server's and a generator's host, measured before the run.

    If there are several generators, this is the lowest of the rates that were measured.
    """
    generators: tuple[GeneratorHost, ...]
    round_trip_ns: int = 0
    """Round-trip time between the server and the farthest generator, measured before the run.

    0 if it was not measured.
    """
    silent_ns: int = 0
    """Longest time without a sign of life from a host during the load. 0 if not measured."""

    def share(self, seconds: float) -> float:
        """Return the load's rate as a share of the rate `transfer_bytes_s`.

        The load's rate is the number of bytes in the busier direction, divided by the load's
        duration `seconds`.
        """
        return max(self.received_bytes, self.sent_bytes) / seconds / self.transfer_bytes_s


@dataclass(frozen=True)
class Loaded:
    """Exit code and times of a generator.

    The times are read just before the generator's process starts and just after it ends. Wall times
    are in nanoseconds since the epoch, by the clock of the generator's host. Monotonic times are by
    CLOCK_MONOTONIC on the runner's machine.
    """

    generator_exit: int
    load_started_wall_ns: int
    load_started_mono_ns: int
    load_ended_wall_ns: int
    load_ended_mono_ns: int


@dataclass(frozen=True, kw_only=True)
class Generated(Loaded):
    """Command, environment, exit code and times of one generator, which sent a part of a load."""

    argv: tuple[str, ...]
    generator_env: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Part(Generated):
    """The part of a load that the second or a later generator sent."""

    number: int  # number of the generator, from 2

    def behind_ns(self, first: Generated) -> int:
        """Return how many ns the wall clock of this generator's host is behind that of `first`."""
        mono = self.load_started_mono_ns - first.load_started_mono_ns
        return mono - (self.load_started_wall_ns - first.load_started_wall_ns)


@dataclass(frozen=True, kw_only=True)
class LoadFacts(Generated):
    """Facts of one load (of a whole trial or of one slice).

    The fields that are inherited from `Generated` are facts of the first generator.
    """

    counters_before: Counters
    counters_after: Counters
    database: DatabaseUse | None = None
    parts: tuple[Part, ...] = ()  # the parts of all generators but the first
    between: Between | None = None
    """Network and clocks of the hosts; None if everything runs on one machine."""
    spent: Spent | None = None
    """Resources that the server used.

    None in older runs, and if the server's process was not found.
    """


@dataclass(frozen=True, kw_only=True)
class Slice(LoadFacts):
    """One slice of a trial's load.

    `place` numbers the slices of one server from 1. In each place of a session, every server gets
    one slice. `position` numbers all slices of the session from 1, in the order of loading.
    """

    place: int
    position: int


@dataclass(frozen=True, kw_only=True)
class Measurement(LoadFacts):
    """The measurement of one trial, whose raw files are in the trial's folder.

    For a trial in a session, the fields that are inherited from LoadFacts span the time from the
    first to the last slice, and `argv` is the command line of the first slice.
    """

    engine: str
    placement: Placement
    port: int
    sample_hz: float
    server_exit: int | None
    server_image: str | None = None
    server_sha256: str | None = None
    died: int | None = None  # exit code of a server that ended under load; None if none ended
    generator_ceiling_rps: float | None = None
    """Highest rate of the generator on this machine; None if no calibration contains this rate."""
    host_cpus: int | None = None
    """Number of all CPUs of the machine, including those that the lab may not use."""
    oom_kills: int | None = None
    """Number of server processes that the kernel killed for lack of memory; None if unknown."""
    idle: str | None = None
    """State of idle CPUs: `polling` (kept awake) or `system` (may sleep).

    None in older runs, which did not record the state.
    """
    slices: tuple[Slice, ...] = ()
    """Slices of a trial in a session, in the order of their places."""
    others_loaded: tuple[tuple[int, int], ...] = ()
    """Start and end of each load on the session's other servers, in ns of the monotonic clock."""
    probe_hz: float = PROBE_HZ
    """Rate of the probe, in requests per second.

    0 if the probe did not run. It does not run if the highest rate that does not disturb the server
    is so low that the probe would get too few answers for a median.
    """
    users: int | None = None
    """Number of virtual users that was chosen after the warm-up.

    None if the load itself names the number.
    """
    quota: Quota | None = None
    """The server's CPU quota that was not set by the lab.

    None in older runs, which did not record the quota.
    """
    also_ports: tuple[int, ...] = ()
    """Further ports of the server's host that a user's script may use."""
    footprint: Footprint | None = None  # start-up time and sizes of the server; None in older runs
    as_written: bool = False  # True if the options of a user's script defined the load
    edges_continued: bool = False
    """How the digest divides the CPU time between two samples if a load begins or ends in between.

    If True, the digest assumes that the CPU use before the load continues until the load begins,
    and that the CPU use after the load begins when the load ends. The rest of the CPU time between
    the two samples belongs to the load. If False, as in older runs, the CPU time is interpolated
    linearly between the two samples. Then 17 ms of the CPU time of a load that used a whole core
    were missing on average.
    """

    @property
    def cpus(self) -> int:
        """Number of the machine's CPUs or, if that is unknown, of the trial's CPUs."""
        return self.host_cpus or self.placement.cpus

    @property
    def loads(self) -> tuple[Measurement, ...]:
        """Each slice as a separate measurement, or the measurement itself if it has no slices."""
        if not self.slices:
            return (self,)
        names = [each.name for each in fields(LoadFacts)]
        return tuple(
            replace(self, slices=(), **{name: getattr(each, name) for name in names})
            for each in self.slices
        )
