"""The database behind POST /devices, as the checks need it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Database(Protocol):
    """A PostgreSQL with the table of servers/schema.sql, which the server under test writes to and nothing else.

    Methods raise LabError where the database does not do what they say.
    """

    def rows(self, firmware: str) -> Sequence[tuple[Any, ...]]:
        """Return the rows with this firmware: (id, uuid, mac, firmware, created_at), with UUID and aware datetime."""

    def count(self, firmware: str) -> int:
        """Return how many rows have this firmware."""

    def pause(self) -> None:
        """Stop all its processes where they are (SIGSTOP): it accepts connections and says nothing."""

    def resume(self) -> None:
        """Let them go on."""

    def restart(self) -> None:
        """Kill it hard and start it again, on the same address with the same data; return when it answers."""
