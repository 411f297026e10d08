"""Functions that return the measurement and the record of a short trial without a load.

Tests change some fields of these objects, and check what the lab concludes from them.
"""

from typing import Any

from runner.measurement import Counters, Measurement, Placement


def measured(**changes: Any) -> Measurement:
    """Return the measurement of a trial, with `changes` in some of its fields.

    Server and generator are processes with one CPU each.
    """
    times = (
        "load_started_wall_ns",
        "load_started_mono_ns",
        "load_ended_wall_ns",
        "load_ended_mono_ns",
    )
    fields = {
        **dict.fromkeys(times, 0),
        "generator_exit": 0,
        "engine": "process",
        "placement": Placement((0,), (1,)),
        "port": 1,
        "argv": (),
        "generator_env": (),
        "counters_before": Counters(0, 1, 2),
        "counters_after": Counters(0, 1, 2),
        "sample_hz": 20.0,
        "server_exit": 0,
    }
    return Measurement(**{**fields, **changes})


def record_of(trial_id: str, **changes: Any) -> dict[str, Any]:
    """Return the record of a sealed trial, with `changes` in some of its values."""
    cell = {"server": "fake", "workload": "static"}
    empty = {"cell": cell, "metrics": {}, "raw": {}}
    known = {
        "trial_id": trial_id,
        "order": 1,
        "block": 1,
        "attempt": 1,
        "status": "sealed",
        "error": None,
    }
    return {**known, **empty, "disturbed": False, **changes}
