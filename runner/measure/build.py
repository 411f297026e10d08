"""Build the servers' binaries with the host's toolchains."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from runner.measure.tools import find_program, remedy
from runner.model import LabError, Server
from runner.store import sha256

TIMEOUT_S = 1200


@dataclass(frozen=True)
class Built:
    """A server's binary as built; both None for a server that is a script."""

    artifact: Path | None
    sha256: str | None


def build(server: Server) -> Built:
    """Run the server's build command (nothing is built anew where nothing changed); LabError if it fails."""
    if not server.build_command:
        return Built(None, None)
    for need in server.build_needs:
        if find_program(need) is None:
            raise LabError(f"Server {server.name} cannot be built without {need}: {remedy(need)}.")
    done = subprocess.run(
        server.build_command,
        cwd=server.folder,
        env={**os.environ, **dict(server.build_env)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    log = server.folder / "build" / "build.log"
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(done.stdout + done.stderr)
    if done.returncode != 0:
        raise LabError(f"Server {server.name} could not be built: {_reason(done.stderr)} (see {log}).", exit_code=1)
    artifact = server.folder / server.artifact if server.artifact else None
    if artifact is not None and not artifact.is_file():
        raise LabError(f"The build of {server.name} left no {artifact}: check `artifact` in its server.toml.")
    return Built(artifact, sha256(artifact) if artifact else None)


def _reason(stderr: bytes) -> str:
    """Return the first line that says error, else the last line."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines[-1:] or ["no reason given"])[0][:300]
