"""Stops a stand-in where a test wants to hit it; copied beside the tools of a fake lab."""

import json
import os
import sys
import time
from pathlib import Path


def pause(root: Path, fault: str, state: str, most_s: float = 30.0) -> None:
    """Wait for the file `go`, if the fault is `pause-STATE bNN` and a trial of that block runs; tell by `paused`.

    It happens once, as a trial that the machine disturbed is repeated.
    """
    word, _, block = fault.partition(" ")
    tools = root / ".tools"
    if word != f"pause-{state}" or not running(root).startswith(block) or (tools / "paused").exists():
        return
    if host := os.environ.get("WRK_JSON") and sys.argv[-1]:
        (tools / "paused.url").write_text(host.split(":")[2].split("/")[0])  # which server's load it is
    (tools / "paused").touch()
    deadline = time.monotonic() + most_s
    while not (tools / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def running(root: Path) -> str:
    """The trial that runs now, by the journal."""
    lines = [line for path in root.glob("data/runs/*/journal.jsonl") for line in path.read_text().splitlines()]
    begun = [json.loads(line)["trial_id"] for line in lines if '"running"' in line]
    return begun[-1] if begun else ""
