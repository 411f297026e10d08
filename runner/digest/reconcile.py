"""Check the invariants of a trial. `invariants.py` says what each invariant demands."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from runner.digest.invariants import (
    APART_NS,
    CPU_TOLERANCE,
    LITTLE_TOLERANCE,
    LONG,
    MAX_LATE,
    MIN_COVERAGE,
    MOST_IDLE,
    MOVED_NS,
    OWN_CONNECTIONS,
    ROUNDING_MS,
    SETTLED_S,
    SILENT_S,
    SLEWED,
    STEPPED_S,
    STRANGERS,
    TOGETHER,
    UNDER_WAY,
    Invariant,
)
from runner.digest.k6 import GeneratorSummary, RequestNumbers
from runner.digest.k6_raw import USE_BASE_URL
from runner.digest.resources import Counter, Window, tick_coverage
from runner.digest.wrk import WrkResult
from runner.generator_traits import GENERATOR_LATE_S, TRAITS
from runner.measurement import Measurement, ended
from runner.model import OWN, OWN_SCRIPT, Cell, Check
from runner.shapes import Closed, ForTime, Mode, Search, Steps

THROWN = "lab_iterations_thrown"
"""Metric of workloads/own.js that counts the iterations in which the script threw an error."""
CLOSING = 0.9
"""Share of the probe's requests that shows that the server closes all connections.

If the server closed the connections of at least this share of the requests, the lab assumes that it
also closes the connections of the load.
"""
BATCH_PER_HOST = 6
"""Maximum number of connections that a k6 user opens to one host for one http.batch().

This number is the default of k6's option batchPerHost.
"""


@dataclass(frozen=True)
class Sent:
    """Numbers of a load's requests that succeeded, failed, or were not answered."""

    ok: int  # requests answered with 2xx or 3xx
    refused: int  # requests answered with an error
    lost: int  # requests sent, but not answered, as far as the generator knows
    at_once: int  # highest possible number of concurrent requests


def _added(measurement: Measurement, name: str) -> int | None:
    """Return the increase of the counter `name` over the load; None if the counter is unknown."""
    before = getattr(measurement.counters_before, name)
    after = getattr(measurement.counters_after, name)
    return None if before is None or after is None else int(after - before)


# --- checks of a load whose generator keeps every request -----------------------------------------


def request_checks(
    cell: Cell, points: RequestNumbers, summary: GeneratorSummary, measurement: Measurement
) -> Iterator[Check]:
    """Check invariants 1 to 5, 7 and 8 of a load whose raw file has every request."""
    yield from _iterations(cell, points, summary)
    yield _points(points, summary)
    if Invariant.ANSWERS.is_asked_of(cell.tool):
        differ = [
            f"{points.points[name]} {name} in the samples, {count} in the summary"
            for name, count in summary.counts.items()
            if points.points[name] != count
        ]
        yield Invariant.ANSWERS.check(
            not differ,
            "; ".join(differ) or ", ".join(f"{n} {name}" for name, n in summary.counts.items()),
        )
    if Invariant.PHASES.is_asked_of(cell.tool):  # other generators measure no phases
        yield _phases(points)
        yield _longest(points)
    # Only the summary of a single k6 has exact percentiles. For other generators, and for several
    # generators together, percentiles are not compared.
    has_exact_percentiles = TRAITS[cell.tool].runs_scripts and not measurement.parts
    yield _quantiles(points, summary, ("mean", "min", "max") if not has_exact_percentiles else None)
    # Several generators may end at different times. So Little's law is not checked here for all
    # generators together, but in loads.py for the part of each generator.
    steady = None if measurement.parts else points.steady
    # In a closed loop without think time, every virtual user has a request under way at any time.
    # So the mean number of iterations under way must be the number of users.
    users = None if cell.is_open else cell.shape.users
    if (
        users is not None
        and steady is not None
        and 1000 * steady.seconds >= LONG * steady.iteration_mean_ms
    ):
        yield Invariant.LITTLES_LAW.check(
            abs(steady.in_flight - users) / users <= LITTLE_TOLERANCE,
            f"over {steady.seconds:.2f} s, on average {steady.in_flight:.1f} iterations of "
            f"{users} users were under way",
        )
    counted = _added(measurement, "requests")
    answered = points.with_status
    if counted is not None:
        said = (
            f"the server counted {counted} requests; the generator sent {points.requests} "
            f"and received {answered} answers"
        )
        ok = answered <= counted <= points.requests
        yield Invariant.SENT.check(ok, said)
    if Invariant.KEEPALIVE_MODE.is_asked_of(cell.tool):
        fewest = 1 if cell.is_open else cell.sockets  # an open load may open fewer connections
        kept = _Connections(fewest, cell.sockets)
        yield _mode_proof(cell.mode, points.requests, kept, measurement)
    yield from own_checks(cell, points, measurement)


