"""The shapes of a load, and the forms of a `[[load]]` from which the shapes are made.

A load has one of four shapes: `Closed`, `ForTime`, `Steps` or `Search`. All shapes have the same
methods, so that the callers of these methods need not distinguish the shapes. `runner/flat.py`
converts shapes to the columns of the tables, and back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

LoadModel = Literal["closed", "open"]
Mode = Literal["keepalive", "close"]
Idle = Literal["polling", "system"]
"""State of idle CPUs: kept awake (`polling`), or left to the operating system (`system`)."""


def _portion(whole: int, number: int, count: int) -> int:
    """Divide `whole` into `count` portions, and return portion `number`, from 1.

    If `whole` cannot be divided equally, each of the first portions is larger by 1.
    """
    return whole // count + (number <= whole % count)


def _begun(rates_rps: tuple[float, ...], step_s: float, lead_s: float) -> int:
    """Return the number of iterations that an open load begins, in its lead and at all rates.

    Each rate is held for `step_s` seconds. The lead is the time of `lead_s` seconds before the
    load, in which requests are already sent at the first rate, but do not count.
    """
    return round(sum(rates_rps) * step_s + rates_rps[0] * lead_s) if rates_rps else 0


@dataclass(frozen=True)
class ClosedLoad:
    """Base class of the two shapes of a closed load: `Closed` and `ForTime`.

    Each user begins an iteration as soon as the user's previous iteration has ended.
    """

    load_model: ClassVar[LoadModel] = "closed"
    rates_rps: ClassVar[tuple[float, ...]] = ()
    """Empty, because a closed load has no arrival rates."""
    last_rate_rps: ClassVar[float | None] = None
    offered_s: ClassVar[float] = 0.0
    size_name: ClassVar[str | None] = None
    """None, because a closed load's name contains the number of users instead."""

    users: int
    """Number of virtual users of k6, or of connections if the generator has no virtual users."""

    def to_begin(self, _lead_s: float) -> int:
        """Return 0, because a closed load does not plan when iterations begin."""
        return 0


@dataclass(frozen=True)
class Closed(ClosedLoad):
    """A closed load with a fixed number of iterations."""

    iterations: int
    """Number of iterations, in total over all users and all slices of a session."""

    def slice(self, number: int, count: int) -> Closed:
        """Return the load of slice `number` of `count`.

        If the iterations cannot be divided equally, each of the first slices gets one iteration
        more.
        """
        return replace(self, iterations=_portion(self.iterations, number, count))

    def part(self, number: int, count: int) -> Closed:
        """Return the part of the load that generator `number` of `count` sends."""
        users = _portion(self.users, number, count)
        return Closed(users, round(self.iterations * users / self.users))


@dataclass(frozen=True)
class ForTime(ClosedLoad):
    """A closed load with a fixed duration."""

    duration_s: float
    """Duration in seconds, in total over all slices of a session."""

    def slice(self, _number: int, count: int) -> ForTime:
        """Return the load of one of `count` slices; all slices are alike."""
        return replace(self, duration_s=self.duration_s / count)

    def part(self, number: int, count: int) -> ForTime:
        """Return the part of the load that generator `number` of `count` sends."""
        return replace(self, users=_portion(self.users, number, count))


@dataclass(frozen=True)
class Steps:
    """An open load whose arrival rate changes in even steps, each of which lasts `step_s`."""

    load_model: ClassVar[LoadModel] = "open"

    users: int | None
    """Highest number of users that may run; None until a warm-up shows how many are needed."""
    first_rate_rps: float
    rate_rps: float
    """Rate of the last step. If there is only one step, it is also the rate of the first step."""
    steps: int
    step_s: float
    """Seconds at each rate, in total over all slices of a session."""

    @property
    def rates_rps(self) -> tuple[float, ...]:
        """The arrival rates in order."""
        rise = (self.rate_rps - self.first_rate_rps) / max(1, self.steps - 1)
        return tuple(self.first_rate_rps + rise * step for step in range(self.steps))

    @property
    def last_rate_rps(self) -> float | None:
        """The arrival rate of the last step."""
        return self.rate_rps

    @property
    def offered_s(self) -> float:
        """Duration of the load in seconds, without its lead."""
        return self.steps * self.step_s

    def to_begin(self, lead_s: float) -> int:
        """Return the number of iterations that must begin, in the lead and at all rates."""
        return _begun(self.rates_rps, self.step_s, lead_s)

    @property
    def size_name(self) -> str | None:
        """The part of a load's name that contains the rates: `r100-400`, `r100`."""
        if self.steps > 1:
            return f"r{self.first_rate_rps:g}-{self.rate_rps:g}"
        return f"r{self.rate_rps:g}"

    def slice(self, _number: int, count: int) -> Steps:
        """Return the load of one of `count` slices; all slices are alike."""
        return replace(self, step_s=self.step_s / count)

    def part(self, number: int, count: int) -> Steps:
        """Return the part of the load that generator `number` of `count` sends."""
        return replace(
            self,
            users=None if self.users is None else _portion(self.users, number, count),
            first_rate_rps=self.first_rate_rps / count,
            rate_rps=self.rate_rps / count,
        )


