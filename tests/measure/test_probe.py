"""Tests of the probe with servers of known behaviour: the probe must measure their known delays."""

import contextlib
import json
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cells import cell_of, changed
from measured import measured
from tls_servers import Authority

from runner.digest import probe as digest
from runner.digest.probe import (
    probe_percentiles,
    read_probe,
    reopened_share,
    saw_the_same,
    without_probe,
)
from runner.digest.reconcile import may_hold
from runner.digest.resources import Window
from runner.http_response import ResponseReader, parse_head
from runner.measure.probe import request_bytes
from runner.measurement import PROBE_CONNECTIONS, Counters
from runner.model import OWN_GET, OWN_SCRIPT, LabError

pytestmark = pytest.mark.timed

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server(socketserver.ThreadingTCPServer):
    """A server that counts its requests, and answers its n-th request with `reply(n)`.

    If the reply is None, the server closes the connection without an answer. Each connection has a
    thread of its own, so requests on different connections do not wait for each other. But with
    `one_at_a_time`, each request waits until the previous request is answered, so that one slow
    reply makes the whole server hang.
    """

    daemon_threads = True

    def __init__(self, reply=lambda _: ANSWER, one_at_a_time=False, backlog=128, files=None):
        self.request_queue_size = backlog
        self.secured = None
        if files is not None:
            self.secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.secured.load_cert_chain(files.certificate, files.key)
        self.reply = reply
        self.lock = threading.Lock() if one_at_a_time else contextlib.nullcontext()
        self.seen = []
        self.accepted = 0
        super().__init__(("127.0.0.1", 0), None)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def process_request(self, channel, address):
        self.accepted += 1
        super().process_request(channel, address)

    def finish_request(self, channel, address):
        if self.secured is None:
            self.answer(channel)
            return
        with self.secured.wrap_socket(channel, server_side=True) as secured:
            self.answer(secured)

    def answer(self, channel):
        while data := channel.recv(65536):
            with self.lock:
                self.seen.append(data)
                answer = self.reply(len(self.seen))
            channel.sendall(answer or b"")
            if answer is None or b"connection: close" in answer.lower():
                break


def after(seconds):
    """Wait for some seconds, and return ANSWER."""
    time.sleep(seconds)
    return ANSWER


