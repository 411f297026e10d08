"""Derive the load model of a k6 run from its samples: closed or open, users, rate, think time.

An open load begins iterations at planned times, so the iterations begin at even intervals. In a
closed load, an iteration begins whenever an earlier iteration ends, so the intervals are uneven.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import duckdb
import numpy as np

from runner.digest.k6 import SORTED_DURATIONS, RequestNumbers, quantiles_of
from runner.model import setting_text, short_number
from runner.shapes import ForTime, LoadModel, Shape, Steps

ARRIVALS = 3.0
"""The load is divided into equal windows of time, in which on average this many iterations begin.

If the number of iterations that begin in a window hardly changes from window to window, the
iterations began at even intervals. The mean number is small, so that the windows would differ
visibly if iterations began at random times.
"""
LATE_S = 0.005
"""k6 may begin an iteration late by up to this time, even under a light load."""
LEAST_WINDOW_S = 0.02
"""The windows in which ARRIVALS iterations begin on average are at least this long.

The windows must be longer than the few milliseconds by which k6 may begin an iteration late.
"""
MOST_WINDOWS = 1_000_000
UNEVEN = 1.5
"""Allowed difference, in iterations, between a window of a load and the two windows beside it.

A window is called even if the number of iterations that begin in the window differs by at most
UNEVEN from the mean number in the two windows beside it. A window is also called even if the
difference is at most UNEVEN_SHARE of this mean number.
"""
UNEVEN_SHARE = 0.1
"""Allowed difference as in UNEVEN, but as a share of the mean number in the two windows.

The larger of the two allowed differences counts. UNEVEN_SHARE is the larger one if many iterations
begin in the windows.
"""
EVEN = 0.75
"""If at least this share of the windows is even, the iterations began at planned times.

UNEVEN and UNEVEN_SHARE say when a window is even.
"""
BUSY = 0.95
"""A load is closed if on average at least this share of its users runs an iteration.

In an open load the share is lower, because some users wait for the next planned time. The rule is
not applied if k6 dropped an iteration before the end of the load (ENDING).
"""
FEW_BUSY = 0.5
"""A load is open if always less than this share of its allocated users runs an iteration.

k6 allocates spare users only for open loads. The rule is applied only if all times in the file are
whole seconds, because such times do not show how evenly iterations begin.
"""
ENDING = 0.05
"""Length of the end of a load, as a share of the load's time.

If k6 drops an iteration before the end begins, the load is open. Iterations that k6 drops during
the end do not show that the load is open: k6 may drop them because no time is left for them.
"""
CONSTANT = 0.9
"""The number of users is constant if it is at its maximum in at least this share of the seconds."""
RAMPING = 1.1
"""A rate is a ramp if the first and the last tenth of the load differ by more than this factor."""
FASTEST = 0.01
"""The lab assumes that this share of the requests, the fastest ones, did not wait for others.

