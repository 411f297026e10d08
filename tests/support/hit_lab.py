"""A lab whose campaign is hit while it runs, and what is to be seen of it afterwards."""

import contextlib
import json
from pathlib import Path
from typing import Any

import fake_lab
import psutil
import real_lab
from fake_lab import records, wait_for

from runner.store import sha256

CAMPAIGN = fake_lab.campaign_of(
    real_lab.load("wrk-matrix", connections=[4], modes=["keepalive"], duration_s=0.3, warmup_s=1)
)
CELL = "fake-wrk-matrix-c4-keepalive"
PAUSED = ("start", "warm-up", "load")
STATES = (*PAUSED, "digest", "between")
"""What a trial is doing when it is hit; `between` it has just ended."""


class Lab:
    """A lab in a temporary folder whose campaign runs, and is about to be hit in a trial of the
    block.
    """

    campaign = CAMPAIGN
    block = "b02"
    """How the names of the trials begin that are hit first."""

    def __init__(self, root: Path, state: str, *, repeats: int = 3, **environment: str) -> None:
        self.root = root
        self.repeats = repeats
        fake_lab.make(root, repeats, self.campaign)
        (root / "tmp").mkdir()
        self.environment = {"TMPDIR": str(root / "tmp"), **environment}
        self.start(state, self.block, str(root / "fakes.toml"), "--engine", "process")

    def start(self, state: str, block: str, *arguments: str) -> None:
        """Begin the run, or go on with it, until a trial of the block is in the state."""
        fake_lab.fault(self.root, fault_of(state, block))
        self.runner = real_lab.start(self.root, "run", *arguments, **self.environment)
        self.wait_for(state, block)

    def wait_for(self, state: str, block: str) -> None:
        """Wait until a trial of the block is in the state."""
        paused = self.root / ".tools" / "paused"
        if state in PAUSED:
            wait_for(
                lambda: paused.exists() and paused.read_text() == fault_of(state, block), seconds=60
            )
        else:
            line = "raw" if state == "digest" else "sealed"
            wait_for(
                lambda: any(t.startswith(block) and s == line for t, s in self.lines()), seconds=60
            )
        self.groups = [Path(entry["path"]) for entry in self.ledger() if entry["kind"] == "cgroup"]

    def go(self, state: str = "", block: str = "") -> None:
        """Let the paused program go on, and wait until a trial is to be hit next, if one is."""
        fake_lab.fault(self.root, fault_of(state, block))
        if state:
            self.wait_for(state, block)

    @property
    def run(self) -> Path:
        (folder,) = self.root.glob("data/runs/*")
        return folder

    def lines(self) -> list[tuple[str, str]]:
        """The journal so far: trial and state of each line."""
        return [
            (line["trial_id"], line["state"])
            for line in self._whole_lines("data/runs/*/journal.jsonl")
        ]

    def ledger(self) -> list[dict[str, Any]]:
        return self._whole_lines("data/.live/*.jsonl")

    def _whole_lines(self, files: str) -> list[dict[str, Any]]:
        """The lines of files that are being written: the last one may be half of itself."""
        found = []
        for path in self.root.glob(files):
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def ended(self, code: int | None = None) -> str:
        """Wait for the runner's end, with this exit code; return what it said."""
        return real_lab.ended(self.runner, code).stderr

    def kill(self, word: str) -> None:
        """Kill what has this word in its command."""
        found = self.processes(word)
        assert found, [each.cmdline() for each in self.processes()]
        for each in found:
            each.kill()

    def processes(self, word: str = "") -> list[psutil.Process]:
        """What runs of this lab, but the runner itself, with this word in its command."""
        found = []
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # it has just ended by itself
                command = " ".join(each.cmdline())
                if (
                    each.pid != self.runner.pid
                    and str(self.root) in f"{command} {each.cwd()}"
                    and word in command
                ):
                    found.append(each)
        return found

    def sealed(self) -> dict[str, str]:
        """SHA-256 of every file of the sealed trials, by path."""
        folders = [
            self.run / "trials" / r["trial_id"]
            for r in records(self.run).values()
            if r["status"] == "sealed"
        ]
        return {str(path): sha256(path) for folder in folders for path in sorted(folder.iterdir())}

    def assert_nothing_is_left(self) -> None:
        wait_for(lambda: not list((self.root / "data" / ".live").iterdir()))
        wait_for(lambda: not self.processes())
        assert list((self.root / "tmp").iterdir()) == []
        assert [group for group in self.groups if group.exists()] == []

    def names(self) -> list[str]:
        return [f"b{block:02}-{CELL}" for block in range(1, self.repeats + 1)]

    def resume(self, code: int = 0) -> str:
        """Go on to the end, with this exit code; return what was said."""
        fake_lab.fault(self.root, "")
        return real_lab.bench(self.root, "run", "--resume", self.run.name, code=code).stderr

    def assert_it_goes_on_to_its_end(self) -> None:
        before = self.sealed()
        self.resume()
        assert before.items() <= self.sealed().items()
        last = {name: record["status"] for name, record in records(self.run).items()}
        assert last == dict.fromkeys(self.names(), "sealed")
        assert not list(self.run.rglob(".*.tmp"))


def fault_of(state: str, block: str) -> str:
    """What a lab's stand-ins are asked for, so that a trial of the block waits in the state to be
    hit.
    """
    return f"pause-{state} {block}" if state in PAUSED else ""
