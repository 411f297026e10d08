"""Measure the server's response time during a load, by a few requests at planned times.

Run as `python -m runner.measure.probe HZ CPUS`. The probe runs on CPUS, and sends HZ requests per
second. loading.py sends the commands, which are JSON objects, one per line of standard input. A
command that describes a request begins a series, in which the probe sends this request repeatedly.
Such a command has the fields `method`, `path`, `body` and `port`, and optionally `address` (default
127.0.0.1), `host` (default `lab`), `tls` with the fields of `Tls`, and `hz`, which replaces HZ for
this server. The next command, `pause`, ends the series. The probe answers `pause` with the samples
of the series, the CPU time that the probe used for the series, and the duration of the series. The
probe ends when its input ends.

The latency of a request counts from the time at which the request was due. So if a server hangs for
a second, every request that was due in that second is late, as it would be for independent users. A
closed-loop generator does not send these requests at all, so the latencies that it measures look
too good.
"""

import errno
import json
import os
import random
import select
import socket
import ssl
import sys
import time
from array import array
from collections.abc import Callable

from runner.http_response import RECEIVE_BYTES, Response, ResponseReader
from runner.measure.idle import answer, become_instrument
from runner.measure.tls import HTTP_1, Tls
from runner.measurement import PROBE_COLUMNS, PROBE_CONNECTIONS

GIVE_UP_NS = 10_000_000_000
"""If an answer takes longer than this, the probe gives up the request.

The HTTP contract requires faster answers.
"""
END = "end"  # the command that `Schedule.run` returns at the end of input
Securing = Callable[[socket.socket], ssl.SSLSocket]
"""A function that prepares a socket for TLS, but leaves the handshake to the caller."""


