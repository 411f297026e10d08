"""What it means to start a server, and which engine does it."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from runner.measure.machine import ephemeral_ports
from runner.model import LabError, Server

EngineChoice = Literal["auto", "docker", "process"]


@dataclass(frozen=True)
class Running:
    """A started server: where it listens, whose counters are its own, and how to ask whether it still lives."""

    pid: int
    port: int
    exit_code: Callable[[], int | None]
    """None while the server runs, else its exit code."""
    stop: Callable[[], int]
    """End the server (SIGTERM, after 2 s SIGKILL) and return its exit code."""


class Engine(Protocol):
    """A way of starting servers: `docker` or `process`."""

    name: str
    reason: str
    """Why this engine serves: shown in the output, the manifest and the report."""

    def prepare(self, server: Server) -> str | None:
        """Make the server ready to start; return its image's digest or None. LabError where it cannot be."""

    def started(self, server: Server, cpus: tuple[int, ...], nonce: str, log: Path) -> AbstractContextManager[Running]:
        """Start a prepared server on `cpus`; nothing of it outlives the context; its output is appended to `log`."""


def free_port() -> int:
    """Return a loopback port that was free a moment ago.

    It lies below the kernel's range for outgoing connections: no client of a close-mode load can take it, nor
    connect to itself.
    """
    low = max(ephemeral_ports()[0], 12_000)
    for _ in range(200):
        port = random.randrange(10_000, low)  # noqa: S311 - not a secret
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise LabError(f"No free port on 127.0.0.1 between 10000 and {low}.", exit_code=1)


def server_environment(host: str, port: int, nonce: str) -> dict[str, str]:
    """Return the environment of the contract, the same in both engines."""
    return {"ADDR": f"{host}:{port}", "LAB_NONCE": nonce}
