"""The slices of a profile: which are recorded, which are counted, and which are left alone.

Imports nothing from this project.
"""

from typing import Literal

Kind = Literal["recorded", "plain", "counted"]
"""`recorded` has call stacks, `counted` has events, and `plain` has neither."""
KINDS: tuple[Kind, ...] = (
    *("counted", "counted", "recorded", "recorded"),
    *("plain", "plain", "recorded", "recorded"),
    *("recorded", "recorded"),
)
"""Kind of each slice of a server, by its place.

Two places in a row have the same kind, because each second place of a session reverses the order of
the servers. So a steady drift adds the same to all servers. Counts come first, because a server
that is still warming up makes the same calls. Plain slices show the profile's cost.
"""
PLACES = len(KINDS)
LONGEST_S = 1.0
"""Longest slice of a load that has no slices of its own."""
KERNEL = "_[k]"
"""Suffix of a kernel's function in a stack, as flame graphs have it."""
STACKS = "perf.txt.gz"
"""Base name of the raw file with the call stacks of a recorded slice."""
EVENTS = "perf-stat.json"
"""Base name of the raw file with the events of a counted slice."""


def kind_of(place: int) -> Kind:
    """Return the kind of a server's slice; places count from 1."""
    return KINDS[place - 1]
