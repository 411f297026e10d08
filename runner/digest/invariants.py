"""The invariants: what must be true of a trial's numbers.

A trial that breaks an invariant fails or is repeated (`IF_BROKEN`). `reconcile.py` checks the
invariants. `bench list --invariants` prints the table of invariants that docs/method.md contains.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from runner.generator_traits import GENERATOR_LATE_S, TRAITS, Tool, Traits
from runner.model import Blame, Check

ROUNDING_MS = 0.001
"""Allowed rounding error in ms.

k6 adds up durations in nanoseconds, but prints them in milliseconds as floats.
"""
MIN_COVERAGE = 0.99
MOST_IDLE = 0.005  # highest CPU use of a server that counts as idle, as a share of a core
SETTLED_S = 0.1
"""Until this many seconds after the load's start, a generator may run on any CPU.

The generator's process begins as the program taskset, which needs some time to restrict the process
to the CPUs that the generator was given.
"""
MAX_LATE = 0.2
"""The probe may send at most this share of its requests late by its own fault.

The largest share observed so far was 3 %, on a machine from which the hypervisor took CPU time.
"""
OWN_CONNECTIONS = 3
"""Number of connections that the lab and wrk open in addition to the connections of the load.

wrk connects once to test the address (wrk.resolve in wrk.lua). The lab connects once to read the
number of accepted connections, and keeps one connection to /stats during the load.
"""
STRANGERS = 20
"""Number of connections of other programs that the kernel's count of connections may include.

The kernel's count is used only if the server does not count its connections. The kernel counts the
connections of all programs in the network namespace.
"""
LITTLE_TOLERANCE = 0.05
LONG = 5.0
"""Little's law is checked only if the steady time lasts at least this many mean iterations.

In a shorter steady time, some users would still be starting.
"""
CPU_TOLERANCE = 1.02
"""Highest allowed CPU time of a program, divided by the CPU time that its CPUs offered.

Both are CPU times during the load. The measured CPU time may be too high, because the kernel counts
it in ticks, and two of the counted ticks may lie outside the load. In a short load, two ticks are a
noticeable share of the time.
"""
STEPPED_S = 0.05
"""The difference between wall clock and monotonic clock may change by this many seconds in a load.

A larger change shows that the wall clock was set during the load.
"""
SLEWED = 0.001
"""In addition to STEPPED_S, the difference may change by this share of the load's length.

NTP may slew the wall clock by 0.05 % (adjtimex(2)).
"""
TOGETHER = 0.9
"""Generators must run together for at least this share of the time of the longest-running one."""
APART_NS = 150_000_000
"""The time for which all generators run together may be this much shorter than the longest time.

The longest time is that of the generator that runs longest. This tolerance, in nanoseconds, is for
short loads that miss the share TOGETHER. Programs take tens of milliseconds to start and to end,
which is a large share of a short load.
"""
UNDER_WAY = 0.5
"""On average, at least this share of wrk's connections must have a request under way.

The mean number of requests under way is rate x mean latency. For a generator on a busy CPU, the
observed share was 0.9.
"""
MOVED_NS = 5_000_000
"""The clocks of two hosts may drift apart by at most this time during a load.

A smaller drift does no harm, because the clocks are used only to match the seconds of one host with
the seconds of another host. No latency depends on the clocks.
"""
SILENT_S = 3.0
"""During a load, a host may be silent for at most this many seconds.

A host that works sends a sign of life once a second.
"""

IF_BROKEN = {
    Blame.TRIAL: "fails",
    Blame.LAB: "is repeated if nothing else failed",
    Blame.REST: (
        "is repeated if nothing else failed; in the last attempt, all trials of its session fail"
    ),
    Blame.MACHINE: "is repeated, whatever else failed",
}
"""Texts that say what happens to a trial that breaks an invariant, by the invariant's blame."""


def _every_generator(_: Traits) -> bool:
    return True


def _keeps_requests(traits: Traits) -> bool:
    return traits.keeps_requests


def _keeps_no_requests(traits: Traits) -> bool:
    return not traits.keeps_requests


def _says_statuses(traits: Traits) -> bool:
    return traits.says_statuses


