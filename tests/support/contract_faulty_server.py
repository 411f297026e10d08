"""A small server with a database in memory, for tests of the lab's checks of the contract.

The server follows servers/CONTRACT.md, except for one fault. A test chooses the fault by its name.
"""

import hashlib
import json
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID, uuid1, uuid4

from contract_http import GoneError, Reader, RefusedError, Request
from contract_rules import read_device, read_experiment

from runner.model import Server
from runner.planning.catalog import load_server

NONCE = "n0nce"
POOL_SIZE = 5
PATIENCE_S = 1.0
"""The server waits at most this many seconds for its database. The contract allows 5 s."""
ALL = ("health", "count", "fallback", "experiments", "md5", "devices", "stats", "devices-insert")
DEVICES = [
    {
        "uuid": f"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c0{n}",
        "mac": f"02-00-00-00-00-0{n}",
        "firmware": firmware,
    }
    for n, firmware in enumerate(("1.0.0", "1.0.4", "1.2.0", "2.0.1", "3.1.5"), 1)
]
METHODS = dict.fromkeys(("/health", "/stats", "/count", "/devices"), ("GET", "HEAD"))
METHODS |= dict.fromkeys(("/experiments", "/experiments/md5"), ("POST",))
SILENT = "the database does not answer"


class MemoryDatabase:
    """A database in memory.

    While the database hangs, the event `up` is cleared. While it is dead, `alive` is False.
    """

    def __init__(self) -> None:
        self.table: list[tuple[Any, ...]] = []
        self.numbers = count(1)
        self.up = threading.Event()
        self.up.set()
        self.alive = True
        self.deaths = 0
        self.pause = self.up.clear
        self.resume = self.up.set

    def rows(self, firmware: str) -> list[tuple[Any, ...]]:
        return [row for row in list(self.table) if row[3] == firmware]

    def count(self, firmware: str) -> int:
        return len(self.rows(firmware))

    def restart(self) -> None:
        self.alive = False
        time.sleep(0.15)
        self.alive = True
        self.deaths += 1

    def add(self, *row: Any) -> int:
        number = next(self.numbers)
        self.table.append((number, *row))
        return number


