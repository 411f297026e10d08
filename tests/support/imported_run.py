"""A run that was imported from a file of k6, with endpoints, failures and users."""

import functools
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import built
import pandas as pd
import pytest
from k6_files import go_time
from k6_samples import CLOSED

from runner.importing.run import Given, import_files

TIMES = 8
"""How often the load that is stored in `CLOSED` (k6_samples.py) is repeated.

It is repeated so that each endpoint has enough requests for percentiles.
"""
EVERY_S = 4
compact = functools.partial(json.dumps, separators=(",", ":"))
"""Function that writes JSON without spaces, as k6 does."""


def build(folder: Path) -> Path:
    """Make a lab in `folder`, and import a file with the stored load, repeated TIMES times.

    Return the folder of the imported run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.json"
    path.write_text("".join(f"{line}\n" for line in _lines()))
    return run_of(folder, Given(path, "v1.4"))


def run_of(folder: Path, *given: Given) -> Path:
    """Make a lab in the existing `folder`, and import files into it; return the run's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_ROOT", str(built.bare_lab(folder)))
        return import_files(given).path


def _lines() -> Iterator[str]:
    """Yield the lines of the stored load, with its points repeated `TIMES` times.

    In each repetition, a point's time is `EVERY_S` seconds later than in the repetition before.
    Lines that are not points are yielded only once.
    """
    with gzip.open(CLOSED, "rt") as file:
        records = [json.loads(line) for line in file]
    for number in range(TIMES):
        for record in records:
            if record["type"] == "Point":
                data = record["data"]
                ns = pd.Timestamp(data["time"]).value + number * EVERY_S * 10**9
                yield compact(record | {"data": data | {"time": go_time(ns)}})
            elif number == 0:
                yield compact(record)
