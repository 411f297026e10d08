"""Read the load that the options of a user's k6 script define, from the output of `k6 inspect`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.model import LabError
from runner.shapes import Duration, Form, Iterations, Sweep

MOST_USERS = 10_000
MOST_ITERATIONS = 1_000_000
MOST_S = 3600.0
"""MOST_USERS, MOST_ITERATIONS and MOST_S (seconds) limit the load that a user's script defines.

The options of `bench run` have the same limits.
"""
SET_UP_S = 60.0
"""k6's default time limit of setup(). The default time limit of teardown() is the same."""
BY_COUNT = ("shared-iterations", "per-vu-iterations")
BY_USERS = ("constant-vus", "ramping-vus")
BY_RATE = ("constant-arrival-rate", "ramping-arrival-rate")
_PARTS = re.compile(r"([0-9.]+)(ms|us|µs|ns|h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


@dataclass(frozen=True)
class Written:
    """The load that a script's own options define."""

    form: Form
    users: int
    """Highest number of virtual users."""
    longest_s: float
    """The load takes at most this many seconds.

    The value includes the time limits of setup() and teardown(), and the time that k6 allows for
    the last iterations.
    """
    words: str
    """The script's scenarios in words."""
    functions: tuple[str, ...]
    """Names of the functions that scenarios run, other than the default function."""


def seconds_of(text: object, default_s: float = 0.0) -> float:
    """Return a duration in seconds.

    `text` is a duration as Go writes it (`1m30.5s`), or a number of milliseconds. If `text` is
    None, return `default_s`.
    """
    if text is None:
        return default_s
    if isinstance(text, int | float):
        return text / 1000
    return sum(float(amount) * _SECONDS[unit] for amount, unit in _PARTS.findall(str(text)))


def read_written(path: Path, inspected: Mapping[str, Any]) -> Written:
    """Return the load that `k6 inspect --execution-requirements` reports.

    Raise LabError if the lab cannot run this load, or if the load exceeds MOST_USERS,
    MOST_ITERATIONS or MOST_S.
    """
    scenarios: Mapping[str, Mapping[str, Any]] = inspected["scenarios"] or {}
    users = int(inspected["maxVUs"])
    longest_s = seconds_of(inspected["totalDuration"])
    for name, scenario in scenarios.items():
        executor = scenario["executor"]
        if executor not in (*BY_COUNT, *BY_USERS, *BY_RATE):
            raise LabError(
                f"Scenario {name} of {path} has the executor {executor}, which the lab does "
                "not support: give the scenario another executor."
            )
    loads = [_Load.of(scenario, users) for scenario in scenarios.values()]
    iterations = sum(load.iterations for load in loads)
    for what, asked, most in (
        ("virtual users", users, MOST_USERS),
        ("seconds", longest_s, MOST_S),
        ("iterations", iterations, MOST_ITERATIONS),
    ):
        if asked > most:
            raise LabError(
                f"The options of {path} ask for {asked:,.0f} {what}, but the lab allows at "
                f"most {most:,.0f}: reduce this number in the options."
            )
    form: Form = Duration(max([1.0, *(load.end_s for load in loads)]))
    if len(loads) == 1:
        form = loads[0].form
        users = loads[0].users
    functions = dict.fromkeys(str(each["exec"]) for each in scenarios.values() if each["exec"])
    return Written(
        form=form,
        users=max(1, users),
        longest_s=longest_s
        + seconds_of(inspected.get("setupTimeout"), SET_UP_S)
        + seconds_of(inspected.get("teardownTimeout"), SET_UP_S),
        words=", ".join(f"{name} ({each['executor']})" for name, each in scenarios.items()),
        functions=tuple(name for name in functions if _NAME.fullmatch(name) and name != "default"),
    )


@dataclass(frozen=True)
class _Load:
    """The load that one scenario of a script defines."""

    form: Form
    users: int
    end_s: float
    """Latest end of the scenario, in seconds since the beginning of the load.

    The time that k6 allows for the last iterations is not included.
    """
    iterations: float
    """Number of iterations of the scenario.

    0 if the scenario's users repeat iterations for a given time, because the number is then
    unknown.
    """

    @classmethod
    def of(cls, scenario: Mapping[str, Any], most_users: int) -> "_Load":
        """Return the load of a scenario; an open load gets `most_users` as its number of users."""
        executor = scenario["executor"]
        stages = scenario.get("stages") or ()
        lasts_s = seconds_of(scenario.get("duration"))
        lasts_s += sum(seconds_of(stage["duration"]) for stage in stages)
        end_s = seconds_of(scenario.get("startTime")) + lasts_s
        users = int(scenario.get("vus") or 1)
        if executor in BY_COUNT:
            each = users if executor == "per-vu-iterations" else 1
            iterations = each * int(scenario.get("iterations") or 1)
            end_s += seconds_of(scenario.get("maxDuration"), 600.0)
            return cls(Iterations(iterations), users, end_s, iterations)
        if executor in BY_USERS:
            targets = [int(stage["target"]) for stage in stages]
            users = max([*targets, int(scenario.get("startVUs") or 1), users])
            return cls(Duration(max(1.0, lasts_s)), users, end_s, 0.0)
        begun = _begun(scenario, lasts_s) / seconds_of(scenario.get("timeUnit"), 1.0)
        rate_rps = float(f"{begun / max(lasts_s, 1e-3):.3g}")
        return cls(Sweep((max(rate_rps, 0.1),), max(1.0, lasts_s)), most_users, end_s, begun)


def _begun(scenario: Mapping[str, Any], lasts_s: float) -> float:
    """Multiply each stage's mean rate by the stage's duration in seconds, and return the sum.

    The rate changes linearly within a stage, so the mean rate is the mean of the stage's first and
    last rate. k6 gives the rates per `timeUnit` of the scenario, not per second. So the caller
    divides the sum by `timeUnit` in seconds, which gives the number of arrivals.
    """
    if scenario["executor"] == "constant-arrival-rate":
        return float(scenario["rate"]) * lasts_s
    rate = float(scenario.get("startRate") or 0)
    begun = 0.0
    for stage in scenario.get("stages") or ():
        target = float(stage["target"])
        begun += (rate + target) / 2 * seconds_of(stage["duration"])
        rate = target
    return begun