class Pool:
    """The pool of connections between the server and its database."""

    def __init__(self, database: MemoryDatabase, fault: str) -> None:
        self.database = database
        self.fault = fault
        self.free = threading.Semaphore(POOL_SIZE)
        self.lock = threading.Lock()
        self.in_use = self.idle = self.waiting = 0
        self.broken = False
        self.uuid = uuid4()

    def stats(self) -> dict[str, int]:
        fault = self.fault
        with self.lock:
            in_use = self.in_use
            idle = self.idle
            waiting = self.waiting
        if fault == "a connection stays in use":
            in_use, idle = max(1, in_use), max(0, min(POOL_SIZE - 1 - in_use, idle))
        return {
            "size": POOL_SIZE + (fault == "pool of another size"),
            "in_use": in_use,
            "idle": idle + POOL_SIZE * (fault == "idle counts too much"),
            "waiting": 0 if fault == "nobody waits" else waiting,
        }

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
        fault = self.fault
        database = self.database
        with self.connection():
            if not database.up.wait(6.0 if fault == "patient for 6 s" else PATIENCE_S):
                self.broken = True
                if fault == "inserts again by itself":
                    threading.Thread(
                        target=self.insert_later, args=(mac, firmware), daemon=True
                    ).start()
                raise RefusedError(500 if fault == "500 when the database hangs" else 503, SILENT)
            if (fault == "never recovers" and self.broken) or (
                fault == "never back" and database.deaths
            ):
                raise RefusedError(503, SILENT)
            if not database.alive:
                raise RefusedError(
                    500 if fault == "500 when the database dies" else 503, "the database is gone"
                )
            return self.store(mac, firmware)

    def insert_later(self, mac: str, firmware: str) -> None:
        self.database.up.wait()
        for _ in range(4):
            self.database.add(uuid4(), mac, firmware, datetime.now(UTC))

    def store(self, mac: str, firmware: str) -> dict[str, Any]:
        fault = self.fault
        database = self.database
        now = datetime.now(UTC)
        uuid = {"uuid of version 1": uuid1(), "one uuid for all": self.uuid}.get(fault, uuid4())
        if fault == "uuid with few random bits":
            uuid = UUID(int=uuid.int & ~(0xFF << 8), version=4)
        row = (
            uuid,
            mac,
            firmware,
            now.replace(microsecond=0) if fault == "the row has another time" else now,
        )
        if fault == "rows are cleaned":
            row = (uuid, mac.strip(), firmware.replace("'", "''"), now)
        number = len(database.table) if fault == "not stored" else database.add(*row)
        if fault == "stored twice" and firmware.startswith("crowd"):
            database.add(*row)
        if fault == "milliseconds":
            now = now.replace(microsecond=now.microsecond // 1000 * 1000)
        created_at = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        texts = {
            "no fraction": created_at[:19] + "Z",
            "an offset for Z": created_at[:-1] + "+00:00",
            "zeros are cut off": created_at[:-1].rstrip("0") + "Z",
            "an hour late": created_at[:11] + f"{(now.hour + 1) % 24:02}" + created_at[13:],
        }
        return {
            "id": str(number) if fault == "id is text" else number,
            "uuid": str(uuid).upper() if fault == "uuid in capitals" else str(uuid),
            "mac": mac,
            "firmware": firmware,
            "created_at": texts.get(fault, created_at),
        }


class FaultyServer(socketserver.ThreadingTCPServer):
    """A server that counts requests as the contract demands.

    `fault` is the name of the server's fault. If the name is empty, the server has no fault.
    `database` is the database into which the server inserts rows. If `database` is None, the server
    has no database.
    """

    allow_reuse_address = daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, fault: str = "", database: MemoryDatabase | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.port: int = self.server_address[1]
        self.fault = fault
        self.pool = Pool(database, fault) if database else None
        self.takes_inserts = database is not None or "without a database" in fault
        self.requests = self.connections = self.lost = self.leaked_bytes = self.leaked_files = 0
        self.lock = threading.Lock()
        self.turn = threading.Lock()

    def get_request(self) -> tuple[socket.socket, Any]:
        accepted = super().get_request()
        self.connections += 1
        if self.fault == "one connection at a time":
            self.turn.acquire()
        return accepted

    def count_request(self) -> int:
        if self.fault == "count is racy":
            before = self.requests
            time.sleep(0.0005)
            self.requests = before + 1
            return before
        with self.lock:
            before = self.requests
            lost = (
                self.fault == "a count is lost at times" and before % 500 == 499 and self.lost < 5
            )
            self.lost += lost
            self.requests += self.fault != "count stands still" and not lost
            return before

    def stats(self) -> dict[str, Any]:
        pool = self.pool.stats() if self.pool else None
        if self.fault == "a pool without a database":
            pool = {"size": 50, "in_use": 0, "idle": 0, "waiting": 0}
        return {
            "requests": self.requests + (self.fault == "stats counts too much"),
            "connections": self.requests
            if self.fault == "connections counts requests"
            else self.connections,
            "gc": None,
        } | ({} if self.fault == "stats lacks pool" else {"pool": pool})

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing if a client closes its connection early."""


class Handler(socketserver.BaseRequestHandler):
    server: FaultyServer

    def handle(self) -> None:
        channel: socket.socket = self.request
        channel.settimeout(20)
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fault = self.server.fault
        self.served = 0
        reader = Reader(channel, self.fault)
        try:
            while self.serve(reader):
                self.served += 1
        except (GoneError, OSError):
            self.server.leaked_bytes += 300_000 * (self.fault == "leaks memory")
            self.server.leaked_files += self.fault == "leaks files"
            if self.fault == "a half-closed connection hangs":
                time.sleep(1.5)
        finally:
            if self.fault == "one connection at a time":
                self.server.turn.release()

    def serve(self, reader: Reader) -> bool:
        """Answer one request; return whether the connection stays open."""
        try:
            request = reader.read()
        except RefusedError as refused:
            self.answer(None, refused.status, {"error": str(refused)}, kept=not refused.close)
            if self.fault == "closes late" and refused.close:
                time.sleep(0.6)
            return not refused.close
        kept = self.keeps(request)
        try:
            status, body = self.route(request)
        except RefusedError as refused:
            status = refused.status
            body = {"error": str(refused)}
            if self.fault == "error names no field" and status == 400:
                body = {"error": "invalid"}
        self.answer(request, status, body, kept)
        if self.fault == "answers after close" and not kept and reader.pending:
            self.serve(reader)
        if self.fault == "closes late" and not kept:
            time.sleep(0.6)
        if self.fault == "closes at times, but goes on" and not kept:
            with suppress(RefusedError):
                self.route(reader.read())
        return kept or (self.fault == "close is ignored" and request.minor == 1)

    def keeps(self, request: Request) -> bool:
        fault = self.fault
        options = request.options()
        both = request.values("transfer-encoding") and request.values("content-length")
        at_times = self.served and request.method == "POST" and len(request.body) % 3 == 0
        if (
            fault == "never keeps alive"
            or (fault == "closes after a while" and self.served == 70)
            or (fault == "Transfer-Encoding and close" and both)
            or (fault.startswith("closes at times") and at_times)
        ):
            return False
        if request.minor == 0:
            return "keep-alive" in options or fault == "HTTP/1.0 is kept"
        if fault == "close only alone":
            return request.values("connection") != ["close"]
        if fault == "close in small letters only":
            return all("close" not in value for value in request.values("connection"))
        return "close" not in options

    def route(self, request: Request) -> tuple[int, Any]:
        fault = self.fault
        path = request.path
        if fault == "paths in any case":
            path = path.lower()
        if fault == "a slash more is no matter":
            path = path.rstrip("/") or "/"
        if fault == "errors are not counted" and path.startswith("/experiments"):
            read_experiment(request.body, "")
        counted = path not in ("/health", "/stats") or fault == "health is counted"
        before = self.server.count_request() if counted else 0
        methods = METHODS.get(path, (request.method,))
        if path == "/devices" and self.server.takes_inserts:
            methods += ("POST",)
        if request.method not in methods and fault != "methods are ignored":
            raise RefusedError(405, "method not allowed")
        if request.too_large and path in METHODS:
            raise RefusedError(413, "too large")
        return self.answer_of(request, path, before)

    def answer_of(self, request: Request, path: str, before: int) -> tuple[int, Any]:
        fault = self.fault
        pool = self.server.pool
        if path == "/health":
            name = "other" if fault == "wrong name" else "faulty"
            return 200, {
                "status": "ok",
                "server": name,
                "nonce": "old" if fault == "wrong nonce" else NONCE,
            }
        if path == "/stats":
            return 200, self.server.stats()
        if path == "/count":
            return 200, {
                "code": 200,
                "message": str(before) if fault == "count is text" else before,
            }
        if path == "/devices" and request.method == "POST":
            return 201, self.insert(request.body)
        if path == "/devices":
            inserted = fault == "inserts are listed" and pool and pool.database.table
            return 200, DEVICES[:-1] if fault == "a device is missing" or inserted else DEVICES
        if path in METHODS:
            return 200, self.experiment(path, request.body)
        return 404 if fault == "404 as status" else 200, {"code": 404, "message": "not found"}

    def insert(self, body: bytes) -> dict[str, Any]:
        mac, firmware = read_device(body, self.fault)
        if self.server.pool is None:
            raise RefusedError(
                500 if self.fault == "500 without a database" else 503, "no database"
            )
        with self.turn_where("all wait for the database"):
            return self.server.pool.insert(mac, firmware)

    def experiment(self, path: str, body: bytes) -> dict[str, Any]:
        fault = self.fault
        with self.turn_where("all wait for the database"):
            pass
        try:
            experiment = read_experiment(body, fault)
        except RefusedError:
            if fault == "md5 is not validated" and path.endswith("md5"):
                return {"name": "x", "variants": []}
            raise
        if path.endswith("md5"):
            text = experiment["name"] + (
                f"-{int(time.time())}" if fault != "md5 of the name alone" else ""
            )
            digest = hashlib.md5(text.encode("utf-8", "replace")).hexdigest()
            experiment["name"] = digest.upper() if fault == "md5 in capitals" else digest
        if fault == "variants come back empty":
            experiment["variants"] = []
        return experiment

    def answer(self, request: Request | None, status: int, body: Any, kept: bool) -> None:
        fault = self.fault
        minor = request.minor if request else 1
        data = json.dumps(
            body, separators=(", ", ": ") if fault == "spaces in JSON" else (",", ":")
        ).encode()
        as_text = (
            fault == "text instead of JSON" and request is not None and request.path == "/devices"
        )
        if status == 405 and fault == "405 without an error":
            data = b"{}"
        lines = [
            f"HTTP/1.1 {status} Answer",
            f"Content-Type: {'text/plain' if as_text else 'application/json'}",
        ]
        if fault == "chunks for HTTP/1.0" and minor == 0:
            lines.append("Transfer-Encoding: chunked")
            data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)
        else:
            lines.append(f"Content-Length: {len(data)}")
        if not kept and fault != "close is not announced":
            lines.append("Connection: close")
        if kept and minor == 0 and fault != "HTTP/1.0 is kept, unsaid":
            lines.append("Connection: keep-alive")
        if request and request.method == "HEAD" and fault != "HEAD has a body":
            data = b""
        with self.turn_where("a slow reader blocks all"):
            self.request.sendall("\r\n".join([*lines, "", ""]).encode() + data)

    def turn_where(self, fault: str) -> AbstractContextManager[Any]:
        """Return the server's lock if the server has the fault `fault`.

        Only one request at a time can hold this lock, so that other requests must wait. If the
        server does not have the fault, return a context that does nothing.
        """
        return self.server.turn if self.fault == fault else nullcontext()


def server_record(implements: tuple[str, ...] = ALL) -> Server:
    """Return the description of the test server that the lab would read from a server.toml."""
    return replace(
        load_server("gin"),
        name="faulty",
        folder=Path("faulty"),
        tier="realistic",
        implements=implements,
    )


@contextmanager
def faulty_server(
    fault: str = "", database: MemoryDatabase | None = None
) -> Iterator[FaultyServer]:
    with FaultyServer(fault, database) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            with suppress(RuntimeError):
                server.turn.release()
            server.shutdown()
            thread.join()
