"""A small server that keeps the contract, except for the one fault that it is told to have."""

import hashlib
import json
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from contract_database import MemoryDatabase, Pool
from contract_http import GoneError, Reader, RefusedError, Request
from contract_rules import read_device, read_experiment

from runner.model import Server
from runner.planning.catalog import load_server

NONCE = "n0nce"
POOL_SIZE = 5
ALL = ("health", "count", "fallback", "experiments", "md5", "devices", "stats", "devices-insert")
DEVICES = [
    {"uuid": "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c01", "mac": "02-00-00-00-00-01", "firmware": "1.0.0"},
    {"uuid": "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c02", "mac": "02-00-00-00-00-02", "firmware": "1.0.4"},
    {"uuid": "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c03", "mac": "02-00-00-00-00-03", "firmware": "1.2.0"},
    {"uuid": "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c04", "mac": "02-00-00-00-00-04", "firmware": "2.0.1"},
    {"uuid": "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c05", "mac": "02-00-00-00-00-05", "firmware": "3.1.5"},
]
METHODS = {
    "/health": ("GET", "HEAD"),
    "/stats": ("GET", "HEAD"),
    "/count": ("GET", "HEAD"),
    "/devices": ("GET", "HEAD"),
    "/experiments": ("POST",),
    "/experiments/md5": ("POST",),
}
KEPT_MOST = 70


class FaultyServer(socketserver.ThreadingTCPServer):
    """Counts as the contract says; `fault` is "" or what is wrong with it, `database` what it inserts into."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, fault: str = "", database: MemoryDatabase | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.fault = fault
        self.pool = Pool(database, POOL_SIZE, fault) if database else None
        self.takes_inserts = database is not None or "without a database" in fault
        self.requests = 0
        self.connections = 0
        self.lost = 0
        self.leaked_bytes = 0
        self.leaked_files = 0
        self.lock = threading.Lock()
        self.turn = threading.Lock()

    @property
    def port(self) -> int:
        return self.server_address[1]

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
            lost = self.fault == "a count is lost at times" and before % 500 == 499 and self.lost < 5
            self.lost += lost
            self.requests += self.fault != "count stands still" and not lost
            return before

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about clients that leave."""


