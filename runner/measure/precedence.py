"""Run ahead of the generator: an instrument that waits for a CPU measures the wait."""

from __future__ import annotations

import contextlib
import os


def take_precedence() -> None:
    """Take real-time priority, or a better nice value, where either is permitted.

    The lab's instruments share the generator's CPUs and need a fraction of a millisecond at a time; late, they blur a
    peak or blame the server for the generator's queue.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        with contextlib.suppress(PermissionError):
            os.nice(-10)
