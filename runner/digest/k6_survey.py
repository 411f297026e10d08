"""Sums and extremes over all requests of a k6 load, in one pass over their spool."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runner.digest.k6_latency import occupied_ms
from runner.digest.spool import Spool

BLOCKED = (1110, 1111)
"""error_code of k6 for an address or a host's name that its options block (lib/netext/httpext/error_codes.go)."""


@dataclass(frozen=True)
class Facts:
    """Sums and extremes over all requests of a load; `*_ms` without more are of http_req_duration."""

    first_start_ns: int
    last_end_ns: int
    failed: int
    with_status: int
    sum_ms: float
    min_ms: float
    max_ms: float
    worst_residual_ms: float
    blocked: int
    opened: int
    connected: int
    """Requests that opened a connection, or were answered on one."""
    occupied_sum_ms: float
    occupied_max_ms: float


def is_ok(rows: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Return which requests were answered with 200 to 399 and no error_code."""
    status = rows["status"]
    return np.asarray((status >= 200) & (status < 400) & (rows["error_code"] == 0), dtype=np.bool_)


def survey(spool: Path) -> Facts:
    """Return sums and extremes over all requests in one pass."""
    parts = []
    for rows in Spool(spool):
        duration = rows["duration_ms"]
        residual = rows["sending_ms"] + rows["waiting_ms"] + rows["receiving_ms"] - duration
        whole_ms, opened = occupied_ms(rows), rows["connecting_ms"] > 0
        starts = rows["end_ns"] - np.round(whole_ms * 1e6).astype(np.int64)
        parts.append(
            Facts(
                first_start_ns=int(starts.min()),
                last_end_ns=int(rows["end_ns"].max()),
                failed=int((~is_ok(rows)).sum()),
                with_status=int((rows["status"] != 0).sum()),
                sum_ms=math.fsum(duration),
                min_ms=float(duration.min()),
                max_ms=float(duration.max()),
                worst_residual_ms=float(np.abs(residual).max()),
                blocked=int(np.isin(rows["error_code"], BLOCKED).sum()),
                opened=int(opened.sum()),
                connected=int((opened | (rows["status"] != 0)).sum()),
                occupied_sum_ms=math.fsum(whole_ms),
                occupied_max_ms=float(whole_ms.max()),
            )
        )
    return Facts(
        first_start_ns=min(part.first_start_ns for part in parts),
        last_end_ns=max(part.last_end_ns for part in parts),
        failed=sum(part.failed for part in parts),
        with_status=sum(part.with_status for part in parts),
        sum_ms=math.fsum(part.sum_ms for part in parts),
        min_ms=min(part.min_ms for part in parts),
        max_ms=max(part.max_ms for part in parts),
        worst_residual_ms=max(part.worst_residual_ms for part in parts),
        blocked=sum(part.blocked for part in parts),
        opened=sum(part.opened for part in parts),
        connected=sum(part.connected for part in parts),
        occupied_sum_ms=math.fsum(part.occupied_sum_ms for part in parts),
        occupied_max_ms=max(part.occupied_max_ms for part in parts),
    )
