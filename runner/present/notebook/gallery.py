"""Every figure by its name, as in its files: the function that draws it, and which runs it is for."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from runner.present.case import Case, probed
from runner.present.figures import clients, cpu, latency, objectives, pool_sweep, ramp, rates, throughput, wrk_matrix
from runner.present.frames import Tables
from runner.present.published import claims_figure, published_ratios
from runner.present.published.counterparts import repeats
from runner.present.spikes.survey import has_samples
from runner.present.statistics.inference import FEWEST

FIGURES: dict[str, Callable[[Tables], Figure]] = {
    "latency-spectrum": latency.spectrum,
    "latency-density": latency.density,
    "requests-over-time": throughput.over_time,
    "cpu-over-time": cpu.over_time,
    "cpu-peaks": cpu.peaks,
    "wrk-requests": wrk_matrix.requests,
    "wrk-cpu-per-request": wrk_matrix.cpu_per_request,
}
"""Name of a figure of every run, as in its files -> the function that draws it."""
DATABASE_FIGURES: dict[str, Callable[[Tables], Figure]] = {
    "inserts-answered": ramp.inserts_answered,
    "inserts-latency-p90": ramp.inserts_p90,
    "inserts-server-cpu": ramp.inserts_server_cpu,
    "inserts-server-memory": ramp.inserts_memory,
    "inserts-pool-in-use": ramp.pool_in_use,
    "inserts-database-cpu": ramp.database_cpu,
    "inserts-rows": ramp.rows_inserted,
    "inserts-by-pool-size": pool_sweep.rate,
    "inserts-latency-by-pool-size": pool_sweep.p99,
}
"""Figures of runs that have a database behind their servers."""
RAMP_FIGURES: dict[str, Callable[[Tables], Figure]] = {
    "static-answered": ramp.static_answered,
    "static-latency-p90": ramp.static_p90,
    "static-server-cpu": ramp.static_server_cpu,
}
"""Figures of runs that have a ramp of arrival rates without a database."""
RATES_FIGURES: dict[str, Callable[[Tables], Figure]] = {
    "rates-latency": rates.latency,
    "rates-objective": objectives.kept,
}
"""Figures of runs that have loads at constant arrival rates, or searches for the highest that keeps an objective."""
VERDICT_FIGURES: dict[str, Callable[[Case], Figure]] = {
    "verdict-two-clients": clients.two_clients,
    "verdict-cpu": clients.cpu,
}
"""Figures of one trial."""
PUBLISHED_FIGURES: dict[str, Callable[[Tables], Figure]] = {
    "published-ratios": published_ratios.dumbbells,
    "published-claims": claims_figure.measured,
}
"""Figures of the page about the published results, for runs that repeat any of their loads."""
SPIKE_FIGURE = "cpu-spikes"
"""Figure of the page about CPU spikes, which draws it itself (spike_figures.timeline)."""
OF_A_RUN = FIGURES | DATABASE_FIGURES | RAMP_FIGURES | RATES_FIGURES


def has_loads(tables: Tables, name: str) -> bool:
    """Return whether a run has a load of the kind that a figure is about, as the figures of every run always do."""
    if name in DATABASE_FIGURES:
        return tables.has_database
    if name in RAMP_FIGURES:
        return not tables.ramps(database=False).empty
    if name in RATES_FIGURES:
        return not (tables.sweeps() if name == "rates-latency" else tables.searches()).empty
    if name in PUBLISHED_FIGURES:
        return repeats(tables, FEWEST if name == "published-claims" else 1)
    if name == SPIKE_FIGURE:
        return has_samples(tables)
    return name not in VERDICT_FIGURES or probed(tables)
