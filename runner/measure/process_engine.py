"""Start servers as plain processes of this machine: the engine where no Docker answers."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from runner.measure.engine import Running, free_port, server_environment
from runner.measure.leftovers import Ledger
from runner.measure.processes import pinned
from runner.measure.tools import find_program, remedy
from runner.model import LabError, Server

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ProcessEngine:
    """Local subprocesses, each in its own session and, where permitted, its own control group."""

    name = "process"

    def __init__(self, ledger: Ledger, reason: str) -> None:
        self.reason = reason
        self._ledger = ledger

    def prepare(self, server: Server) -> str | None:
        """Check that what the server needs to run is there; there is no image."""
        for need in server.run_needs:
            if find_program(need) is None:
                raise LabError(f"Server {server.name} needs {need}: {remedy(need)}.")
        return None

    @contextlib.contextmanager
    def started(self, server: Server, cpus: tuple[int, ...], nonce: str, log: Path) -> Iterator[Running]:
        """Start the server's binary or script in its folder, with a temporary folder of its own as TMPDIR."""
        artifact = str(server.folder / server.artifact) if server.artifact else ""
        argv = [part.replace("{artifact}", artifact) for part in server.run_command]
        port = free_port()
        with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as temporary:
            self._ledger.add("folder", path=temporary)
            env = server_environment("127.0.0.1", port, nonce) | {
                "PATH": os.pathsep.join([SYSTEM_PATH, os.environ.get("PATH", "")]),
                "TMPDIR": temporary,
            }
            with pinned(
                "server", argv, cpus=cpus, env=env, folder=server.folder, log=log, ledger=self._ledger
            ) as process:
                process.release()
                yield Running(process.pid, port, process.popen.poll, lambda: process.end(2.0))
