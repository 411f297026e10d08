"""The definition of a server's throughput. This module imports nothing from this project."""

from collections.abc import Mapping
from typing import Any


def success_rps(requests: Any, failed: Any, duration_s: Any) -> Any:
    """Return the rate of the generator's successful requests, per second.

    The arguments are numbers, or columns of numbers.
    """
    return (requests - failed) / duration_s


def served_rps(
    requests: Any, failed: Any, probe_requests: Any, probe_failed: Any, duration_s: Any
) -> Any:
    """Return the rate of all requests that a server answered with success, per second.

    The rate includes the probe's requests. For example, if a server answers 40 requests of the
    generator and 10 requests of the probe per second, its throughput is 50 requests/s.
    `requests` and `failed` count the generator's requests. The arguments are numbers, or columns of
    numbers.
    """
    of_generator = success_rps(requests, failed, duration_s)
    of_probe = success_rps(probe_requests, probe_failed, duration_s)
    return of_generator + of_probe


def served_rps_of(metrics: Mapping[str, Any]) -> float | None:
    """Return `served_rps` for the metrics of a trial, or None if the load's duration is 0.

    `metrics` contains values by the columns of trials.parquet.
    """
    duration_s = float(metrics["duration_s"])
    if duration_s == 0:
        return None
    probe_requests = metrics.get("probe_requests") or 0
    probe_failed = metrics.get("probe_failed") or 0
    return float(
        served_rps(metrics["requests"], metrics["failed"], probe_requests, probe_failed, duration_s)
    )


def throughput_rps(metrics: Mapping[str, Any], *, is_open: bool) -> float | None:
    """Return the rate that is shown for a load, or None if the load's duration is 0.

    For a closed load, return the server's throughput, which includes the probe's requests. For an
    open load, return the rate of the generator's successful requests alone, because this rate is
    compared with the rate that the generator offered.
    """
    if not is_open:
        return served_rps_of(metrics)
    duration_s = float(metrics["duration_s"])
    return (
        float(success_rps(metrics["requests"], metrics["failed"], duration_s))
        if duration_s
        else None
    )
