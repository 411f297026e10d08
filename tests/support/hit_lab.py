"""A lab whose campaign a test interrupts while it runs.

Methods check that the campaign left nothing behind, and that its run can be resumed.
"""

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
"""States of a trial in which a test can interrupt the campaign.

In the first three states, the fake server or the fake wrk waits. In the state `digest`, the lab
digests the trial's raw files. In the state `between`, the trial has just been sealed.
"""


class Lab:
    """A lab in a temporary folder whose campaign runs, and has reached the trial to interrupt."""

    campaign = CAMPAIGN
    block = "b02"
    """Beginning of the id of the trial that is interrupted first. It names the trial's block."""

    def __init__(self, root: Path, state: str, *, repeats: int = 3, **environment: str) -> None:
        self.root = root
        self.repeats = repeats
        fake_lab.make(root, repeats, self.campaign)
        (root / "tmp").mkdir()
        self.environment = {"TMPDIR": str(root / "tmp"), **environment}
        self.start(state, self.block, str(root / "fakes.toml"), "--engine", "process")

    def start(self, state: str, block: str, *arguments: str) -> None:
        """Start or resume the run, and wait until a trial of `block` is in `state`."""
        fake_lab.fault(self.root, fault_of(state, block))
        self.runner = real_lab.start(self.root, "run", *arguments, **self.environment)
        self.wait_for(state, block)

    def wait_for(self, state: str, block: str) -> None:
        """Wait until a trial of `block` is in `state`."""
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
        """Let the program that waits in the present state continue.

        If `state` is given, wait until a trial of `block` is in this state.
        """
        fake_lab.fault(self.root, fault_of(state, block))
        if state:
            self.wait_for(state, block)

    @property
    def run(self) -> Path:
        (folder,) = self.root.glob("data/runs/*")
        return folder

    def lines(self) -> list[tuple[str, str]]:
        """Return the lines of the journal so far, as pairs of trial id and state."""
        return [
            (line["trial_id"], line["state"])
            for line in self._whole_lines("data/runs/*/journal.jsonl")
        ]

    def ledger(self) -> list[dict[str, Any]]:
        return self._whole_lines("data/.live/*.jsonl")

    def _whole_lines(self, files: str) -> list[dict[str, Any]]:
        """Return the complete lines of files that are being written.

        If the last line of a file is incomplete, it is left out.
        """
        found = []
        for path in self.root.glob(files):
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def ended(self, code: int | None = None) -> str:
        """Wait until the runner ends, and return what the runner printed on stderr.

        If `code` is given, the runner must end with this exit code.
        """
        return real_lab.ended(self.runner, code).stderr

    def kill(self, word: str) -> None:
        """Kill the lab's processes whose command contains `word`."""
        found = self.processes(word)
        assert found, [each.cmdline() for each in self.processes()]
        for each in found:
            each.kill()

    def processes(self, word: str = "") -> list[psutil.Process]:
        """Return this lab's processes whose command contains `word`, except the runner."""
        found = []
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # a process may just have ended by itself
                command = " ".join(each.cmdline())
                if (
                    each.pid != self.runner.pid
                    and str(self.root) in f"{command} {each.cwd()}"
                    and word in command
                ):
                    found.append(each)
        return found

    def sealed(self) -> dict[str, str]:
        """Return the SHA-256 of each file of the sealed trials, by the path of the file."""
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
        """Resume the run, and wait until it ends; return what the command printed on stderr.

        The command must end with exit code `code`.
        """
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
    """Return the fault that makes the fake server or the fake wrk wait when a trial is in `state`.

    The trial is the one of `block`. Return an empty text if the state is not one of PAUSED: in the
    other states the lab itself is at work, so there is no fake program that could wait.
    """
    return f"pause-{state} {block}" if state in PAUSED else ""