So the quantile of the requests' durations at this share estimates the duration without waiting.
"""


@dataclass(frozen=True)
class LoadSeen:
    """The load that k6's samples show."""

    model: LoadModel
    users: int
    """For a closed load, the largest number of users that ran an iteration at the same time.

    For an open load, the number of users that k6 allocated.
    """
    constant_users: bool
    begun: int
    """Number of iterations that were completed or dropped."""
    seconds: float
    rate_rps: float
    """Mean number of iterations per second.

    In a closed load, only completed iterations are counted. In an open load, iterations that k6
    dropped are counted, too.
    """
    first_rps: float
    """Iterations that began per second in the first tenth of the load."""
    last_rps: float
    """Iterations that began per second in the last tenth of the load."""
    begins_s: float
    """Seconds from the start of the first iteration to the start of the last iteration."""
    dropped: int
    iteration_ms: float
    """Mean duration of an iteration."""
    think_ms: float
    """Mean time that an iteration spends outside its requests."""
    fastest_ms: float
    """Duration that the fastest 1 % of the requests did not exceed.

    NaN if there are fewer than 100 requests.
    """
    request_ms: float
    """Mean duration of a request."""
    whole_seconds: bool = False
    """True if all times in the file are whole seconds."""

    @property
    def is_ramp(self) -> bool:
        """True if the rate of an open load changed between its first and its last tenth.

        If k6 dropped iterations, the value is False.

        Even at a constant rate, the numbers of iterations that begin in the first and in the last
        tenth of a load may differ a little. One reason is that k6 may begin an iteration late, so
        that it counts in the next tenth. Another reason is that the end of a tenth may lie anywhere
        between two starts of iterations. Such a small difference does not count as a ramp.
        """
        if self.dropped:
            return False
        low_rps, high_rps = sorted((self.first_rps, self.last_rps))
        more_begins = (high_rps - low_rps) * self.begins_s / 10
        by_chance = 2 * (UNEVEN + LATE_S * high_rps)
        return high_rps > RAMPING * low_rps and more_begins > by_chance

    @property
    def shape(self) -> Shape:
        """The load as one of the lab's shapes.

        A closed load becomes a ForTime with a number of users and a duration. An open load becomes
        a Steps with one step of constant rate.
        """
        if self.model == "closed":
            return ForTime(self.users, float(max(1, round(self.seconds))))
        rate_rps = float(f"{self.rate_rps:.3g}")
        return Steps(self.users, rate_rps, rate_rps, 1, float(max(1, round(self.seconds))))

    def words(self) -> tuple[str, ...]:
        """Return sentences about the load.

        For a closed load with a constant number of users, a sentence also says how the number of
        users determined the response times.
        """
        think = f"Each iteration spends {short_number(self.think_ms)} ms outside of its requests"
        users = f"{self.users} user{'s' * (self.users != 1)}"
        if self.model == "open":
            ramp = f", from {setting_text(round(self.first_rps))}/s to {round(self.last_rps)}/s"
            rate = f"{short_number(self.rate_rps)} iterations/s{ramp if self.is_ramp else ''}"
            kept = f"{self.dropped:,} of {self.begun:,} iterations were dropped"
            said = f"Its samples show an open load: {rate} for {self.seconds:.0f} s"
            ended = kept if self.dropped else "no iteration was dropped"
            return (f"{said}, with up to {users}; {ended}. {think}.",)
        amount = users if self.constant_users else f"a changing number of users, up to {self.users}"
        said = f"Its samples show a closed load: {amount} for {self.seconds:.0f} s. {think}."
        return (said, *self._by_littles_law())

    def _by_littles_law(self) -> tuple[str, ...]:
        """Return a sentence about the response times of a closed load, by Little's law.

        The sentence first says how long an iteration takes: the number of users divided by the
        rate. It then says which share of the mean response time can at most be waiting behind
        requests of other users. This share is 1 - fastest_ms / request_ms, because the lab assumes
        that the fastest requests did not wait (FASTEST).

        Return no sentence if the number of users changed, if the rate is 0, or if `fastest_ms` is
        NaN.
        """
        if not self.constant_users or not self.rate_rps or math.isnan(self.fastest_ms):
            return ()
        made_ms = 1000 * self.users / self.rate_rps
        waiting_pct = 100 * max(0.0, 1 - self.fastest_ms / self.request_ms)
        return (
            "In a closed load the number of users determines how long an iteration takes "
            f"(Little's law): {self.users} / {short_number(self.rate_rps)} iterations/s = "
            f"{short_number(made_ms)} ms per iteration. The fastest 1 % of the requests "
            f"took up to {short_number(self.fastest_ms)} ms. Therefore at most "
            f"{waiting_pct:.0f} % of the mean response time of "
            f"{short_number(self.request_ms)} ms can be time that requests waited behind "
            "those of other users.",
        )


_ITERATIONS = """
    SELECT count(*) AS iterations, avg(length_ms) AS mean_ms,
           min(end_ns - (length_ms * 1e6)::BIGINT) AS first_ns,
           max(end_ns - (length_ms * 1e6)::BIGINT) AS last_ns,
           bool_and(end_ns % 1_000_000_000 = 0) AS whole_seconds
    FROM iterations
"""
_BEGINS = """
    SELECT (end_ns - (length_ms * 1e6)::BIGINT - $first_ns) // $window_ns AS place,
           count(*) AS begun
    FROM iterations GROUP BY place
"""
_USERS = """
    SELECT vus FROM users WHERE NOT allocated AND at_ns BETWEEN $first_ns AND $last_ns
"""
_ALLOCATED = "SELECT max(vus) FROM users WHERE allocated"
_IN_REQUESTS = """
    SELECT sum(occupied_ms), avg(duration_ms), count(*) FROM requests
"""


