"""Differences between the load generators, for plans, tables and pages.

This module imports nothing from this project.
"""

import math
from dataclasses import dataclass
from typing import Literal

Tool = Literal["k6", "wrk", "vegeta", "oha"]
"""Names of the load generators that the lab drives."""
SizeColumn = Literal["vus", "connections"]
"""Columns of the table of trials that can hold the number of a load's users."""


LEAD_S = 0.5
"""vegeta and oha send requests for this long before the load begins.

In this time the generators open their connections, which makes vegeta's requests late by 80 ms and
more. Without this lead, these delays would be part of the load's response times.
"""
GENERATOR_LATE_S = 0.01
"""A request of an open load is late if it begins at least this many seconds after it was due.

The timer with which a generator ends a load may be late by as much. The largest observed delay of
such a timer was 1.5 ms, when k6 sent 2,000 requests/s.
"""


@dataclass(frozen=True)
class Traits:
    """The traits of one load generator: the properties in which the lab's generators differ."""

    size_column: SizeColumn
    """Column of the table of trials that holds the number of a closed load's users."""
    keeps_requests: bool
    """True if the raw file contains every request.

    Then rates and response times are known for each second.
    """
    raw_files: tuple[str, ...]
    """Base names of the raw files that the generator leaves for each load.

    One of the files contains a summary. If `keeps_requests` is True, the other contains the
    requests.
    """
    says_connecting: bool = True
    """True if the generator's raw file says which requests opened a connection.

    If this is False, the number of connections that were accepted during the load shows whether the
    generator kept its connections open.
    """
    says_statuses: bool = False
    """True if the generator's summary contains the number of answers with each status.

    Such a summary also contains the total size of the answers, in bytes.
    """
    is_optional: bool = False
    """True if `make setup` leaves the generator out.

    Such a generator is needed only for the workloads that name it.
    """
    most_rps: float = math.inf
    """Highest rate of an open load at which the generator does not begin requests in bursts."""
    runs_scripts: bool = False
    """True if the generator runs scripts.

    The loads of such a generator have iterations and virtual users. The generator also measures the
    time until the first byte of each answer.
    """
    keeps_connections_by_itself: bool = True
    """True if the generator keeps its connections open by default.

    If this is True, the description of a load mentions the mode only if it is not `keepalive`.
    """
    whole_seconds: bool = False
    """True if a load must last whole seconds, unless it is divided into slices."""
    runs_on_hosts: bool = True
    """True if the generator can run on another host, because the station's image contains it.

    Only such a generator can share a load with other generators of its kind.
    """
    lead_s: float = 0.0
    """Seconds before an open load in which requests are sent, but do not count (the lead)."""
    late_s: float = 0.0
    """Seconds after the planned end of an open load in which delayed requests may still begin."""
    between_slices_s: float = 1.0
    """Estimated seconds that the generator needs to end after a slice and start for the next."""


TRAITS: dict[str, Traits] = {
    "k6": Traits(
        "vus",
        keeps_requests=True,
        raw_files=("k6.json.gz", "k6-summary.json"),
        runs_scripts=True,
    ),
    "wrk": Traits(
        "connections",
        keeps_requests=False,
        raw_files=("wrk.json",),
        says_connecting=False,
        keeps_connections_by_itself=False,
        whole_seconds=True,
        between_slices_s=0.3,
    ),
    "vegeta": Traits(
        "vus",
        keeps_requests=True,
        is_optional=True,
        raw_files=("vegeta.csv.gz", "vegeta.json"),
        runs_on_hosts=False,
        lead_s=LEAD_S,
        # vegeta begins no request after the duration on its command line, even if requests are
        # late. So the lab makes this duration longer than the load by `late_s`.
        late_s=GENERATOR_LATE_S,
    ),
    "oha": Traits(
        "connections",
        keeps_requests=True,
        raw_files=("oha.csv.gz", "oha.json"),
        says_connecting=False,
        says_statuses=True,
        is_optional=True,
        # oha's clock ticks once per millisecond, so at more than 1,000 requests/s several requests
        # begin at the same tick.
        most_rps=1000,
        keeps_connections_by_itself=False,
        runs_on_hosts=False,
        lead_s=LEAD_S,
        late_s=GENERATOR_LATE_S,
    ),
}
"""The traits of each generator, by its name."""


_UNKNOWN = Traits("vus", keeps_requests=True, raw_files=())


def is_sized_by_connections(tool: object) -> bool:
    """Return True if the size of a generator's closed loads is a number of connections.

    The size for any other generator is a number of virtual users.
    """
    return traits_of(tool).size_column == "connections"


def users_column(tool: object, load_model: str) -> SizeColumn:
    """Return the column of the table of trials that holds the number of a load's users.

    For an open load, the number of users is an upper limit, and not the size of the load.
    """
    return traits_of(tool).size_column if load_model == "closed" else "vus"


def traits_of(tool: object) -> Traits:
    """Return the traits of a generator, or default traits if the lab does not drive it."""
    return TRAITS.get(str(tool), _UNKNOWN)
