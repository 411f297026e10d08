"""Read which fault a test has chosen for the programs of a fake lab.

A fault makes a program fail, give wrong results, or wait until the test changes the fault. This
module is copied into the folder of the fake lab's tools.
"""

import json
import os
import sys
import time
from pathlib import Path

TOOLS = Path(__file__).parents[1]
ASKED = TOOLS / "fault"
PAUSED = TOOLS / "paused"


def running() -> str:
    """Return the id of the trial that began last, or an empty text if no trial has begun."""
    journals = TOOLS.parent.glob("data/runs/*/journal.jsonl")
    begun = [
        line for path in journals for line in path.read_text().splitlines() if '"running"' in line
    ]
    return json.loads(begun[-1])["trial_id"] if begun else ""


def asked() -> str:
    """Return the fault of the trial that runs now, or an empty text if it has no fault.

    In the file `fault`, a line `FAULT bNN` holds for the trials of block NN, and a line `FAULT`
    holds for every trial.
    """
    lines = ASKED.read_text().splitlines() if ASKED.exists() else []
    pairs = [line.partition(" ")[::2] for line in lines]
    return next((fault for fault, block in pairs if running().startswith(block)), "")


def pause(state: str, most_s: float = 30.0) -> None:
    """Wait, if the fault is `pause-STATE`, until a test changes the fault or `most_s` have passed.

    Before the wait, copy the file `fault` to the file `paused`, which tells the test that this
    program waits. If the copy exists already, return at once: a program has waited in an earlier
    attempt at this trial, and the lab repeats the trial because that attempt was disturbed.
    """
    file = ASKED.read_text() if ASKED.exists() else ""
    if asked() != f"pause-{state}" or (PAUSED.exists() and PAUSED.read_text() == file):
        return
    if host := os.environ.get("WRK_JSON") and sys.argv[-1]:
        PAUSED.with_suffix(".url").write_text(
            host.split(":")[2].split("/")[0]
        )  # the port of the server that is loaded
    PAUSED.write_text(file)
    deadline = time.monotonic() + most_s
    while ASKED.read_text() == file and time.monotonic() < deadline:
        time.sleep(0.01)
