"""Checks of connections: keep-alive, closing, slow clients, pipelining, and resource leaks."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from runner.contract.client import TIMEOUT_S, Target, TimedResponse
from runner.contract.endpoints import IS_DEVICES, IS_NOT_FOUND, NOT_FOUND, is_counting, read_count
from runner.contract.experiments import PUBLISHED_BODY, echo_of, experiment_body
from runner.contract.framing import MALFORMED, post_chunks
from runner.contract.messages import HEALTH, UNKNOWN, Message, chunked, joined, raw, request
from runner.contract.rows import OK, End, Exchange, Expected, Result, Rows, json_body, shown
from runner.model import LabError, Server

KEPT_REQUESTS = 100
PIPELINED = 50
CLOSE_OPTIONS = (
    *(
        "Connection: Close",
        "Connection: CLOSE",
        "Connection: keep-alive, close",
        "Connection: close, x-option",
    ),
    *(
        "Connection: x-option,close",
        "Connection: keep-alive\r\nConnection: close",
        "cONNECTION:close",
    ),
)


def connection_rows(server: Server) -> Rows:
    """Return checks of keep-alive, closing and slow clients, on endpoints that every server has."""
    kept = Expected(
        "200 without `Connection: close`",
        lambda answer: answer.status == 200 and not answer.announces_close,
    )
    same = Expected(
        "200 with `Connection: close`",
        lambda answer: answer.status == 200 and answer.announces_close,
    )
    closing = request("GET", "/health", headers=(("Connection", "close"),))
    rows: Rows = {
        "keep-alive: two requests on one connection": Exchange(
            HEALTH, kept, Exchange(HEALTH, kept)
        ),
        f"keep-alive: {KEPT_REQUESTS} requests on one connection": _repeated(
            UNKNOWN, IS_NOT_FOUND, KEPT_REQUESTS
        ),
        "close: Connection: close closes": Exchange(closing, same, End.CLOSED),
        # RFC 9112, section 9.6: after a request with `Connection: close`, the server must not
        # process further requests of this connection.
        "close: nothing after it is answered": Exchange(
            (closing + UNKNOWN).maybe_counted(), OK, End.CLOSED
        ),
        "HTTP/1.0 closes": Exchange(_health("", "HTTP/1.0"), OK, End.CLOSED),
        "HTTP/1.0 with keep-alive": _try_http_1_0_keep_alive,
        "HTTP/1.0 gets no chunks": Exchange(
            raw(b"GET /no-such-path HTTP/1.0\r\n\r\n", 1), IS_UNCHUNKED
        ),
        "header names in any case": Exchange(
            _health("hOST: lab\r\ncONNECTION:close\r\n"), OK, End.CLOSED
        ),
        # RFC 9112, section 3.2.2: an absolute-form target must be accepted by all servers, not only
        # by proxies.
        "an absolute-form target": Exchange(
            _health("Host: lab\r\n", target="http://lab/health"), IS_HEALTH
        ),
        "half-closed connection": _try_half_closed,
        "slow client": Exchange(HEALTH.cut(-(-len(HEALTH.data) // 6), 0.05), OK),
        # Two requests are sent, because a parser that keeps its state between bytes must also find
        # the start of the second request.
        "slow client: byte by byte": Exchange((HEALTH + HEALTH).cut(1, 0.001), (OK, OK)),
        "slow reader": partial(_try_slow_reader, server),
    }
    options = {
        option.replace("\r\n", ", "): _health(f"Host: lab\r\n{option}\r\n")
        for option in CLOSE_OPTIONS
    }
    return {
        **rows,
        **{f"close: {name}": Exchange(sent, OK, End.CLOSED) for name, sent in options.items()},
    }


def pipelining_rows(server: Server, seed: int) -> Rows:
    """Return checks of pipelined requests of every kind that the server implements.

    One check cuts its requests into pieces at random bytes, which `seed` determines.
    """
    sent, expected = zip(*mixed_requests(server, PIPELINED), strict=True)
    return {
        "pipelining: three requests at once": Exchange(
            HEALTH + UNKNOWN + HEALTH, (IS_HEALTH, IS_NOT_FOUND, IS_HEALTH)
        ),
        f"pipelining: {PIPELINED} mixed requests at once": Exchange(joined(sent), expected),
        f"pipelining: {PIPELINED} mixed requests in random pieces": partial(
            _try_pieces, server, seed
        ),
    }


def mixed_requests(server: Server, size: int) -> list[tuple[Message, Expected]]:
    """Return `size` requests, each with its expected answer.

    The requests are of all kinds that the server implements and counts, one kind after the other.
    """
    made = []
    for number in range(size):
        body = experiment_body(f"page {number} " + "é" * (7 * number % 150))
        echo = json_body(200, echo_of(body))
        half = len(body) // 2
        kinds = [(request("GET", f"/no-such-path/{number}"), IS_NOT_FOUND)]
        if "experiments" in server.implements:
            kinds.append((request("POST", "/experiments", body), echo))
        # Servers written on a raw TCP engine may refuse chunks.
        if "experiments" in server.implements and server.tier != "raw":
            kinds.append((post_chunks(chunked(body[:half], body[half:])), echo))
        if "devices" in server.implements:
            kinds.append((request("GET", "/devices"), IS_DEVICES))
        made.append(kinds[number % len(kinds)])
    return made


def _repeated(sent: Message, expected: Expected, times: int) -> Exchange:
    return Exchange(sent, expected, End.ANY if times == 1 else _repeated(sent, expected, times - 1))


def _health(lines: str, version: str = "HTTP/1.1", target: str = "/health") -> Message:
    return raw(f"GET {target} {version}\r\n{lines}\r\n".encode(), 0, 0)


def _is_health(answer: TimedResponse) -> bool:
    body = answer.json()
    return answer.status == 200 and isinstance(body, dict) and body.get("status") == "ok"


IS_HEALTH = Expected("200 with the status ok", _is_health)
IS_UNCHUNKED = Expected(
    f"{NOT_FOUND} without Transfer-Encoding",
    lambda answer: (
        answer.status == 200
        and "transfer-encoding" not in answer.headers
        and answer.json() == NOT_FOUND
    ),
)


def _try_http_1_0_keep_alive(target: Target) -> Result:
    with target.connect() as connection:
        connection.send(_health("Connection: keep-alive\r\n", "HTTP/1.0"))
        answer = connection.read()
        if answer.headers.get("connection", "").lower() == "keep-alive":
            connection.send(_health("Connection: keep-alive\r\n", "HTTP/1.0"))
            second = connection.read()
            ok = (answer.status, second.status) == (200, 200)
            return (
                ok,
                "sent HTTP/1.0 with keep-alive twice; expected 200 twice; got "
                f"{shown([answer, second])}",
            )
        # A server that keeps a connection of HTTP/1.0 open must announce this in a header. This
        # server did not, so it must close the connection: the client waits for the close.
        last = connection.read_to_the_end()
        ok = answer.status == 200 and not last.answers and last.closed
        return (
            ok,
            f"sent HTTP/1.0 with keep-alive; got {answer.brief}; expected that the server closes; "
            f"got {shown(last.answers, last.closed)}",
        )


def _try_half_closed(target: Target) -> Result:
    with target.connect() as connection:
        connection.send(UNKNOWN.maybe_counted())
        connection.channel.shutdown(socket.SHUT_WR)
        last = connection.read_to_the_end(1.0)
    # The server may treat the half-closed connection as ended, and close it without an answer. But
    # the server must not leave the connection open.
    ok = [answer.status for answer in last.answers] in ([], [200]) and last.closed
    return (
        ok,
        "sent GET and closed the connection for writing; expected 200 or no answer, and that the "
        f"server closes; got {shown(last.answers, last.closed)}",
    )


def _try_slow_reader(server: Server, target: Target) -> Result:
    """Send requests whose answers are larger than the sockets' buffers, and read the answers late.

    The server must answer other clients meanwhile, and must deliver all answers in the end.
    """
    sent = UNKNOWN
    expected = IS_NOT_FOUND
    if "devices" in server.implements:
        sent = request("GET", "/devices")
        expected = IS_DEVICES
    # The requests must fit into the receive buffer of the server's socket, because a server that is
    # blocked in a write need not read.
    times = 500
    with target.connect(2 * TIMEOUT_S, receive_bytes=4096) as connection:
        connection.send(joined([sent] * times))
        # Wait until the server has written as much as the sockets accept.
        time.sleep(0.2)
        began = time.monotonic()
        others = [target.fetch(HEALTH).status for _ in range(5)]
        waited_s = time.monotonic() - began
        for number in range(1, times + 1):
            answer = connection.read()
            if not expected.holds(answer):
                return (
                    False,
                    f"answer {number} of {times}: expected {expected.words}; got {answer.brief}",
                )
    ok = others == [200] * 5 and waited_s < TIMEOUT_S
    return (
        ok,
        f"read {times} answers late; meanwhile other clients got {others} within {waited_s:.2f} "
        f"s; expected only 200, within {TIMEOUT_S:g} s",
    )


def _try_pieces(server: Server, seed: int, target: Target) -> Result:
    """Send requests that are cut at random bytes, until all requests have been answered.

    Any answer may announce that the server will close the connection (RFC 9112, section 9.6). Then
    the server must ignore the later requests of this connection, and the client sends these
    requests again over a new connection.
    """
    requests = mixed_requests(server, PIPELINED)
    random = Random(seed)  # noqa: S311
    before = read_count(target) if is_counting(server) else 0
    connections = 0
    while requests:
        connections += 1
        with target.connect() as connection:
            # The tally does not include the requests yet: each request is added to it below, just
            # before the request's answer is read.
            data = joined(sent for sent, _ in requests).data
            pieces = []
            while data:
                size = random.choice((1, 2, random.randint(1, 400)))
                pieces.append(data[:size])
                data = data[size:]
            # Without a pause, the kernel joins the pieces.
            connection.send(Message(tuple(pieces), pause_s=0.0005))
            announced = False
            while requests and not announced:
                target.count(1, 1)
                answer = connection.read()
                _, expected = requests.pop(0)
                announced = answer.announces_close
                if not expected.holds(answer):
                    place = f"seed {seed}, request {PIPELINED - len(requests)} of {PIPELINED}"
                    return False, f"{place}: expected {expected.words}; got {answer.brief}"
            target.count(0, len(requests))
    number = read_count(target) - before - 1 if is_counting(server) else PIPELINED
    detail = (
        f"seed {seed}: all requests were answered, over {connections} connections; the server "
        f"counted {number} of {PIPELINED}"
    )
    return number == PIPELINED, detail


Reading = Callable[[], int | None]

ROUNDS = 3
UNFINISHED = 200
GROWTH_BYTES = 16 << 20
GROWTH_SHARE = 0.2
"""After the first round, the server's memory may grow by 16 MiB or by 20 %, whichever is more.

