"""What the measure wing saw of one load, as it is handed to the digest and stored in trial.json."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

NO_EXIT_CODE = 256
"""Stands for the exit code of a server that has ended and is not the lab's child: no program can
end with it.
"""

PROBE_HZ = 40.0  # how often the probe asks at most: often enough for a percentile per second or two
PROBE_SHARE = 0.01
"""Of the server's capacity, and of an offered rate, that the probe may be at most."""
PROBE_CONNECTIONS = 100  # how many requests of the probe may be under way
LEAST_PROBED = 10  # answers of the probe that a median needs
PROBE_COLUMNS = ("scheduled_ns", "sent_ns", "received_ns", "status", "opened")
"""The probe's samples: times of CLOCK_MONOTONIC.

Status 0 if no answer came; opened 1 if the request opened a connection.
"""


def ended(code: int) -> str:
    """Say that a server has ended, and with which exit code."""
    return "ended" if code == NO_EXIT_CODE else f"ended with exit code {code}"


@dataclass(frozen=True)
class Placement:
    """Which CPUs the server, the generator (with runner and sampler) and the database may use.

    Server and generator are disjoint where there are two CPUs; the database shares the generator's
    where there are not enough for it. Those of a server that the lab did not start are as seen, and
    none where its process was not found.
    """

    server: tuple[int, ...]
    generator: tuple[int, ...]
    database: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    """Machine ids of server, generator and database. Empty if all run on this machine."""

    def _named(self, role: int) -> set[tuple[str, int]]:
        """Return the CPUs of the server, the generator or the database, each with its machine."""
        host = self.hosts[role] if self.hosts else ""
        return {(host, cpu) for cpu in (self.server, self.generator, self.database)[role]}

    @property
    def disjoint(self) -> bool:
        """Whether server and generator share no CPU."""
        return not self._named(0) & self._named(1)

    @property
    def cpus(self) -> int:
        """How many CPUs all of them have together."""
        return len(self._named(0) | self._named(1) | self._named(2))

    @property
    def database_shared(self) -> bool:
        """Whether the database shares CPUs with the generator."""
        return bool(self._named(2) & self._named(1))


@dataclass(frozen=True)
class Quota:
    """The CPU quota that a server has from elsewhere: of its control group or of one above it."""

    cores: float | None = None  # the tightest that was seen; None without one
    known: bool = True  # whether all of these groups could be read: if not, one may be tighter
    shared: bool = False  # whether the lab itself is in a group with such a quota


@dataclass(frozen=True)
class Counters:
    """Counts read around a load: the server's (`/stats`) and the host's (TCP PassiveOpens,
    connection tracking).

    A field is None if the server does not offer it.
    """

    requests: int | None
    connections: int | None
    passive_opens: int | None
    dropped_packets: int | None = None
    """By the kernel, because its table of tracked connections was full."""


@dataclass(frozen=True)
class DatabaseCounters:
    """What the database says at one instant, cumulative since its start: rows with the trial's tag,
    and statistics.

    `statement_ms` is the execution time of all INSERT statements (pg_stat_statements), `sessions`
    the connections ever accepted (pg_stat_database).
    """

    rows: int
    statement_calls: int
    statement_ms: float
    sessions: int


@dataclass(frozen=True)
class DatabaseUse:
    """A trial's database: the tag of its inserts, and the counters around the load."""

    tag: str
    version: str
    before: DatabaseCounters
    after: DatabaseCounters


@dataclass(frozen=True)
class GeneratorHost:
    """One generator's host: the CPUs that the generator has there, all of them, and which machine
    of the run it is.
    """

    cpus: int
    host_cpus: int
    machine: str  # as Placement.hosts has it


