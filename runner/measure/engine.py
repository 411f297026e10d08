"""What it means to start a server, and which engine does it."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Mapping
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


@dataclass(frozen=True)
class RunningDatabase(Running):
    """A started PostgreSQL on 127.0.0.1, and what can be done to it."""

    pause: Callable[[], None]
    """Stop all its processes where they are: it accepts connections and says nothing."""
    resume: Callable[[], None]
    restart: Callable[[], None]
    """Kill it hard and start it again, on the same port with the same data."""


class Engine(Protocol):
    """A way of starting servers and their database: `docker` or `process`."""

    name: str
    reason: str
    """Why this engine serves: shown in the output, the manifest and the report."""

    def prepare(self, server: Server) -> str | None:
        """Make the server ready to start; return its image's digest or None. LabError where it cannot be."""

    def started(
        self, server: Server, cpus: tuple[int, ...], env: Mapping[str, str], log: Path
    ) -> AbstractContextManager[Running]:
        """Start a prepared server on `cpus` with ADDR and `env`, output in `log`; nothing outlives the context."""

    def prepare_database(self) -> str | None:
        """Make PostgreSQL ready to start; return its image's digest or None. LabError where it cannot be."""

    def database(self, cpus: tuple[int, ...], verifier: str, log: Path) -> AbstractContextManager[RunningDatabase]:
        """Start a fresh cluster on `cpus`, its role `lab` with `verifier`; nothing of it outlives the context."""


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
