"""The slices of a profile: which of them are recorded, counted, or not observed at all.

A profile is a session of slices, or a timeline: one load in one piece, recorded as a whole.

This module imports nothing from this project.
"""

from typing import Literal

Kind = Literal["recorded", "plain", "counted"]
"""A `recorded` slice has call stacks, a `counted` slice has events, and a `plain` one neither."""
KINDS: tuple[Kind, ...] = (
    *("counted", "counted", "recorded", "recorded"),
    *("plain", "plain", "recorded", "recorded"),
    *("recorded", "recorded"),
)
"""Kind of each slice of a server, by its place.

Two places in a row have the same kind. Every second place of a session reverses the order of the
servers, so that a steady drift over the two places adds the same to all servers.

Counted slices come first, because a server makes the same calls even while it is still warming up.
Plain slices show how much CPU time the profiling itself costs.
"""
WHOLE: tuple[Kind, ...] = ("recorded",)
"""Kind of the only slice of a timeline."""
PLACES = len(KINDS)
LONGEST_S = 1.0
"""Longest slice of a profile, in seconds."""
TIMELINE_S = (5.0, 30.0)
"""Length of the shortest load that has a timeline, and of the longest timeline.

A timeline must be some seconds long, because a spike is found by its difference from a baseline.
"""
SLICED = "p-"
TIMELINE = "t-"
"""Prefix of the names of a timeline's sessions and trials; the name of the load follows."""
KERNEL = "_[k]"
"""Suffix of a kernel's function in a stack, as flame graphs have it."""
STACKS = "perf.txt.gz"
"""Base name of the raw file with the call stacks of a recorded slice."""
DATABASE_STACKS = "perf-database.txt.gz"
"""Base name of the raw file with the call stacks of the slice's database."""
EVENTS = "perf-stat.json"
"""Base name of the raw file with the events of a counted slice."""


def kind_of(session: str, place: int) -> Kind:
    """Return the kind of a server's slice in a profile's session; places count from 1."""
    return (WHOLE if session.startswith(TIMELINE) else KINDS)[place - 1]


def load_of(session: str) -> str:
    """Return the name of the load of a profile's session."""
    return session.partition("-")[2]