@dataclass(frozen=True)
class Search:
    """An open load: one step of a search for the highest rate at which an objective is kept."""

    load_model: ClassVar[LoadModel] = "open"

    users: int | None
    """Highest number of users that may run; None until a warm-up shows how many are needed."""
    objective: str
    """Limit on the response times, such as `p99 <= 10 ms`."""
    low_rps: float
    """Lowest rate of the whole search. `high_rps` is its highest rate."""
    high_rps: float
    bisection: int
    """Number of the step within its search, from 1."""
    step_s: float
    rate_rps: float | None = None
    """Arrival rate of the step; None until the steps before it have ended."""

    @property
    def rates_rps(self) -> tuple[float, ...]:
        """The only arrival rate of the step; empty before the rate is known."""
        return () if self.rate_rps is None else (self.rate_rps,)

    @property
    def last_rate_rps(self) -> float | None:
        """The only arrival rate of the step; None before the rate is known."""
        return self.rate_rps

    @property
    def offered_s(self) -> float:
        """Duration of the step in seconds, without its lead. 0 before its rate is known."""
        return 0.0 if self.rate_rps is None else self.step_s

    def to_begin(self, lead_s: float) -> int:
        """Return the number of iterations that must begin, in the lead and in the step."""
        return _begun(self.rates_rps, self.step_s, lead_s)

    @property
    def size_name(self) -> str | None:
        """The part of a load's name that contains the objective and the step: `p99le10ms-s3`."""
        objective = self.objective.replace("<=", "le").replace(".", "_")
        return f"{re.sub(r'[^a-z0-9_]+', '', objective)}-s{self.bisection}"

    def slice(self, _number: int, count: int) -> Search:
        """Return the load of one of `count` slices; all slices are alike."""
        return replace(self, step_s=self.step_s / count)

    def part(self, number: int, count: int) -> Search:
        """Return the part of the load that generator `number` of `count` sends."""
        return replace(
            self,
            users=None if self.users is None else _portion(self.users, number, count),
            rate_rps=None if self.rate_rps is None else self.rate_rps / count,
        )


Shape = Closed | ForTime | Steps | Search
"""The shape of a load."""


@dataclass(frozen=True)
class Scale:
    """A factor for a load's iterations and durations, with lower limits for the results.

    `least_iterations` is the lowest scaled number of iterations, and `least_s` is the lowest scaled
    duration.
    """

    factor: float
    least_iterations: int
    least_s: float

    def iterations(self, count: int) -> int:
        """Return the scaled number of iterations, but not less than `least_iterations`."""
        return max(self.least_iterations, round(count * self.factor))

    def seconds(self, time_s: float) -> float:
        """Return the scaled time in seconds, but not less than `least_s`."""
        return max(self.least_s, time_s * self.factor)


@dataclass(frozen=True)
class Iterations:
    """A `[[load]]` with a fixed number of iterations.

    It makes a `Closed` for each number of users.
    """

    iterations: int
    slice_s: float | None = None
    """Length of a slice in seconds, as the campaign sets it for all of its sessions.

    A load with a fixed number of iterations ignores this length, because its slices end after their
    iterations. The field exists only so that the manifest contains the campaign's setting.
    """

    def shapes(self, users: int | None, _slices: int | None) -> list[Shape]:
        """Return the shapes that have the given number of users."""
        return [Closed(_needed(users), self.iterations)]

    def scaled(self, scale: Scale) -> Iterations:
        """Return the form with its number of iterations and its `slice_s` scaled by `scale`."""
        return Iterations(
            scale.iterations(self.iterations),
            None if self.slice_s is None else scale.seconds(self.slice_s),
        )


