"""Compute a load's use of CPU, memory and database, and the evidence for its verdict."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.digest.probe import ProbeSamples, saw_the_same
from runner.digest.resources import Counter, Window, read_counters
from runner.generator_traits import TRAITS
from runner.measurement import Measurement, Quota
from runner.model import OWN, OWN_SCRIPT, Cell, LabError
from runner.verdict.evidence import (
    APART_MS,
    DatabaseEvidence,
    Evidence,
    Network,
    Probing,
    Serial,
    Users,
    Wait,
)

Metrics = Mapping[str, Any]
WHOLE = 0.5
"""The exact CPU time is used only if it is at least this share of the CPU time in ticks.

The kernel states the CPU time of all programs twice: exactly, and counted in ticks. Under a quota,
the time in ticks may be up to twice the exact time. If it is even more than twice the exact time,
the exact time does not include all programs, and the time in ticks is used.
"""
SERVER = (
    *(
        "server_cpu_mean_pct",
        "server_cpu_peak_100ms_pct",
        "server_cpu_peak_1s_pct",
        "server_cpu_ms_per_request",
    ),
    *("server_rss_peak_bytes", "server_throttled_pct"),
)


def read_usage(
    folder: Path, measurement: Measurement, windows: Sequence[Window]
) -> dict[str, Counter]:
    """Read a trial's raw counters, by subject. Times are in seconds since the first window began.

    A subject is a program or a machine that the sampler observed, such as `server` or `host`. Each
    of the `windows` is the time of one load. If the trial ran on several hosts, further generators
    are the subjects `generator 2` and so on. The generators' hosts and the samplers on these hosts
    are the subjects `host 1`, `sampler 1` and so on. Raise LabError if host, server, generator or
    sampler has no samples.
    """
    zero_mono_ns = windows[0].begin_mono_ns
    path = folder / "resources.parquet"
    older = measurement.quota is None
    raw = read_counters(path, zero_mono_ns, throttled_known=older)
    # If the lab neither started the server nor found the server's process, the placement has no
    # CPUs for the server, and the file has no samples of the server.
    for subject in ("host", "server", "generator", "sampler"):
        if subject not in raw and (subject != "server" or measurement.placement.server):
            raise LabError(f"{path} has no samples of the {subject}.", exit_code=1)
    for number in range(1, len(measurement.parts) + 2):
        path = folder / f"resources.g{number}.parquet"
        found = read_counters(path, zero_mono_ns, throttled_known=older) if path.is_file() else {}
        raw |= {
            f"{name} {number}": each
            for name, each in found.items()
            if (name, number) != ("generator", 1)
        }
    return raw


def used(counters: Mapping[str, Counter], end_s: float, requests: int) -> dict[str, float | None]:
    """Return the columns of trials.parquet about the CPU use of server, generator and sampler.

    The result also has the columns about the server's memory, about throttling of the server, and
    about CPU time that the hypervisor took. `end_s` is the duration of the load, and `requests` is
    the number of answered requests, including the requests of the probe.
    """
    server = counters.get("server")
    generator = counters["generator"]
    # The server's columns stay None if the server's process was not found.
    of_server: dict[str, float | None] = dict.fromkeys(SERVER)
    if server is not None:
        of_server |= _cost("server", server, end_s, requests)
        of_server["server_cpu_peak_100ms_pct"] = server.peak_pct(0.0, end_s, 0.1)
        of_server["server_throttled_pct"] = 100 * server.between(0.0, end_s, "throttled_s") / end_s
    return {
        **of_server,
        "generator_cpu_mean_pct": generator.mean_pct(0.0, end_s),
        "generator_cpu_peak_1s_pct": generator.peak_pct(0.0, end_s, 1.0),
        "sampler_cpu_mean_pct": counters["sampler"].mean_pct(0.0, end_s),
        "host_steal_pct": 100 * counters["host"].between(0.0, end_s, "steal_s") / end_s,
    }


def _cost(subject: str, counter: Counter, end_s: float, requests: int) -> dict[str, float | None]:
    """Return the columns about the CPU time and the memory that a subject used during a load.

    `subject` is `server` or `database`.
    """
    rss_bytes = counter.level("rss_bytes", -math.inf, math.inf)
    return {
        f"{subject}_cpu_mean_pct": counter.mean_pct(0.0, end_s),
        f"{subject}_cpu_peak_1s_pct": counter.peak_pct(0.0, end_s, 1.0),
        f"{subject}_cpu_ms_per_request": 1000 * counter.between(0.0, end_s) / requests
        if requests
        else None,
        f"{subject}_rss_peak_bytes": int(rss_bytes.max()) if len(rss_bytes) else None,
    }


def measure_usage(
    counters: Mapping[str, Counter], measurement: Measurement, end_s: float, requests: int
) -> Metrics:
    """Return a load's columns of trials.parquet about resources, and numbers for `evidence`."""
    metrics = {**used(counters, end_s, requests), "idle": measurement.idle}
    if measurement.quota is not None:
        metrics["server_quota_cores"] = measurement.quota.cores
        metrics["generator_throttled_share"] = _generator_throttled_share(counters, end_s)
    if measurement.between is not None:
        metrics |= _of_generators(counters, measurement, end_s)
    database = counters.get("database")
    server = counters.get("server")
    if database is None or server is None:
        return metrics
    metrics |= _cost("database", database, end_s, requests)
    in_use = server.level("pool_in_use", 0.0, end_s)
    size = server.level("pool_size", 0.0, end_s)
    if len(in_use):
        metrics["pool_in_use_max"] = int(in_use.max())
        metrics["pool_waiting_max"] = int(server.level("pool_waiting", 0.0, end_s).max())
        metrics["pool_exhausted_pct"] = 100 * float((in_use >= size).mean())
    if (use := measurement.database) is not None:
        calls = use.after.statement_calls - use.before.statement_calls
        spent_ms = use.after.statement_ms - use.before.statement_ms
        metrics["database_sessions"] = use.after.sessions - use.before.sessions
        metrics["database_statement_calls"] = calls
        metrics["database_statement_mean_ms"] = spent_ms / calls if calls else None
    return metrics


