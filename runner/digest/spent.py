"""Compute the resources that a server used per request, and the server's footprint."""

from collections.abc import Sequence
from dataclasses import asdict

from runner.measurement import Footprint, Measurement


def spent_per_request(loads: Sequence[Measurement], requests: int) -> dict[str, float | None]:
    """Return resources that the server used per request, by column of trials.parquet.

    These are CPU time in user mode and in system mode, context switches and page faults. The result
    is empty if the resources are unknown for any of the loads, or if there were no requests.
    """
    known = [asdict(each.spent) for each in loads if each.spent is not None]
    if len(known) < len(loads) or not requests:
        return {}
    total = {name: sum(each[name] for each in known) / requests for name in known[0]}
    return {
        "server_user_ms_per_request": total["user_ns"] / 1e6,
        "server_system_ms_per_request": total["system_ns"] / 1e6,
        "server_voluntary_switches_per_request": total["voluntary_switches"],
        "server_involuntary_switches_per_request": total["involuntary_switches"],
        "server_page_faults_per_request": total["page_faults"],
    }


def footprint(measurement: Measurement) -> dict[str, float | int | None]:
    """Return the server's footprint, by column of trials.parquet.

    The footprint is the start-up time, the memory before and after all loads, and the sizes of the
    binary and the image. The result is empty if the footprint was not measured.
    """
    known = measurement.footprint
    if known is None:
        return {}
    return {
        "server_start_ms": None if known.start_ns is None else known.start_ns / 1e6,
        **{
            f"server_{name}": getattr(known, name)
            for name in Footprint.__dataclass_fields__
            if name.endswith("_bytes")
        },
    }
