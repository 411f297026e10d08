"""What is held against a load on an API of the user's own, beside the invariants of every k6 load."""

from __future__ import annotations

from runner.digest.k6 import K6Points
from runner.measurement import Measurement
from runner.model import OWN, OWN_SCRIPT, Cell, Check

THROWN = "lab_iterations_thrown"
"""Metric of workloads/own.js: iterations of a script that ended with an error of its own."""


def own_checks(cell: Cell, points: K6Points, measurement: Measurement) -> tuple[Check, ...]:
    """Hold a load on the user's API to its fence, its script and its mode; nothing where it is none."""
    if cell.workload not in OWN:
        return ()
    checks = [
        Check(
            "every request went to the server",
            points.blocked == 0,
            f"{points.blocked} of {points.requests} were for another host, and blocked",
        )
    ]
    if cell.workload == OWN_SCRIPT:
        thrown = points.points.get(THROWN, 0)
        checks.append(
            Check(
                "every iteration of the script ran to its end",
                thrown == 0,
                f"{thrown} of {points.iterations} threw an error, which generator.log has",
            )
        )
    if measurement.counters_before.requests is None:
        said = "not checked: the server does not tell what it counted"
        checks.append(Check("5 requests that the server counted = requests sent", True, said))
    return (*checks, *_closed(cell, points, measurement))


def _closed(cell: Cell, points: K6Points, measurement: Measurement) -> tuple[Check, ...]:
    """In close mode each answer had a connection of its own.

    Only the kernel counts them, of the whole network namespace: a server may itself accept others, from its database
    perhaps, so that there is no upper limit. A server on another host is not in the count.
    """
    before, after = measurement.counters_before.passive_opens, measurement.counters_after.passive_opens
    if cell.mode != "close" or before is None or after is None or not measurement.placement.server:
        return ()
    accepted = after - before
    return (
        Check(
            "7 close mode proven by accepted connections",
            accepted >= points.with_status,
            f"the kernel accepted {accepted}, for {points.with_status} answers",
        ),
    )