class Connection:
    """A connection to the server, which is kept open and has at most one request under way.

    The probe does not wait while it connects and makes the TLS handshake, but goes on with other
    requests. So if the first SYN of a connection is lost, only one request is late by a second, and
    the other requests that are due in that second are sent in time.
    """

    def __init__(self, address: tuple[str, int], securing: Securing | None = None) -> None:
        family, kind, protocol, _, place = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        self.channel: socket.socket = socket.socket(family, kind, protocol)
        self.channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The socket is read only when it is ready, so it needs no timeout. A timeout would cost a
        # system call for each read.
        self.channel.setblocking(False)
        code = self.channel.connect_ex(place)
        if code not in (0, errno.EINPROGRESS):
            self.channel.close()
            raise OSError(code, os.strerror(code))
        self._securing = securing
        self.is_connecting = code != 0 or securing is not None
        # True if the next step of connecting has to wait for data from the server.
        self.waits_for_reading = False
        self.row = -1  # index in `Schedule.rows` of the request under way
        self._reader = ResponseReader()
        self._waiting = b""

    def send(self, row: int, request: bytes) -> None:
        """Send a request, or keep it until the connection is established.

        Sending does not block, because a request is so short that it fits into the socket's buffer.
        """
        self.row = row
        self._reader = ResponseReader()
        self._waiting = request
        if not self.is_connecting:
            self.channel.sendall(request)

    def go_on_connecting(self) -> None:
        """Take the next step of connecting; after the last step, send the waiting request.

        Raise OSError if connecting failed.
        """
        code = self.channel.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        if self._securing is not None and not isinstance(self.channel, ssl.SSLSocket):
            # The new socket has the same file descriptor.
            self.channel = self._securing(self.channel)
        if isinstance(self.channel, ssl.SSLSocket):
            try:
                self.channel.do_handshake()
            except ssl.SSLWantReadError:
                self.waits_for_reading = True
                return
            except ssl.SSLWantWriteError:
                self.waits_for_reading = False
                return
        self.is_connecting = False
        self.channel.sendall(self._waiting)

    def read(self) -> Response | None:
        """Return the response, or None while it is incomplete.

        Raise OSError if the connection was closed, and ValueError if the answer is not HTTP.
        """
        try:
            received = self.channel.recv(RECEIVE_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            # The socket was ready, but contains nothing to read: the kernel dropped a packet with a
            # wrong checksum, or TLS has not received a whole record yet.
            return None
        self._reader.feed(received)
        return self._reader.take()

    def is_closed(self) -> bool:
        """Return whether the server has closed this idle connection.

        Call this method only if the connection is ready to be read. The server owes no response on
        an idle connection. So without TLS, the connection can be ready only because the server has
        closed it. With TLS, the server may also have sent a message of the TLS protocol, such as a
        session ticket. In this case, return False.
        """
        if not isinstance(self.channel, ssl.SSLSocket):
            return True
        try:
            self.channel.recv(RECEIVE_BYTES)
        except ssl.SSLWantReadError:
            return False  # a record of TLS itself, such as a session ticket
        except OSError:
            return True
        return True


class Beat:
    """The times at which requests to a server are due: one at a random time in every period.

    The times are random because requests at equal distances could always hit the same phase of a
    load with a fixed rate. The clock by which requests are due stops between two series. So even if
    a period is longer than a slice of a session, each slice gets its share of requests on average.
    """

    def __init__(self, period_ns: int, seed: int) -> None:
        self._period_ns = period_ns
        self._random = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self._periods = 0
        # The reading of CLOCK_MONOTONIC at which the first period began. Each time the clock is
        # started again, the time for which it did not run is added.
        self._zero_ns = 0
        self._stopped_at_ns = 0  # how long the clock had run when it was last stopped
        # The next request is due when the clock has run for this long.
        self._next_ns = self._random.randrange(period_ns)

    @property
    def due_ns(self) -> int:
        """When the next request is due, by CLOCK_MONOTONIC."""
        return self._zero_ns + self._next_ns

    def start(self) -> None:
        """Continue the clock from where it stopped."""
        self._zero_ns = time.monotonic_ns() - self._stopped_at_ns

    def stop(self) -> None:
        """Stop the clock."""
        self._stopped_at_ns = time.monotonic_ns() - self._zero_ns

    def advance(self) -> None:
        """Choose a random time in the following period, at which the next request is due."""
        self._periods += 1
        self._next_ns = self._periods * self._period_ns + self._random.randrange(self._period_ns)


class Schedule:
    """Sends each request when it is due, on a connection without another request under way.

    One connection is enough as long as each answer arrives before the next request is due. If an
    answer arrives later, the probe opens another connection. On a single connection, the requests
    to a slow server would queue in the probe, and their wait would look like the server's response
    time.
    """

    def __init__(
        self,
        address: tuple[str, int],
        request: bytes,
        beat: Beat,
        securing: Securing | None = None,
    ) -> None:
        self.rows = {name: array("q") for name in PROBE_COLUMNS}
        self._address = address
        self._request = request
        self._beat = beat
        self._securing = securing
        # Open connections by file descriptor. Only busy connections have a request under way.
        self._idle: dict[int, Connection] = {}
        self._busy: dict[int, Connection] = {}

    def run(self) -> str:
        """Send requests and receive answers until a command comes on standard input.

        Return the command once all requests are answered or abandoned. If the input ends, return
        END.
        """
        command = ""
        self._beat.start()
        while not command or self._busy:
            now = time.monotonic_ns()
            # If all connections are busy, nothing can be sent before an answer arrives.
            is_full = len(self._busy) >= PROBE_CONNECTIONS
            wait_s = (
                0.5 if command or is_full else min(0.5, max(0.0, (self._beat.due_ns - now) / 1e9))
            )
            making = [
                each
                for each, one in self._busy.items()
                if one.is_connecting and not one.waits_for_reading
            ]
            # An idle connection becomes readable when the server closes it.
            watched = [*(each for each in self._busy if each not in making), *self._idle]
            ready, made, _ = select.select(
                watched if command else [0, *watched], making, [], wait_s
            )
            if 0 in ready:
                ready.remove(0)
                command = sys.stdin.readline() or END
                self._beat.stop()
            for descriptor in made:
                self._go_on_connecting(descriptor)
            for descriptor in ready:
                self._receive(descriptor)
            if not command:
                self._send_due()
            for connection in list(self._busy.values()):
                if self.rows["scheduled_ns"][connection.row] < now - GIVE_UP_NS:
                    self._end(connection.row)  # the request's row keeps status 0
        for connection in self._idle.values():
            connection.channel.close()
        return command

    def _send_due(self) -> None:
        """Send all requests that are due by now.

        If all connections are busy, a request stays due, and its wait counts as latency.
        """
        while self._beat.due_ns <= time.monotonic_ns() and len(self._busy) < PROBE_CONNECTIONS:
            row = len(self.rows["status"])
            connection = self._idle.popitem()[1] if self._idle else None
            sent_ns = time.monotonic_ns()
            values = (self._beat.due_ns, sent_ns, sent_ns, 0, int(connection is None))
            for name, value in zip(PROBE_COLUMNS, values, strict=True):
                self.rows[name].append(value)
            self._beat.advance()
            try:
                connection = connection or Connection(self._address, self._securing)
                self._busy[connection.channel.fileno()] = connection
                connection.send(row, self._request)
            except OSError:
                self._end(row)
                return  # handle answers and commands before sending more

    def _go_on_connecting(self, descriptor: int) -> None:
        """Take the next step of connecting; if this step fails, end the request."""
        connection = self._busy[descriptor]
        try:
            connection.go_on_connecting()
        except OSError:
            self._end(connection.row)

    def _receive(self, descriptor: int) -> None:
        """Read the answer from a connection that is ready to be read.

        If the connection is not established yet, take the next step of connecting instead. If the
        connection is idle and the server has closed it, close the probe's side, too.
        """
        idle = self._idle.get(descriptor)
        if idle is not None:
            if idle.is_closed():
                del self._idle[descriptor]
                idle.channel.close()
            return
        connection = self._busy[descriptor]
        if connection.is_connecting:
            self._go_on_connecting(descriptor)
            return
        try:
            answer = connection.read()
        except (OSError, ValueError):
            self._end(connection.row)
            return
        if answer is None:
            return
        self.rows["status"][connection.row] = answer.status
        if answer.kept:
            self.rows["received_ns"][connection.row] = time.monotonic_ns()
            self._idle[descriptor] = self._busy.pop(descriptor)
        else:
            self._end(connection.row)

    def _end(self, row: int) -> None:
        """Record the end of a request that was answered or abandoned, and close its connection."""
        self.rows["received_ns"][row] = time.monotonic_ns()
        for descriptor, connection in list(self._busy.items()):
            if connection.row == row:
                self._busy.pop(descriptor)
                connection.channel.close()


def request_bytes(method: str, path: str, body: str, host: str = "lab") -> bytes:
    """Return the bytes of a request in HTTP/1.1."""
    payload = body.encode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
    if payload:
        lines += ["Content-Type: application/json", f"Content-Length: {len(payload)}"]
    return "\r\n".join([*lines, "", ""]).encode() + payload


def main() -> None:
    """Run one series after another, as the commands say, until the input ends."""
    usual_period_ns = become_instrument()
    beats: dict[tuple[str, int], Beat] = {}
    while line := sys.stdin.readline():
        given = json.loads(line)
        securing = Tls(**given["tls"]).begin(HTTP_1) if "tls" in given else None
        answer("ok")
        begun_ns = time.monotonic_ns()
        idle_ns = time.process_time_ns()
        request = request_bytes(
            given["method"], given["path"], given["body"], given.get("host", "lab")
        )
        address = (given.get("address", "127.0.0.1"), given["port"])
        if address not in beats:
            period_ns = round(1e9 / given["hz"]) if "hz" in given else usual_period_ns
            beats[address] = Beat(period_ns, seed=len(beats) + 1)
        schedule = Schedule(address, request, beats[address], securing)
        if schedule.run() == END:
            return
        cost = {
            "cpu_ns": time.process_time_ns() - idle_ns,
            "lived_ns": time.monotonic_ns() - begun_ns,
        }
        answer(
            json.dumps(
                {"samples": {name: list(values) for name, values in schedule.rows.items()}, **cost}
            )
        )


if __name__ == "__main__":
    main()
