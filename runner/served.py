"""What a server did in a load: the one definition of its throughput. Imports nothing of ours."""

from collections.abc import Mapping
from typing import Any


def success_rps(requests: Any, failed: Any, duration_s: Any) -> Any:
    """Return how many of the generator's requests were answered with success in each second of a
    load.

    Numbers, or columns of numbers.
    """
    return (requests - failed) / duration_s


def served_rps(
    requests: Any, failed: Any, probe_requests: Any, probe_failed: Any, duration_s: Any
) -> Any:
    """Return how many requests a server answered with success in each second of a load.

    The probe's requests are load like the generator's: a server that answers 50 requests a second,
    10 of them the probe's, can do 50. `requests` and `failed` are the generator's. Numbers, or
    columns of numbers.
    """
    of_generator = success_rps(requests, failed, duration_s)
    of_probe = success_rps(probe_requests, probe_failed, duration_s)
    return of_generator + of_probe


def served_rps_of(metrics: Mapping[str, Any]) -> float | None:
    """Return the same of one trial's metrics by the columns of trials.parquet.

    None for a load without a length.
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
    """Return the rate that a load is shown with: of a closed one what the server did.

    An open load asked for a rate: it is shown with what the generator had answered of it.
    """
    if not is_open:
        return served_rps_of(metrics)
    duration_s = float(metrics["duration_s"])
    return (
        float(success_rps(metrics["requests"], metrics["failed"], duration_s))
        if duration_s
        else None
    )
