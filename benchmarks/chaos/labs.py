"""A lab in a temporary folder, the programs that run in it, and checks of the lab's promises."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from runner.store import sha256

ROOT = Path(__file__).resolve().parents[2]
CAMPAIGN = """title = "chaos: trials of less than a second"
servers = ["axum", "gin"]
repeats = 2
attempts = 1
server_cpus = 1

[[load]]
workload = "wrk-matrix"
connections = 4
modes = ["keepalive"]
duration_s = 0.6
warmup_s = 0.2

[[load]]
workload = "experiments"
vus = 4
iterations = 400
warmup_s = 0.2
"""
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t which, struct timespec *now) {
    int (*of_libc)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    const char *step_file = getenv("CHAOS_CLOCK_STEP");
    int failed = of_libc(which, now);
    if (!failed && which == CLOCK_REALTIME && step_file && access(step_file, F_OK) == 0)
        now->tv_sec += 3600;
    return failed;
}
"""
"""C source of a library that the lab's programs preload (LD_PRELOAD).

CHAOS_CLOCK_STEP names a file. As long as this file exists, the library sets the programs' wall
clock an hour ahead.
"""
DISK = "400m"
PATIENCE_S = 180.0
"""A command of the lab that has not ended after this time is killed, because it hangs.

The time is long, because a generator waits a long time for a server that does not answer.
"""
CLEAN_UP_S = 20.0
ENGINE_START_S = 180.0