def _generator_throttled_share(counters: Mapping[str, Counter], end_s: float) -> float | None:
    """Return the share of the load's time for which a quota held a generator back.

    If there are several generators, return the highest share. Return None if the share is unknown
    for every generator.
    """
    names = [name for name in counters if name.partition(" ")[0] == "generator"]
    shares = [counters[name].between(0.0, end_s, "throttled_s") / end_s for name in names]
    return max((share for share in shares if not math.isnan(share)), default=None)


def _of_generators(
    counters: Mapping[str, Counter], measurement: Measurement, end_s: float
) -> Metrics:
    """Return the metrics of a load with generators on other hosts.

    These are the CPU use of the busiest generator, the highest share of CPU time that a hypervisor
    took from a generator's host, and the use of the network.
    """
    between = [(each, each.between) for each in measurement.loads if each.between is not None]
    hosts = between[0][1].generators
    names = ["generator", *(f"generator {part.number}" for part in measurement.parts)]
    shares = [counters[name].mean_pct(0.0, end_s) / hosts[at].cpus for at, name in enumerate(names)]
    most = shares.index(max(shares))
    stolen = [
        counters[f"host {number}"].between(0.0, end_s, "steal_s") / end_s / host.host_cpus
        for number, host in enumerate(hosts, start=1)
        if f"host {number}" in counters
    ]
    segments = sum(hop.segments for _, hop in between)
    return {
        "generator_cpu_mean_pct": counters[names[most]].mean_pct(0.0, end_s),
        "generator_cpu_peak_1s_pct": counters[names[most]].peak_pct(0.0, end_s, 1.0),
        "generator_cpus": hosts[most].cpus,
        "generators_stolen_share": max(stolen, default=0.0),
        "network_share": max(
            hop.share((each.load_ended_mono_ns - each.load_started_mono_ns) / 1e9)
            for each, hop in between
        ),
        "lost_share": sum(hop.retransmitted for _, hop in between) / max(1, segments),
        "round_trip_ms": max(hop.round_trip_ns for _, hop in between) / 1e6,
    }


