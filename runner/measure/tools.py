"""Find the programs that the lab drives, and their versions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from runner.model import LabError
from runner.store import lab_root

_VERSION_ARGS = {"k6": ["version"], "wrk": ["-v"], "nginx": ["-v"]}
_REMEDIES = {
    "k6": "run `make setup`, or install k6 1.x and put it on PATH",
    "wrk": "install it with `apt-get install wrk`",
    "nginx": "install it with `apt-get install nginx-light`",
    "postgres": "install it with `apt-get install postgresql`",
    "cargo": "install Rust (rustup.rs)",
    "go": "install Go (go.dev/dl)",
}


@dataclass(frozen=True)
class Tool:
    """A program on this machine and the version that it prints."""

    name: str
    path: Path
    version: str


def remedy(name: str) -> str:
    """Say how to get a program that is missing."""
    return _REMEDIES.get(name, f"install {name} and put it on PATH")


def find_program(name: str) -> Path | None:
    """Return a program's path: .tools/ of the lab, then PATH, the system's sbin folders, the newest PostgreSQL."""
    path = os.pathsep.join(
        [
            str(lab_root() / ".tools"),
            os.environ.get("PATH", ""),
            "/usr/local/sbin",
            "/usr/sbin",
            *_postgresql_folders(),
        ]
    )
    found = shutil.which(name, path=path)
    return Path(found) if found else None


def _postgresql_folders() -> list[str]:
    """Debian keeps each major version's programs in a folder of its own, which is not on PATH."""
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    return [str(path) for path in sorted(versions, key=lambda path: int(path.parent.name), reverse=True)]


def find_tool(name: str) -> Tool | None:
    """Return a tool with its version, or None where it is not installed."""
    path = find_program(name)
    if path is None:
        return None
    done = subprocess.run(
        [str(path), *_VERSION_ARGS.get(name, ["--version"])],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    match = re.search(r"(\d+\.\d+(?:\.\d+)?)", done.stdout + done.stderr)
    return Tool(name, path, match[1] if match else "unknown")


def need_tool(name: str) -> Tool:
    """Return a tool or raise LabError that says how to get it; k6 must be of the 1.x series."""
    tool = find_tool(name)
    if tool is None:
        raise LabError(f"{name} is not installed: {remedy(name)}.")
    if name == "k6" and not tool.version.startswith("1."):
        raise LabError(f"{tool.path} is k6 {tool.version}, but the lab needs 1.x: {remedy(name)}.")
    return tool
