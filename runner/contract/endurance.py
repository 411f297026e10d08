"""Checks of endurance: rounds of good, bad and abandoned requests must leave nothing behind."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from functools import partial

from runner.contract.checking import Procedure, Result, Rows
from runner.contract.connection import HEALTH, Target, connect, fetch, joined, raw
from runner.contract.connections import PIPELINED, mixed_requests
from runner.contract.experiments import PUBLISHED_BODY
from runner.contract.heads import MALFORMED
from runner.model import LabError, Server

Reading = Callable[[], int | None]

ROUNDS = 3
REQUESTS = 2000
ABANDONED = 500
UNFINISHED = 200
GROWTH_BYTES = 16 << 20
GROWTH_SHARE = 0.2
"""The rounds after the first may add 16 MiB or a fifth, whichever is more: collectors work in steps."""
SPARE_FILES = 16
SETTLE_S = 2.0
UNFINISHED_HEAD = raw(b"GET /health HTTP/1.1\r\nHost: l", 0, 0)
UNFINISHED_BODY = raw(b"POST /experiments HTTP/1.1\r\nHost: lab\r\nContent-Length: 1000\r\n\r\n" + PUBLISHED_BODY)


def endurance_rows(server: Server, resident_bytes: Reading | None, open_files: Reading | None) -> Rows:
    """Return rows for clients who never finish, and for rounds of junk, which leave neither memory nor files behind."""
    memory: list[int | None] = []
    files: list[int | None] = []

    def rounds(target: Target) -> Result:
        for _ in range(ROUNDS):
            _junk(server, target)
            limit = files[0] + SPARE_FILES if files and files[0] is not None else None
            files.append(_settled(open_files, limit))
            memory.append(resident_bytes() if resident_bytes else None)
        answer = fetch(target, HEALTH)
        sent = f"{ROUNDS} rounds of {REQUESTS} requests, {ABANDONED} abandoned and {len(MALFORMED)} malformed ones"
        return answer.status == 200, f"sent {sent}; expected 200 of GET /health afterwards; got {answer.brief}"

    rows: dict[str, Procedure] = {
        f"{UNFINISHED} clients that never finish a head": _try_unfinished,
        "rounds of junk are survived": rounds,
    }
    if resident_bytes is not None:
        rows["memory does not grow with every round"] = partial(_judge, "memory", memory, GROWTH_BYTES, GROWTH_SHARE)
    if open_files is not None:
        rows["open files do not grow with every round"] = partial(_judge, "open files", files, SPARE_FILES, 0)
    return rows


def _try_unfinished(target: Target) -> Result:
    with contextlib.ExitStack() as stack:
        for _ in range(UNFINISHED):
            stack.enter_context(connect(target)).send(UNFINISHED_HEAD)
        began = time.monotonic()
        statuses = [fetch(target, HEALTH).status for _ in range(5)]
        waited_s = time.monotonic() - began
    ok = statuses == [200] * 5 and waited_s < 1
    return ok, f"held {UNFINISHED} connections open; others got {statuses} in {waited_s:.2f} s; expected 200 at once"


def _junk(server: Server, target: Target) -> None:
    requests = joined(sent for sent, _ in mixed_requests(server, PIPELINED))
    for _ in range(4):
        with connect(target) as connection:
            for _ in range(REQUESTS // 4 // PIPELINED):
                connection.send(requests)
                for _ in range(PIPELINED):
                    connection.read()
    abandoned = [UNFINISHED_HEAD, UNFINISHED_HEAD if "experiments" not in server.implements else UNFINISHED_BODY]
    for number in range(ABANDONED):
        with connect(target) as connection:
            connection.send(abandoned[number // 2 % 2])
            if number % 2:  # every second client resets the connection
                connection.channel.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for _, data in MALFORMED:
        with connect(target) as connection:
            connection.send(raw(data))


def _settled(reading: Reading | None, limit: int | None) -> int | None:
    """Return the reading once it is at most `limit`, or after SETTLE_S; without a limit, once it falls no more."""
    if reading is None:
        return None
    deadline = time.monotonic() + SETTLE_S
    now = reading()
    while now is not None and time.monotonic() < deadline:
        if limit is not None and now <= limit:
            break
        time.sleep(0.1)
        before, now = now, reading()
        if limit is None and now is not None and now >= before:
            break
    return now


def _judge(what: str, values: list[int | None], spare: int, share: float, _target: Target) -> Result:
    """Compare the last reading with the first: it may be more by `spare`, or by `share` of the first."""
    known = [value for value in values if value is not None]
    if len(known) < ROUNDS:
        raise LabError(f"the server's {what} could not be read after each of {ROUNDS} rounds", 1)
    allowed = max(spare, round(known[0] * share))
    detail = f"{what} after the rounds: {known}; expected the last at most {allowed} above the first"
    return known[-1] - known[0] <= allowed, detail
