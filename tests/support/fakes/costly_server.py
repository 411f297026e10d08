"""A server with one thread and known costs, for tests. Run it as `python costly_server.py PORT`.

Environment variables say how it answers:

- COST_MS is the CPU time of a request, and SIZE the number of bytes in an answer;
- every FAIL_EVERY-th request is answered with 503 (0: none);
- a connection is closed after CLOSE_AFTER requests (0: never).

`/seen` lists the requests so far: time of the answer (nanoseconds since the epoch), status, client
(User-Agent), and number of the connection.
"""

import asyncio
import json
import os
import sys
import time

COST_NS = round(1e6 * float(os.environ.get("COST_MS", "0")))
SIZE = int(os.environ.get("SIZE", "2"))
FAIL_EVERY = int(os.environ.get("FAIL_EVERY", "0"))
CLOSE_AFTER = int(os.environ.get("CLOSE_AFTER", "0"))
BODY = b"x" * SIZE
SEEN = []


def burn():
    """Use up the CPU time of a request."""
    until_ns = time.thread_time_ns() + COST_NS
    while time.thread_time_ns() < until_ns:
        pass


class Connection(asyncio.Protocol):
    """A connection on which one request after the other is answered."""

    count = 0

    def connection_made(self, transport):
        Connection.count += 1
        self.number = Connection.count
        self.transport = transport
        self.received = b""
        self.answered = 0

    def data_received(self, data):
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, self.received = self.received.partition(b"\r\n\r\n")
            self.answer(head.decode("latin-1"))

    def answer(self, head):
        lines = head.split("\r\n")
        if lines[0].split()[1] == "/seen":
            self.send(200, json.dumps(SEEN).encode(), close=True)
            return
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        burn()
        fails = FAIL_EVERY > 0 and len(SEEN) % FAIL_EVERY == FAIL_EVERY - 1
        self.answered += 1
        status = 503 if fails else 200
        SEEN.append((time.time_ns(), status, headers.get("user-agent", ""), self.number))
        close = self.answered == CLOSE_AFTER or headers.get("connection") == "close"
        self.send(status, BODY, close=close)

    def send(self, status, body, *, close):
        ending = "Connection: close\r\n" if close else ""
        head = f"HTTP/1.1 {status} Known\r\nContent-Length: {len(body)}\r\n{ending}\r\n"
        self.transport.write(head.encode() + body)
        if close:
            self.transport.close()


async def main():
    server = await asyncio.get_running_loop().create_server(
        Connection, "127.0.0.1", int(sys.argv[1]), backlog=1024
    )
    await server.serve_forever()


asyncio.run(main())