class Handler(socketserver.BaseRequestHandler):
    server: FaultyServer

    def handle(self) -> None:
        channel: socket.socket = self.request
        channel.settimeout(20)
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = Reader(channel, self.server.fault)
        self.served = 0
        try:
            while self.serve(reader):
                self.served += 1
        except (GoneError, OSError):
            self.after_leaving()
        finally:
            if self.server.fault == "one connection at a time":
                self.server.turn.release()

    def after_leaving(self) -> None:
        server = self.server
        if server.fault == "leaks memory":
            server.leaked_bytes += 300_000
        if server.fault == "leaks files":
            server.leaked_files += 1
        if server.fault == "a half-closed connection hangs":
            time.sleep(1.5)

    def serve(self, reader: Reader) -> bool:
        """Answer one request; whether the connection stays."""
        try:
            request = reader.read()
        except RefusedError as refused:
            self.answer(None, refused.status, {"error": str(refused)}, kept=not refused.close)
            if self.server.fault == "closes late" and refused.close:
                time.sleep(0.6)
            return not refused.close
        kept = self.keeps(request)
        try:
            status, body = self.route(request)
        except RefusedError as refused:
            status, body = refused.status, {"error": str(refused)}
            if self.server.fault == "error names no field" and status == 400:
                body = {"error": "invalid"}
        self.answer(request, status, body, kept)
        if self.server.fault == "answers after close" and not kept and reader.pending:
            self.serve(reader)
        if self.server.fault == "closes late" and not kept:
            time.sleep(0.6)
        if self.server.fault == "closes at times, but goes on" and not kept:
            with suppress(RefusedError):
                self.route(reader.read())
        return kept or (self.server.fault == "close is ignored" and request.minor == 1)

    def keeps(self, request: Request) -> bool:
        fault, options = self.server.fault, request.options()
        if (
            fault.startswith("closes at times")
            and self.served
            and request.method == "POST"
            and len(request.body) % 3 == 0
        ):
            return False
        if fault == "never keeps alive" or (fault == "closes after a while" and self.served == KEPT_MOST):
            return False
        if (
            fault == "Transfer-Encoding and close"
            and request.values("transfer-encoding")
            and request.values("content-length")
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
        fault, path = self.server.fault, request.path
        if fault == "paths in any case":
            path = path.lower()
        if fault == "a slash more is no matter":
            path = path.rstrip("/") or "/"
        counted = path not in ("/health", "/stats") or fault == "health is counted"
        if fault == "errors are not counted" and path.startswith("/experiments"):
            read_experiment(request.body, "")
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
        fault = self.server.fault
        if path == "/health":
            name = "other" if fault == "wrong name" else "faulty"
            return 200, {"status": "ok", "server": name, "nonce": "old" if fault == "wrong nonce" else NONCE}
        if path == "/stats":
            return 200, self.stats()
        if path == "/count":
            return 200, {"code": 200, "message": str(before) if fault == "count is text" else before}
        if path == "/devices" and request.method == "POST":
            return 201, self.insert(request.body)
        if path == "/devices":
            inserted = fault == "inserts are listed" and self.server.pool and len(self.server.pool.database.table) > 0
            return 200, DEVICES[:-1] if fault == "a device is missing" or inserted else DEVICES
        if path in METHODS:
            return 200, self.experiment(path, request.body)
        return 404 if fault == "404 as status" else 200, {"code": 404, "message": "not found"}

    def stats(self) -> dict[str, Any]:
        server = self.server
        pool = server.pool.stats() if server.pool else None
        if server.fault == "a pool without a database":
            pool = {"size": 50, "in_use": 0, "idle": 0, "waiting": 0}
        stats = {"requests": server.requests, "connections": server.connections, "gc": None, "pool": pool}
        if server.fault == "connections counts requests":
            stats["connections"] = server.requests
        if server.fault == "stats counts too much":
            stats["requests"] += 1
        if server.fault == "stats lacks pool":
            del stats["pool"]
        return stats

    def insert(self, body: bytes) -> dict[str, Any]:
        mac, firmware = read_device(body, self.server.fault)
        if self.server.pool is None:
            raise RefusedError(500 if self.server.fault == "500 without a database" else 503, "no database")
        if self.server.fault == "all wait for the database":
            with self.server.turn:
                return self.server.pool.insert(mac, firmware)
        return self.server.pool.insert(mac, firmware)

    def experiment(self, path: str, body: bytes) -> dict[str, Any]:
        fault = self.server.fault
        if fault == "all wait for the database":
            with self.server.turn:
                pass
        try:
            experiment = read_experiment(body, fault)
        except RefusedError:
            if not (fault == "md5 is not validated" and path.endswith("md5")):
                raise
            return {"name": "x", "variants": []}
        if path.endswith("md5"):
            name = experiment["name"]
            text = name if fault == "md5 of the name alone" else f"{name}-{int(time.time())}"
            digest = hashlib.md5(text.encode("utf-8", "replace")).hexdigest()
            experiment["name"] = digest.upper() if fault == "md5 in capitals" else digest
        if fault == "variants come back empty":
            experiment["variants"] = []
        return experiment

    def answer(self, request: Request | None, status: int, body: Any, kept: bool) -> None:
        fault = self.server.fault
        data = json.dumps(body, separators=(", ", ": ") if fault == "spaces in JSON" else (",", ":")).encode()
        is_device_list = request is not None and request.path == "/devices"
        kind = "text/plain" if fault == "text instead of JSON" and is_device_list else "application/json"
        if status == 405 and fault == "405 without an error":
            data = b"{}"
        lines = [f"HTTP/1.1 {status} Answer", f"Content-Type: {kind}"]
        if fault == "chunks for HTTP/1.0" and request and request.minor == 0:
            lines.append("Transfer-Encoding: chunked")
            data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)
        else:
            lines.append(f"Content-Length: {len(data)}")
        if not kept and fault != "close is not announced":
            lines.append("Connection: close")
        if kept and request and request.minor == 0 and fault != "HTTP/1.0 is kept, untold":
            lines.append("Connection: keep-alive")
        if request and request.method == "HEAD" and fault != "HEAD has a body":
            data = b""
        self.send("\r\n".join([*lines, "", ""]).encode() + data)

    def send(self, data: bytes) -> None:
        if self.server.fault != "a slow reader blocks all":
            self.request.sendall(data)
            return
        with self.server.turn:
            self.request.sendall(data)


def server_record(implements: tuple[str, ...] = ALL) -> Server:
    """Return what a server.toml would say of the test server."""
    return replace(load_server("gin"), name="faulty", folder=Path("faulty"), tier="realistic", implements=implements)


@contextmanager
def faulty_server(fault: str = "", database: MemoryDatabase | None = None) -> Iterator[FaultyServer]:
    """Serve with that fault."""
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
