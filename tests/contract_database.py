"""An in-memory database for the test server, which hangs and dies when it is told to, and a pool in front of it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid1, uuid4

from contract_http import RefusedError

PATIENCE_S = 1.0
"""How long the test server waits for its database: the contract allows up to 5 s."""


class MemoryDatabase:
    """Keeps rows; `up` is cleared while it hangs, `alive` while it is dead."""

    def __init__(self) -> None:
        self.table: list[tuple[Any, ...]] = []
        self.lock = threading.Lock()
        self.up = threading.Event()
        self.up.set()
        self.alive = True
        self.deaths = 0

    def rows(self, firmware: str) -> list[tuple[Any, ...]]:
        with self.lock:
            return [row for row in self.table if row[3] == firmware]

    def count(self, firmware: str) -> int:
        return len(self.rows(firmware))

    def pause(self) -> None:
        self.up.clear()

    def resume(self) -> None:
        self.up.set()

    def restart(self) -> None:
        self.alive = False
        time.sleep(0.15)
        self.alive = True
        self.deaths += 1

    def add(self, row: tuple[Any, ...]) -> int:
        with self.lock:
            number = len(self.table) + 1
            self.table.append((number, *row))
            return number


class Pool:
    """What the server under test has between itself and the database."""

    def __init__(self, database: MemoryDatabase, size: int, fault: str) -> None:
        self.database = database
        self.fault = fault
        self.size = size
        self.free = threading.Semaphore(size)
        self.lock = threading.Lock()
        self.in_use = 0
        self.idle = 0
        self.waiting = 0
        self.broken = False
        self.one_at_a_time = threading.Lock()
        self.uuid = uuid4()

    def stats(self) -> dict[str, int]:
        with self.lock:
            told = {"size": self.size, "in_use": self.in_use, "idle": self.idle, "waiting": self.waiting}
        if self.fault == "pool of another size":
            told["size"] += 1
        if self.fault == "idle counts too much":
            told["idle"] += self.size
        if self.fault == "nobody waits":
            told["waiting"] = 0
        if self.fault == "a connection stays in use":
            told |= {"in_use": max(1, told["in_use"]), "idle": min(self.size - 1 - told["in_use"], told["idle"])}
            told["idle"] = max(0, told["idle"])
        return told

    @contextmanager
    def connection(self) -> Iterator[None]:
        with self.lock:
            self.waiting += 1
        got = self.free.acquire(timeout=PATIENCE_S)
        with self.lock:
            self.waiting -= 1
            self.in_use += got
            self.idle -= got and self.idle > 0
        if not got:
            raise RefusedError(503, "no free connection")
        try:
            yield
        finally:
            with self.lock:
                self.in_use -= 1
                self.idle += 1
            self.free.release()

    def insert(self, mac: str, firmware: str) -> dict[str, Any]:
        with self.connection():
            self.wait_for_the_database(mac, firmware)
            return self.store(mac, firmware)

    def wait_for_the_database(self, mac: str, firmware: str) -> None:
        fault, database = self.fault, self.database
        if not database.up.wait(6.0 if fault == "patient for 6 s" else PATIENCE_S):
            self.broken = True
            if fault == "inserts again by itself":
                threading.Thread(target=self.insert_later, args=(mac, firmware), daemon=True).start()
            raise RefusedError(500 if fault == "500 when the database hangs" else 503, "the database does not answer")
        if fault == "never recovers" and self.broken:
            raise RefusedError(503, "the database does not answer")
        if fault == "never back" and database.deaths:
            raise RefusedError(503, "the database does not answer")
        if not database.alive:
            raise RefusedError(500 if fault == "500 when the database dies" else 503, "the database is gone")

    def insert_later(self, mac: str, firmware: str) -> None:
        self.database.up.wait()
        for _ in range(4):
            self.database.add((uuid4(), mac, firmware, datetime.now(UTC)))

    def store(self, mac: str, firmware: str) -> dict[str, Any]:
        fault, database = self.fault, self.database
        uuid = {"uuid of version 1": uuid1(), "one uuid for all": self.uuid}.get(fault, uuid4())
        if fault == "uuid with few random bits":
            uuid = UUID(int=uuid.int & ~(0xFF << 8), version=4)
        now = datetime.now(UTC)
        stored_at = now.replace(microsecond=0) if fault == "the row has another time" else now
        if fault == "rows are cleaned":
            row = (uuid, mac.strip(), firmware.replace("'", "''"), stored_at)
        else:
            row = (uuid, mac, firmware, stored_at)
        number = 0 if fault == "not stored" else database.add(row)
        if fault == "stored twice" and firmware.startswith("crowd"):
            database.add(row)
        if fault == "milliseconds":
            now = now.replace(microsecond=now.microsecond // 1000 * 1000)
        created_at = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        texts = {
            "no fraction": created_at[:19] + "Z",
            "an offset for Z": created_at[:-1] + "+00:00",
            "zeros are cut off": created_at[:-1].rstrip("0") + "Z",
            "an hour late": created_at[:11] + f"{(now.hour + 1) % 24:02}" + created_at[13:],
        }
        shown = str(uuid).upper() if fault == "uuid in capitals" else str(uuid)
        answer = {"id": number or len(database.table), "uuid": shown, "mac": mac, "firmware": firmware}
        answer["created_at"] = texts.get(fault, created_at)
        if fault == "id is text":
            answer["id"] = str(answer["id"])
        return answer