def see_load(database: duckdb.DuckDBPyConnection, points: RequestNumbers) -> LoadSeen | None:
    """Return the load that k6's samples show.

    The samples are in the views `iterations`, `users` and `requests` of `database`.

    Return None if no iteration was completed.
    """
    facts = database.sql(_ITERATIONS).to_arrow_table().to_pylist()[0]
    if not facts["iterations"]:
        return None
    first_ns = facts["first_ns"]
    last_ns = facts["last_ns"]
    seconds = max((points.last_end_ns - min(first_ns, points.first_start_ns)) / 1e9, 1e-9)
    begins_s = max((last_ns - first_ns) / 1e9, 1e-9)
    begun = facts["iterations"] + points.dropped_iterations
    is_even = _begins_evenly(database, facts, begins_s)
    span = {"first_ns": first_ns, "last_ns": last_ns}
    vus = [users for (users,) in database.sql(_USERS, params=span).fetchall()]
    ((allocated,),) = database.sql(_ALLOCATED).fetchall()
    in_flight = points.steady.in_flight if points.steady else 0.0
    most = int(max([*vus, round(in_flight), 1]))
    are_busy = in_flight >= BUSY * (allocated or most)
    dropped_before_ns = points.last_end_ns - ENDING * seconds * 1e9
    drops = points.dropped_iterations > 0 and points.first_drop_ns < dropped_before_ns
    few_are_busy = most < FEW_BUSY * (allocated or most)
    if facts["whole_seconds"]:  # times in whole seconds do not show how evenly iterations begin
        is_even = is_even or few_are_busy
    is_open = drops or (is_even and not are_busy)
    ((occupied_ms, request_ms, requests),) = database.sql(_IN_REQUESTS).fetchall()
    fastest_ms = math.nan
    if requests * FASTEST >= 1:
        # These times are sorted on disk already. SQL's own quantiles would need them in memory.
        fastest_ms = quantiles_of(database, SORTED_DURATIONS, {"fastest": FASTEST})["fastest"]
    first_rps, last_rps = _rates_at_the_ends(database, first_ns, begins_s)
    inner = vus[1:-1]
    return LoadSeen(
        model="open" if is_open else "closed",
        users=int(allocated or most) if is_open else most,
        constant_users=sum(users == most for users in inner) >= CONSTANT * len(inner),
        begun=begun,
        seconds=seconds,
        rate_rps=max(begun - 1, 1) / begins_s if is_open else facts["iterations"] / seconds,
        first_rps=first_rps,
        last_rps=last_rps,
        begins_s=begins_s,
        dropped=points.dropped_iterations,
        iteration_ms=facts["mean_ms"],
        think_ms=max(0.0, facts["mean_ms"] - (occupied_ms or 0.0) / facts["iterations"]),
        fastest_ms=fastest_ms,
        request_ms=request_ms or math.nan,
        whole_seconds=bool(facts["whole_seconds"]),
    )


def _begins_evenly(
    database: duckdb.DuckDBPyConnection, facts: dict[str, int], begins_s: float
) -> bool:
    """Return whether the iterations began at even intervals, as in an open load."""
    window_s = max(
        ARRIVALS * begins_s / facts["iterations"], LEAST_WINDOW_S, begins_s / MOST_WINDOWS
    )
    if facts["whole_seconds"]:
        window_s = math.ceil(window_s)
    begins = _begins(database, facts["first_ns"], window_s)[1:-1]
    if len(begins) < 5:
        return False
    expected = (begins[:-2] + begins[2:]) / 2
    allowed = np.maximum(UNEVEN, UNEVEN_SHARE * expected)
    return bool((np.abs(begins[1:-1] - expected) <= allowed).mean() >= EVEN)


def _begins(
    database: duckdb.DuckDBPyConnection, first_ns: int, window_s: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the number of iterations that began in each window of the load.

    The windows follow one another. Each window lasts `window_s` seconds, and the first window
    begins at `first_ns`.
    """
    given = {"first_ns": first_ns, "window_ns": max(1, round(window_s * 1e9))}
    found = database.sql(_BEGINS, params=given).fetchnumpy()
    return np.bincount(found["place"].astype(np.int64), found["begun"]).astype(np.float64)


def _rates_at_the_ends(
    database: duckdb.DuckDBPyConnection, first_ns: int, begins_s: float
) -> tuple[float, float]:
    """Return the iterations per second in the first and in the last tenth of the load."""
    tenths = _begins(database, first_ns, begins_s / 10 * (1 + 1e-9))
    return 10 * tenths[0] / begins_s, 10 * tenths[min(9, len(tenths) - 1)] / begins_s