Garbage collectors enlarge the heap in steps, so a small growth is not a leak.
"""
SPARE_FILES = 16
CONNECTIONS_SETTLE_S = 2.0
UNFINISHED_HEAD = raw(b"GET /health HTTP/1.1\r\nHost: l", 0, 0)
UNFINISHED_BODY = raw(
    b"POST /experiments HTTP/1.1\r\nHost: lab\r\nContent-Length: 1000\r\n\r\n" + PUBLISHED_BODY
)


@dataclass(frozen=True)
class Junk:
    """The size of a round of junk.

    A round of junk is a number of complete requests, then a number of requests whose client closes
    the connection before the request is complete, and then the MALFORMED requests.
    """

    requests: int = 2000
    abandoned: int = 500


JUNK = Junk()


def endurance_rows(
    server: Server,
    resident_bytes: Reading | None,
    open_files: Reading | None,
    junk: Junk = JUNK,
) -> Rows:
    """Return checks with clients that never finish a request, and with rounds of `junk`.

    The server must still answer other clients. From the first round to the last, its memory and
    the number of its open files must hardly grow. If `resident_bytes` is None, the check of the
    memory is left out. If `open_files` is None, the check of the open files is left out.
    """
    memory: list[int | None] = []
    files: list[int | None] = []

    def rounds(target: Target) -> Result:
        for _ in range(ROUNDS):
            _send_junk(server, target, junk)
            limit = files[0] + SPARE_FILES if files and files[0] is not None else None
            files.append(_settled(open_files, limit) if open_files else None)
            memory.append(resident_bytes() if resident_bytes else None)
        answer = target.fetch(HEALTH)
        sent = (
            f"{ROUNDS} rounds of {junk.requests} requests, {junk.abandoned} abandoned and "
            f"{len(MALFORMED)} malformed ones"
        )
        return (
            answer.status == 200,
            f"sent {sent}; expected 200 of GET /health afterwards; got {answer.brief}",
        )

    rows: dict[str, Callable[[Target], Result]] = {
        f"{UNFINISHED} clients that never finish a head": _try_unfinished,
        "rounds of junk are survived": rounds,
    }
    if resident_bytes is not None:
        rows["memory does not grow with every round"] = partial(
            _judge, "memory in bytes", memory, GROWTH_BYTES, GROWTH_SHARE
        )
    if open_files is not None:
        rows["open files do not grow with every round"] = partial(
            _judge, "open files", files, SPARE_FILES, 0
        )
    return rows


def _try_unfinished(target: Target) -> Result:
    with contextlib.ExitStack() as stack:
        for _ in range(UNFINISHED):
            stack.enter_context(target.connect()).send(UNFINISHED_HEAD)
        began = time.monotonic()
        statuses = [target.fetch(HEALTH).status for _ in range(5)]
        waited_s = time.monotonic() - began
    ok = statuses == [200] * 5 and waited_s < 1
    return (
        ok,
        f"held {UNFINISHED} connections open; meanwhile other clients got {statuses} within "
        f"{waited_s:.2f} s; expected only 200, within 1 s",
    )


def _send_junk(server: Server, target: Target, junk: Junk) -> None:
    requests = joined(sent for sent, _ in mixed_requests(server, PIPELINED))
    for _ in range(4):
        with target.connect() as connection:
            for _ in range(junk.requests // 4 // PIPELINED):
                connection.send(requests)
                for _ in range(PIPELINED):
                    connection.read()
    abandoned = [
        UNFINISHED_HEAD,
        UNFINISHED_HEAD if "experiments" not in server.implements else UNFINISHED_BODY,
    ]
    for number in range(junk.abandoned):
        with target.connect() as connection:
            connection.send(abandoned[number // 2 % 2])
            if number % 2:  # every second client resets the connection
                connection.channel.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
    for _, data in MALFORMED:
        with target.connect() as connection:
            connection.send(raw(data))


def _settled(reading: Reading, limit: int | None) -> int | None:
    """Wait until a number of the server, such as its open files, is at most `limit`.

    If `limit` is None, wait until the number no longer falls. In both cases, wait for at most
    CONNECTIONS_SETTLE_S. `reading` is the function that reads the number. Return the value that was
    read last. Return None if the number could not be read.
    """
    deadline = time.monotonic() + CONNECTIONS_SETTLE_S
    now = reading()
    while now is not None and time.monotonic() < deadline and (limit is None or now > limit):
        time.sleep(0.1)
        before = now
        now = reading()
        if limit is None and now is not None and now >= before:
            break
    return now


def _judge(
    what: str, values: list[int | None], spare: int, share: float, _target: Target
) -> Result:
    """Check that a number of the server did not grow much from the first round to the last.

    `what` names the number, and `values` are its values after each round. The last value may exceed
    the first value by `spare`, or by the share `share` of the first value, whichever is more. Raise
    LabError if a value could not be read.
    """
    known = [value for value in values if value is not None]
    if len(known) < ROUNDS:
        raise LabError(f"the server's {what} could not be read after each of {ROUNDS} rounds", 1)
    allowed = max(spare, round(known[0] * share))
    detail = (
        f"{what} after each round: {known}; expected that the last number is at most {allowed} "
        "above the first"
    )
    return known[-1] - known[0] <= allowed, detail
