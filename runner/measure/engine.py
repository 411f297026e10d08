"""What it means to start a server, and which engine does it."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from runner.measure.machine import ephemeral_ports
from runner.model import LabError, Server

EngineChoice = Literal["auto", "docker", "process"]
LOOPBACK = "127.0.0.1"
UNKNOWN_PID = 0
"""Stands for the process of a server that was not found."""


@dataclass(frozen=True)
class Running:
    """A started server: where it listens, whose counters are its own, and how to ask whether it still lives."""

    pid: int
    port: int
    exit_code: Callable[[], int | None]
    """None while the server runs, else its exit code."""
    stop: Callable[[], int | None]
    """End the server (SIGTERM, after 2 s SIGKILL) and return its exit code; None where it is not the lab's to end."""
    address: str = field(default=LOOPBACK, kw_only=True)
    host: str = field(default="", kw_only=True)
    """Host and port as its URL has them; empty where that is `address` and `port`."""
    limit: Callable[[float], None] = field(default=lambda _: None, kw_only=True)
    """Give it at most so many cores of CPU time from now on, by a quota; LabError where that cannot be done."""
    alone: bool = field(default=True, kw_only=True)
    """Whether its control group holds nothing else; where it may, its process tree is sampled."""
    cpus: Callable[[], tuple[int, ...]] | None = field(default=None, kw_only=True)
    """Which CPUs it may use, where that is not the lab's to decide."""

    @property
    def origin(self) -> str:
        """What the URLs of its resources begin with."""
        return f"http://{self.host or f'{self.address}:{self.port}'}"


@dataclass(frozen=True)
class RunningDatabase(Running):
    """A started PostgreSQL on 127.0.0.1, and what can be done to it."""

    pause: Callable[[], None]
    """Stop all its processes where they are: it accepts connections and says nothing."""
    resume: Callable[[], None]
    restart: Callable[[], None]
    """Kill it hard and start it again, on the same port with the same data."""


@dataclass(frozen=True)
class Handed:
    """What a server is started with beside ADDR."""

    environment: Mapping[str, str]
    secrets: Mapping[str, str] = field(default_factory=dict)
    """By variable: what stands in a file that only the server can read, whose path the variable has."""

    def __or__(self, other: Handed) -> Handed:
        """Return both together."""
        return Handed({**self.environment, **other.environment}, {**self.secrets, **other.secrets})


class Engine(Protocol):
    """A way of starting servers and their database: `docker` or `process`."""

    name: str
    reason: str
    """Why this engine serves: shown in the output, the manifest and the report."""

    def prepare(self, server: Server) -> str | None:
        """Make the server ready to start; return its image's digest or None. LabError where it cannot be."""

    def started(
        self, server: Server, cpus: tuple[int, ...], handed: Handed, log: Path
    ) -> AbstractContextManager[Running]:
        """Start a prepared server on `cpus` with ADDR and `handed`, output in `log`; nothing outlives the context."""

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
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise LabError(f"No free port on 127.0.0.1 between 10000 and {low}.", exit_code=1)