@dataclass(frozen=True)
class Between:
    """What was between the hosts of a load: clocks, the bytes of the server's host, TCP's segments
    of all hosts.
    """

    clock_error_ns: int
    """The largest by which a host's clock, as it was converted to the runner's, may be wrong."""
    clock_moved_ns: int  # by how much one moved against the runner's over the load, at most
    received_bytes: int
    sent_bytes: int
    segments: int
    retransmitted: int
    transfer_bytes_s: float
    """What the slowest of the networks to the generators carried in a transfer before the run."""
    generators: tuple[GeneratorHost, ...]
    round_trip_ns: int = 0
    """To the server and back from the farthest generator, before the run; 0 if not measured."""

    def share(self, seconds: float) -> float:
        """Return how much of that a load of so many seconds used, in its busier direction."""
        return max(self.received_bytes, self.sent_bytes) / seconds / self.transfer_bytes_s


@dataclass(frozen=True)
class Loaded:
    """Exit code and times of a generator; `load_*` enclose its process.

    Wall times are nanoseconds since the epoch by its host's clock, monotonic ones CLOCK_MONOTONIC
    by the runner's.
    """

    generator_exit: int
    load_started_wall_ns: int
    load_started_mono_ns: int
    load_ended_wall_ns: int
    load_ended_mono_ns: int


@dataclass(frozen=True, kw_only=True)
class Generated(Loaded):
    """What one generator did of a load."""

    argv: tuple[str, ...]
    generator_env: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Part(Generated):
    """What a further generator did of a load."""

    number: int  # of the generator, from 2

    def behind_ns(self, first: Generated) -> int:
        """Return what this generator's wall clock lacks to be the first generator's."""
        mono = self.load_started_mono_ns - first.load_started_mono_ns
        return mono - (self.load_started_wall_ns - first.load_started_wall_ns)


@dataclass(frozen=True, kw_only=True)
class LoadFacts(Generated):
    """Facts of one load, of a whole trial or of one slice of it, with what its first generator
    did.
    """

    counters_before: Counters
    counters_after: Counters
    database: DatabaseUse | None = None
    parts: tuple[Part, ...] = ()  # the load's parts by further generators
    between: Between | None = None  # none if all are on one machine


@dataclass(frozen=True, kw_only=True)
class Slice(LoadFacts):
    """One slice of a trial's load.

    `place` counts the slices of one server from 1: in each place of a session every server has one.
    `position` counts all slices of the session from 1, in the order in which they were loaded.
    """

    place: int
    position: int


@dataclass(frozen=True, kw_only=True)
class Measurement(LoadFacts):
    """A trial as the measure wing saw it; the raw files lie beside it in the trial's folder.

    Of a trial in a session the fields of LoadFacts are of its first and last slice, and argv of the
    first.
    """

    engine: str
    placement: Placement
    port: int
    sample_hz: float
    server_exit: int | None
    server_image: str | None = None
    server_sha256: str | None = None
    died: int | None = None  # exit code of a server that ended under load; None if it lived
    generator_ceiling_rps: float | None = None
    """What the generator reaches on this machine; None if not known."""
    host_cpus: int | None = None  # all CPUs of the machine, those too that the lab may not use
    oom_kills: int | None = None
    """Processes of the server killed for want of memory; None if not known."""
    idle: str | None = None
    """What idle CPUs did: `polling` or `system`; None in runs from before this was recorded."""
    slices: tuple[
        Slice, ...
    ] = ()  # of a trial in a session: its slices in the order of their places
    others_loaded: tuple[
        tuple[int, int], ...
    ] = ()  # begin and end of the loads of the session's other servers, in ns
    probe_hz: float = PROBE_HZ
    """How often the probe asked; 0 if that would have been too much for the server."""
    users: int | None = None
    """Virtual users of an open load that says none, by the warm-up's iterations."""
    quota: Quota | None = None  # not the lab's; None in runs from before this was recorded
    also_ports: tuple[
        int, ...
    ] = ()  # further ports of the server's host that a user's script could ask

    @property
    def cpus(self) -> int:
        """How many CPUs the machine has; those of the trial if that is not known."""
        return self.host_cpus or self.placement.cpus

    @property
    def loads(self) -> tuple[Measurement, ...]:
        """The slices, each as a measurement; the measurement itself if there are none."""
        if not self.slices:
            return (self,)
        names = [each.name for each in fields(LoadFacts)]
        return tuple(
            replace(self, slices=(), **{name: getattr(each, name) for name in names})
            for each in self.slices
        )
