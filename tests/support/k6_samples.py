"""Stored files of real k6, and functions that read them without the lab's code."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

SAMPLES = Path(__file__).parent / "samples"
CLOSED = SAMPLES / "k6-v1-closed.json.gz"
"""A closed load of 4 users for 3 s.

Each iteration is a GET of a different URL, a POST with the name `buy`, and 40 ms of sleep.
"""
CSV = SAMPLES / "k6-v1-closed.csv.gz"
"""The file that `--out csv` wrote for the same load as CLOSED. Its times are in whole seconds."""
OPEN = SAMPLES / "k6-v2-open.json.gz"
"""An open load of 50 iterations/s for 4 s."""
DROPPING = SAMPLES / "k6-v1-dropping.json.gz"
"""An open load of 60 iterations/s for 3 s. It drops iterations, because its only user is too slow.
"""
SUMMARY = SAMPLES / "k6-v1-closed.summary.json"
OWN = SAMPLES / "k6-v1-own.json.gz"
"""A closed load of 4 users with 400 iterations.

The iterations have custom metrics and failing WebSockets, but no HTTP requests.
"""
OWN_SUMMARY = SAMPLES / "k6-v1-own.summary.json"


def points(path: Path, metric: str) -> list[dict[str, Any]]:
    """Return the data points of a metric, each with its time, value and tags."""
    with gzip.open(path, "rt") as lines:
        records = [json.loads(line) for line in lines]
    return [
        each["data"] for each in records if each["type"] == "Point" and each["metric"] == metric
    ]


def percentile(path: Path, percent: float, **tags: str) -> float:
    """Return a percentile of http_req_duration, in ms, of the requests with these tags."""
    chosen = [
        each["value"]
        for each in points(path, "http_req_duration")
        if all(each["tags"].get(name) == value for name, value in tags.items())
    ]
    return float(np.percentile(chosen, percent))