def summary_checks(points: RequestNumbers, summary: GeneratorSummary) -> Iterator[Check]:
    """Check invariants 2 to 4 of a load whose size the lab did not choose.

    The samples are compared with k6's own summary. Statistics that the summary lacks are not
    compared.
    """
    yield _points(points, summary)
    yield _phases(points)
    names = [name for name in points.durations if name in summary.http_req_duration]
    yield _quantiles(points, summary, names)


def _points(points: RequestNumbers, summary: GeneratorSummary) -> Check:
    """Check that the samples have one point of each request metric per request of the summary.

    http_req_failed may have fewer points, because a request with a null responseCallback has no
    point of this metric.
    """
    each = {
        metric: count
        for metric, count in sorted(points.points.items())
        if metric.startswith("http_req_")
    }
    marked = each.pop("http_req_failed", 0)
    complete = points.requests + points.elsewhere  # k6's summary includes requests to other ports
    counts = {"http_reqs": points.points.get("http_reqs", 0), "complete requests": complete, **each}
    odd = [f"{count} {metric}" for metric, count in counts.items() if count != summary.requests]
    return Invariant.POINTS.check(
        not odd and marked <= summary.requests and summary.requests > 0,
        f"{summary.requests} requests in the summary, "
        f"{', '.join(odd) or 'and as many points of every metric'}",
    )


def _phases(points: RequestNumbers) -> Check:
    """Check that the phases of each request add up to its duration."""
    return Invariant.PHASES.check(
        points.worst_residual_ms <= ROUNDING_MS,
        "the largest difference between a request's phases and its duration is "
        f"{points.worst_residual_ms:.6f} ms",
    )


def _longest(points: RequestNumbers) -> Check:
    """Check that no request took longer than the longest iteration.

    If an iteration was interrupted, the check passes, because the duration of the interrupted
    iteration is unknown.
    """
    longest_ms = (points.all_durations or points.durations)["max"]
    iteration_ms = points.iteration_max_ms
    return Invariant.LONGEST.check(
        points.iterations < points.script_runs or longest_ms <= iteration_ms + ROUNDING_MS,
        f"the longest request took {longest_ms:.3f} ms, the longest iteration "
        f"{iteration_ms:.3f} ms",
    )


def _quantiles(
    points: RequestNumbers, summary: GeneratorSummary, names: Sequence[str] | None
) -> Check:
    """Check that the samples and the summary have the same statistics of requests' durations.

    `names` are the statistics to check. If `names` is None, check all statistics that were computed
    from the samples.
    """
    durations = points.all_durations or points.durations
    stated = summary.http_req_duration
    apart = [
        f"{name} {durations[name]:.4f} ms in the samples, {stated.get(name)} ms in the summary"
        for name in (durations if names is None else names)
        if abs(durations[name] - stated.get(name, math.inf)) > ROUNDING_MS
    ]
    return Invariant.QUANTILES.check(not apart, "; ".join(apart) or "all equal")


def _iterations(cell: Cell, points: RequestNumbers, summary: GeneratorSummary) -> Iterator[Check]:
    """Check invariant 1: the number of iterations.

    k6 reports interrupted iterations only in its log, but each interrupted iteration leaves a
    data_sent point. In an open load, the number of iterations that k6 begins in a step may differ
    by one from the planned number. Moreover, k6 does not begin an iteration in two cases. If no
    virtual user is free, k6 drops the iteration and counts it as dropped. If k6 is far too late, it
    leaves the iteration out without counting it, and `missed` computes the number of such
    iterations. In both cases the rate was not sustained, which is a result and not an error.
    """
    interrupted = points.script_runs - points.iterations
    done = summary.iterations + interrupted + summary.dropped
    late = missed(cell, points)
    match cell.shape:
        case Closed() as load:
            wanted = load.iterations
        case ForTime():  # no number of iterations is planned, so any number is right
            wanted = done
        case Steps() | Search():
            wanted = cell.to_begin
        case _:
            assert_never(cell.shape)
    lost = interrupted if cell.is_open else interrupted + summary.dropped
    # An open load may end late, by up to GENERATOR_LATE_S. In this time, further iterations begin.
    overrun = math.ceil(max(cell.rates_rps, default=0.0) * GENERATOR_LATE_S)
    yield Invariant.ITERATIONS.check(
        -slack(cell) <= done + late - wanted <= slack(cell) + overrun
        and points.iterations == summary.iterations,
        (
            f"{wanted} iterations were asked for; {summary.iterations} were completed "
            f"({points.iterations} in the samples), {interrupted} interrupted, "
            f"{summary.dropped} dropped"
        )
        + (f", and {late} were never begun" if late else ""),
    )
    yield Invariant.RAN_TO_ITS_END.check(
        lost == 0, f"{lost} iterations were cut off by the deadline"
    )