@dataclass(frozen=True)
class Duration:
    """A `[[load]]` with a fixed duration. It makes a `ForTime` for each number of users."""

    each_s: float
    """Duration of each slice, or of the whole load if the load has no slices."""

    def shapes(self, users: int | None, slices: int | None) -> list[Shape]:
        """Return the shapes that have the given number of users."""
        return [ForTime(_needed(users), _whole_s(self.each_s, slices))]

    def scaled(self, scale: Scale) -> Duration:
        """Return the form with its duration scaled by `scale`."""
        return Duration(scale.seconds(self.each_s))


LEAST_STEP_S = 0.2
"""A step of a ramp is at least this long, even in a scaled campaign."""


@dataclass(frozen=True)
class Ramp:
    """A `[[load]]` whose arrival rate rises in steps. Its only shape is a `Steps`."""

    from_rps: float
    to_rps: float
    steps: int
    step_s: float

    def shapes(self, users: int | None, _slices: int | None) -> list[Shape]:
        """Return the shapes that have the given number of users."""
        return [Steps(users, self.from_rps, self.to_rps, self.steps, self.step_s)]

    def scaled(self, scale: Scale) -> Ramp:
        """Return the form with the duration of its steps scaled, but not below LEAST_STEP_S."""
        return replace(self, step_s=max(LEAST_STEP_S, self.step_s * scale.factor))


@dataclass(frozen=True)
class Sweep:
    """A `[[load]]` with several arrival rates. It makes a `Steps` with a single step per rate."""

    rates_rps: tuple[float, ...]
    each_s: float
    """Duration of each slice or, if the load has no slices, duration at each rate."""

    def shapes(self, users: int | None, slices: int | None) -> list[Shape]:
        """Return the shapes that have the given number of users."""
        step_s = _whole_s(self.each_s, slices)
        return [Steps(users, rate_rps, rate_rps, 1, step_s) for rate_rps in self.rates_rps]

    def scaled(self, scale: Scale) -> Sweep:
        """Return the form with its duration scaled by `scale`."""
        return replace(self, each_s=scale.seconds(self.each_s))


@dataclass(frozen=True)
class SweepOfCapacity:
    """A `[[load]]` whose arrival rates are percentages of the slowest server's capacity.

    A run must measure this capacity first. `sweep` then returns the `Sweep` with rates in
    requests/s.
    """

    rates_pct: tuple[float, ...]
    each_s: float
    """Duration of each slice or, if the load has no slices, duration at each rate."""

    def shapes(self, _users: int | None, _slices: int | None) -> list[Shape]:
        """Return no shapes, because the rates are unknown until a run has measured the capacity."""
        return []

    def scaled(self, scale: Scale) -> SweepOfCapacity:
        """Return the form with its duration scaled by `scale`."""
        return replace(self, each_s=scale.seconds(self.each_s))

    def sweep(self, capacity_rps: float) -> Sweep:
        """Return the sweep for a known capacity, with rates rounded to two significant digits."""
        rates = (float(f"{capacity_rps * share_pct / 100:.2g}") for share_pct in self.rates_pct)
        return Sweep(tuple(rates), self.each_s)


@dataclass(frozen=True)
class Bisections:
    """A `[[load]]` that searches for the highest rate at which an objective is kept.

    It makes a `Search` for each step of the search.
    """

    objective: str
    from_rps: float
    to_rps: float
    bisections: int
    duration_s: float
    """Duration of each step."""

    def shapes(self, users: int | None, slices: int | None) -> list[Shape]:
        """Return the shapes that have the given number of users."""
        step_s = _whole_s(self.duration_s, slices)
        return [
            Search(users, self.objective, self.from_rps, self.to_rps, bisection, step_s)
            for bisection in range(1, self.bisections + 1)
        ]

    def scaled(self, scale: Scale) -> Bisections:
        """Return the form with the duration of its steps scaled by `scale`."""
        return replace(self, duration_s=scale.seconds(self.duration_s))


Form = Iterations | Duration | Ramp | Sweep | SweepOfCapacity | Bisections
"""The form of a `[[load]]`, from which its shapes are made."""


def _needed(users: int | None) -> int:
    """Return `users`; raise ValueError if it is None, because a closed load needs a number."""
    if users is None:
        raise ValueError("a closed load needs users")
    return users


def _whole_s(each_s: float, slices: int | None) -> float:
    """Return the duration of a load, summed over all slices of a session."""
    return each_s if slices is None else slices * each_s
