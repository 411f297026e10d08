"""A lab whose campaign is about to be hit in its second trial, and what is to be seen of it afterwards."""

import contextlib
import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import fake_lab
import psutil
from fake_lab import BENCH, bench, records, wait_for

CAMPAIGN = """title = "three trials"
servers = ["fake"]
repeats = 3
attempts = 1

[[load]]
workload = "wrk-matrix"
connections = [4]
modes = ["keepalive"]
duration_s = 0.3
warmup_s = 1
"""
CELL = "fake-wrk-matrix-c4-keepalive"
PAUSED = ("start", "warm-up", "load")
STATES = (*PAUSED, "digest", "between")
"""What the second trial is doing when it is hit."""


class Lab:
    """A lab in a folder of its own whose campaign is about to be hit in its second trial."""

    campaign = CAMPAIGN
    block = "b02"
    """How the names of the trials begin that are hit."""

    def __init__(self, root: Path, state: str, **environment: str) -> None:
        self.root = root
        # wrk's warm-up of less than a second is ended by SIGINT, whatever it is doing: too short to be hit in.
        warmup = "warmup_s = 1" if state == "warm-up" else "warmup_s = 0.1"
        fake_lab.make(root, campaign=self.campaign.replace("warmup_s = 1", warmup))
        (root / "tmp").mkdir()
        fake_lab.fault(root, f"pause-{state} {self.block}" if state in PAUSED else "")
        self.state = state
        self.env = {**os.environ, "BENCH_ROOT": str(root), "TMPDIR": str(root / "tmp"), "COLUMNS": "200", **environment}
        self.runner = subprocess.Popen(
            [*BENCH, "run", str(root / "fakes.toml"), "--engine", "process"],
            cwd=root,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.await_state()
        self.groups = [Path(entry["path"]) for entry in self.ledger() if entry["kind"] == "cgroup"]

    @property
    def run(self) -> Path:
        (folder,) = self.root.glob("data/runs/*")
        return folder

    def lines(self) -> list[tuple[str, str]]:
        """The journal so far: trial and state of each line."""
        return [(line["trial_id"], line["state"]) for line in self._whole_lines("data/runs/*/journal.jsonl")]

    def ledger(self) -> list[dict[str, Any]]:
        """What the runner's ledger lists so far."""
        return self._whole_lines("data/.live/*.jsonl")

    def _whole_lines(self, files: str) -> list[dict[str, Any]]:
        """The lines of files that are being written: the last one may be half of itself."""
        found = []
        for path in self.root.glob(files):
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def await_state(self) -> None:
        if self.state in PAUSED:
            wait_for((self.root / ".tools" / "paused").exists, seconds=60)
        elif self.state == "digest":
            wait_for(lambda: any(trial.startswith(self.block) and state == "raw" for trial, state in self.lines()), 60)
        else:
            wait_for(lambda: any(state == "sealed" for _, state in self.lines()), 60)

    def go(self) -> None:
        """Let the paused program go on."""
        (self.root / ".tools" / "go").touch()

    def ended(self) -> tuple[int, str]:
        """How the runner ended, and what it said."""
        assert self.runner.stderr is not None
        said = self.runner.stderr.read()
        return self.runner.wait(timeout=60), said

    def processes(self) -> list[psutil.Process]:
        """What runs of this lab, but the runner itself."""
        found = []
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if each.pid != self.runner.pid and str(self.root) in " ".join([*each.cmdline(), each.cwd()]):
                    found.append(each)
        return found

    def sealed(self) -> dict[str, str]:
        """SHA-256 of every file of the sealed trials, by path."""
        folders = [self.run / "trials" / r["trial_id"] for r in records(self.run).values() if r["status"] == "sealed"]
        files = [path for folder in folders for path in sorted(folder.iterdir())]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def assert_nothing_is_left(self) -> None:
        wait_for(lambda: not list((self.root / "data" / ".live").iterdir()))
        wait_for(lambda: not self.processes())
        assert list((self.root / "tmp").iterdir()) == []
        assert [group for group in self.groups if group.exists()] == []

    def resume(self) -> subprocess.CompletedProcess[str]:
        fake_lab.fault(self.root, "")
        return bench(self.root, "run", "--resume", self.run.name)

    def assert_it_goes_on_to_its_end(self) -> None:
        before = self.sealed()
        done = self.resume()
        assert done.returncode == 0, done.stderr
        after = self.sealed()
        assert {path: after[path] for path in before} == before
        last = {name: record["status"] for name, record in records(self.run).items()}
        assert last == {f"b0{block}-{CELL}": "sealed" for block in (1, 2, 3)}
        assert not list(self.run.rglob(".*.tmp"))


def victims(lab: Lab, word: str) -> list[psutil.Process]:
    found = []
    for each in lab.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended by itself
            if word in " ".join(each.cmdline()):
                found.append(each)
    return found