def may_hold(cell: Cell, reopened: float) -> int | None:
    """Return the highest number of connections that a load opens if it reuses connections.

    The load opens one connection per virtual user. If the load is a user's own script, the load
    opens at most BATCH_PER_HOST connections per virtual user.

    `reopened` is the share of the probe's requests whose connection the server had closed. If this
    share is at least CLOSING, the server closes connections, so return 0. The load itself does not
    show that the server closes connections if the load has hardly more requests than users, because
    then hardly any request could reuse a connection.

    Return None if the generator does not say which requests opened a connection.
    """
    if not TRAITS[cell.tool].says_connecting:
        return None
    if reopened >= CLOSING:
        return 0
    return cell.sockets * (BATCH_PER_HOST if cell.workload == OWN_SCRIPT else 1)


def slack(cell: Cell) -> int:
    """Return the number of iterations by which k6 may deviate from the planned number.

    For an open load it is the number of steps plus one. For other loads it is 0.
    """
    return len(cell.rates_rps) + 1 if cell.is_open else 0


def missed(cell: Cell, points: RequestNumbers) -> int:
    """Return the number of an open load's iterations that k6 was too late to begin.

    If the number is at most `slack`, or if the load is closed, return 0.
    """
    short = cell.to_begin - points.script_runs - points.dropped_iterations
    return short if cell.is_open and short > slack(cell) else 0


def own_checks(cell: Cell, points: RequestNumbers, measurement: Measurement) -> Iterator[Check]:
    """Check a load on the user's API.

    The checks are about the addresses of the requests, the errors of the script, and the mode of
    the load. For other loads, yield no checks.
    """
    if cell.workload not in OWN:
        return
    yield from _where_to(points, measurement)
    if cell.workload == OWN_SCRIPT:
        thrown = points.points.get(THROWN, 0)
        said = (
            f"{thrown} of {points.iterations} iterations threw an error, which generator.log shows"
        )
        yield Invariant.SCRIPT_ENDED.check(thrown == 0, said)
    if measurement.counters_before.requests is None:
        said = "not checked, because the server does not report how many requests it counted"
        yield Invariant.SENT.check(True, said)
    # In close mode each answer needs a new connection. For a user's API, the lab uses the kernel's
    # count of connections. This count includes all connections of the network namespace, also those
    # of other servers, so there is no upper limit. If the server runs on another host, nothing is
    # checked, because the kernel of the lab's machine does not count the server's connections.
    accepted = _added(measurement, "passive_opens")
    if cell.mode == "close" and accepted is not None and measurement.placement.server:
        said = f"the kernel accepted {accepted} connections, for {points.with_status} answers"
        yield Invariant.CLOSE_MODE_OF_OWN_API.check(accepted >= points.with_status, said)


def _where_to(points: RequestNumbers, measurement: Measurement) -> Iterator[Check]:
    """Check that a load on the user's API went only to the allowed host and ports."""
    sent = points.requests + points.elsewhere
    said = f"{points.blocked} of {sent} requests went to another host or port, and were blocked"
    if points.blocked:
        said += f": {USE_BASE_URL}, or allow a port of the same host by --also PORT"
    yield Invariant.WENT_TO_THE_SERVER.check(points.blocked == 0, said)
    if not measurement.also_ports:
        return
    said = f"{points.unnamed} of {sent} requests have a name in place of their URL"
    if points.unnamed:
        said += ": with --also, let the script set no `name` tag and use no http.url"
    yield Invariant.SAID_THEIR_PORT.check(points.unnamed == 0, said)
    uses = [
        f"{use.requests} requests to port {use.port}, of which {use.failed} failed"
        for use in points.other_ports
    ]
    said = "; ".join(uses) or f"no requests to port {' or '.join(map(str, measurement.also_ports))}"
    yield Invariant.OTHER_PORTS.check(True, said)


