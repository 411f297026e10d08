"""Find the programs that the lab drives and their versions, and build the servers' binaries."""

import fcntl
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

from runner.model import LabError, Server
from runner.places import places
from runner.store import sha256

VERSION_S = 20.0
"""A program must print its version within this time. Normally, this takes less than 1 s."""
BUILD_S = 1200.0
"""The build of a server must end within this time."""
_VERSION_ARGS = {"k6": ["version"], "wrk": ["-v"], "nginx": ["-v"], "vegeta": ["-version"]}
_REMEDIES = {
    "k6": "run `bench setup k6`, or install k6 1.8 to 2.x and put it on PATH",
    "wrk": "run `bench setup wrk`, or install it with `apt-get install wrk`",
    "vegeta": "run `bench setup vegeta`, or install vegeta 12 and put it on PATH",
    "oha": "run `bench setup oha`, or install oha 1.16 and put it on PATH",
    "nginx": "install it with `apt-get install nginx-light`",
    "perf": "install it with `apt-get install linux-perf`",
    "postgres": "install it with `apt-get install postgresql`",
    "cargo": "install Rust (rustup.rs)",
    "go": "install Go (go.dev/dl)",
}


@dataclass(frozen=True)
class Fitting:
    """The versions of a tool that the lab can use: from `least` on, and lower than `below`.

    `words` names these versions in messages.
    """

    least: tuple[int, ...]
    below: tuple[int, ...]
    words: str


_FITTING = {
    "k6": Fitting((1, 8), (3,), "1.8 to 2.x"),
    "oha": Fitting((1, 16), (2,), "1.16 to 1.x"),
}
"""Fitting versions, by the name of the tool. A tool that is not listed fits in any version."""


@dataclass(frozen=True)
class Tool:
    """A program on this machine, and the version that it prints."""

    name: str
    path: Path
    version: str

    @property
    def unfit(self) -> str | None:
        """The reason why the lab cannot use this version, or None if the lab can use it."""
        fitting = _FITTING.get(self.name)
        # The version `unknown` contains no numbers, so it counts as lower than `least`.
        numbers = tuple(map(int, re.findall(r"\d+", self.version)))
        if fitting is None or fitting.least <= numbers < fitting.below:
            return None
        return f"{self.version} found, but the lab needs {fitting.words}"


def remedy(name: str) -> str:
    """Return a phrase that says how to install a missing program."""
    return _REMEDIES.get(name, f"install {name} and put it on PATH")


def find_program(name: str) -> Path | None:
    """Return a program's path, or None if it is not found.

    Search the folders in this order: the folder of the tools that `bench setup` has built, the
    folders of PATH, the system's sbin folders, and the folders of PostgreSQL's versions, newest
    version first.
    """
    # Debian has a folder for each major version of PostgreSQL, and these folders are not on PATH.
    versions = [
        path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()
    ]
    versions.sort(key=lambda path: int(path.parent.name), reverse=True)
    folders = [
        places().tools,
        os.environ.get("PATH", ""),
        "/usr/local/sbin",
        "/usr/sbin",
        *versions,
    ]
    found = shutil.which(name, path=os.pathsep.join(map(str, folders)))
    return Path(found) if found else None


def run_within(name: str, argv: Sequence[str], longest_s: float) -> CompletedProcess[bytes]:
    """Run a program to its end, and return its exit code and output.

    Raise LabError with the program's `name` if the program runs for more than `longest_s`.
    """
    try:
        return subprocess.run(argv, capture_output=True, check=False, timeout=longest_s)
    except subprocess.TimeoutExpired as expired:
        said = f"{name} did not end within {longest_s:g} s, so the lab ended it."
        raise LabError(said, exit_code=1) from expired


def find_tool(name: str) -> Tool | None:
    """Return a tool with its version, or None if it is not installed.

    Raise LabError if the tool does not print its version within VERSION_S.
    """
    path = find_program(name)
    if path is None:
        return None
    argv = [str(path), *_VERSION_ARGS.get(name, ["--version"])]
    done = run_within(shlex.join(argv), argv, VERSION_S)
    said = (done.stdout + done.stderr).decode(errors="replace")
    match = re.search(r"(\d+\.\d+(?:\.\d+)?)", said)
    return Tool(name, path, match[1] if match else "unknown")


def need_tool(name: str) -> Tool:
    """Return a tool with its version.

    Raise LabError with a remedy if the tool is missing, or if the lab cannot use its version.
    """
    tool = find_tool(name)
    if tool is None:
        raise LabError(f"{name} is not installed: {remedy(name)}.")
    if tool.unfit is not None:
        raise LabError(f"{tool.path}: {name} {tool.unfit}: {remedy(name)}.")
    return tool


def build(server: Server) -> str | None:
    """Run the server's build command, and return the SHA-256 of the binary.

    Return None if the server has no build command or no binary, because it is a script. Raise
    LabError if the build fails.
    """
    if not server.build_command:
        return None
    for need in server.build_needs:
        if find_program(need) is None:
            raise LabError(f"Server {server.name} cannot be built without {need}: {remedy(need)}.")
    log = server.folder / "build" / "build.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as handle:
        # Another process of the lab may be building the same server, so wait until it has ended.
        fcntl.flock(handle, fcntl.LOCK_EX)
        env = {**os.environ, **dict(server.build_env)}
        try:
            done = subprocess.run(
                server.build_command,
                cwd=server.folder,
                env=env,
                input=b"",
                capture_output=True,
                timeout=BUILD_S,
                check=False,
            )
        except subprocess.TimeoutExpired as expired:
            said = f"The build of server {server.name} did not end within {BUILD_S:g} s."
            raise LabError(said, exit_code=1) from expired
        handle.truncate(0)
        handle.write(done.stdout + done.stderr)
    if done.returncode != 0:
        raise LabError(
            f"Server {server.name} could not be built: {_reason(done.stderr)} (see {log}).",
            exit_code=1,
        )
    artifact = server.folder / server.artifact if server.artifact else None
    if artifact is not None and not artifact.is_file():
        raise LabError(
            f"The build of {server.name} did not create {artifact}: check `artifact` in its "
            "server.toml."
        )
    return sha256(artifact) if artifact else None


def _reason(stderr: bytes) -> str:
    """Return the first line of a compiler's output that contains "error".

    If no line contains "error", return the last line.
    """
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    return (
        [line for line in lines if "error" in line.lower()] or lines[-1:] or ["no reason given"]
    )[0][:300]
