"""Differences between the load generators, for plans, tables and pages.

Imports nothing from this project.
"""

from dataclasses import dataclass
from typing import Literal

Tool = Literal["k6", "wrk", "vegeta"]
"""The load generators."""


LEAD_S = 0.5
"""Time for which vegeta sends requests before the load begins.

Meanwhile it opens its connections, which makes requests late by 80 ms and more.
"""
GENERATOR_LATE_S = 0.01
"""Largest delay of a request of an open load.

The timer with which a generator ends a load may be as late. 1.5 ms were observed of k6 at 2,000
requests/s.
"""


@dataclass(frozen=True)
class Traits:
    """Traits in which a generator differs from the others."""

    size_column: Literal["vus", "connections"]
    """Column of the trials that holds the size of a closed load."""
    keeps_requests: bool
    """True if its raw file has every request, which gives a timeline."""
    runs_scripts: bool = False
    """True if it runs user scripts: iterations, virtual users, time to the first byte."""
    keeps_connections_by_itself: bool = True
    """True if its loads keep connections by default, so that a load's name needs no mode."""
    whole_seconds: bool = False
    """True if its loads last whole seconds; slices may be shorter."""
    is_divisible: bool = True
    """True if several generators can share a load."""
    lead_s: float = 0.0
    """Time for which an open load is sent before it counts."""
    late_s: float = 0.0
    """Extra time after the end of an open load in which delayed requests may begin."""
    between_slices_s: float = 1.0
    """Approximate time that it takes to start and to end."""


TRAITS: dict[str, Traits] = {
    "k6": Traits("vus", keeps_requests=True, runs_scripts=True),
    "wrk": Traits(
        "connections",
        keeps_requests=False,
        keeps_connections_by_itself=False,
        whole_seconds=True,
        between_slices_s=0.3,
    ),
    "vegeta": Traits(
        "vus",
        keeps_requests=True,
        is_divisible=False,
        lead_s=LEAD_S,
        # It starts no request after its time is over, so delayed requests need extra time.
        late_s=GENERATOR_LATE_S,
    ),
}
"""The traits of each generator, by its name."""


_UNKNOWN = Traits("vus", keeps_requests=True)


def traits_of(tool: object) -> Traits:
    """Return the traits of a generator named in a table; defaults if the lab does not drive it."""
    return TRAITS.get(str(tool), _UNKNOWN)