def others_pct(
    cell: Cell,
    measurement: Measurement,
    counters: Mapping[str, Counter],
    end_s: float,
    probe: ProbeSamples | None,
) -> float | None:
    """Return the CPU use of programs outside the trial, in % of a core; None if unknown.

    The result is computed from the exact CPU time of all programs, if the kernel states this time,
    and else from the CPU time that the kernel counts in ticks. Ticks are too coarse for loads of
    less than a second. They are also wrong for loads under a quota, because the quota's periods may
    be in step with the ticks. So for these two kinds of loads, the result is None if there is no
    exact time.

    For a user's server the result is always None, because the lab does not know the server's helper
    programs.

    The CPU time of interrupts is excluded, because some kernels count the work for the trial's
    connections as time of interrupts, and not as time of the programs that use the connections
    (CONFIG_IRQ_TIME_ACCOUNTING).
    """
    if cell.workload in OWN:
        return None
    # The subjects to leave out: programs on other machines, and the hosts `host 1` and so on. The
    # server's machine is the subject `host`. If a generator also runs on the server's machine, the
    # generator's host has the same counters as `host`.
    elsewhere: set[str] = set()
    if measurement.between is not None:
        server, generator, database = measurement.placement.hosts
        elsewhere = {
            name
            for name, host in (("generator", generator), ("database", database))
            if host != server
        }
        for number, host in enumerate(measurement.between.generators, start=1):
            names = ("host", "generator", "sampler") if host.machine != server else ("host",)
            elsewhere |= {f"{name} {number}" for name in names}
    used_pct = {
        name: each.mean_pct(0.0, end_s) for name, each in counters.items() if name not in elsewhere
    }
    ran_pct = 100 * counters["host"].between(0.0, end_s, "ran_s") / end_s
    interrupts_pct = 100 * counters["host"].between(0.0, end_s, "interrupts_s") / end_s
    ticked_pct = used_pct.pop("host") - interrupts_pct
    # If `ran_s` is far less than the time in ticks, `ran_s` was read from a container's control
    # group and includes only the container's programs. Then the time in ticks is used.
    exact = ran_pct >= WHOLE * ticked_pct
    # The probe runs on the first generator's host. If the server runs on another host, the probe
    # used no CPU time of the server's host, so nothing is subtracted for the probe.
    probe_pct = 0.0 if probe is None or "generator" in elsewhere else 100 * (probe.cpu_share or 0.0)
    others = (ran_pct if exact else ticked_pct) - sum(used_pct.values()) - probe_pct
    unknown = not exact and (end_s < 1.0 or limited(cell))
    return None if unknown or math.isnan(others) else others


def limited(cell: Cell) -> bool:
    """Return whether the lab gave the server or the database a CPU quota."""
    return cell.share < 1 or cell.database_share < 1


def others_share(measurement: Measurement, taken_pct: float | None) -> float:
    """Return the CPU use of programs outside the trial, as a share of all CPUs of the machine.

    `taken_pct` is the CPU use of these programs in % of a core, or None if it is unknown. Return 0
    if it is unknown. Return 0 also if the machine has CPUs that the trial does not use, because the
    lab then assumes that other programs ran on these CPUs and did not disturb the trial.
    """
    if measurement.cpus > measurement.placement.cpus:
        return 0.0
    return max(0.0, taken_pct or 0.0) / (100 * measurement.cpus)


