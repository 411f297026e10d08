"""Build servers, start them without load, and check them against the HTTP contract."""

import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.contract import check_contract
from runner.measure import machine
from runner.measure.database import Database, serving
from runner.measure.engine import LOOPBACK, Engine, EngineChoice, wait_ready
from runner.measure.lab import open_lab
from runner.measure.leftovers import temporary
from runner.measure.subjects import open_files, source_of
from runner.measure.tools import build
from runner.measurement import Placement
from runner.model import Check, LabError, Server
from runner.planning.hosts import Hosts

POOL_SIZE = 8  # connections in a server's database pool: so few that the checks can use all of them


@dataclass(frozen=True)
class Inspection:
    """The results of a server's checks; `error` says why the server could not be checked at all."""

    server: str
    checks: tuple[Check, ...]
    error: str | None
    deviations: tuple[str, ...] = ()  # names of checks that the framework is known to fail

    def failed(self, *, known: bool) -> tuple[Check, ...]:
        """Return the failed checks that are, or are not, known deviations of the server.

        server.toml lists the known deviations. If `known` is True, return the failed checks that
        server.toml lists. If `known` is False, return the failed checks that it does not list.
        """
        return tuple(
            check
            for check in self.checks
            if not check.ok and (check.name in self.deviations) == known
        )

    @property
    def ok(self) -> bool:
        """True if the server was checked and server.toml lists each failed check as a deviation."""
        return self.error is None and not self.failed(known=False)

    @property
    def summary(self) -> str:
        """One line with the numbers of passed checks, failed checks and known deviations."""
        broken = len(self.failed(known=False))
        deviating = len(self.failed(known=True))
        known = f", {deviating} known deviations" if deviating else ""
        return (
            f"{self.server}: {len(self.checks) - broken - deviating} checks kept, {broken} "
            f"broken{known}"
        )


def inspect(engine: Engine, server: Server, placement: Placement) -> Inspection:
    """Build and start `server`, run the checks of the HTTP contract, and stop the server.

    The last check is that SIGTERM ends the server with exit code 0.
    """
    with temporary() as folder, contextlib.ExitStack() as stack:
        try:
            build(server)
            engine.prepare(server)
            database = None
            if "devices-insert" in server.implements:
                database = stack.enter_context(
                    serving(engine, placement.database, folder / "database.log")
                )
            return Inspection(
                server.name,
                _checks(engine, server, placement, database, folder),
                None,
                server.deviations,
            )
        except LabError as error:
            return Inspection(server.name, (), str(error))


def _checks(
    engine: Engine, server: Server, placement: Placement, database: Database | None, folder: Path
) -> tuple[Check, ...]:
    nonce = secrets.token_hex(16)
    log = folder / "server.log"
    handed = {"LAB_NONCE": nonce}
    if database is not None:
        handed |= {**database.handed_to(server), "DB_POOL_SIZE": str(POOL_SIZE)}
    with engine.started(server, placement.server, handed, log) as running:
        wait_ready(server.name, running, nonce, log)
        # A server on another host is checked without its memory and open files, because /proc of
        # another host cannot be read from here.
        here = running.address == LOOPBACK
        subject = source_of(running.pid) if here else None

        def resident_bytes() -> int | None:
            try:
                return subject.read().rss_bytes if subject is not None else None
            except OSError:  # the process has ended
                return None

        checks = check_contract(
            running.address,
            running.port,
            server,
            nonce,
            resident_bytes=resident_bytes if here else None,
            open_files=(lambda: open_files(running.pid)) if here else None,
            database=database,
            pool_size=POOL_SIZE,
        )
        code = running.stop()
    return (
        *checks,
        Check("SIGTERM ends it with exit code 0 within 2 s", code == 0, f"exit code {code}"),
    )


def inspect_all(
    servers: Sequence[Server],
    choice: EngineChoice,
    say: Callable[[str], None],
    hosts: Hosts | None = None,
) -> list[Inspection]:
    """Check each server in turn, on the CPUs that a campaign would use.

    With `hosts`, run the servers on those hosts instead of this machine.
    """
    found = []
    with open_lab(choice, (), hosts, say) as opened:
        placement = opened.fleet.place(1, 1) if opened.fleet else machine.place(1, 1)
        say(f"Engine: {opened.engine.name} ({opened.engine.reason}).")
        for server in servers:
            say(f"Checking {server.name} …")
            found.append(inspect(opened.engine, server, placement))
    return found


def build_all(servers: Sequence[Server], say: Callable[[str], None]) -> list[dict[str, str | None]]:
    """Build the servers' binaries and, if a Docker engine answers, their images.

    If a server cannot be built, continue with the others. Return a dict for each server: its name
    (`server`), the SHA-256 of its binary (`binary`), the digest of its image (`image`), and the
    reason why it could not be built (`error`). A value that does not exist is None.
    """
    outcomes = []
    with open_lab("auto") as opened:
        say(f"Engine: {opened.engine.name} ({opened.engine.reason}).")
        for server in servers:
            say(f"Building {server.name} …")
            outcome: dict[str, str | None] = {
                "server": server.name,
                "binary": None,
                "image": None,
                "error": None,
            }
            try:
                outcome |= {"binary": build(server), "image": opened.engine.prepare(server)}
            except LabError as error:
                outcome["error"] = str(error)
            outcomes.append(outcome)
    return outcomes
