"""Tests of oha's command lines, of converting oha's database, and of the results of warm-ups."""

import csv
import gzip
import io
import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from built import bare_lab
from cells import changed
from oha_loads import CLOSED, OPEN

from runner.calibration import Calibration, Ceiling
from runner.generator_traits import TRAITS
from runner.measure.doctor import examine_tools, find_generators
from runner.measure.engine import Running
from runner.measure.generators.catalogue import GENERATORS
from runner.measure.generators.command import WHOLE, Command, Shot, WarmedUp, shot_of
from runner.measure.sites import _write_out
from runner.model import Cell, LabError
from runner.planning import catalog
from runner.shapes import Sweep
from runner.store import OF_GENERATORS, raw_files

OHA = GENERATORS["oha"]
SERVER = Running(1, 8080, lambda: None, lambda: None)


def shot(body: str = "") -> Shot:
    """Return the request that oha sends (a `Shot`), which is a POST if `body` is given."""
    workload = replace(catalog.load_workload("static-oha"), body=body)
    if body:
        workload = replace(workload, method="POST")
    return shot_of(workload, Path("oha"), SERVER, "tag")


def command(cell: Cell, body: str = "", folder: Path = Path("folder")) -> Command:
    files = {name: folder / name for name in OF_GENERATORS}
    return OHA.measured(cell, shot(body), files, "samples", WHOLE)


def test_a_closed_load_lasts_its_time_and_waits_for_what_is_under_way():
    argv = command(CLOSED).argv
    assert argv[0] == "oha" and argv[-1] == f"{SERVER.origin}/devices"
    assert {"-z2000ms", "--wait-ongoing-requests-after-deadline", "-c10", "-t10s"} <= {*argv}
    assert not any(option.startswith(("-q", "--latency", "--disable-keepalive")) for option in argv)
    assert command(CLOSED).interrupt_after_s is None


def test_a_load_in_close_mode_keeps_no_connection():
    assert "--disable-keepalive" in command(replace(CLOSED, mode="close")).argv


def test_an_open_load_is_offered_from_its_lead_on():
    argv = command(OPEN).argv
    # The 2,010 ms of `-z` are 0.5 s of lead, in which requests are sent but do not count, 1.5 s of
    # load, and 10 ms by which a request may be late.
    assert {"-q500", "--latency-correction", "-z2010ms", "-c100"} <= {*argv}


def test_an_open_load_has_no_more_connections_than_its_lead_opens():
    assert "-c50" in command(changed(OPEN, first_rate_rps=100, rate_rps=100)).argv
    assert "-c1" in command(changed(OPEN, first_rate_rps=1, rate_rps=1)).argv


def test_a_body_is_sent_as_json():
    argv = command(CLOSED, '{"of": "{tag}"}').argv
    assert {"--method=POST", '-d{"of": "tag"}', "-Tapplication/json"} <= {*argv}


def test_a_redirection_is_not_followed_and_nothing_is_compressed():
    assert {"--redirect=0", "--disable-compression", "--no-tui"} <= {*command(CLOSED).argv}


def test_requests_of_an_interrupted_load_are_no_part_of_the_next(tmp_path):
    (tmp_path / "oha.db").write_bytes(b"of an earlier load")
    command(CLOSED, folder=tmp_path)
    assert not (tmp_path / "oha.db").exists()


def test_a_load_of_a_count_of_requests_is_refused():
    with pytest.raises(LabError, match="has no duration"):
        command(changed(CLOSED, duration_s=None, iterations=100))


def test_memory_and_disk_grow_with_the_load():
    longer = changed(CLOSED, duration_s=20)
    assert OHA.kept_requests(longer) == 10 * OHA.kept_requests(CLOSED)
    assert OHA.memory_bytes(longer) > OHA.memory_bytes(CLOSED)
    assert OHA.kept_requests(OPEN) == 1000


def stored(path: Path, rows: list[tuple[object, ...]]) -> Path:
    """Make a database like that of oha 1.16 (source: oha's src/db.rs); return its path."""
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE oha (url TEXT NOT NULL, start REAL NOT NULL, start_latency_correction"
            " REAL, end REAL NOT NULL, duration REAL NOT NULL, status INTEGER NOT NULL,"
            " len_bytes INTEGER NOT NULL, run INTEGER NOT NULL)"
        )
        database.executemany("INSERT INTO oha VALUES ('http://x/', ?, ?, ?, ?, ?, ?, ?)", rows)
    database.close()
    return path