def evidence(
    cell: Cell, measurement: Measurement, metrics: Metrics, mode: str = "keepalive"
) -> Evidence:
    """Return the evidence for a trial's verdict.

    In the evidence, the server's CPU use is a share of the server's CPUs, and the generator's CPU
    use is a share of the generator's CPUs. `mode` is the observed use of connections.
    """
    placement = measurement.placement
    is_scripted = cell.workload == OWN_SCRIPT
    server_pct = _known(metrics, "server_cpu_mean_pct")
    generator_pct = _known(metrics, "generator_cpu_mean_pct")
    generator_peak_pct = _known(metrics, "generator_cpu_peak_1s_pct")
    if generator_peak_pct is None:
        generator_peak_pct = generator_pct
    generator_has_pct = _generator_has_pct(measurement, metrics)
    quotas = _quotas(cell, measurement, metrics)
    stolen_share = _count(metrics, "host_steal_pct") / (100 * measurement.cpus)
    # A server on a share of a core sometimes waits for the next period of its quota. Such waits may
    # affect probe and load differently, so the response times of probe and load are not compared.
    is_comparable = cell.share == 1 and saw_the_same(cell, mode, metrics)
    return Evidence(
        server_share=_divided(server_pct, 100 * quotas["cores"]),
        generator_share=_divided(generator_pct, generator_has_pct),
        generator_peak_share=_divided(generator_peak_pct, generator_has_pct),
        disjoint=placement.disjoint,
        offered_rps=cell.last_rate_rps,
        dropped=int(_count(metrics, "dropped")),
        database=_database(cell, measurement, metrics),
        waits=tuple(_waits(metrics)) if is_comparable else (),
        stolen_share=max(stolen_share, _count(metrics, "generators_stolen_share")),
        others_share=others_share(measurement, metrics.get("others_cpu_mean_pct")),
        ceiling_share=_ceiling_share(cell, measurement, metrics),
        failed_share=_count(metrics, "failed") / (_count(metrics, "requests") or 1),
        checks_failed_share=_count(metrics, "checks_failed") / (_count(metrics, "checks") or 1),
        unit="iterations" if is_scripted else "requests",
        share=cell.share,
        **quotas,
        serial=_serial(cell, measurement, metrics, server_pct, generator_pct),
        probing=None if is_scripted else _probing(measurement, metrics),
        unprobed=measurement.probe_hz == 0,
        users=_users(cell, metrics),
        connecting_share=0.0 if mode == "keepalive" else _count(metrics, "opened_pct") / 100,
        ended_late_s=_count(metrics, "ended_late_s"),
        network=_network(metrics),
    )


def _known(metrics: Metrics, name: str) -> float | None:
    """Return the value of a metric; None if the metric is missing or NaN."""
    value = metrics.get(name)
    return None if value is None or math.isnan(value) else float(value)


def _count(metrics: Metrics, name: str) -> float:
    """Return the value of a metric; 0 if the metric is missing or NaN."""
    return _known(metrics, name) or 0.0


def _divided(value: float | None, whole: float) -> float | None:
    return None if value is None else value / whole


def _generator_has_pct(measurement: Measurement, metrics: Metrics) -> float:
    """Return the highest possible CPU use of the generator, in % of a core.

    wrk cannot use more than one core per thread.
    """
    cpus = int(_count(metrics, "generator_cpus") or len(measurement.placement.generator))
    threads = int(_count(metrics, "threads") or cpus)
    return 100 * min(cpus, threads)


def _database(cell: Cell, measurement: Measurement, metrics: Metrics) -> DatabaseEvidence | None:
    """Return the evidence of database and pool; None for a load without a database."""
    used_pct = _known(metrics, "database_cpu_mean_pct")
    if used_pct is None:
        return None
    cores = max(1, len(measurement.placement.database)) * cell.database_share
    return DatabaseEvidence(
        share=used_pct / (100 * cores),
        shared=measurement.placement.database_shared,
        pool_exhausted_share=_count(metrics, "pool_exhausted_pct") / 100,
        limited=cell.database_share < 1,
    )