@dataclass(frozen=True)
class _Connections:
    """Range of the number of connections that a server must have accepted from a load."""

    least: int
    most: int


def _mode_proof(
    mode: Mode, requests: int, kept: _Connections, measurement: Measurement, cut_off: int = 0
) -> Check:
    """Check a load's mode by the number of accepted connections.

    In keep-alive mode, the number of connections must be within the range `kept`.

    In close mode, there must be one connection for each request. `requests` does not include the
    requests that were under way when the load ended, but each of them needed a connection, too. So
    up to `cut_off` more connections are allowed.

    The server's count is exact, except that it includes the lab's own connections. If the server
    does not count connections, the kernel's counter PassiveOpens is used instead. PassiveOpens
    counts the connections of the whole network namespace, so a few connections of other programs
    are allowed.
    """
    accepted = _added(measurement, "connections")
    source = "the server"
    # Each further generator also connects once before the load, to test the address.
    allowed = OWN_CONNECTIONS + len(measurement.parts)
    if accepted is None:
        accepted = _added(measurement, "passive_opens")
        source = "the kernel"
        allowed += STRANGERS
    expected = _Connections(requests, requests + cut_off) if mode == "close" else kept
    proven = False
    said = "neither the server nor the kernel counts accepted connections"
    if accepted is not None:
        proven = expected.least <= accepted <= expected.most + allowed
        said = (
            f"{source} accepted {accepted} connections, for {requests} requests on up to "
            f"{kept.most} connections"
        )
    invariant = Invariant.CLOSE_MODE if mode == "close" else Invariant.KEEPALIVE_MODE
    return invariant.check(proven, said)


# --- checks of every load -------------------------------------------------------------------------


def whole(sent: Sequence[Sent], measurement: Measurement) -> tuple[Check, ...]:
    """Check invariant 5 over all slices of a trial, and over the pauses between the slices.

    `sent` has one element per slice, with the numbers of the slice's requests. Between two slices,
    no generator sends requests. So if the server counts a request between two slices, a generator
    sent this request in a slice, and did not wait for the answer. Therefore the number of requests
    that the server counts between slices must be at most the number of requests without an answer.

    If the server does not count requests, return no check.
    """
    counted = _added(measurement, "requests")
    if counted is None:
        return ()
    answered = sum(each.ok + each.refused for each in sent)
    lost = sum(each.lost for each in sent)
    probed = sum(_added(each, "requests") or 0 for each in measurement.loads)
    late = counted - probed
    said = (
        f"the server counted {counted} requests from the first slice to the last: {probed} "
        f"in slices, which had {answered} answers, and {late} between slices"
    )
    return (Invariant.SLICES.check(0 <= late <= lost, said),)


def database_checks(sent: Sent, measurement: Measurement) -> tuple[Check, ...]:
    """Check invariant 6: each insert that was answered with 2xx has left a row.

    An insert may also have left a row if it was answered with an error, or if its answer was lost.
    Answers are lost if a server dies or the load is cut off. The number of lost answers is at most
    the number of requests that can be under way at once.

    If the load has no database, return no check.
    """
    use = measurement.database
    if use is None:
        return ()
    rows = use.after.rows - use.before.rows
    surplus = min(sent.lost, sent.at_once) + sent.refused
    said = (
        f"{rows} new rows; {sent.ok} inserts were answered with 2xx, {sent.refused} with an "
        f"error, and {sent.lost} were not answered"
    )
    ok = sent.ok <= rows <= sent.ok + surplus
    return (
        Invariant.ROWS.check(ok, f"{said} (at most {sent.at_once} could be under way at once)"),
    )


def kept_packets(measurement: Measurement) -> Check:
    """Check that the kernel dropped no packet because its table of tracked connections was full."""
    dropped = _added(measurement, "dropped_packets") or 0
    return Invariant.PACKETS.check(
        dropped == 0,
        f"{dropped} packets were dropped, because the number of tracked connections reached "
        "nf_conntrack_max",
    )


def succeeded(sent: Sent) -> Check:
    """Check that at least one request succeeded.

    If no request succeeded, all numbers of the load describe only errors.
    """
    asked = sent.ok + sent.refused + sent.lost
    return Invariant.SUCCEEDED.check(
        sent.ok > 0, f"{sent.ok} of {asked} requests were answered with 2xx or 3xx"
    )


