"""Ask the server for its own response time beside a load: one kept connection, few requests, on a fixed schedule.

Run as `python -m runner.measure.probe HZ CPUS PORT`. Commands come as JSON lines on standard input: the request
(`method`, `path`, `body`) begins it, `stop` ends it and is answered with all samples and what they cost; so does the
end of input, without an answer. The runner's side of it is in probing.py.

Latency counts from the scheduled time: a server that hangs for a second is late for every request of that second, as
it would be for users who come and go (what closed-loop generators leave out).
"""

from __future__ import annotations

import gc
import json
import os
import select
import socket
import sys
import time
from array import array

from runner.measure.precedence import take_precedence

COLUMNS = ("scheduled_ns", "sent_ns", "received_ns", "status", "opened")
"""Times of CLOCK_MONOTONIC; status 0 where no answer came; opened 1 where the request opened a connection."""
GIVE_UP_S = 10.0
"""Longer than the slowest answer that the contract allows."""
CHUNK = 65_536


class Client:
    """One kept connection to the server, opened anew where the server has closed it."""

    def __init__(self, port: int, request: bytes) -> None:
        self._port = port
        self._request = request
        self._channel: socket.socket | None = None

    def ask(self) -> tuple[int, int, int, int]:
        """Send the request and wait for its answer; return sent_ns, received_ns, status and opened."""
        opened = int(self._channel is None)
        sent = time.monotonic_ns()
        try:
            channel = self._channel or self._open()
            channel.sendall(self._request)
            status, kept = _read_answer(channel)
            received = time.monotonic_ns()
        except OSError:
            status, kept, received = 0, False, time.monotonic_ns()
        if not kept:
            self._close()
        return sent, received, status, opened

    def _open(self) -> socket.socket:
        self._channel = socket.create_connection(("127.0.0.1", self._port), timeout=GIVE_UP_S)
        self._channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._channel

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = None


def _read_answer(channel: socket.socket) -> tuple[int, bool]:
    """Read one answer that says its length; return its status, and whether the connection is kept."""
    data = b""
    while True:
        received = channel.recv(CHUNK)
        if not received:
            raise ConnectionResetError
        data += received
        head, blank, body = data.partition(b"\r\n\r\n")
        if blank and len(body) >= content_length(head):
            return int(head[9:12]), b"\nconnection: close" not in head.lower()


def content_length(head: bytes) -> int:
    """Return the length that a head announces, 0 where it announces none."""
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def request_bytes(method: str, path: str, body: str) -> bytes:
    """Return the request as it goes over the wire."""
    payload = body.encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: lab"]
    if payload:
        lines += ["Content-Type: application/json", f"Content-Length: {len(payload)}"]
    return "\r\n".join([*lines, "", ""]).encode() + payload


def _wait_until(due_ns: int) -> bool:
    """Sleep until a scheduled time; return False as soon as a command has come."""
    while (left := due_ns - time.monotonic_ns()) > 0:
        if select.select([sys.stdin], [], [], left / 1e9)[0]:
            return False
    return not select.select([sys.stdin], [], [], 0)[0]


def main() -> None:
    """Probe on an absolute schedule until told to stop; a request that is due while another waits follows at once."""
    period_ns = round(1e9 / float(sys.argv[1]))
    os.sched_setaffinity(0, {int(cpu) for cpu in sys.argv[2].split(",")})
    take_precedence()
    request = json.loads(sys.stdin.readline())
    client = Client(int(sys.argv[3]), request_bytes(request["method"], request["path"], request["body"]))
    rows = {name: array("q") for name in COLUMNS}
    gc.disable()  # nothing here is cyclic, and a collection would be a spike of the instrument
    sys.stdout.write("ok\n")
    sys.stdout.flush()
    due = begun = time.monotonic_ns()
    idle_ns = time.process_time_ns()
    while _wait_until(due):
        for name, value in zip(COLUMNS, (due, *client.ask()), strict=True):
            rows[name].append(value)
        due += period_ns
    if sys.stdin.readline():
        cost = {"cpu_ns": time.process_time_ns() - idle_ns, "lived_ns": time.monotonic_ns() - begun}
        sys.stdout.write(json.dumps({"samples": {name: list(values) for name, values in rows.items()}, **cost}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
