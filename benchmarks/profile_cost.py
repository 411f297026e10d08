"""Print the cost of a run's profiles: how much perf slows the servers, and how long sessions take.

Run: python benchmarks/profile_cost.py RUN_FOLDER. `make bench-profile` runs the campaign
`quick`, and then this program on the new run.

In the slices of a session, perf samples call stacks (recorded slices), counts events (counted
slices), or does not run (plain slices). For each session, the program prints the duration in
seconds, and for how many of these seconds the servers were loaded. For recorded slices and for
counted slices, it also prints the ratio of their rate to the rate of the plain slices: the
geometric mean over the servers, the lowest ratio, and the highest ratio.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from runner.profiled import TIMELINE, Kind, kind_of, load_of
from runner.store import SLICES, RunFolder


@dataclass(frozen=True)
class Beside:
    """The rate of a session's recorded or counted slices, divided by that of its plain slices."""

    mean: float
    """Geometric mean over the servers."""
    lowest: float
    highest: float


def beside(slices: pd.DataFrame, kind: Kind) -> Beside:
    """Return the rate of the slices of a kind, relative to the plain slices of the same server.

    `slices` is the table of one session's slices, with the columns `trial_id`, `session`, `place`
    and `rps`. If a server has several slices of a kind, the geometric mean of their rates is used.
    """
    kinds = [kind_of(*each) for each in zip(slices["session"], slices["place"], strict=True)]
    logs = np.log(slices["rps"]).groupby([slices["trial_id"], pd.Series(kinds, slices.index)])
    by_kind = logs.mean().unstack()
    ratios = np.exp(by_kind[kind] - by_kind["plain"])
    mean = float(np.exp(np.log(ratios).mean()))
    return Beside(mean, float(ratios.min()), float(ratios.max()))


def seconds(records: Sequence[Mapping[str, Any]]) -> float:
    """Return the duration of a session in seconds.

    The session begins with the start of its first trial, and ends with the end of its last trial.
    """
    begun = min(datetime.fromisoformat(each["started_at"]) for each in records)
    ended = max(datetime.fromisoformat(each["ended_at"]) for each in records)
    return (ended - begun).total_seconds()


def report(run: RunFolder) -> Iterator[str]:
    """Yield a line for each session of a run's profiles."""
    folder = run.profiles
    table = pd.read_parquet(folder.table(SLICES))
    records = [each for each in folder.records() if each["status"] == "sealed"]
    for name, slices in table[table["kept"]].groupby("session"):
        session = str(name)
        took_s = seconds([each for each in records if each.get("session") == session])
        load_s = slices["duration_s"].sum()
        count = slices["trial_id"].nunique()
        words = f"servers: {count}, {took_s:.0f} s, of which {load_s:.0f} s under load"
        if session.startswith(TIMELINE):
            yield f"{load_of(session)}, in one piece: {words}"
            continue
        yield f"{load_of(session)}: {words}"
        for kind in ("recorded", "counted"):
            found = beside(slices, kind)
            yield (
                f"  rate of {kind} slices: {found.mean:.3f} of plain ones "
                f"({found.lowest:.3f} to {found.highest:.3f})"
            )


def main() -> None:
    """Print the cost of the profiles of a run; the command line names the folder of the run."""
    parser = argparse.ArgumentParser(description="What the profile pass of a run costs.")
    parser.add_argument("run", type=Path, help="folder of a run with profiles")
    for line in report(RunFolder(parser.parse_args().run)):
        print(line)  # noqa: T201 - this program prints its result


if __name__ == "__main__":
    main()
