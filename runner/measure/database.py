"""Start a fresh PostgreSQL for a trial, create its table, and read its counters.

psycopg is imported only inside the functions that need it, so that a run without a database does
not wait for the import.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from runner.measure.engine import BY_FILE, Engine, RunningDatabase, waiting
from runner.measure.leftovers import temporary
from runner.measurement import DatabaseCounters
from runner.model import LabError, Server
from runner.planning.catalog import schema_file

if TYPE_CHECKING:
    import psycopg

READY_WITHIN_S = 30.0
SETTINGS = (
    *("fsync", "synchronous_commit", "full_page_writes", "wal_level"),
    *("shared_buffers", "max_connections", "max_wal_size", "checkpoint_timeout"),
)
"""PostgreSQL's settings that the manifest records. Settings that affect durability come first."""

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
    """A started PostgreSQL. Its database `lab` has the table that servers/schema.sql creates."""

    running: RunningDatabase
    version: str
    password: str
    log: Path

    @property
    def url(self) -> str:
        """The URL of the database, including the password."""
        return f"postgres://lab:{self.password}@{self.running.address}:{self.running.port}/lab"

    def handed_to(self, server: Server) -> dict[str, str]:
        """Return a dict with the database's URL, for the argument `handed` of `Engine.started`.

        The key is the environment variable DATABASE_URL. But if the server reads secrets from
        files, the key is BY_FILE, and the engine passes the URL in a file.
        """
        return {BY_FILE if server.secrets_by_file else "DATABASE_URL": self.url}

    def counters(self, tag: str) -> DatabaseCounters:
        """Return the number of rows whose firmware is `tag`, and PostgreSQL's statistics.

        The statistics are the number of inserts, the total duration of the inserts in ms, and the
        number of connections that clients have opened. Raise LabError if the database does not
        answer.
        """
        rows, calls, total_ms, sessions = self._ask(_COUNTERS, (tag,))[0]
        return DatabaseCounters(int(rows), int(calls), float(total_ms), int(sessions))

    def count(self, firmware: str) -> int:
        """Return the number of rows of the table that have this firmware."""
        return int(self._ask("SELECT count(*) FROM devices WHERE firmware = %s", (firmware,))[0][0])

    def rows(self, firmware: str) -> list[tuple[Any, ...]]:
        """Return the rows of the table that have this firmware.

        The columns are id, uuid, mac, firmware and created_at, and the rows are sorted by id.
        """
        query = (
            "SELECT id, uuid, mac, firmware, created_at FROM devices WHERE firmware = %s ORDER BY "
            "id"
        )
        return self._ask(query, (firmware,))

    def settings(self) -> dict[str, str]:
        """Return the values of the settings that SETTINGS names."""
        query = "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)"
        return {name: str(value) for name, value in self._ask(query, (list(SETTINGS),))}

    def pause(self) -> None:
        """Pause the database's processes, by SIGSTOP or, in a container, by Docker's pause.

        The kernel then still accepts connections to the database, but nothing answers.
        """
        self.running.pause()

    def resume(self) -> None:
        """Let the database's processes continue after `pause`."""
        self.running.resume()

    def restart(self) -> None:
        """Kill the database with SIGKILL, restart it with its data, and wait until it answers."""
        self.running.restart()
        _connected(self.running, self.password, self.log).close()

    def _ask(self, query: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        import psycopg  # noqa: PLC0415 - see above

        try:
            with _connect(self.running, self.password) as connection:
                return connection.execute(query, parameters).fetchall()
        except psycopg.Error as error:
            raise LabError(
                f"PostgreSQL does not answer the lab: {_sentence(error)}.", exit_code=1
            ) from None


class DatabaseFacts(TypedDict):
    """The values from which `runner.manifest.DatabaseOfRun` is made."""

    version: str
    image: str | None
    settings: dict[str, str]


def try_database(engine: Engine, cpus: tuple[int, ...]) -> DatabaseFacts:
    """Start PostgreSQL once before the first trial, so that its errors are found early.

    Return the manifest's entry: PostgreSQL's version, its image (None if it runs as processes), and
    its settings. Raise LabError if PostgreSQL cannot be started.
    """
    with temporary() as folder, serving(engine, cpus, folder / "database.log") as database:
        return {
            "version": database.version,
            "image": database.running.image,
            "settings": database.settings(),
        }


@contextlib.contextmanager
def serving(engine: Engine, cpus: tuple[int, ...], log: Path) -> Iterator[Database]:
    """Start a fresh PostgreSQL on `cpus`, create its table, and yield the database.

    When the context ends, end PostgreSQL and remove its data.
    """
    password = secrets.token_hex(16)
    with engine.database(cpus, scram_verifier(password), log) as running:
        with _connected(running, password, log) as connection:
            connection.execute(schema_file().read_bytes())
            version = connection.info.parameter_status("server_version") or "unknown"
        yield Database(running, version.split()[0], password, log)


def scram_verifier(password: str) -> str:
    """Return a SCRAM verifier, the form in which PostgreSQL stores a password (RFC 5802, RFC 7677).

    The verifier does not reveal the password. It has PostgreSQL's default of 4096 iterations, so
    that each new connection costs a server as much as in production.
    """
    try:
        from psycopg.pq import PGconn  # noqa: PLC0415 - see above
    except ModuleNotFoundError:
        raise LabError(
            "Loads with a database need psycopg: pip install 'web-bench-lab[postgres]'."
        ) from None

    # libpq requires a connection object, but the object need not be connected.
    unconnected = PGconn.connect(b"host=/nowhere")
    return unconnected.encrypt_password(password.encode(), b"lab", b"scram-sha-256").decode()


def _connect(running: RunningDatabase, password: str) -> psycopg.Connection[tuple[Any, ...]]:
    import psycopg  # noqa: PLC0415 - see above

    where = (
        f"host={running.address} port={running.port} user=lab dbname=lab sslmode=disable "
        "connect_timeout=10 tcp_user_timeout=8000 keepalives_idle=2 keepalives_interval=2 "
        "keepalives_count=3"
    )
    return psycopg.connect(
        where, password=password, autocommit=True, options="-c statement_timeout=60s"
    )


def _connected(
    running: RunningDatabase, password: str, log: Path
) -> psycopg.Connection[tuple[Any, ...]]:
    """Wait until the database answers, and return a connection to it.

    Raise LabError if the database ends, or if it does not answer within READY_WITHIN_S.
    """
    import psycopg  # noqa: PLC0415 - see above

    reason = ""
    for _ in waiting("PostgreSQL", running, log, READY_WITHIN_S):
        try:
            return _connect(running, password)
        except psycopg.OperationalError as error:
            reason = _sentence(error)
    raise LabError(f"PostgreSQL was not ready within {READY_WITHIN_S:g} s ({reason}).", exit_code=1)


def _sentence(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