def lived(measurement: Measurement) -> Check:
    """Check that all processes of the server survived the load."""
    killed = measurement.oom_kills or 0
    said = [] if measurement.died is None else [f"the server {ended(measurement.died)}"]
    said += (
        [(f"the kernel killed {killed} of the server's processes, because memory ran out")]
        if killed
        else []
    )
    return Invariant.LIVED.check(not said, ", and ".join(said) or "no process ended")


def clock(measurement: Measurement) -> Check:
    """Check that the wall clock was not set during the load.

    k6 and wrk read times from the wall clock, so the times would be wrong if the clock was set.
    """
    wall_ns = measurement.load_ended_wall_ns - measurement.load_started_wall_ns
    mono_ns = measurement.load_ended_mono_ns - measurement.load_started_mono_ns
    stepped_s = (wall_ns - mono_ns) / 1e9
    return Invariant.CLOCK.check(
        abs(stepped_s) <= STEPPED_S + SLEWED * mono_ns / 1e9,
        f"the wall clock was stepped by {stepped_s:.3f} s during the load",
    )


# --- checks of a load by wrk ----------------------------------------------------------------------


def wrk_checks(
    cell: Cell, result: WrkResult, measurement: Measurement, parts: Sequence[WrkResult] = ()
) -> Iterator[Check]:
    """Check invariants 5 and 7 of a wrk trial.

    `result` is the load's result. If there are several generators, `parts` has the result of each
    generator. When wrk ends, each connection may have one request under way, which wrk does not
    count. So the server may count one more request per connection than wrk does.
    """
    requests = result.requests
    connections = result.connections
    timeouts = result.errors["timeout"]
    measured = int(result.raw[1].sum())
    errors = [f"{count} {name}" for name, count in result.errors.items() if count]
    yield Invariant.BUCKETS.check(
        measured + timeouts == requests,
        f"{measured} requests in the buckets of the histogram and {timeouts} timeouts, of "
        f"{requests} requests",
    )
    yield Invariant.ERRORS.check(not errors, ", ".join(errors) or "all 0")
    yield Invariant.CONNECTIONS.check(
        connections == cell.sockets
        and not any(each.connections % each.threads for each in parts or [result]),
        f"{cell.sockets} connections were asked for, and {result.threads} threads opened "
        f"{connections}",
    )
    kept = _Connections(connections, connections)
    yield _mode_proof(cell.mode, requests, kept, measurement, cut_off=connections)
    counted = _added(measurement, "requests")
    if counted is not None:
        ok = requests <= counted <= requests + connections
        said = (
            f"the server counted {counted} requests, wrk {requests} over {connections} connections"
        )
        yield Invariant.ANSWERED.check(ok, said)


# --- checks of a load by several generators -------------------------------------------------------


def begun_together(measurement: Measurement, walls_ns: Sequence[tuple[int, int]]) -> Check:
    """Check that several generators ran at the same time.

    `walls_ns` has the times at which each generator's requests began and ended, by the wall clock
    of the generator's host.
    """
    behind = [0, *(part.behind_ns(measurement) for part in measurement.parts)]
    begins = [begin + apart for (begin, _), apart in zip(walls_ns, behind, strict=True)]
    ends = [end + apart for (_, end), apart in zip(walls_ns, behind, strict=True)]
    common = min(ends) - max(begins)
    longest = max(end - begin for begin, end in walls_ns)
    apart_ms = (max(begins) - min(begins)) / 1e6
    detail = (
        f"the generators began within {apart_ms:.1f} ms of each other, and loaded together for "
        f"{100 * common / longest:.0f} % of the longest generator's time"
    )
    ok = common >= TOGETHER * longest or longest - common <= APART_NS
    return Invariant.LOADED_TOGETHER.check(ok, detail)


def answered_all_along(cell: Cell, parts: Sequence[tuple[float, float, int]]) -> tuple[Check, ...]:
    """Check by Little's law that each of several wrk generators got answers all the time.

    `parts` has, for each generator, the requests/s, the mean latency in seconds, and the number of
    connections. A generator's rate x mean latency is the mean number of its requests under way. If
    a generator gets no answers for some time, this number is much smaller than the number of
    connections.

    In close mode, wrk's latency excludes connecting, so the law does not apply and nothing is
    checked.
    """
    if cell.mode != "keepalive" or len(parts) < 2:
        return ()
    under_way = [rate * mean_s / connections for rate, mean_s, connections in parts]
    shares = ", ".join(f"{100 * share:.0f} %" for share in under_way)
    detail = f"share of each generator's connections with a request under way: {shares}"
    return (Invariant.ANSWERED_ALL_ALONG.check(min(under_way) >= UNDER_WAY, detail),)


