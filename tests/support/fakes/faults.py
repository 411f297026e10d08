"""What is asked of a fake lab's stand-ins, which fail or wait to be hit.

Copied beside its tools.
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
    """The trial that runs now, by the journal."""
    journals = TOOLS.parent.glob("data/runs/*/journal.jsonl")
    begun = [
        line for path in journals for line in path.read_text().splitlines() if '"running"' in line
    ]
    return json.loads(begun[-1])["trial_id"] if begun else ""


def asked() -> str:
    """The fault of the trial that runs now, by the file's lines: `FAULT bNN`, or `FAULT` for every
    trial.
    """
    lines = ASKED.read_text().splitlines() if ASKED.exists() else []
    pairs = [line.partition(" ")[::2] for line in lines]
    return next((fault for fault, block in pairs if running().startswith(block)), "")


def pause(state: str, most_s: float = 30.0) -> None:
    """Where the fault is `pause-STATE`, copy the file to `paused` and wait until it asks for
    something else.

    It happens once, as a trial that the machine disturbed is repeated.
    """
    file = ASKED.read_text() if ASKED.exists() else ""
    if asked() != f"pause-{state}" or (PAUSED.exists() and PAUSED.read_text() == file):
        return
    if host := os.environ.get("WRK_JSON") and sys.argv[-1]:
        PAUSED.with_suffix(".url").write_text(
            host.split(":")[2].split("/")[0]
        )  # which server's load it is
    PAUSED.write_text(file)
    deadline = time.monotonic() + most_s
    while ASKED.read_text() == file and time.monotonic() < deadline:
        time.sleep(0.01)
