"""A small server that keeps the contract, except for the one fault that it is told to have."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NONCE = "n0nce"
DEVICES = [
    {"uuid": "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c01", "mac": "02-00-00-00-00-01", "firmware": "1.0.0"},
    {"uuid": "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c02", "mac": "02-00-00-00-00-02", "firmware": "1.0.4"},
    {"uuid": "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c03", "mac": "02-00-00-00-00-03", "firmware": "1.2.0"},
    {"uuid": "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c04", "mac": "02-00-00-00-00-04", "firmware": "2.0.1"},
    {"uuid": "7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c05", "mac": "02-00-00-00-00-05", "firmware": "3.1.5"},
]
METHODS = {
    "/health": "GET",
    "/stats": "GET",
    "/count": "GET",
    "/devices": "GET",
    "/experiments": "POST",
    "/experiments/md5": "POST",
}


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


class FaultyServer(ThreadingHTTPServer):
    """Counts as the contract says; `fault` is "" or what is wrong with it."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, fault: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.fault = fault
        self.requests = 0
        self.connections = 0
        self.lock = threading.Lock()

    def get_request(self) -> tuple[socket.socket, Any]:
        accepted = super().get_request()
        self.connections += 1
        return accepted

    def count_request(self) -> int:
        if self.fault == "count is racy":
            before = self.requests
            time.sleep(0.0005)
            self.requests = before + 1
            return before
        with self.lock:
            before = self.requests
            self.requests += self.fault != "count stands still"
            return before

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about clients that leave."""


class Handler(BaseHTTPRequestHandler):
    server: FaultyServer
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 20

    def do_GET(self) -> None:
        fault = self.server.fault
        try:
            body = self.read_body()
            status, answer = self.route(body)
        except RefusedError as refused:
            status, answer = refused.status, {"error": str(refused)}
            if fault == "error names no field" and status == 400:
                answer = {"error": "invalid"}
        self.answer(status, answer)

    def __getattr__(self, name: str) -> Any:
        """Treat every method as GET, down to the route that refuses it."""
        if name.startswith("do_"):
            return self.do_GET
        raise AttributeError(name)

    def handle_expect_100(self) -> bool:
        return True if self.server.fault == "no 100-continue" else super().handle_expect_100()

    def read_body(self) -> bytes:
        fault = self.server.fault
        lengths = set(self.headers.get_all("Content-Length", []))
        chunked = "Transfer-Encoding" in self.headers and fault != "chunks are ignored"
        if chunked and not (fault == "smuggling by Content-Length" and lengths):
            self.close_connection = bool(lengths)
            return self.read_chunks()
        wrong = any(not text.isdigit() for text in lengths) or self.headers.defects
        if wrong or (len(lengths) > 1 and fault != "two lengths"):
            self.close_connection = True
            raise RefusedError(400, "malformed header")
        return self.rfile.read(min(map(int, lengths), default=0))

    def read_chunks(self) -> bytes:
        body = b""
        while True:
            try:
                size = int(self.rfile.readline(), 16)
            except ValueError:
                self.close_connection = self.server.fault != "malformed chunks leave it open"
                raise RefusedError(400, "malformed chunk") from None
            body += self.rfile.read(size)
            self.rfile.readline()
            if not size:
                return body

    def route(self, body: bytes) -> tuple[int, Any]:
        fault, path = self.server.fault, self.path.partition("?")[0]
        counted = path not in ("/health", "/stats") or fault == "health is counted"
        if fault == "errors are not counted" and path.startswith("/experiments"):
            read_experiment(body, "")
        before = self.server.count_request() if counted else 0
        if METHODS.get(path, self.command) != self.command and fault != "methods are ignored":
            raise RefusedError(405, "method not allowed")
        if path == "/health":
            name = "other" if fault == "wrong name" else "faulty"
            return 200, {"status": "ok", "server": name, "nonce": "old" if fault == "wrong nonce" else NONCE}
        if path == "/stats":
            return 200, self.stats()
        if path == "/count":
            return 200, {"code": 200, "message": str(before) if fault == "count is text" else before}
        if path == "/devices":
            return 200, DEVICES[:-1] if fault == "a device is missing" else DEVICES
        if path in METHODS:
            return 200, self.experiment(path, body)
        return 404 if fault == "404 as status" else 200, {"code": 404, "message": "not found"}

    def stats(self) -> dict[str, Any]:
        server = self.server
        stats = {"requests": server.requests, "connections": server.connections, "gc": None, "pool": None}
        if server.fault == "connections counts requests":
            stats["connections"] = server.requests
        if server.fault == "stats counts too much":
            stats["requests"] += 1
        if server.fault == "stats lacks pool":
            del stats["pool"]
        return stats

    def experiment(self, path: str, body: bytes) -> dict[str, Any]:
        fault = self.server.fault
        if len(body) > 65536 and fault != "no limit":
            raise RefusedError(413, "too large")
        if fault == "500 for bad JSON":
            try:
                json.loads(body)
            except (ValueError, RecursionError):
                raise RefusedError(500, "internal error") from None
        if fault == "deep nesting kills the connection" and b"[[[[" in body:
            raise ConnectionAbortedError
        try:
            experiment = read_experiment(body, fault)
        except RefusedError:
            if not (fault == "md5 is not validated" and path.endswith("md5")):
                raise
            return {"name": "x", "variants": []}
        if path.endswith("md5"):
            text = (
                experiment["name"] if fault == "md5 of the name alone" else f"{experiment['name']}-{int(time.time())}"
            )
            digest = hashlib.md5(text.encode("utf-8", "replace")).hexdigest()
            experiment["name"] = digest.upper() if fault == "md5 in capitals" else digest
        if fault == "variants come back empty":
            experiment["variants"] = []
        return experiment

    def answer(self, status: int, body: Any) -> None:
        fault = self.server.fault
        data = json.dumps(body).encode()
        if fault == "never keeps alive":
            self.close_connection = True
        closing = self.close_connection
        self.send_response(status)
        kind = "text/plain" if fault == "text instead of JSON" else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if closing and fault != "close is not announced":
            self.send_header("Connection", "close")
        self.close_connection = closing and fault != "close is ignored"
        self.end_headers()
        self.wfile.write(data)
        if fault == "pipelined requests are lost":
            self.rfile = self.connection.makefile("rb")  # what the old one had buffered is gone

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing about requests."""