def test_what_it_stored_becomes_lines_of_text_to_the_nanosecond(tmp_path):
    rows = [
        (0.000000001, None, 1.234567891, 1.23456789, 200, 50, 1790000000),
        (1234.567890123, 1234.5, 1234.567890124, 0.067890124, 500, 0, 1790000000),
    ]
    loaded = command(CLOSED, folder=tmp_path)
    stored(tmp_path / "oha.db", rows)
    _write_out(loaded)
    text = gzip.decompress((tmp_path / "oha.csv.gz").read_bytes()).decode()
    header, *lines = csv.reader(io.StringIO(text))
    assert header == [
        "start",
        "start_latency_correction",
        "end",
        "duration",
        "status",
        "len_bytes",
        "run",
    ]
    assert [tuple(float(value) if value else None for value in line) for line in lines] == rows
    assert [path.name for path in raw_files(tmp_path)] == ["oha.csv.gz"]
    assert not (tmp_path / "oha.db").exists()


@pytest.mark.parametrize("data", [b"", b"no database"])
def test_a_database_that_is_not_ohas_fails_the_load(tmp_path, data):
    loaded = command(CLOSED, folder=tmp_path)
    (tmp_path / "oha.db").write_bytes(data)
    with pytest.raises(LabError, match="is not a database of oha"):
        _write_out(loaded)


def test_the_writer_of_lines_runs_without_pandas(tmp_path):
    ((argv, _),) = command(CLOSED, folder=tmp_path).after
    stored(tmp_path / "oha.db", [(0.0, None, 1.0, 1.0, 200, 1, 1)])
    without = [sys.executable, "-X", "importtime", *argv[1:]]
    done = subprocess.run(without, capture_output=True, text=True, check=True)
    assert "0.0,,1.0,1.0,200,1,1" in done.stdout and "pandas" not in done.stderr


def test_a_warm_up_says_what_the_server_answered(tmp_path):
    said = tmp_path / "oha.json"
    assert OHA.warm_up_files == (said.name,)
    said.write_text(
        json.dumps({"summary": {"total": 0.5}, "statusCodeDistribution": {"200": 90, "500": 10}})
    )
    assert OHA.read_warm_up({"oha.json": said}) == WarmedUp(answers_rps=200.0)
    warm_up = OHA.warm_up(replace(CLOSED, warmup_s=0.2), shot(), {"oha.json": said})
    assert "-z200ms" in warm_up.argv and f"--output={said}" in warm_up.argv
    assert not any(option.startswith("--db-url") for option in warm_up.argv)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"summary": {"total": 0}, "statusCodeDistribution": {}}']
)
def test_a_warm_up_without_a_result_says_nothing(tmp_path, text):
    (tmp_path / "oha.json").write_text(text)
    assert OHA.read_warm_up({"oha.json": tmp_path / "oha.json"}) == WarmedUp()


def test_a_rate_that_it_would_send_in_bunches_is_refused(tmp_path):
    path = tmp_path / "bunches.toml"
    text = 'title = "x"\nservers = ["gin"]\n[[load]]\nworkload = "static-oha-open"\nvus = 10\n'
    path.write_text(f"{text}duration_s = 2\nrates_rps = [1000]\n")
    assert catalog.load_campaign(str(path)).loads[0].form == Sweep((1000.0,), 2.0)
    path.write_text(f"{text}duration_s = 2\nrates_rps = [500, 1001]\n")
    with pytest.raises(
        LabError, match=r"line 7: oha sends evenly spaced requests only up to 1,000 requests/s"
    ):
        catalog.load_campaign(str(path))


def test_ceilings_of_other_generators_say_nothing_of_it():
    ceiling = Ceiling(
        "wrk", "closed", "keepalive", 10, 1e5, 1e5, 1e5, 3, "nginx", "generator-bound"
    )
    known = Calibration("run", "2026", "f", {}, 1, (ceiling,))
    assert known.ceiling_of(replace(CLOSED, tool="wrk")) == ceiling
    assert known.ceiling_of(CLOSED) is None


@pytest.mark.parametrize(
    ("version", "level"), [("1.16.0", "ok"), ("1.15.9", "warning"), ("2.0.0", "warning")]
)
def test_the_doctor_warns_of_an_oha_that_does_not_fit(tmp_path, monkeypatch, version, level):
    bare_lab(tmp_path)
    (tmp_path / ".tools").mkdir()
    program = tmp_path / ".tools" / "oha"
    program.write_text(f"#!/bin/sh\necho 'oha {version}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("BENCH_ROOT", str(tmp_path))
    (finding,) = (each for each in examine_tools(find_generators()) if each.subject == "oha")
    assert finding.level == level
    assert level == "ok" or "run `bench setup oha`" in finding.text


def test_every_generator_has_its_traits():
    assert [*GENERATORS] == [*TRAITS]
