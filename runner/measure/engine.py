"""What it means to start a server, which engine does it, and how a server proves that it is this trial's."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from runner.http_response import Response, ResponseReader, read_response
from runner.measure import memory
from runner.measure.machine import ephemeral_ports
from runner.measurement import ended
from runner.model import LabError, Server
from runner.store import last_line

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
    """A started PostgreSQL, and what can be done to it."""

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


def free_port(address: str = LOOPBACK) -> int:
    """Return a port of an address of this machine that was free a moment ago.

    It lies below the kernel's range for outgoing connections: no client of a close-mode load can take it, nor
    connect to itself.
    """
    low = max(ephemeral_ports()[0], 12_000)
    for _ in range(200):
        port = random.randrange(10_000, low)  # noqa: S311 - not a secret
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise LabError(f"No free port on {address} between 10000 and {low}.", exit_code=1)


DEADLINE_S = 15.0


def get_json(port: int, path: str, timeout_s: float = 2.0, *, address: str = LOOPBACK) -> dict[str, object] | None:
    """GET a path over a fresh connection; None unless it answers 200 with a JSON object in time."""
    try:
        with socket.create_connection((address, port), timeout=timeout_s) as channel:
            response = _get(channel, path, f"{address}:{port}")
        value = json.loads(response.body) if response.status == 200 else None
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def ask(running: Running, path: str, timeout_s: float = 10.0) -> Response | None:
    """GET a path over a fresh connection, without the body, following no redirection; None where no HTTP came back.

    OSError where no connection could be made.
    """
    with socket.create_connection((running.address, running.port), timeout=timeout_s) as channel:
        try:
            return _get(channel, path, running.origin.partition("//")[2], head_only=True)
        except (OSError, ValueError):
            return None


def _get(channel: socket.socket, path: str, host: str, *, head_only: bool = False) -> Response:
    channel.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    return read_response(channel, ResponseReader(), head_only=head_only)


def wait_answer(name: str, running: Running, path: str, log: Path, deadline_s: float = DEADLINE_S) -> None:
    """Return when a server without contract answers HTTP at `path`, with any status; LabError as of wait_ready."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if ask(running, path, timeout_s=max(0.1, deadline - time.monotonic())) is not None:
                return
        _require_running(name, running, log)
        time.sleep(0.01)
    raise LabError(
        f"{name} did not answer HTTP at {running.origin}{path} within {deadline_s:g} s{last_line(log)}; a container "
        "must listen at $ADDR, or on $PORT.",
        exit_code=1,
    )


def require_answer(name: str, running: Running, path: str) -> None:
    """Raise LabError unless a GET of `path` is answered with 2xx."""
    url = f"{running.origin}{path}"
    try:
        reply = ask(running, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise LabError(f"Nothing answers at {url} ({reason}): start {name} first.") from None
    if reply is None:
        raise LabError(f"What listens at {url} does not answer HTTP: give the address of an HTTP server.")
    if 300 <= reply.status < 400:
        raise LabError(
            f"{url} answers {reply.status} and leads to {reply.headers.get('location')}: the lab follows no "
            "redirection; give an address, or a --probe-path, that answers 200."
        )
    if not 200 <= reply.status < 300:
        raise LabError(f"{url} answers {reply.status}: give an address, or a --probe-path, that answers 200.")


def _require_running(name: str, running: Running, log: Path) -> None:
    code = running.exit_code()
    if code is not None:
        raise LabError(f"{name} {ended(code)} before it was ready{last_line(log)}.", exit_code=1)


def wait_ready(name: str, running: Running, nonce: str, log: Path, deadline_s: float = DEADLINE_S) -> None:
    """Return when /health answers with `nonce`; LabError at the deadline or at the server's death.

    A TCP connect proves nothing: another program may have taken the port.
    """
    deadline = time.monotonic() + deadline_s
    answer: dict[str, object] | None = None
    while time.monotonic() < deadline:
        answer = get_json(running.port, "/health", address=running.address)
        if answer is not None and answer.get("nonce") == nonce:
            return
        _require_running(name, running, log)
        time.sleep(0.01)
    if answer is not None:
        raise LabError(f"Another program than {name} answers on port {running.port}: its nonce is wrong.", exit_code=1)
    why = memory.want(running.pid)
    said = f"{name} did not answer /health within {deadline_s:g} s"
    raise LabError(f"{said}{f', {why}' if why else ''}{last_line(log)}.", exit_code=1)
