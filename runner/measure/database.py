"""A trial's PostgreSQL: start it fresh, make the table, and ask it what it has seen."""

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import psycopg
from psycopg.pq import PGconn

from runner.measure.engine import BY_FILE, Engine, RunningDatabase, waiting
from runner.measure.leftovers import temporary
from runner.measurement import DatabaseCounters
from runner.model import LabError, Server
from runner.store import lab_root

READY_WITHIN_S = 30.0
SETTINGS = (
    *("fsync", "synchronous_commit", "full_page_writes", "wal_level"),
    *("shared_buffers", "max_connections", "max_wal_size", "checkpoint_timeout"),
)
"""What the manifest says of the configuration: durability first."""

_COUNTERS = """
SELECT (SELECT count(*) FROM devices WHERE firmware = %s),
       (SELECT coalesce(sum(calls), 0) FROM pg_stat_statements
        WHERE query ILIKE 'insert into devices%%'),
       (SELECT coalesce(sum(total_exec_time), 0) FROM pg_stat_statements
        WHERE query ILIKE 'insert into devices%%'),
       (SELECT sessions FROM pg_stat_database WHERE datname = current_database())
"""


@dataclass(frozen=True)
class Database:
    """A started PostgreSQL whose database `lab` holds the empty table of servers/schema.sql."""

    running: RunningDatabase
    version: str
    password: str
    log: Path

    @property
    def url(self) -> str:
        """Where it is, with the password."""
        return f"postgres://lab:{self.password}@{self.running.address}:{self.running.port}/lab"

    def handed_to(self, server: Server) -> dict[str, str]:
        """Return by what a server under test finds it."""
        return {BY_FILE if server.secrets_by_file else "DATABASE_URL": self.url}

    def counters(self, tag: str) -> DatabaseCounters:
        """Return the rows with `tag` as firmware, and the statistics.

        LabError if the database does not answer.
        """
        rows, calls, total_ms, sessions = self._ask(_COUNTERS, (tag,))[0]
        return DatabaseCounters(int(rows), int(calls), float(total_ms), int(sessions))

    def count(self, firmware: str) -> int:
        """Return how many rows have this firmware."""
        return int(self._ask("SELECT count(*) FROM devices WHERE firmware = %s", (firmware,))[0][0])

    def rows(self, firmware: str) -> list[tuple[Any, ...]]:
        """Return the rows with this firmware: (id, uuid, mac, firmware, created_at), by id."""
        query = (
            "SELECT id, uuid, mac, firmware, created_at FROM devices WHERE firmware = %s ORDER BY "
            "id"
        )
        return self._ask(query, (firmware,))

    def settings(self) -> dict[str, str]:
        """Return what SETTINGS are set to."""
        query = "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)"
        return {name: str(value) for name, value in self._ask(query, (list(SETTINGS),))}

    def pause(self) -> None:
        """Stop it where it is: it accepts connections and says nothing."""
        self.running.pause()

    def resume(self) -> None:
        """Let it go on after a pause."""
        self.running.resume()

    def restart(self) -> None:
        """Kill it hard and start it again on the same data; returns when it answers."""
        self.running.restart()
        _connected(self.running, self.password, self.log).close()

    def _ask(self, query: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        try:
            with _connect(self.running, self.password) as connection:
                return connection.execute(query, parameters).fetchall()
        except psycopg.Error as error:
            raise LabError(
                f"PostgreSQL does not answer the lab: {_sentence(error)}.", exit_code=1
            ) from None


class DatabaseFacts(TypedDict):
    """What `runner.manifest.DatabaseOfRun` has."""

    version: str
    image: str | None
    settings: dict[str, str]


def try_database(engine: Engine, cpus: tuple[int, ...]) -> DatabaseFacts:
    """Start PostgreSQL once, so that what is wrong with it is known before any trial; LabError.

    Returns what the manifest says of it: its version, its image (None if it runs without one),
    its settings.
    """
    with temporary() as folder, serving(engine, cpus, folder / "database.log") as database:
        return {
            "version": database.version,
            "image": database.running.image,
            "settings": database.settings(),
        }


@contextlib.contextmanager
def serving(engine: Engine, cpus: tuple[int, ...], log: Path) -> Iterator[Database]:
    """Start a fresh cluster on `cpus` and make its table; nothing of it outlives the context."""
    password = secrets.token_hex(16)
    with engine.database(cpus, scram_verifier(password), log) as running:
        with _connected(running, password, log) as connection:
            connection.execute((lab_root() / "servers" / "schema.sql").read_bytes())
            version = connection.info.parameter_status("server_version") or "unknown"
        yield Database(running, version.split()[0], password, log)


def scram_verifier(password: str) -> str:
    """Return what PostgreSQL stores of a password (RFC 5802, RFC 7677), which does not reveal it.

    It has PostgreSQL's default of 4096 iterations: a server pays for them at each connection, as
    its users do.
    """
    unconnected = PGconn.connect(b"host=/nowhere")  # libpq takes a connection, and needs none
    return unconnected.encrypt_password(password.encode(), b"lab", b"scram-sha-256").decode()


def _connect(running: RunningDatabase, password: str) -> psycopg.Connection[tuple[Any, ...]]:
    where = (
        f"host={running.address} port={running.port} user=lab dbname=lab sslmode=disable "
        "connect_timeout=10"
    )
    return psycopg.connect(
        where, password=password, autocommit=True, options="-c statement_timeout=60s"
    )


def _connected(
    running: RunningDatabase, password: str, log: Path
) -> psycopg.Connection[tuple[Any, ...]]:
    """Return a connection once the database answers, or LabError at its death or the deadline."""
    reason = ""
    for _ in waiting("PostgreSQL", running, log, READY_WITHIN_S):
        try:
            return _connect(running, password)
        except psycopg.OperationalError as error:
            reason = _sentence(error)
    raise LabError(f"PostgreSQL was not ready within {READY_WITHIN_S:g} s ({reason}).", exit_code=1)


def _sentence(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
