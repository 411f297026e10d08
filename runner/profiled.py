"""Define what perf does in each slice of a profile: record call stacks, count events, or nothing.

A profile is a session of slices, or a timeline. A timeline is a load that is not divided into
slices, and is recorded as a whole.

This module imports nothing from this project.
"""

from typing import Literal

Kind = Literal["recorded", "plain", "counted"]
"""In a `recorded` slice, perf records call stacks. In a `counted` slice, perf counts events.

In a `plain` slice, perf does not run.
"""
KINDS: tuple[Kind, ...] = (
    *("counted", "counted", "recorded", "recorded"),
    *("plain", "plain", "recorded", "recorded"),
    *("recorded", "recorded"),
)
"""Kind of each slice of a server, by the slice's place.

The place is the slice's number among the slices of its server, from 1. Places come in pairs of the
same kind: places 1 and 2, places 3 and 4, and so on. In the second place of a pair, the servers are
loaded in the reverse order of the first place. So a steady drift over the pair adds the same to all
servers.

Counted slices come first. At that time a server may still be warming up, but it already makes the
same system calls as later, so their counts are not affected. Plain slices show how much CPU time
the profiling itself costs.
"""
WHOLE: tuple[Kind, ...] = ("recorded",)
"""Kinds of the slices of a timeline, which is stored as a session with a single slice."""
PLACES = len(KINDS)
LONGEST_S = 1.0
"""A slice of a profile lasts at most this long, in seconds."""
TIMELINE_S = (5.0, 30.0)
"""Shortest and longest duration of a timeline, in seconds.

A load that is shorter than the shortest duration gets no timeline, because a spike is found by
comparison with a baseline, and the baseline takes some seconds. If a load is longer than the
longest duration, the timeline ends before the load would.
"""
SLICED = "p-"
TIMELINE = "t-"
"""Beginning of the names of a timeline's session and trials.

These names begin with SLICED if the profile is divided into slices.
"""
KERNEL = "_[k]"
"""Suffix of the names of the kernel's functions in a stack, as is usual in flame graphs."""
STACKS = "perf.txt.gz"
"""Base name of the raw file with the call stacks of a recorded slice."""
DATABASE_STACKS = "perf-database.txt.gz"
"""Base name of the raw file with the call stacks of the slice's database."""
EVENTS = "perf-stat.json"
"""Base name of the raw file with the events of a counted slice."""


def kind_of(session: str, place: int) -> Kind:
    """Return the kind of the slices at a place of a profile's session.

    Each server has one slice at each place. Places are numbered from 1.
    """
    return (WHOLE if session.startswith(TIMELINE) else KINDS)[place - 1]


def load_of(session: str) -> str:
    """Return the name of the load under which a profile's session observes the servers."""
    return session.partition("-")[2]