def read_experiment(body: bytes, fault: str) -> dict[str, Any]:
    """Validate as the contract says, apart from the fault."""
    constant = float if fault == "NaN is accepted" else None
    try:
        experiment = json.loads(body.decode(), parse_constant=constant or reject_constant)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"not JSON: {error}") from None
    if not isinstance(experiment, dict):
        raise RefusedError(400, "not an object")
    check_name(experiment.get("name"), "name", fault)
    variants = experiment.get("variants")
    most = 101 if fault == "101 variants are accepted" else 100
    if not isinstance(variants, list) or not 1 <= len(variants) <= most:
        raise RefusedError(400, "variants must be 1 to 100")
    total = 0.0
    for variant in variants:
        if not isinstance(variant, dict):
            raise RefusedError(400, "variants must be objects")
        check_name(variant.get("name"), "variants.name", fault)
        total += check_percent(variant.get("allocation_percent"), fault)
    exact, tolerance = fault == "sum has no room for rounding", 1.0 if fault == "sum is loose" else 0.01 + 1e-9
    if abs(total - 100) > (0.01 if exact else tolerance):
        raise RefusedError(400, "allocation_percent must sum to 100")
    kept = [{key: v[key] for key in ("name", "allocation_percent")} for v in variants]
    return {"name": experiment["name"], "variants": kept}


def reject_constant(name: str) -> float:
    raise ValueError(name)


def check_name(name: object, field: str, fault: str) -> None:
    if not isinstance(name, str):
        raise RefusedError(400, f"{field} must be text")
    length = len(name.encode("utf-8", "replace")) if fault == "length in bytes" else len(name)
    if not 1 <= length <= (201 if fault == "201 characters are accepted" else 200):
        raise RefusedError(400, f"{field} must have 1 to 200 characters")


def check_percent(percent: object, fault: str) -> float:
    if isinstance(percent, bool) and fault != "bool as a number":
        raise RefusedError(400, "allocation_percent must be a number")
    low, high = (-1, 101) if fault == "range is loose" else (0, 100)
    if not isinstance(percent, int | float) or percent < low or percent > high or percent in (float("inf"),):
        raise RefusedError(400, "allocation_percent must be from 0 to 100")
    return percent


@contextmanager
def faulty_server(fault: str = "") -> Iterator[int]:
    """Serve with that fault and yield the port."""
    with FaultyServer(fault) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