def _runs_scripts(traits: Traits) -> bool:
    return traits.runs_scripts


def _says_no_connecting(traits: Traits) -> bool:
    return not traits.says_connecting


def _runs_on_hosts(traits: Traits) -> bool:
    return traits.runs_on_hosts


def _runs_on_hosts_without_requests(traits: Traits) -> bool:
    return traits.runs_on_hosts and not traits.keeps_requests


@dataclass(frozen=True)
class Rule:
    """Description of an invariant: what it demands, and to which trials it applies."""

    check_name: str
    """Name of the check, as trial.json stores it.

    If the invariant has a number, the name begins with this number.
    """
    compares: str
    """The numbers that must agree."""
    tolerance: str = "none"
    """The allowed difference between the numbers that `compares` names."""
    generators: Callable[[Traits], bool] = _every_generator
    """Function that gets a generator's traits, and returns True if the invariant applies to the
    generator's loads.
    """
    loads: str = "all"
    """The loads and machines to which the invariant applies."""
    blame: Blame = Blame.TRIAL


class Invariant(Enum):
    """An invariant. The method `check` states whether a trial keeps the invariant."""

    HAS_REQUESTS = Rule(
        "1 the samples have HTTP requests",
        "the HTTP requests in the samples; one or more",
        generators=_runs_scripts,
        loads="imported files",
    )
    ITERATIONS = Rule(
        "1 iterations asked = completed + interrupted + dropped",
        "the iterations that the load asks for; the sum of completed, interrupted and "
        "dropped iterations",
        "open loads: one iteration per step and one more, and the iterations that are due "
        f"in the {1000 * GENERATOR_LATE_S:g} ms by which a timer may be late; iterations "
        "that the generator was too late to begin count as dropped",
        _keeps_requests,
    )
    RAN_TO_ITS_END = Rule(
        "1 the load ran to its end",
        "the iterations that the deadline cut off; 0",
        generators=_keeps_requests,
    )
    POINTS = Rule(
        "2 requests of the summary = points of every request metric",
        "the number of requests in the generator's summary; the number of its samples, and "
        "of the points of each `http_req_*` metric",
        "`http_req_failed` may have fewer points",
        _keeps_requests,
    )
    ANSWERS = Rule(
        "2 answers and bytes of the summary = those of the samples",
        "the number of answers with each status and their bytes, in the summary; the same "
        "from the samples",
        generators=_says_statuses,
    )
    PHASES = Rule(
        "3 sending + waiting + receiving = duration",
        "the sum of the phases of each request; the request's duration",
        f"{1000 * ROUNDING_MS:g} µs",
        _runs_scripts,
    )
    LONGEST = Rule(
        "3 longest request <= longest iteration",
        "the longest request; the longest iteration",
        f"{1000 * ROUNDING_MS:g} µs; not checked if an iteration was interrupted",
        _runs_scripts,
    )
    QUANTILES = Rule(
        "4 quantiles from raw = quantiles of the summary",
        "mean, minimum, maximum and percentiles in the summary; the same from the raw samples",
        f"{1000 * ROUNDING_MS:g} µs; percentiles are compared only for a single k6, because "
        "the summaries of other generators, and of several k6 together, have no exact "
        "percentiles",
        _keeps_requests,
    )
    SENT = Rule(
        "5 requests that the server counted = requests sent",
        "the requests that the server counted; the answers received and the requests sent",
        "the count may be anywhere between the two numbers",
        _keeps_requests,
        "servers that count; for a user's API that does not count, recorded as not checked",
    )
    ANSWERED = Rule(
        "5 requests that the server counted = requests answered",
        "the requests that the server counted; the requests answered",
        "on each connection, one more request that was under way at the end",
        _keeps_no_requests,
        "servers that count",
    )
    SLICES = Rule(
        "5 the slices' requests are all that the server counted",
        "the requests that the server counted from the first slice to the last; the answers to "
        "load and probe in the slices",
        "the requests that were sent but not answered",
        loads="sessions; servers that count",
    )
    ROWS = Rule(
        "6 rows inserted = successful inserts",
        "the new rows in the database; the inserts answered with 2xx",
        "more rows are allowed for inserts whose answer was an error or was lost, but for "
        "lost answers at most as many as can be under way at once",
        loads="loads with a database",
    )
    BUCKETS = Rule(
        "7 sum of raw buckets + timeouts = requests",
        "the requests in the histogram plus the timeouts; all requests",
        generators=_keeps_no_requests,
    )
    ERRORS = Rule(
        "7 every error counter is 0",
        "each of the generator's error counters; 0",
        generators=_keeps_no_requests,
    )
    CONNECTIONS = Rule(
        "7 connections as asked",
        "the connections that the generator opened; the connections that the load asks for",
        generators=_keeps_no_requests,
    )
    KEEPALIVE_MODE = Rule(
        "7 keepalive mode proven by accepted connections",
        "the connections that the server accepted (or the kernel, if the server does not "
        "count); the connections of the load",
        f"{OWN_CONNECTIONS} more for the lab and the generator, one more for each further "
        f"generator, {STRANGERS} more if only the kernel counts; an open load may need fewer",
        _says_no_connecting,
        "keep-alive mode",
    )
    CLOSE_MODE = Rule(
        "7 close mode proven by accepted connections",
        "the connections that the server accepted (or the kernel, if the server does not "
        "count); the requests",
        "as for keep-alive mode; for wrk also, on each connection, one request that was "
        "under way at the end",
        _says_no_connecting,
        "close mode",
    )
    CLOSE_MODE_OF_OWN_API = Rule(
        CLOSE_MODE.check_name,
        "the connections that the kernel accepted; the answers",
        "any number of further connections, because other servers on the machine also accept some",
        _runs_scripts,
        "close mode, a user's API on the lab's machine",
    )
    LITTLES_LAW = Rule(
        "8 rate x mean iteration = virtual users",
        "the mean number of iterations under way in the steady part of the load; the "
        "number of users or connections",
        f"{100 * LITTLE_TOLERANCE:g} %",
        _keeps_requests,
        f"closed loads of one generator with a steady part of at least {LONG:g} mean iterations",
    )
    STAYED = Rule(
        "9 everyone stayed on the CPUs that they were given",
        "the CPUs on which the first process of server, generator and database may run, at "
        "every tick; the CPUs that they were given",
        f"the first {1000 * SETTLED_S:g} ms",
        blame=Blame.LAB,
    )
    SERVER_CPU = Rule(
        "9 CPU used by the server <= its CPUs * time",
        "the CPU time that the server used; its CPUs x time",
        f"{100 * (CPU_TOLERANCE - 1):.0f} %, because the kernel counts in ticks",
        loads="servers of which the lab reads the CPU time",
    )
    GENERATOR_CPU = Rule(
        "9 CPU used by the generator <= its CPUs * time",
        "the CPU time that the generator used; its CPUs x time",
        f"{100 * (CPU_TOLERANCE - 1):.0f} %, because the kernel counts in ticks",
    )
    TICKS = Rule(
        "9 the sampler took >= 99 % of its ticks",
        "the ticks that the sampler took; the ticks that it should have taken",
        f"{100 * (1 - MIN_COVERAGE):.0f} %",
        blame=Blame.LAB,
    )
    COVERED = Rule(
        "9 the samples cover the whole load",
        "the times of the first and the last sample; the beginning and the end of the load",
    )
    RESTED = Rule(
        "9 it was idle while the other servers of its session were loaded",
        "the CPU time that the server used while other servers were loaded; 0",
        f"{100 * MOST_IDLE:g} % of a core",
        loads="sessions",
        blame=Blame.REST,
    )
    PROBE_IN_TIME = Rule(
        "9 the probe sent >= 80 % of its requests in time",
        "the times at which the probe's requests were sent; the times at which they were due",
        f"{100 * MAX_LATE:g} % of the requests may be more than 100 ms late, not counting "
        "requests that were late because the server had not answered the previous one",
        loads="loads with a probe",
        blame=Blame.LAB,
    )
    LOADED_TOGETHER = Rule(
        "11 the generators loaded at the same time",
        "the time during which all generators loaded; the time of the generator that "
        "loaded longest",
        f"{100 * (1 - TOGETHER):.0f} % of the longest time, or {APART_NS / 1e6:g} ms",
        _runs_on_hosts,
        "several generators",
    )
    ANSWERED_ALL_ALONG = Rule(
        "11 every generator was answered all along",
        "rate x mean latency of each generator, which is its mean number of requests under "
        "way; its connections",
        f"on at least {100 * UNDER_WAY:g} % of the connections a request must be under way",
        _runs_on_hosts_without_requests,
        "several generators, keep-alive mode",
    )
    CLOCKS_TOGETHER = Rule(
        "11 the hosts' clocks kept their distance",
        "the offset of each host's clock from the runner's clock, before and after the load",
        f"{MOVED_NS / 1e6:g} ms, plus twice the uncertainty with which the offset is known",
        loads="several hosts",
    )
    HOSTS_SPOKE = Rule(
        "11 no host was silent",
        "the longest time without a sign of life from a host",
        f"{SILENT_S:g} s",
        loads="several hosts",
        blame=Blame.MACHINE,
    )
    SUCCEEDED = Rule(
        "some request was answered with success",
        "the requests that were answered with 2xx or 3xx; at least 1",
    )
    LIVED = Rule(
        "the server lived through the load",
        "the number of the server's processes that ended, or that the kernel killed "
        "because memory ran out; 0",
    )
    CLOCK = Rule(
        "the clock was not stepped",
        "the load's length by the wall clock, and by the monotonic clock",
        f"{1000 * STEPPED_S:g} ms, plus {100 * SLEWED:g} % of the load's length",
        blame=Blame.MACHINE,
    )
    PACKETS = Rule(
        "the kernel dropped no packets",
        "the packets that the kernel dropped because its table of connections was full; 0",
        blame=Blame.MACHINE,
    )
    SCRIPT_ENDED = Rule(
        "every iteration of the script ran to its end",
        "the iterations that threw an error; 0",
        generators=_runs_scripts,
        loads="a user's script",
    )
    WENT_TO_THE_SERVER = Rule(
        "every request went to the server",
        "the requests to another host, or to a port that is not allowed; 0",
        generators=_runs_scripts,
        loads="a user's API",
    )
    SAID_THEIR_PORT = Rule(
        "every request says which port it went to",
        "the requests that have a name in place of their URL; 0",
        generators=_runs_scripts,
        loads="a user's API with further ports",
    )
    OTHER_PORTS = Rule(
        "requests to other ports are in no rate and no percentile",
        "recorded, never broken: the requests to each further port",
        generators=_runs_scripts,
        loads="a user's API with further ports",
    )

    LOAD_SEEN = Rule(
        "the load that the samples show",
        "recorded, never broken: users, rate and think time, as the samples show them",
        generators=_runs_scripts,
        loads="a script whose own options give the load",
    )

    @property
    def check_name(self) -> str:
        """Name of the invariant's check, as trial.json stores it."""
        return self.value.check_name

    @property
    def generators(self) -> list[str]:
        """The generators to whose loads the invariant applies."""
        return [tool for tool, traits in TRAITS.items() if self.value.generators(traits)]

    def is_asked_of(self, tool: Tool) -> bool:
        """Return whether the invariant applies to the loads of the generator `tool`."""
        return self.value.generators(TRAITS[tool])

    def check(self, ok: bool, detail: str) -> Check:
        """Return a Check that says whether a trial keeps the invariant.

        `ok` is True if the trial keeps the invariant, and `detail` is a text with the numbers that
        were compared.
        """
        return Check(self.check_name, ok, detail, self.value.blame)


HEADS = ("check", "compares", "tolerance", "generators", "loads", "a trial that breaks it")


def rows() -> list[tuple[str, ...]]:
    """Return one row of texts per invariant, with the columns of `HEADS`."""
    found: list[tuple[str, ...]] = []
    for invariant in Invariant:
        rule = invariant.value
        asked = invariant.generators
        generators = "all" if len(asked) == len(TRAITS) else ", ".join(asked)
        found.append(
            (
                f"`{rule.check_name}`",
                rule.compares,
                rule.tolerance,
                generators,
                rule.loads,
                IF_BROKEN[rule.blame],
            )
        )
    return found