def between(measurement: Measurement) -> tuple[Check, ...]:
    """Check that the hosts' clocks did not drift apart, and that no host was silent for long.

    If the whole trial ran on one machine, there is nothing to check.
    """
    hosts = measurement.between
    if hosts is None:
        return ()
    ok = hosts.clock_moved_ns <= MOVED_NS + 2 * hosts.clock_error_ns
    detail = (
        f"the clock of a host moved by {hosts.clock_moved_ns / 1e6:.3f} ± "
        f"{hosts.clock_error_ns / 1e6:.3f} ms against the runner's clock"
    )
    silent_s = hosts.silent_ns / 1e9
    return (
        Invariant.CLOCKS_TOGETHER.check(ok, detail),
        Invariant.HOSTS_SPOKE.check(
            silent_s <= SILENT_S, f"the longest silence of a host was {silent_s:.1f} s"
        ),
    )


# --- checks of the samples of sampler and probe ---------------------------------------------------


def sample_checks(
    measurement: Measurement,
    metrics: Mapping[str, float | int | None],
    raw: Mapping[str, Counter],
    counters: Mapping[str, Counter],
    windows: Sequence[Window],
) -> Iterator[Check]:
    """Check invariant 9, and two invariants without a number: LIVED and PACKETS.

    `raw` has all samples. `counters` has only the samples within slices, with their times shifted
    so that the slices follow each other without pauses. The checks are these:

    - All processes of the server survived the load, and the kernel dropped no packets.
    - Server, generator and database stayed on the CPUs that they were given. This check fails if
      another tool, or a manager of control groups, moved a process.
    - Neither server nor generator used more CPU time than its CPUs offer.
    - The sampler took its samples in time, and its samples cover the whole load.
    - The server was idle while other servers of its session were loaded.
    """
    yield lived(measurement)
    yield kept_packets(measurement)
    lasted_s = sum(window.seconds for window in windows)
    strayed = [
        name
        for name, each in counters.items()
        if each.level("foreign_cpus", SETTLED_S, lasted_s).any()
    ]
    said = f"the {' and the '.join(strayed)} could use other CPUs" if strayed else "all stayed"
    yield Invariant.STAYED.check(not strayed, said)
    used_by = {"server": Invariant.SERVER_CPU, "generator": Invariant.GENERATOR_CPU}
    if "server" not in counters:
        del used_by["server"]
    for subject, invariant in used_by.items():
        used = metrics[f"{subject}_cpu_mean_pct"] or 0.0
        has = 100 * len(getattr(measurement.placement, subject))
        yield invariant.check(
            0 <= used <= has * CPU_TOLERANCE,
            f"the {subject} used {used:.1f} % of a core, and was given {has} %",
        )
    coverage = tick_coverage(raw["host"], windows, measurement.sample_hz)
    stolen_pct = metrics["host_steal_pct"] or 0
    yield Invariant.TICKS.check(
        coverage >= MIN_COVERAGE,
        f"the sampler took {100 * coverage:.1f} % of its ticks at {measurement.sample_hz:g} "
        f"Hz over {lasted_s:.2f} s, while the hypervisor took {stolen_pct:.0f} % of a core "
        "away",
    )
    server = raw.get("server")
    t_s = raw["server" if "server" in raw else "host"].t_s
    zero_ns = windows[0].begin_mono_ns
    last_s = (windows[-1].begin_mono_ns - zero_ns) / 1e9 + windows[-1].seconds
    said = f"the samples are from {t_s[0]:.3f} s to {t_s[-1]:.3f} s of a load of {last_s:.3f} s"
    yield Invariant.COVERED.check(bool(t_s[0] <= 0.0 and t_s[-1] >= last_s), said)
    spans_s = [
        ((begin - zero_ns) / 1e9, (end - zero_ns) / 1e9) for begin, end in measurement.others_loaded
    ]
    if server is not None and spans_s:
        share = sum(server.between(*span) for span in spans_s) / max(
            1e-9, sum(end - begin for begin, end in spans_s)
        )
        yield Invariant.RESTED.check(
            share < MOST_IDLE,
            f"the server used {100 * share:.2f} % of a core while other servers were loaded",
        )


def probe_schedule(late_share: float) -> Check:
    """Check that the probe sent few requests late by its own fault (part of invariant 9)."""
    return Invariant.PROBE_IN_TIME.check(
        late_share <= MAX_LATE, f"the probe sent {100 * late_share:.0f} % of its requests late"
    )
