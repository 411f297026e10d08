"""In what the load generators differ, as plans, tables and pages need to know it.

Imports nothing of ours.
"""

import math
from dataclasses import dataclass
from typing import Literal

Tool = Literal["k6", "wrk", "vegeta", "oha"]
"""The load generators."""


LEAD_S = 0.5
"""How long vegeta and oha offer their rate before the load begins.

They open their connections meanwhile: vegeta is 80 ms late and more, oha's requests connect first.
"""
GENERATOR_LATE_S = 0.01
"""How much later than its turn a request of an open load may begin.

A generator's timer that ends a load may be as late; seen of k6: 1.5 ms at 2,000 requests/s.
"""


@dataclass(frozen=True)
class Traits:
    """In what a generator differs from the others."""

    size_column: Literal["vus", "connections"]
    """Column of the trials with the size of a closed load."""
    keeps_requests: bool
    """Whether its raw file has every request, so that there is a timeline."""
    raw_files: tuple[str, ...]
    """The raw files of a load by their plain names: samples if it keeps them, then its summary."""
    says_connecting: bool = True
    """Whether its raw file says which requests opened a connection.

    Else the mode is proven by the connections that were accepted.
    """
    is_optional: bool = False
    """Whether the lab's set-up leaves it out: only its own workloads need it."""
    most_rps: float = math.inf
    """The highest rate of an open load at which its requests begin one by one."""
    runs_scripts: bool = False
    """Whether it runs a user's script: iterations, virtual users, the time to the first byte."""
    keeps_connections_by_itself: bool = True
    """Whether a load keeps its connections if nothing else is said; else its name says which."""
    whole_seconds: bool = False
    """Whether its loads last whole seconds, unless they are slices."""
    is_divisible: bool = True
    """Whether several generators can share a load."""
    lead_s: float = 0.0
    """How long an open load is offered before it counts."""
    late_s: float = 0.0
    """How much later than its end the requests of an open load may begin."""
    between_slices_s: float = 1.0
    """About how long it takes to start and to end."""


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
        raw_files=("vegeta.csv.gz", "vegeta.json"),
        is_divisible=False,
        lead_s=LEAD_S,
        # It begins nothing any more when its time is over: what may be late needs time for it.
        late_s=GENERATOR_LATE_S,
    ),
    "oha": Traits(
        "connections",
        keeps_requests=True,
        raw_files=("oha.csv.gz", "oha.json"),
        says_connecting=False,
        is_optional=True,
        # Its clock ticks in milliseconds: at higher rates requests begin in bunches.
        most_rps=1000,
        keeps_connections_by_itself=False,
        is_divisible=False,
        lead_s=LEAD_S,
        late_s=GENERATOR_LATE_S,
    ),
}
"""Each generator's, by its name."""


_UNKNOWN = Traits("vus", keeps_requests=True, raw_files=())


def traits_of(tool: object) -> Traits:
    """Return the traits of a generator that a table names.

    Of one that the lab does not drive too.
    """
    return TRAITS.get(str(tool), _UNKNOWN)
