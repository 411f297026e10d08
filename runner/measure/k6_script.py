"""A user's k6 script: read by k6 itself, so that what it imports and opens is known, and copied into the run."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from runner.measure.own_load import FENCE
from runner.measure.scratch import temporary
from runner.model import LabError
from runner.store import RunFolder, sha256

TIMEOUT_S = 30
MOST_BYTES = 50_000_000
MARK = "LAB: "
"""Begins what the wrapper says to the lab."""
PLACE = "'SCRIPT'"
"""Where the wrapper has the script's path."""
COPY = "files"
"""Folder of the script's copy, beside the wrapper."""


@dataclass(frozen=True)
class Script:
    """A script that k6 can load, with all that it imports and opens."""

    name: str
    """Its own path among `files`."""
    files: dict[str, bytes]
    """By their paths, relative to the folder that all of them lie in."""
    unused: tuple[str, ...]
    """What it exports and the lab does not use: its options, handleSummary."""


def read_script(path: Path, wrapper: Path, k6: Path) -> Script:
    """Have k6 load a script as the lab will run it, without running it; LabError where it cannot be run so."""
    if not path.is_file():
        raise LabError(f"There is no script {path}.")
    with temporary() as scratch:
        outer, archive = scratch / wrapper.name, scratch / "script.tar"
        _wrap(wrapper, outer, str(path.resolve()))
        said = _load(path, outer, archive, k6)
        whole = _unpack(path, archive, without=outer)
    name = _find(path, whole)
    root = PurePosixPath(os.path.commonpath([PurePosixPath(each).parent for each in whole]))
    files = {str(PurePosixPath(each).relative_to(root)): data for each, data in whole.items()}
    unused = [line.removeprefix(MARK) for line in said if line.startswith(MARK)]
    return Script(str(PurePosixPath(name).relative_to(root)), files, tuple(filter(None, ", ".join(unused).split(", "))))


def _wrap(wrapper: Path, to: Path, script: str) -> None:
    to.write_text(wrapper.read_text(encoding="utf-8").replace(PLACE, json.dumps(script)), encoding="utf-8")


def _load(path: Path, outer: Path, archive: Path, k6: Path) -> list[str]:
    """Have k6 put a script into an archive; return what was logged. LabError with k6's reason where it cannot."""
    env = {
        **{name: os.environ[name] for name in ("PATH",) if name in os.environ},
        **FENCE,
        "HOME": str(outer.parent),
        "OPTIONS": "{}",
        "SCENARIO": json.dumps({"executor": "shared-iterations"}),
        "MODE": "keepalive",
        "BASE_URL": "http://127.0.0.1",
        "INSPECT": "1",
    }
    argv = [str(k6), "archive", "--include-system-env-vars", "--exclude-env-vars", "--log-format=json"]
    try:
        done = subprocess.run(
            [*argv, f"--archive-out={archive}", str(outer)],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"{path} took k6 more than {TIMEOUT_S} s to load: what takes long belongs elsewhere.") from None
    said = list(_messages(done.stderr))
    if done.returncode != 0:
        raise LabError(f"The lab cannot run {path}: {_reason(said, outer).rstrip('.')}.")
    return said


def _messages(log: str) -> Iterator[str]:
    for line in log.splitlines():
        try:
            yield str(json.loads(line)["msg"])
        except (ValueError, KeyError, TypeError):
            if line.strip():
                yield line.strip()


def _reason(said: list[str], outer: Path) -> str:
    """Return the last thing that k6 said, without what is about the wrapper, and where in the script it was."""
    first, *stack = (said or ["k6 gave no reason"])[-1].splitlines()
    if MARK in first:
        return first.partition(MARK)[2]
    where = f" ({stack[0].strip()})" if stack and str(outer) not in stack[0] else ""
    return first.rpartition(f"{outer}': ")[2].partition(" If you're running k6 using the Docker image")[0] + where


def _unpack(path: Path, archive: Path, without: Path) -> dict[str, bytes]:
    """Return the files of an archive of k6 by their absolute paths, as k6 has them, but for the wrapper."""
    files: dict[str, bytes] = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            kind, _, name = member.name.partition("/")
            if kind in ("http", "https"):
                raise LabError(f"{path} imports {kind}://{name}: put a copy beside the script, and import that.")
            if kind == "file" and member.isfile() and PurePosixPath(name).parent.name != without.parent.name:
                extracted = tar.extractfile(member)
                files[f"/{name}"] = extracted.read() if extracted else b""
    if sum(map(len, files.values())) > MOST_BYTES:
        raise LabError(
            f"{path} and what it opens are more than {MOST_BYTES:,} bytes: the lab copies them into each run."
        )
    return files


def _find(path: Path, files: dict[str, bytes]) -> str:
    """Return the script's own path in the archive, where k6 writes another name for that of a home folder."""
    content = path.read_bytes()
    found = [
        name for name, data in files.items() if PurePosixPath(name).name == path.resolve().name and data == content
    ]
    if not found:
        raise LabError(f"{path} was changed while k6 was reading it: try again.")
    return found[0]


def store_script(run: RunFolder, script: Script, wrapper: Path) -> None:
    """Write a script's copy, and the wrapper that runs it, into a run's folder."""
    for name, data in script.files.items():
        target = run.scripts / COPY / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    _wrap(wrapper, run.scripts / wrapper.name, f"./{COPY}/{script.name}")


def require_same_script(run: RunFolder, files: tuple[tuple[str, str], ...]) -> None:
    """Raise LabError where a run's copy of the script is not the one that it began with."""
    for name, digest in files:
        path = run.scripts / COPY / name
        if not path.is_file() or sha256(path) != digest:
            raise LabError(f"The run cannot go on: {path} is not the script that it began with. Start a new run.")