def _serial(
    cell: Cell,
    measurement: Measurement,
    metrics: Metrics,
    server_pct: float | None,
    generator_pct: float | None,
) -> Serial | None:
    """Return the evidence of a closed load with one connection.

    Return None for any other load, for a load on a user's API, and if the rate is 0.
    """
    rps = _count(metrics, "rps")
    if cell.is_open or cell.sockets != 1 or rps == 0 or cell.workload in OWN:
        return None
    return Serial(
        cycle_us=1e6 / rps,
        server_share=(server_pct or 0.0) / 100,
        generator_share=(generator_pct or 0.0) / 100,
        idle=measurement.idle,
    )


def _network(metrics: Metrics) -> Network | None:
    """Return the evidence of the network between hosts; None if the trial ran on one machine."""
    if "network_share" not in metrics:
        return None
    return Network(
        share=metrics["network_share"],
        lost_share=metrics["lost_share"],
        round_trip_ms=metrics["round_trip_ms"],
        median_ms=_known(metrics, "latency_p50_ms"),
    )


def _probing(measurement: Measurement, metrics: Metrics) -> Probing | None:
    """Return the evidence of the probe.

    Return None if there was no probe, or if the duration of the load is 0 or unknown.
    """
    duration_s = _count(metrics, "duration_s")
    if "probe_requests" not in metrics or duration_s == 0:
        return None
    return Probing(
        due=int(duration_s * measurement.probe_hz),
        sent=int(_count(metrics, "probe_requests")),
        failed=int(_count(metrics, "probe_failed")),
    )


def _ceiling_share(cell: Cell, measurement: Measurement, metrics: Metrics) -> float | None:
    """Return the load's mean rate as a share of the generator's ceiling.

    Return None if the ceiling is unknown. Return None also for a ramp, because the mean rate of a
    ramp is lower than the rate of its last step.
    """
    ceiling_rps = measurement.generator_ceiling_rps
    if not ceiling_rps or len(cell.rates_rps) > 1:
        return None
    return _count(metrics, "rps") / ceiling_rps


def _users(cell: Cell, metrics: Metrics) -> Users | None:
    """Return the evidence of how busy the users of an open k6 load were.

    Return None for any other load, and if the number of users or the mean duration of an iteration
    is unknown.
    """
    iteration_ms = metrics.get("iteration_mean_ms")
    runs_scripts = TRAITS[cell.tool].runs_scripts
    users = cell.shape.users
    rate_rps = cell.last_rate_rps
    if not runs_scripts or users is None or rate_rps is None or not iteration_ms:
        return None
    return Users(users, iteration_ms, rate_rps, metrics.get("in_flight_mean"))


def _quotas(cell: Cell, measurement: Measurement, metrics: Metrics) -> dict[str, Any]:
    """Return the fields of Evidence that are about quotas, and the field `cores`."""
    quota = measurement.quota or Quota()
    cores = len(measurement.placement.server) * cell.share
    foreign = quota.cores is not None and quota.cores < cores
    throttled_pct = metrics["server_throttled_pct"]
    unknown = throttled_pct is None or math.isnan(throttled_pct)
    return {
        "cores": quota.cores if foreign else cores,
        "foreign_quota": foreign,
        # A quota on the lab's own control group also limits the generator, unless the generator
        # runs on another machine.
        "shared_quota": quota.shared and measurement.between is None,
        "throttled_share": None if unknown else throttled_pct / 100,
        "generator_throttled_share": metrics.get("generator_throttled_share") or 0.0,
    }


def _waits(metrics: Metrics) -> Iterator[Wait]:
    for name in APART_MS:
        generator_ms = metrics.get(f"latency_{name}_ms")
        probe_ms = metrics.get(f"probe_{name}_ms")
        if generator_ms is not None and probe_ms is not None and math.isfinite(generator_ms):
            yield Wait(name, generator_ms, probe_ms)