@dataclass
class Engine:
    """A Docker engine that only this program uses, so that it may be killed and restarted."""

    home: Path
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextlib.contextmanager
    def available(cls) -> Iterator[Engine | None]:
        """Yield a running engine, or None if this user or machine cannot start an engine."""
        if os.geteuid() != 0 or shutil.which("dockerd") is None:
            sys.stdout.write("no Docker engine can be started here: plain processes only\n")
            yield None
            return
        # The engine's folder is not in the lab's folder, because the path of a socket may have at
        # most 107 bytes, and the path of a socket in the lab's folder might be longer.
        home = Path(tempfile.mkdtemp(prefix="lab-engine-"))
        engine = cls(home)
        try:
            engine.start()
            yield engine
        finally:
            engine.remove()

    @property
    def url(self) -> str:
        """The URL of the engine's socket."""
        return f"unix://{self.home}/sock"

    def start(self) -> None:
        """Start the engine unless it runs, and wait until it answers."""
        if self.process is not None and self.process.poll() is None:
            return
        (self.home / "pid").unlink(missing_ok=True)
        command = [
            "dockerd",
            f"--data-root={self.home}/data",
            f"--exec-root={self.home}/exec",
            f"--pidfile={self.home}/pid",
            f"--host={self.url}",
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
        ]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + ENGINE_START_S
        while self.docker("version").returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"dockerd does not answer: see {self.home}/log")
            time.sleep(0.2)

    def kill(self) -> None:
        """Kill the engine. Its containers keep running until the engine is started again."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def docker(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the Docker client with this engine."""
        command = ["docker", "--host", self.url, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def containers(self) -> list[str]:
        """Return the ids of all containers, including those that have ended."""
        return self.docker("ps", "--all", "--quiet", "--no-trunc").stdout.split()

    def remove(self) -> None:
        """End the engine, and remove all its files."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").split()
        for mounted in sorted(mounts, reverse=True):
            if mounted.startswith(str(self.home)):
                subprocess.run(["umount", "-l", mounted], check=False)
        shutil.rmtree(self.home, ignore_errors=True)


@dataclass
class Lab:
    """A lab in a folder of its own, for one campaign of a few seconds that a fault hits."""

    root: Path
    engine: Engine | None
    clock_switch: Path | None
    """As long as this file exists, the clock of the lab's programs is an hour ahead.

    None if there is no C compiler, so that the clock cannot be changed.
    """
    environment: dict[str, str]
    runner: subprocess.Popen[bytes] | None = None
    outputs: list[Path] = field(default_factory=list)

    @classmethod
    @contextlib.contextmanager
    def made(cls, root: Path, engine: Engine | None) -> Iterator[Lab]:
        """Yield a lab in the folder `root`.

        If this user may mount a disk, the lab's data are on a small disk, which a fault can fill.
        """
        for name in ("servers", "notebooks", ".tools"):
            (root / name).symlink_to(ROOT / name)
        (root / "data").mkdir()
        (root / "tmp").mkdir()
        (root / "chaos.toml").write_text(CAMPAIGN, encoding="utf-8")
        environment = {
            **os.environ,
            "BENCH_ROOT": str(root),
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(root / "tmp"),
        }
        if engine is not None:
            environment["DOCKER_HOST"] = engine.url
        clock = _clock(root)
        if clock is not None:
            environment |= {"LD_PRELOAD": str(clock), "CHAOS_CLOCK_STEP": str(root / "step")}
        mounted = os.geteuid() == 0 and _mount(root / "data")
        lab = cls(root, engine, root / "step" if clock else None, environment)
        try:
            yield lab
        finally:
            lab.end_everything()
            if mounted:
                subprocess.run(["umount", "-l", str(root / "data")], check=True)

    @property
    def data(self) -> Path:
        """The folder of the runs."""
        return self.root / "data"

    @property
    def engine_name(self) -> str:
        """The value for the option `--engine`."""
        return "process" if self.engine is None else "docker"

    server_word = "server"
    """The name of every server's program, both in a plain process and in a container."""

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start `bench` with these arguments in this lab, and write its output to a new file."""
        output = self.root / f"output-{len(self.outputs)}"
        self.outputs.append(output)
        command = [sys.executable, "-m", "runner.cli", *arguments]
        with output.open("wb") as handle:
            self.runner = subprocess.Popen(
                command,
                cwd=self.root,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                start_new_session=True,
            )
        return self.runner

    def wait(self, runner: subprocess.Popen[bytes], seconds: float) -> None:
        """Wait for some seconds, or until the runner has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            runner.wait(seconds)

    def ended(self, runner: subprocess.Popen[bytes]) -> int | None:
        """Wait until the runner ends, and return the runner's exit code.

        If the runner hangs, kill it and return None.
        """
        try:
            return runner.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            runner.kill()
            runner.wait()
            return None

    def said(self) -> str:
        """Return the last line of the last command's output."""
        lines = self.outputs[-1].read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "(nothing)"

    def all_said(self) -> str:
        """Return the output of all commands."""
        return "".join(each.read_text(encoding="utf-8", errors="replace") for each in self.outputs)

    def run(self) -> Path | None:
        """Return the folder of the run, or None if the run has not begun."""
        found = [each.parent for each in self.data.glob("runs/*/run.json")]
        return found[0] if found else None

    def records(self) -> list[dict[str, Any]]:
        """Return the records (trial.json) of all attempts.

        Each record also contains the path of its folder, under the key `folder`.
        """
        found = []
        for path in sorted(self.data.glob("runs/*/trials/*/trial.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            found.append({**record, "folder": path.parent})
        return found

    def states(self) -> dict[str, str]:
        """Return the state of the last attempt of each planned trial, according to the journal."""
        last: dict[str, str] = {}
        for path in self.data.glob("runs/*/journal.jsonl"):
            for line in path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError):  # the fault may have cut off a line
                    entry = json.loads(line)
                    last[entry["trial_id"].partition(".a")[0]] = entry["state"]
        return last

    def unfinished(self) -> bool:
        """Return whether a planned trial is neither sealed nor failed."""
        return any(state not in ("sealed", "failed") for state in self.states().values())

    def sealed_files(self) -> dict[Path, str]:
        """Return the SHA-256 of each file of the trials that are sealed now, by the file's path."""
        folders = [each["folder"] for each in self.records() if each["status"] == "sealed"]
        return {path: sha256(path) for folder in folders for path in sorted(folder.iterdir())}

    def unsealed_files(self) -> list[Path]:
        """Return the files of trials that have no record yet."""
        folders = [
            folder
            for folder in sorted(self.data.glob("runs/*/trials/*"))
            if not (folder / "trial.json").exists()
        ]
        return [path for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]

    def changed(self, before: dict[Path, str]) -> list[str]:
        """Return a sentence about each file of `before` that has changed or is missing now."""
        return [
            f"{path.relative_to(self.data)} of a sealed trial has changed"
            for path, digest in before.items()
            if not path.exists() or sha256(path) != digest
        ]

    def contradictions(self) -> list[str]:
        """Return a list with a sentence about the sealed trials that the tables do not contain.

        If the tables contain all sealed trials, the list is empty.
        """
        run = self.run()
        if run is None:
            return []
        sealed = {each["folder"].name for each in self.records() if each["status"] == "sealed"}
        table = run / "tables" / "trials.parquet"
        if not table.exists():
            return ["there is no table of trials"] if sealed else []
        trials = pd.read_parquet(table)
        shown = set(trials.loc[trials["status"] == "sealed", "trial_id"])
        missing = sorted(sealed - shown)
        return [f"not in the tables: {', '.join(missing)}"] if missing else []

    def processes(self, word: str = "") -> list[psutil.Process]:
        """Return the lab's processes except the runner.

        With `word`, return only the processes of the program or module that has this name.
        """
        found = []
        for process in self._all_processes():
            with contextlib.suppress(psutil.Error):
                command = process.cmdline()
                if not word or word in (*command, *(Path(each).name for each in command[:1])):
                    found.append(process)
        return found

    def _all_processes(self) -> Iterator[psutil.Process]:
        """Yield the lab's processes except the runner.

        A process belongs to the lab if its command, its folder or its variable BENCH_ROOT names the
        lab's folder, or if it is in the control group of one of the engine's containers.
        """
        containers = self.engine.containers() if self.engine is not None else []
        own = self.runner.pid if self.runner is not None else None
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.pid == own or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                where = f"{' '.join(process.cmdline())} {process.cwd()} {_variables(process)}"
                group = Path(f"/proc/{process.pid}/cgroup").read_text(encoding="utf-8")
                if str(self.root) in where or any(each in group for each in containers):
                    yield process

    def left_behind(self, *, killed_watchdog: bool) -> list[str]:
        """Return sentences about the things that the last command left behind.

        A process, container, ledger or temporary file counts as left behind if it still exists
        after CLEAN_UP_S. If the fault killed the watchdog, which removes such things, first run
        `bench clean`.
        """
        if killed_watchdog:
            self.ended(self.start("clean"))
        return [
            f"left behind: {words}"
            for words in (
                _stays(lambda: [f"process {' '.join(p.cmdline())}" for p in self.processes()]),
                _stays(lambda: list((self.data / ".live").glob("*"))),
                _stays(lambda: list((self.root / "tmp").iterdir())),
                _stays(lambda: self.engine.containers() if self.engine is not None else []),
            )
            if words
        ]

    def end_everything(self) -> None:
        """Kill all processes and containers of this lab that still run."""
        if self.runner is not None and self.runner.poll() is None:
            self.runner.kill()
            self.runner.wait()
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        if self.engine is not None:
            self.engine.start()
            for each in self.engine.containers():
                self.engine.docker("rm", "--force", "--volumes", each)


def _variables(process: psutil.Process) -> str:
    """Return the value of BENCH_ROOT in a process's environment, or an empty text."""
    return process.environ().get("BENCH_ROOT", "")


def _stays(things: Callable[[], Sequence[object]]) -> str:
    """Wait until `things` returns an empty list, but at most for CLEAN_UP_S.

    Return a text that names the things that still exist. If nothing exists, the text is empty.
    """
    deadline = time.monotonic() + CLEAN_UP_S
    found: Sequence[object] = []
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.Error):
            found = things()
            if not found:
                return ""
        time.sleep(0.1)
    return ", ".join(map(str, found))


def _clock(root: Path) -> Path | None:
    """Compile the library CLOCK, and return its path, or None if there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source = root / "clock.c"
    library = root / "clock.so"
    source.write_text(CLOCK, encoding="utf-8")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def _mount(folder: Path) -> bool:
    """Mount a small disk at a folder. Return False if the disk could not be mounted."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