def started(port, **more):
    """Start the real probe, and let it send requests to the server at `port`."""
    command = [sys.executable, "-m", "runner.measure.probe", "40", "0,1"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    asked = {"method": "POST", "path": "/devices", "body": '{"mac":"é"}', "port": port, **more}
    process.stdin.write(json.dumps(asked) + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ok\n"
    return process


def probe(server, seconds, **more):
    """Run the real probe for some seconds.

    Return the columns of the probe's samples, and the latency of each request in ms.
    """
    process = started(server.server_address[1], **more)
    time.sleep(seconds)
    out, _ = process.communicate('{"pause": true}\n', timeout=20)
    server.shutdown()
    server.server_close()
    answer = json.loads(out)
    assert 0 < answer["cpu_ns"] < 0.2 * answer["lived_ns"]
    rows = {name: np.array(values) for name, values in answer["samples"].items()}
    return rows, (rows["received_ns"] - rows["scheduled_ns"]) / 1e6


def test_a_known_delay_comes_back_and_the_schedule_is_kept():
    server = Server(lambda _: after(0.005))
    rows, latency_ms = probe(server, 2.0)
    assert 75 <= len(rows["status"]) <= 82 and set(rows["status"]) == {200}
    # Two requests that are due within 5 ms need two connections.
    assert rows["opened"].sum() == server.accepted <= 3
    since_ns = rows["scheduled_ns"] - rows["scheduled_ns"][0]
    out_of_step = since_ns / 25_000_000 - np.arange(len(since_ns))
    assert (np.abs(out_of_step) < 1).all(), "one in every period"
    assert len(set(since_ns % 25_000_000)) > 60
    assert latency_ms.min() >= 5 and np.median(latency_ms) == pytest.approx(5, abs=1.5)
    body = '{"mac":"é"}'.encode()
    assert server.seen[0].endswith(b"\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def over_tls(folder, reply, **tls):
    """Probe a server over TLS for 2 s; return the result of `probe`, followed by the server."""
    authority = Authority(folder)
    server = Server(reply, files=authority.certificate())
    trusted = {"name": "127.0.0.1", "ca": str(authority.ca), **tls}
    return (*probe(server, 2.0, tls=trusted), server)


def test_a_known_delay_comes_back_over_tls(tmp_path):
    """The probe measures a known delay over TLS.

    Only the first request on a connection takes longer, because it includes the handshake.
    """
    rows, latency_ms, server = over_tls(tmp_path, lambda _: after(0.005))
    assert 75 <= len(rows["status"]) <= 82 and set(rows["status"]) == {200}
    assert rows["opened"].sum() == server.accepted <= 3
    assert latency_ms.min() >= 5 and np.median(latency_ms) == pytest.approx(5, abs=1.5)


def test_a_long_answer_over_tls_comes_whole(tmp_path):
    """An answer of many TLS records is read whole, even if the server closes the connection."""
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + 300_000 * b"x"
    closing = long.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
    rows, _, server = over_tls(tmp_path, lambda number: closing if number % 2 else long)
    assert len(rows["status"]) > 70 and set(rows["status"]) == {200}
    assert rows["opened"].sum() == server.accepted > 30


def test_an_untrusted_certificate_is_no_answer(tmp_path):
    rows, _, server = over_tls(tmp_path, lambda _: ANSWER, ca=None)
    assert len(rows["status"]) > 70 and set(rows["status"]) == {0}
    assert server.seen == []


def series(process, server, hz, seconds):
    """Let a started probe send `hz` requests per second to a server for some seconds.

    Return the times at which the probe's requests were due.
    """
    asked = {"method": "GET", "path": "/", "body": "", "port": server.server_address[1], "hz": hz}
    process.stdin.write(json.dumps(asked) + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ok\n"
    time.sleep(seconds)
    process.stdin.write('{"pause": true}\n')
    process.stdin.flush()
    return json.loads(process.stdout.readline())["samples"]["scheduled_ns"]


def test_a_period_longer_than_a_slice_goes_on_in_the_next_one():
    """In eight slices of 0.2 s at 2.5 requests/s, the probe sends four requests in all.

    The schedule goes on from slice to slice, so the probe does not send a request in each slice.
    """
    server = Server()
    command = [sys.executable, "-m", "runner.measure.probe", "40", "0,1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        counts = [len(series(process, server, hz=2.5, seconds=0.2)) for _ in range(8)]
        process.stdin.close()
    server.shutdown()
    assert 3 <= sum(counts) <= 5
    assert counts.count(0) >= 3


def test_two_servers_have_a_rate_each():
    often = Server()
    seldom = Server()
    command = [sys.executable, "-m", "runner.measure.probe", "40", "0,1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        first = len(series(process, often, hz=40, seconds=0.5))
        second = len(series(process, seldom, hz=10, seconds=0.5))
        process.stdin.close()
    for server in (often, seldom):
        server.shutdown()
    assert 18 <= first <= 22
    assert 4 <= second <= 6


def test_a_hanging_server_is_late_for_every_request_meanwhile():
    """If a server hangs for 1 s, all 40 requests that are due meanwhile must have long latencies.

    The latency of each of these requests is 25 ms shorter than that of the previous one.
    """
    rows, latency_ms = probe(
        Server(lambda number: after(float(number == 10)), one_at_a_time=True), 2.0
    )
    hung_ms = latency_ms.max()
    assert hung_ms >= 1000
    assert (latency_ms > 500).sum() == pytest.approx((hung_ms - 500) / 25, abs=2)
    assert set(rows["status"]) == {200}


def test_requests_of_a_slow_server_do_not_queue_in_the_probe():
    """Requests do not queue in the probe, even if every answer takes four times the probe's period.

    The reason is that the probe opens further connections. On a single connection, each request
    would wait longer than the previous one.
    """
    server = Server(lambda _: after(0.1))
    rows, latency_ms = probe(server, 2.0)
    assert np.median(latency_ms) == pytest.approx(100, abs=10)
    assert np.percentile(latency_ms, 90) < 130
    assert 4 <= rows["opened"].sum() == server.accepted <= 8


CLOSING = ANSWER.replace(b"Content", b"Connection: close\r\nContent")


def test_a_server_that_closes_is_asked_over_a_new_connection():
    server = Server(
        lambda number: None if number % 10 == 0 else CLOSING if number % 5 == 0 else ANSWER
    )
    rows, _ = probe(server, 1.0)
    assert (rows["status"] == 0).sum() == len(server.seen) // 10
    assert rows["opened"].sum() == server.accepted
    assert len(rows["status"]) >= 36


def test_an_unaccepted_connection_holds_up_no_other_request():
    """A request that waits for its connection does not delay the requests that are due later.

    The server accepts no connection for 0.3 s. Each request opens a connection, and the server's
    backlog is one, so the kernel drops some attempts to connect in this time. The client connects
    again only after a second, so that these requests are late by about a second.
    """

    class Stalling(Server):
        def process_request(self, *connection):
            if self.accepted == 19:
                # this method runs in the thread that accepts connections, so it blocks that thread
                time.sleep(0.3)
            super().process_request(*connection)

    rows, latency_ms = probe(Stalling(lambda _: CLOSING, backlog=1), 3.0)
    late = latency_ms > 100
    assert latency_ms.max() > 900
    assert 5 <= late.sum() < 40
    since_s = (rows["scheduled_ns"] - rows["scheduled_ns"][late][0]) / 1e9
    meanwhile = (since_s > 0.4) & (since_s < 0.9)
    assert not late[meanwhile].any(), "the others went on while the first of them waited"
    assert meanwhile.sum() >= 18
    assert set(rows["status"]) == {200}


def test_a_connection_closed_by_the_server_is_not_used_again():
    """The probe does not use a connection again that the server has closed.

    The server closes each connection after 0.1 s without requests. Now and then two requests
    overlap, so that the probe opens a second connection, which is idle afterwards.
    """

    class Ending(Server):
        def finish_request(self, channel, address):
            channel.settimeout(0.1)  # 0.1 s is twice the longest interval between two requests
            with contextlib.suppress(TimeoutError):
                super().finish_request(channel, address)

    server = Ending(lambda _: after(0.012))
    rows, _ = probe(server, 3.0)
    assert set(rows["status"]) == {200}
    assert rows["opened"].sum() == server.accepted > 8


def test_the_end_of_input_ends_it():
    process = started(Server().server_address[1])
    assert (process.communicate(timeout=10), process.returncode) == (("", None), 0)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_what_goes_over_the_wire():
    assert request_bytes("GET", "/count", "") == b"GET /count HTTP/1.1\r\nHost: lab\r\n\r\n"
    assert request_bytes("GET", "/", "", "api.test:81").splitlines()[1] == b"Host: api.test:81"
    assert parse_head(b"HTTP/1.1 200 OK\r\ncontent-LENGTH:  17").length == 17
    assert parse_head(b"HTTP/1.1 204 No Content").length == 0


WHOLE = {
    "length": (b"HTTP/1.1 200 OK\r\ncontent-LENGTH:  2\r\n\r\nok", (200, True)),
    "no body": (b"HTTP/1.1 204 No Content\r\n\r\n", (204, True)),
    "closing": (
        b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nok",
        (200, False),
    ),
    "1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", (200, False)),
    "1.0 kept": (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
        (200, True),
    ),
    "chunks": (CHUNKED + b"4\r\n0\r\n\r\r\n2;x=y\r\nok\r\n0\r\n\r\n", (200, True)),
    "trailers": (CHUNKED + b"a\r\n0123456789\r\n0\r\nDigest: x\r\n\r\n", (200, True)),
    "early hints": (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ANSWER, (200, True)),
}
"""Complete answers, by name: the bytes of the answer, and a pair that the lab must read from them.

The pair consists of the answer's status, and of whether the connection can be used again (RFC 9112,
sections 6.3, 7.1 and 9.3).
"""


def fed(*pieces):
    """Feed the bytes of an answer to a reader, piece by piece.

    Return a list with one element per piece. If the piece completes the answer, the element is a
    pair: the answer's status, and whether the connection can be used again. Otherwise the element
    is None.
    """
    reader = ResponseReader()
    taken = []
    for piece in pieces:
        reader.feed(piece)
        response = reader.take()
        taken.append(response and (response.status, response.kept))
    return taken


@pytest.mark.parametrize("name", WHOLE)
def test_an_answer_ends_with_its_last_byte_and_not_before(name):
    wire, expected = WHOLE[name]
    assert fed(*(wire[at : at + 1] for at in range(len(wire)))) == [None] * (len(wire) - 1) + [
        expected
    ]
    assert fed(wire) == [expected]


def test_an_answer_of_no_known_length_ends_with_its_connection():
    assert fed(b"HTTP/1.1 200 OK\r\n\r\n", b"some", b"") == [None, None, (200, False)]


@pytest.mark.parametrize("short", [ANSWER[:-1], CHUNKED + b"2\r\nok\r\n", b"HTTP/1.1 200"])
def test_an_answer_that_is_cut_off_is_none(short):
    reader = ResponseReader()
    reader.feed(short)
    assert reader.take() is None
    reader.feed(b"")
    with pytest.raises(ConnectionResetError):
        reader.take()


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "not a status line of HTTP"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "not a status line of HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "Content-Length is"),
        (CHUNKED + b"-1\r\nok\r\n", "size of a chunk is"),
    ],
)
def test_what_is_no_http_is_said_to_be(wire, says):
    with pytest.raises(ValueError, match=says):
        fed(wire)


def test_responses_in_one_stream_come_one_by_one():
    reader = ResponseReader()
    reader.feed(WHOLE["early hints"][0] + WHOLE["chunks"][0] + WHOLE["trailers"][0] + ANSWER)
    early = reader.take(interim=True)
    assert (early.status, early.headers["link"], early.body) == (103, "</a>", b"")
    assert [reader.take().body for _ in range(4)] == [b"ok", b"0\r\n\rok", b"0123456789", b"ok"]
    assert reader.take() is None
    reader.feed(ANSWER.replace(b"ok", b"") + ANSWER)
    assert [reader.take(head_only=True).body, reader.take().body] == [b"", b"ok"]
    assert reader.pending == b""


# --- numbers that the digest computes from the probe's samples ------------------------------------

PERIOD_NS = 25_000_000


def samples(latencies_ms, status=200, sent=None, opened=None, count=None):
    """Return the probe's samples of requests that were due every 25 ms.

    By default, only the first request opened a connection.
    """
    due = np.arange(count or len(latencies_ms), dtype=np.int64) * PERIOD_NS
    sent = due if sent is None else sent
    received = sent + (np.asarray(latencies_ms) * 1e6).astype(np.int64)
    opened = due == 0 if opened is None else opened
    opened = np.asarray(opened).astype(np.int64)
    return digest.ProbeSamples(
        due, sent, received, np.full(len(due), status), opened, series=0 * due
    )


def test_requests_before_and_after_a_load_are_not_within_it():
    """The probe sends 86 requests, one every 25 ms, but only 20 of them are due during the load.

    The load begins 0.8 s after the first request, and lasts 0.5 s.
    """
    probe = samples(np.full(86, 1.0))
    begin_ns = 32 * PERIOD_NS
    assert probe.due_within(Window(begin_ns, 0.5, 0, 0)).sum() == 20


def test_percentiles_of_what_was_due_within_the_load(tmp_path):
    latencies = np.full(1000, 1.0)
    latencies[::100] = 50.0  # 1 % of the requests take 50 ms
    # the last 200 requests are due after the load: it lasts 20 s, in which 800 requests are due
    latencies[800:] = 900.0
    out = tmp_path / "probe.parquet"
    found = probe_percentiles(samples(latencies), out, [Window(0, 20.0, 0, 0)])
    assert (found["probe_requests"], found["probe_failed"]) == (800, 0)
    assert (found["probe_p50_ms"], found["probe_p95_ms"]) == pytest.approx((1.0, 1.0))
    table = pq.read_table(out).to_pandas()
    assert list(table.columns) == ["t_s", "latency_ms", "service_ms", "status", "ok"]
    assert table["t_s"].tolist()[:3] == [0.0, 0.025, 0.05]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # 99 samples are too few for p95 and p99.
        (samples(np.ones(99)), {"p50_ms": 1.0, "p95_ms": None, "p99_ms": None}),
        # Failed requests do not count for percentiles.
        (samples(np.ones(50), status=503), {"failed": 50, "p50_ms": None}),
    ],
)
def test_what_is_no_percentile_is_none(tmp_path, given, expected):
    found = probe_percentiles(given, tmp_path / "probe.parquet", [Window(0, 60.0, 0, 0)])
    assert {name: found[f"probe_{name}"] for name in expected} == expected


def test_late_sending_differs_from_waiting_for_the_server():
    def late(given, length_s):
        return digest.late_share(given, [Window(0, length_s, 0, 0)], 40)

    number = np.arange(100)
    due = number.astype(np.int64) * PERIOD_NS
    # The 20 requests that are due from 1.0 s to 1.5 s are sent 150 ms late, the other 80 in time.
    sent = due + np.where((due >= 1e9) & (due < 1.5e9), 150_000_000, 0)
    probes = samples(1, sent=sent, opened=0 * due, count=100)
    assert late(probes, 2.5) == pytest.approx(0.2, abs=0.01)
    assert late(probes, 1.0) == 0.0
    assert late(probes, 5.0) == pytest.approx(0.6, abs=0.01)  # 20 of 200 were late, 100 not sent
    assert late(probes, 0.2) == 0.0
    # If the server accepts no connection for half a second, the probe cannot send the requests that
    # are due meanwhile. This is not the probe's fault, so these requests do not count as sent late.
    waits = np.where((due > 1e9) & (due < 1.5e9), int(1.5e9), due)
    received_ms = (
        np.where(number == 40, int(1.5e9), np.maximum(waits, sent + 1_000_000)) - waits
    ) / 1e6
    assert late(samples(received_ms, sent=waits, opened=number == 40, count=100), 2.5) < 0.02
    # If the server answers no request for 10 s, a request waits on each of PROBE_CONNECTIONS
    # connections, and the probe sends all further requests late. This lateness is not the probe's
    # fault either.
    due = np.arange(200, dtype=np.int64) * PERIOD_NS
    end = np.maximum(due, int(10e9))
    sent = np.where(np.arange(200) < PROBE_CONNECTIONS, due, end)
    assert (
        late(samples((end + 1_000_000 - sent) / 1e6, sent=sent, opened=0 * due, count=200), 10.0)
        < 0.02
    )


ORDER = np.arange(40)
CLOSINGS = [
    (1, ORDER == 0, 0),
    (1, ORDER >= 0, 1),
    (1, ORDER % 10 == 0, 3 / 39),
    # Each request needs a connection of its own, because all requests are sent before any answer
    # comes.
    (3000, ORDER >= 0, 0),
    # Answers take two and a half periods, so three connections are in use at the same time.
    (62, ORDER < 3, 0),
    (62, ORDER >= 0, 1),
]


@pytest.mark.parametrize(("latency_ms", "opened", "share"), CLOSINGS)
def test_a_server_that_closes_differs_from_a_slow_one(latency_ms, opened, share):
    assert reopened_share(samples(latency_ms, opened=opened, count=40)) == pytest.approx(share)
    assert reopened_share(None) == 0


CLOSED = {"requests": 1000, "opened_pct": 100.0, "probe_reopened_pct": 100.0}
WITNESSES = [
    ("keepalive", {"opened_pct": 40.0, "probe_reopened_pct": 0.0}, True),
    ("close", {}, True),
    ("close", {"probe_reopened_pct": 0.0}, False),
    ("close", {"probe_reopened_pct": None}, False),
    ("close", {"opened_pct": None}, False),
    ("mixed", {"opened_pct": 15.0, "probe_reopened_pct": 10.0}, True),
    ("mixed", {"opened_pct": 65.0, "probe_reopened_pct": 10.0}, False),
]


@pytest.mark.parametrize(("mode", "changes", "same"), WITNESSES)
def test_the_probe_is_a_witness_where_it_was_treated_alike(mode, changes, same):
    cell = cell_of(workload=OWN_GET, vus=50, iterations=1000)
    assert saw_the_same(cell, mode, {**CLOSED, **changes}) is same
    assert not saw_the_same(replace(cell, workload=OWN_SCRIPT), mode, {**CLOSED, **changes})


def test_what_an_open_load_is_held_to():
    closed = cell_of(vus=400, iterations=1000)
    rates = {"first_rate_rps": 100.0, "rate_rps": 400.0, "steps": 4, "step_s": 2.5}
    ramp = cell_of(workload=OWN_GET, vus=400, **rates)
    assert (ramp.window_s, changed(ramp, steps=1).window_s, closed.window_s) == (10, 2.5, None)
    assert (may_hold(ramp, 0.0), may_hold(ramp, 1.0)) == (400, 0)
    assert may_hold(replace(ramp, workload=OWN_SCRIPT), 0.1) == 2400


def test_failed_connections_are_not_counted_as_accepted():
    after = Counters(1030, 12, 13, 7)
    whole = measured(counters_after=after)
    assert without_probe(whole, samples(np.ones(30))).counters_after == Counters(1000, 11, 12, 7)
    assert without_probe(whole, samples(np.ones(30), status=0)).counters_after == after
    assert without_probe(whole, None) is whole


def test_a_file_that_is_none_of_ours_is_one_sentence(tmp_path):
    assert read_probe(tmp_path / "none.parquet") is None
    broken = tmp_path / "probe.parquet"
    broken.write_bytes(b"PAR1 but not really")
    with pytest.raises(LabError, match="cannot be read"):
        read_probe(broken)
    pq.write_table(pa.table({"scheduled_ns": [1]}), broken)
    with pytest.raises(LabError, match="cannot be read"):
        read_probe(broken)
