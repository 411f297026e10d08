"""Define the quantities that can be compared, and the condition that each quantity needs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MIB = 2.0**20


class Need(StrEnum):
    """A condition that all trials of a cell must meet so that a quantity describes the server.

    For every quantity, there is one more condition: at most 1 in 1000 requests may have failed.
    """

    SERVER_LIMIT = "the server was the limit of a closed load"
    """A rate needs this condition, because another limit would hide the server's capacity."""
    NO_LIMIT = "a rate was offered and sustained, and nobody was at a limit"
    """A response time needs this condition, because requests queue if a program is at a limit."""
    WORK = "the work was done"
    """A cost per request, and memory, need only this condition.

    They are valid no matter what limited the trial.
    """
    ROOM = "the server never filled its CPUs"
    """A CPU peak needs this condition, because CPUs that are full all the time show no peak."""
    LIMIT_OF_A_RAMP = "the rate rose beyond what the server can do"
    """The number of inserted rows needs this condition.

    If a server sustains a ramp to its end, it inserts every row that was requested. The number of
    rows then describes the ramp and not the server.
    """


@dataclass(frozen=True)
class Quantity:
    """A quantity of a cell that can be compared."""

    name: str
    """Name of the quantity in claims.toml."""
    column: str
    """Column of the trials table that contains the values, in the unit of the column.

    It is empty if the values are computed from other tables.
    """
    noun: str
    """Phrase that names the quantity in a sentence, for example after `axum's`."""
    heading: str
    """Heading of the quantity in tables, with its unit."""
    need: Need
    more_is_better: bool = False
    quantile: float = 0.0
    """The quantile if the quantity is a percentile of response times, and otherwise 0.

    The quantity is compared only if each trial has enough requests for this quantile.
    """
    unit: float = 1.0
    """Number by which the values in the column are divided before they are compared or shown."""
    group: str = ""
    """Heading above the quantity's ratios in the report."""
    by_load: bool = True
    """False if the quantity does not depend on the load.

    Such a quantity is compared under one load instead of under every load.
    """

    @property
    def in_a_claim(self) -> str:
        """The words for the quantity in a claim: `CPU ms/request` in `axum/gin CPU ms/request`."""
        return self.heading if self.need is Need.WORK and self.unit == 1 else self.noun


def _response_time(percent: int, group: str = "") -> Quantity:
    return Quantity(
        name=f"latency_p{percent}_ms",
        column=f"latency_p{percent}_ms",
        noun=f"p{percent}",
        heading=f"p{percent}, ms",
        need=Need.NO_LIMIT,
        quantile=percent / 100,
        group=group,
    )


def _peak(column: str, window: str) -> Quantity:
    noun = f"CPU peak over {window}"
    return Quantity(name=column, column=column, noun=noun, heading=noun, need=Need.ROOM)


def _peak_at_a_rate(column: str, window: str) -> Quantity:
    noun = f"CPU peak over {window}"
    return Quantity(
        name=f"{column}_at_a_rate",
        column=column,
        noun=noun,
        heading=noun,
        need=Need.NO_LIMIT,
        group=f"{noun}, at the same rate",
    )


THROUGHPUT = Quantity(
    name="served_rps",
    column="served_rps",
    noun="requests/s",
    heading="requests/s",
    need=Need.SERVER_LIMIT,
    more_is_better=True,
    group="Requests per second",
)
CPU_PER_REQUEST = Quantity(
    name="server_cpu_ms_per_request",
    column="server_cpu_ms_per_request",
    noun="CPU time per request",
    heading="CPU ms/request",
    need=Need.WORK,
    group="CPU time per request",
)
P50 = _response_time(50, "Response time of one in two requests")
P90 = _response_time(90)
P95 = _response_time(95)
P99 = _response_time(99, "Response time of 99 in 100 requests")
MEMORY = Quantity(
    name="server_rss_peak_bytes",
    column="server_rss_peak_bytes",
    noun="memory in MiB",
    heading="memory, MiB",
    need=Need.WORK,
    unit=MIB,
)
CPU = Quantity(
    name="server_cpu_mean_pct",
    column="server_cpu_mean_pct",
    noun="CPU",
    heading="CPU",
    need=Need.NO_LIMIT,
)
PEAK_1S = _peak("server_cpu_peak_1s_pct", "1 s")
PEAK_100MS = _peak("server_cpu_peak_100ms_pct", "100 ms")
PEAK_1S_AT_A_RATE = _peak_at_a_rate("server_cpu_peak_1s_pct", "1 s")
PEAK_100MS_AT_A_RATE = _peak_at_a_rate("server_cpu_peak_100ms_pct", "0.1 s")


