"""The content of a wrk.json, which the lab's script for wrk writes."""

WRK_RESULT = {
    **{"ended_wall_us": 1_795_222_591_000_000, "duration_us": 1_000_000, "bytes": 1},
    **{"requests": 30, "connections": 10, "threads": 1, "latency_us": [[100, 10], [120, 20]]},
    "errors": dict.fromkeys(("connect", "read", "write", "status", "timeout"), 0),
}
