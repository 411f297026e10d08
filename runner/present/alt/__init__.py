"""What a figure says to a reader who does not see it: kind and axes, then its values, order and extremes, as sentences.

Texts are computed from the tables that the figure is drawn from, with the functions that give the figure its numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from runner.model import LabError
from runner.present.alt import case, closed, matrix, offered, pools, published, ramps
from runner.present.case import Case
from runner.present.frames import Tables

OF_A_RUN: dict[str, Callable[[Tables], str]] = {
    "latency-spectrum": closed.spectrum,
    "latency-density": closed.density,
    "requests-over-time": closed.over_time,
    "cpu-over-time": closed.cpu_over_time,
    "cpu-peaks": closed.peaks,
    "wrk-requests": matrix.requests,
    "wrk-cpu-per-request": matrix.cpu_per_request,
    "inserts-answered": ramps.inserts_answered,
    "inserts-latency-p90": ramps.inserts_p90,
    "inserts-server-cpu": ramps.inserts_server_cpu,
    "inserts-server-memory": ramps.inserts_memory,
    "inserts-pool-in-use": ramps.pool_in_use,
    "inserts-database-cpu": ramps.database_cpu,
    "inserts-rows": ramps.rows_inserted,
    "inserts-by-pool-size": pools.rate,
    "inserts-latency-by-pool-size": pools.p99,
    "static-answered": ramps.static_answered,
    "static-latency-p90": ramps.static_p90,
    "static-server-cpu": ramps.static_server_cpu,
    "rates-latency": offered.latency,
    "rates-objective": offered.objective,
    **published.DESCRIBED,
}
"""Name of a figure of a run, as in the gallery -> the function that describes it."""
OF_A_TRIAL: dict[str, Callable[[Case], str]] = {
    "verdict-two-clients": case.two_clients,
    "verdict-cpu": case.cpu,
}
"""The same for the figures of one trial."""
TABLES = {
    **dict.fromkeys(("latency-spectrum", "latency-density", "requests-over-time", "cpu-peaks"), "Load by load"),
    **dict.fromkeys(("wrk-requests", "wrk-cpu-per-request"), "Load by load"),
    **dict.fromkeys(("inserts-answered", "inserts-server-cpu", "inserts-database-cpu"), "The answer"),
    **dict.fromkeys(("inserts-rows", "inserts-by-pool-size"), "The answer"),
    **dict.fromkeys(("rates-latency", "rates-objective"), "The answer"),
    "verdict-two-clients": "What another client saw",
    "verdict-cpu": "The verdict",
}
"""Name of a figure -> the heading in its notebook under which a table has medians of what it shows."""


def on_page(name: str, subject: Tables | Case) -> str:
    """Return the alt text of a figure in its notebook: `describe`, and where on the page a table has the numbers."""
    place = f" For a table see “{TABLES[name]}”." if name in TABLES else ""
    return describe(name, subject) + place


def describe(name: str, subject: Tables | Case) -> str:
    """Return the alt text of a figure of the gallery: about `sentences.LIMIT` characters at most, plain text.

    A figure without data has a sentence that says so. LabError for a name that has no figure of that subject.
    """
    if isinstance(subject, Case):
        if name in OF_A_TRIAL:
            return OF_A_TRIAL[name](subject)
    elif name in OF_A_RUN:
        return OF_A_RUN[name](subject)
    about = "one trial" if isinstance(subject, Case) else "a run"
    raise LabError(f"There is no figure {name!r} of {about} to describe.")
