"""Tests of damaged files of k6, and of the reader of k6's summary.

Reading a damaged file must end in one error that names the damaged line. Points of different
requests must never be combined into one request.
"""

import gzip
import json
import os
import random
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from k6_digests import MS, SUMMARY, digest, make_lines, plain, read_table
from k6_files import EPOCH_NS, announce, iteration_lines, request_lines, write_lines

from runner.digest.k6 import GeneratorSummary, read_summary
from runner.digest.k6_raw import spool_points
from runner.model import LabError

SALVAGE = partial(spool_points, salvage=True)


def _refused(raw: Path, **options: Any) -> str:
    """Digest a damaged file, and return the message of the error.

    Check that no new table appears, that an older table stays as it is, and that no file is left in
    the scratch folder.
    """
    out = raw.parent / "out"
    out.mkdir(exist_ok=True)
    (out / "requests.parquet").write_text("older")
    with pytest.raises(LabError) as caught:
        digest(raw, **options)
    assert [path.name for path in out.iterdir()] == ["requests.parquet"]
    assert (out / "requests.parquet").read_text() == "older"
    assert not list((raw.parent / "scratch").iterdir())
    message = str(caught.value)
    assert caught.value.exit_code == 1 and str(raw) in message and "\n" not in message
    return message


LINES = make_lines(11, 400)[0]
TEXT = "\n".join([*LINES, ""]).encode()


def _changed(at: int, *lines: str) -> list[str]:
    """Return LINES, with the line at the index `at` replaced by `lines`."""
    return [*LINES[:at], *lines, *LINES[at + 1 :]]


def _position(metric: str, after: int = 1000) -> int:
    """Return the index of the first line, from the index `after` on, with a point of `metric`."""
    return next(
        i for i in range(after, len(LINES)) if f'"metric":"{metric}","type":"Point"' in LINES[i]
    )


RUBBISH = {
    "not JSON": "rubbish {{{",
    "a number": "5",
    "null": "null",
    "a list": "[]",
    "lists in lists": "[" * 100_000,
    "blank": "",
    "an empty object": "{}",
    "two objects": '{"a":1}{"b":2}',
    "another type": LINES[2000].replace('"Point"', '"Dot"'),
    "no time": '{"metric":"checks","type":"Point","data":{"value":1,"tags":{}}}',
    "no value": (
        '{"metric":"checks","type":"Point","data":{"time":"2026-11-21T00:56:31Z","tags":{}}}'
    ),
    "data is text": '{"metric":"checks","type":"Point","data":"/etc/passwd"}',
    "another file": "/etc/passwd",
}
VALUES = ('"fast"', "null", "{}", "[1]", "-1", "+Inf", "1e999", "0x10", "NaN")
WRONG = {
    **{name: ("data_sent", ".+", line) for name, line in RUBBISH.items()},
    **{value: ("http_req_waiting", r'"value":[^,]*', f'"value":{value}') for value in VALUES},
    "no day": ("http_reqs", '"time":"2026-11-21T', '"time":"yesterday '),
    "no such day": ("http_reqs", '"time":"2026-11-21T', '"time":"2026-13-41T'),
    "no number as status": ("http_reqs", '"status":"', '"status":"x'),
    "no status": ("http_reqs", '"status":"', '"other":"'),
}
"""Ways to damage a line, by name: (metric of the line, pattern, replacement of the match)."""


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("file", ["k6.json", "k6.json.gz"])
def test_a_wrong_line_in_the_middle_is_named(tmp_path, name, file):
    metric, old, new = WRONG[name]
    at = _position(metric)
    line = re.sub(old, lambda _: new, LINES[at])
    assert line != LINES[at]
    assert f"line {at + 1}:" in _refused(write_lines(tmp_path / file, _changed(at, line)))


@pytest.mark.fault(
    "one line of k6's samples dropped or doubled",
    "an error, or the other requests' values unchanged",
)
@pytest.mark.parametrize(
    "metric", ["http_reqs", "http_req_duration", "http_req_blocked", "http_req_receiving"]
)
@pytest.mark.parametrize("change", ["drop", "double"])
def test_a_missing_or_doubled_line_never_pairs_wrongly(tmp_path, metric, change):
    at = _position(metric)
    lines = _changed(at, *[LINES[at]] * (2 if change == "double" else 0))
    message = _refused(write_lines(tmp_path / "k6.json.gz", lines))
    assert at < int(message.split("line ")[1].split(":")[0]) <= at + 15


def test_eight_lines_lost_across_two_requests(tmp_path):
    """A file that lacks the last lines of one request and the first lines of the next is refused.

    A request has eight lines, and eight lines are lost. The first points of one request are then
    followed by the last points of the next request, so the order of the metrics looks right. The
    loss must be noticed in another way.
    """
    requests = [plain(EPOCH_NS + i * MS, (i + 1) * MS) for i in range(4)]
    lines = [line for request in requests for line in request_lines(request, failed_point=False)]
    for begin in range(8, 16):
        if begin % 8:
            _refused(write_lines(tmp_path / "k6.json", lines[:begin] + lines[begin + 8 :]))


def test_a_fault_at_the_beginning_of_a_long_file(tmp_path):
    """A fault in the first line of a long file is refused, and the digest ends.

    DuckDB stops reading at the fault. The thread that feeds DuckDB must then end, too, instead of
    waiting for ever.
    """
    block = "\n".join([*request_lines(plain(), stock=True) * 1000, ""])
    raw = tmp_path / "k6.json"
    with raw.open("w") as out:
        out.write(block.partition("\n")[2])
        out.writelines([block] * 100)
    assert raw.stat().st_size > 200e6
    assert "line 1:" in _refused(raw)


