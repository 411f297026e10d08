"""In what the load generators differ, as plans, tables and pages need to know it.

Imports nothing of ours.
"""

from dataclasses import dataclass
from typing import Literal

Tool = Literal["k6", "wrk", "vegeta"]
"""The load generators."""
SizeColumn = Literal["vus", "connections"]
"""Columns of the trials with a load's users."""


LEAD_S = 0.5
"""How long vegeta offers its rate before the load begins.

It opens its connections meanwhile, and is 80 ms late and more.
"""
GENERATOR_LATE_S = 0.01
"""How much later than its turn a request of an open load may begin.

A generator's timer that ends a load may be as late; seen of k6: 1.5 ms at 2,000 requests/s.
"""


@dataclass(frozen=True)
class Traits:
    """In what a generator differs from the others."""

    size_column: SizeColumn
    """Column of the trials with the size of a closed load."""
    keeps_requests: bool
    """Whether its raw file has every request, so that there is a timeline."""
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
        # It begins nothing any more when its time is over: what may be late needs time for it.
        late_s=GENERATOR_LATE_S,
    ),
}
"""Each generator's, by its name."""


_UNKNOWN = Traits("vus", keeps_requests=True)


def traits_of(tool: object) -> Traits:
    """Return the traits of a generator that a table names.

    Of one that the lab does not drive too.
    """
    return TRAITS.get(str(tool), _UNKNOWN)
