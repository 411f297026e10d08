"""Stored files of real k6, read by other code than the lab's: json and NumPy."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

SAMPLES = Path(__file__).parent / "samples"
CLOSED = SAMPLES / "k6-v1-closed.json.gz"
"""4 users for 3 s, each iteration a GET of another URL, a POST named `buy`, and 40 ms of sleep."""
CSV = SAMPLES / "k6-v1-closed.csv.gz"
"""The same load, by `--out csv`: times are whole seconds."""
OPEN = SAMPLES / "k6-v2-open.json.gz"
"""50 iterations/s for 4 s."""
DROPPING = SAMPLES / "k6-v1-dropping.json.gz"
"""60 iterations/s for 3 s with one user, who is too slow."""
SUMMARY = SAMPLES / "k6-v1-closed.summary.json"
OWN = SAMPLES / "k6-v1-own.json.gz"
"""4 users, 400 iterations without an HTTP request: own metrics, and WebSockets that fail."""
OWN_SUMMARY = SAMPLES / "k6-v1-own.summary.json"


def points(path: Path, metric: str) -> list[dict[str, Any]]:
    """Return the points of a metric: time, value and tags."""
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