@pytest.mark.fault("k6's gzip stream cut off", "an error that names the file")
@pytest.mark.parametrize("share", [0.0001, 0.3, 0.9, 0.9999])
def test_cut_off_gzip(tmp_path, share):
    whole = gzip.compress(TEXT)
    raw = tmp_path / "k6.json.gz"
    raw.write_bytes(whole[: max(3, int(len(whole) * share))])
    message = _refused(raw)
    assert "gzip" in message and "line " in message


LAST = _position("http_req_waiting", 3000)
CUT_OFF = [
    ("k6.json.gz", 50, "gzip"),
    ("k6.json", 50, f"line {LAST + 1}: the line is cut off"),
    ("k6.json", 0, f"line {LAST}:"),
]


@pytest.mark.parametrize(("file", "torn", "words"), CUT_OFF)
def test_a_cut_off_end_is_refused_or_salvaged(tmp_path, file, torn, words):
    text = "\n".join([*LINES[:LAST], LINES[LAST][:torn]]).encode()
    raw = tmp_path / file
    raw.write_bytes(gzip.compress(text)[:-8] if raw.suffix == ".gz" else text)
    assert words in _refused(raw)
    points = digest(raw, spool=SALVAGE)
    complete = sum('"metric":"http_req_receiving","type":"Point"' in line for line in LINES[:LAST])
    assert points.requests == complete == len(read_table(raw, "requests"))
    assert points.lines_lost == 6 + (torn > 0)
    assert not list((tmp_path / "scratch").iterdir())


def test_salvage_does_not_excuse_rubbish(tmp_path):
    raw = tmp_path / "k6.json"
    raw.write_text("\n".join(_changed(500, "rubbish"))[:-20])
    assert "line 501:" in _refused(raw, spool=SALVAGE)
    whole = bytearray(gzip.compress(TEXT))
    whole[len(whole) // 2] ^= 0x10
    (tmp_path / "k6.json.gz").write_bytes(whole)
    assert "gzip" in _refused(tmp_path / "k6.json.gz", spool=SALVAGE)


@pytest.mark.fault("bits of k6's samples flipped", "an error that names the file")
def test_flipped_bits_are_noticed(tmp_path):
    """A flipped bit that turns one digit into another is noticed.

    DuckDB does not check the CRC of a gzip file, so the lab must check it.
    """
    whole = gzip.compress(TEXT, compresslevel=0)
    at = whole.index(b'"value":0.', 5000) + 12
    raw = tmp_path / "k6.json.gz"
    raw.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    assert "corrupt" in _refused(raw)


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"\x00" * 100, b"rubbish", random.Random(2).randbytes(5000)]
)
@pytest.mark.parametrize("name", ["k6.json", "k6.json.gz"])
def test_empty_or_something_else(tmp_path, content, name):
    raw = tmp_path / name
    raw.write_bytes(content)
    _refused(raw)
    _refused(raw, spool=SALVAGE)
    if content and name.endswith(".gz"):
        raw.write_bytes(gzip.compress(content))
        assert "line 1" in _refused(raw)


def test_missing_folder_or_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    for raw in (tmp_path / "none.json.gz", tmp_path, tmp_path / "pipe.json"):
        with pytest.raises(LabError, match="not a regular file"):
            digest(raw)


NO_LOAD = {
    "clock": request_lines(plain()) + request_lines(plain(0)),
    "no complete request": iteration_lines(EPOCH_NS, MS),
}


@pytest.mark.parametrize("words", NO_LOAD)
def test_sound_lines_that_are_no_load(tmp_path, words):
    assert words in _refused(write_lines(tmp_path / "k6.json", announce(NO_LOAD[words])))


@pytest.mark.fault(
    "any bytes of k6's samples changed (Hypothesis)", "tables or one error, never a traceback"
)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_change_of_bytes_ends_in_tables_or_one_error(data, tmp_path_factory):
    content = bytearray("\n".join([*LINES[:60], ""]).encode())
    at = data.draw(st.integers(0, len(content) - 1))
    junk = data.draw(st.binary(max_size=8))
    content[at : at + data.draw(st.integers(0, 300))] = junk
    raw = tmp_path_factory.mktemp("fuzz") / "k6.json"
    raw.write_bytes(content)
    try:
        points = digest(raw)
    except LabError as error:
        assert "\n" not in str(error)
    else:
        assert points.points["http_reqs"] == points.points["http_req_receiving"] == points.requests


def test_summary(tmp_path):
    (tmp_path / "s.json").write_text(json.dumps(SUMMARY))
    trend = {"mean": 2.5, "min": 1, "p50": 2, "p90": 5, "p95": 6, "p99": 8, "p999": 9, "max": 9.5}
    assert read_summary(tmp_path / "s.json") == GeneratorSummary(
        10, 2, 12, 3.5, trend, checks=6, checks_failed=1
    )
    (tmp_path / "s.json").write_text('{"metrics":{"iterations":{"count":3}}}')
    assert read_summary(tmp_path / "s.json") == GeneratorSummary(3, 0, 0, 0.0)


SOME = '"http_reqs":{"count":3,"rate":1}'
METRICS = (
    *("5", '{"http_reqs":{}}', '{"iterations":{"count":"x"}}', f"{{{SOME}}}"),
    f'{{{SOME},"http_req_duration":{{"min":1,"med":1,"max":1}}}}',
)


@pytest.mark.parametrize(
    "text", ["", "[]", "5", "{}", *(f'{{"metrics":{each}}}' for each in METRICS)]
)
def test_broken_summary(tmp_path, text):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(LabError, match=r"s\.json") as caught:
        read_summary(tmp_path / "s.json")
    assert caught.value.exit_code == 1