def _per_request(column: str, noun: str) -> Quantity:
    return Quantity(name=column, column=column, noun=noun, heading=noun, need=Need.WORK)


def _once(column: str, noun: str, unit: float = 1.0) -> Quantity:
    return Quantity(
        name=column,
        column=column,
        noun=noun,
        heading=noun,
        need=Need.WORK,
        unit=unit,
        by_load=False,
    )


OF_THE_COUNTERS = (
    _per_request("server_user_ms_per_request", "ms in its own code per request"),
    _per_request("server_system_ms_per_request", "ms in the kernel per request"),
    _per_request("server_switches_per_request", "context switches per request"),
    _per_request("server_page_faults_per_request", "page faults per request"),
    _once("server_start_ms", "time to start in ms"),
    _once("server_rss_started_bytes", "memory once started in MiB", MIB),
    _once("server_binary_bytes", "size of the binary in MiB", MIB),
)
"""Quantities that one table of the report compares: counters, start-up times and sizes."""
ROWS = Quantity(
    name="rows_inserted",
    column="rows_inserted",
    noun="rows",
    heading="rows",
    need=Need.LIMIT_OF_A_RAMP,
    more_is_better=True,
)
P90_OF_FIRST_SECOND = Quantity(
    name="p90_of_first_second",
    column="",
    noun="p90 of the first second",
    heading="p90 of the first second",
    need=Need.NO_LIMIT,
)
P90_OF_LATER_SECONDS = Quantity(
    name="p90_of_later_seconds",
    column="",
    noun="median p90 of later seconds",
    heading="median p90 of later seconds",
    need=Need.NO_LIMIT,
)
P90_UNSTEADINESS = Quantity(
    name="p90_unsteadiness",
    column="",
    noun="unsteadiness of p90",
    heading="unsteadiness of p90",
    need=Need.NO_LIMIT,
)
CPU_UNSTEADINESS = Quantity(
    name="cpu_unsteadiness",
    column="",
    noun="unsteadiness of CPU",
    heading="unsteadiness of CPU",
    need=Need.NO_LIMIT,
)

OF_A_REPORT = (
    THROUGHPUT,
    CPU_PER_REQUEST,
    P50,
    P99,
    PEAK_1S_AT_A_RATE,
    PEAK_100MS_AT_A_RATE,
)
"""Quantities that the report compares between the servers of one run."""
OF_TWO_RUNS = (THROUGHPUT, P50, P90, P99, CPU_PER_REQUEST, MEMORY)
"""Quantities that `bench compare` and `bench history` compare between runs."""
OF_A_CLAIM = (
    THROUGHPUT,
    P50,
    P90,
    P95,
    P99,
    CPU_PER_REQUEST,
    CPU,
    PEAK_1S,
    PEAK_100MS,
    MEMORY,
    ROWS,
    P90_OF_FIRST_SECOND,
    P90_OF_LATER_SECONDS,
    P90_UNSTEADINESS,
    CPU_UNSTEADINESS,
)
"""Quantities that a published claim may be about."""
CATALOGUE = {
    quantity.name: quantity
    for quantity in dict.fromkeys((*OF_A_REPORT, *OF_THE_COUNTERS, *OF_TWO_RUNS, *OF_A_CLAIM))
}
"""All quantities, by name."""
