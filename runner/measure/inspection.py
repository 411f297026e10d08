"""Build servers, and hold them against the HTTP contract, started fresh and without load."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.measure import machine
from runner.measure.build import build
from runner.measure.contract import check_contract
from runner.measure.engine import Engine, EngineChoice
from runner.measure.readiness import wait_ready
from runner.measure.session import session
from runner.model import Check, LabError, Server


@dataclass(frozen=True)
class Inspection:
    """A server's checks; `error` says why it could not even be checked."""

    server: str
    checks: tuple[Check, ...]
    error: str | None

    @property
    def ok(self) -> bool:
        """Whether the server keeps the whole contract."""
        return self.error is None and all(check.ok for check in self.checks)


def inspect(engine: Engine, server: Server, cpus: tuple[int, ...]) -> Inspection:
    """Build and start `server`, run the contract's checks, and end it: SIGTERM must end it with exit code 0."""
    nonce = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        log = Path(folder) / "server.log"
        try:
            build(server)
            engine.prepare(server)
            with engine.started(server, cpus, {"LAB_NONCE": nonce}, log) as running:
                wait_ready(server.name, running, nonce, log)
                checks = check_contract("127.0.0.1", running.port, server, nonce)
                code = running.stop()
        except LabError as error:
            return Inspection(server.name, (), str(error))
    ending = Check("SIGTERM ends it with exit code 0 within 2 s", code == 0, f"exit code {code}")
    return Inspection(server.name, (*checks, ending), None)


def inspect_all(servers: Sequence[Server], choice: EngineChoice, say: Callable[[str], None]) -> list[Inspection]:
    """Inspect each server in turn, on the CPUs that a campaign would give it."""
    cpus = machine.place(1).server
    with session(choice) as opened:
        say(f"Engine: {opened.engine.name} ({opened.engine.reason}).")
        return [inspect(opened.engine, server, cpus) for server in servers]


@dataclass(frozen=True)
class BuildOutcome:
    """What became of a server's build; `image` is None where no Docker engine answers."""

    server: str
    binary: str | None
    image: str | None
    error: str | None


def build_all(servers: Sequence[Server], say: Callable[[str], None]) -> list[BuildOutcome]:
    """Build binaries and, where a Docker engine answers, images; a server that fails does not stop the rest."""
    outcomes = []
    with session("auto") as opened:
        say(f"Engine: {opened.engine.name} ({opened.engine.reason}).")
        for server in servers:
            say(f"Building {server.name} …")
            try:
                binary = build(server).sha256
                outcomes.append(BuildOutcome(server.name, binary, opened.engine.prepare(server), None))
            except LabError as error:
                outcomes.append(BuildOutcome(server.name, None, None, str(error)))
    return outcomes
