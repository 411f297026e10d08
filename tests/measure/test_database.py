"""Tests of the database that the lab starts for a trial: a real PostgreSQL, as plain processes.

Some tests use the database alone, others run a campaign that uses it.
"""

import contextlib
import json
import socket
from pathlib import Path
from unittest.mock import Mock

import fake_lab
import psutil
import psycopg
import pytest
import real_lab
from fake_lab import campaign_of, records, run, wait_for
from measured import measured
from real_lab import load

from runner.digest.reconcile import Sent, database_checks
from runner.measure.database import scram_verifier, serving
from runner.measure.leftovers import ledger
from runner.measure.machine import place
from runner.measure.process_engine import ProcessEngine
from runner.measurement import DatabaseCounters, DatabaseUse
from runner.model import LabError

needs_postgres = real_lab.needs("postgres")

INSERTS = load("devices-insert", connections=4, duration_s=1, pool_sizes=1, warmup_s=0.1)
TRIAL = "b01-fake-devices-insert-c4-keepalive-pool1"


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    root = tmp_path_factory.mktemp("engine")
    fake_lab.make(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_ROOT", str(root))
        with ledger() as book:
            yield ProcessEngine(book, "for tests")


@pytest.fixture(scope="module")
def served(engine, tmp_path_factory):
    """Yield a running database and the path of the database's log.

    Several tests share this database, so each of them must leave it running.
    """
    log = tmp_path_factory.mktemp("served") / "log"
    with serving(engine, place(1).generator, log) as database:
        yield database, log


def living(processes):
    found = []
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [each] if each.is_running() and each.status() != psutil.STATUS_ZOMBIE else []
    return found


@pytest.fixture
def campaign(tmp_path):
    """Return the path of a campaign that inserts rows.

    The campaign belongs to a lab whose server and load generators are small scripts.
    """
    return fake_lab.make(tmp_path, campaign=campaign_of(INSERTS))


def databases(runner):
    """Return the processes of PostgreSQL that a runner has started."""
    found = []
    for each in psutil.Process(runner.pid).children(recursive=True):
        # A process that has just ended, for example a worker of PostgreSQL, has no name.
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [each] if each.name() == "postgres" else []
    assert found
    return found


def insert(database, firmware):
    with psycopg.connect(database.url, autocommit=True) as connection:
        # Without this setting, PostgreSQL may lose the row if it is killed within 0.6 s after the
        # insert.
        connection.execute("SET synchronous_commit = on")
        values = "(gen_random_uuid(), 'm', %s, now())"
        connection.execute(
            f"INSERT INTO devices (uuid, mac, firmware, created_at) VALUES {values}", [firmware]
        )


@needs_postgres
def test_a_cluster_is_fresh_and_gone_afterwards(engine, tmp_path):
    cpus = place(1).generator
    for _ in range(2):
        with serving(engine, cpus, tmp_path / "database.log") as database:
            assert database.count("a") == 0
            before = database.counters("a")
            for firmware in ("a", "a", "b"):
                insert(database, firmware)
            after = database.counters("a")
            assert (after.rows - before.rows, after.statement_calls - before.statement_calls) == (
                2,
                3,
            )
            assert after.sessions > before.sessions
            leader = psutil.Process(database.running.pid)
            tree = [leader, *leader.children(recursive=True)]
            seen = []
            for process in tree:
                # The process that served the last connection may end before the test reads the
                # process's user and CPUs.
                with contextlib.suppress(psutil.NoSuchProcess):
                    seen.append((process.uids().effective, tuple(process.cpu_affinity())))
            assert len(seen) > 3
            assert all(uid != 0 and affinity == cpus for uid, affinity in seen)
            folder = Path(leader.environ()["PGDATA"])
            assert folder.is_dir()
        assert not folder.exists()
        assert living(tree) == []


@needs_postgres
def test_only_the_password_opens_it_and_only_on_loopback(served):
    database, log = served
    for wrong in (
        database.url.replace(database.password, "wrong"),
        database.url.replace("lab:", "postgres:"),
    ):
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(wrong)
    for address in real_lab.other_addresses():
        with (
            pytest.raises(OSError),
            socket.create_connection((address, database.running.port), timeout=1),
        ):
            pass
    assert database.password not in json.dumps(psutil.Process(database.running.pid).environ())
    assert database.password not in log.read_text()


@needs_postgres
def test_a_verifier_is_what_postgres_itself_makes(served):
    """PostgreSQL must accept the lab's SCRAM verifier in place of a password.

    If the verifier did not have the right form, PostgreSQL would take it for a password and hash
    it. Then the connection with the password `second` would fail.
    """
    database, _ = served
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(f"ALTER ROLE lab PASSWORD '{scram_verifier('second')}'")
        with psycopg.connect(database.url.replace(database.password, "second")) as second:
            assert second.execute("SELECT 1").fetchone() == (1,)
        connection.execute(f"ALTER ROLE lab PASSWORD '{scram_verifier(database.password)}'")


@needs_postgres
def test_it_can_be_paused_and_restarted_with_its_rows(served):
    database, _ = served
    insert(database, "kept")
    database.pause()
    with socket.create_connection(("127.0.0.1", database.running.port), timeout=0.3) as channel:
        channel.sendall(
            b"\0\0\0\x08\x04\xd2\x16\x2f"
        )  # SSLRequest: a server that is not paused answers with one byte
        with pytest.raises(TimeoutError):
            channel.recv(1)
        database.resume()
        channel.settimeout(5)
        assert channel.recv(1) == b"N"
    database.restart()
    assert database.count("kept") == 1


@pytest.mark.parametrize("there", [None, "postgres"])
def test_a_missing_database_is_one_sentence(tmp_path, there):
    (tmp_path / "postgres").touch()
    engine = ProcessEngine(Mock(), "for tests", lambda _: there and tmp_path / there)
    with pytest.raises(LabError, match="need PostgreSQL: install it"):
        engine.database((0,), "", tmp_path / "database.log").__enter__()


# --- campaigns that use a database ----------------------------------------------------------------


@pytest.mark.timed
@needs_postgres
def test_rows_are_the_inserts_that_were_answered(campaign):
    made = run(campaign)
    row = made.trials.iloc[0]
    # The fake wrk sends 10 requests on each connection.
    assert (row["rows_inserted"], row["inserts"], row["requests"]) == (40, 40, 40)
    assert (
        row["database_statement_calls"] == 40 + made.table(f"probe/{row['trial_id']}")["ok"].sum()
    )
    assert row["pool_size"] == 1
    assert row["database_cpu_mean_pct"] > 0
    resources = made.table("resources")
    assert set(resources["subject"]) == {"server", "generator", "database", "host", "sampler"}
    polled = resources.dropna(subset=["pool_size"])
    assert (set(polled["subject"]), set(polled["pool_size"])) == ({"server"}, {1})
    facts = made.manifest["database"]
    assert facts["version"].split(".")[0].isdigit()
    assert (facts["settings"]["fsync"], facts["settings"]["synchronous_commit"]) == ("on", "off")
    assert not any(
        b"postgres://" in path.read_bytes() for path in made.folder.rglob("*") if path.is_file()
    )


@pytest.mark.timed
@pytest.mark.long
@needs_postgres
@pytest.mark.parametrize(
    ("fault", "rows"), [("server-loses-inserts", 0), ("server-inserts-twice", 80)]
)
def test_rows_that_are_not_the_inserts_make_a_trial_invalid(tmp_path, campaign, fault, rows):
    fake_lab.fault(tmp_path, fault)
    (record,) = run(campaign, code=1).records
    assert record["status"] == "failed"
    assert (
        f"6 rows inserted = successful inserts ({rows} new rows; 40 inserts were answered"
        in record["error"]
    )


@pytest.mark.timed
@pytest.mark.long
def test_without_a_database_the_other_trials_still_run(tmp_path):
    campaign = fake_lab.make(
        tmp_path, campaign=campaign_of(fake_lab.K6_LOAD, fake_lab.WRK_LOAD, INSERTS)
    )
    # The lab finds this program before a real PostgreSQL (on PATH or in Debian's folders), but
    # cannot use it, because there is no `initdb` beside it.
    real_lab.program(tmp_path / ".tools" / "postgres", "#!/bin/sh\nexit 1\n")
    made = run(campaign, code=1)
    assert "need PostgreSQL: install it" in made.done.stderr
    states = {name: record["status"] for name, record in records(made.folder).items()}
    assert states.pop(TRIAL) == "failed"
    assert set(states.values()) == {"sealed"}


@pytest.mark.timed
@pytest.mark.long
@pytest.mark.fault("a run with PostgreSQL is killed", "no database and no cluster is left")
@needs_postgres
def test_a_killed_run_leaves_no_database(tmp_path, campaign):
    with real_lab.start(tmp_path, "run", str(campaign), "--engine", "process") as runner:
        wait_for(lambda: list(tmp_path.glob("data/runs/*/trials/*/server.log")))
        mine = databases(runner)
        clusters = f"bench-*-{runner.pid}-*/cluster"
        assert list(Path("/tmp").glob(clusters))
        runner.kill()
    wait_for(lambda: not list((tmp_path / "data" / ".live").iterdir()))
    wait_for(lambda: not living(mine))
    assert not list(Path("/tmp").glob(clusters))


# --- number of inserted rows, and a database that dies --------------------------------------------


@pytest.mark.parametrize(
    ("rows", "refused", "lost", "ok"),
    [
        (100, 0, 0, True),
        (101, 0, 0, False),
        (99, 0, 0, False),
        (108, 0, 5000, True),  # the server died while 8 inserts were under way
        (109, 0, 5000, False),
        (99, 0, 5000, False),  # the row of an answered insert must never be missing
        # inserts that were answered with 503 may have been executed nevertheless
        (103, 3, 0, True),
        (104, 3, 0, False),
    ],
)
def test_a_row_more_needs_an_answer_that_was_lost(rows, refused, lost, ok):
    before = DatabaseCounters(5, 0, 0.0, 0)
    after = DatabaseCounters(5 + rows, 0, 0.0, 0)
    given = measured(database=DatabaseUse("load", "15.1", before, after))
    (check,) = database_checks(Sent(ok=100, refused=refused, lost=lost, at_once=8), given)
    assert check.ok is ok and str(rows) in check.detail


@pytest.mark.timed
@pytest.mark.long
@pytest.mark.fault(
    "PostgreSQL is killed in the warm-up or under load",
    "the trial fails and says so; nothing is left",
)
@needs_postgres
@pytest.mark.parametrize("state", ["warm-up", "load"])
def test_a_database_that_dies_fails_its_trial(tmp_path, campaign, state):
    # The warm-up must last at least a second. The lab ends a shorter warm-up by a SIGINT to wrk,
    # even while wrk is paused, so the warm-up could end before the database is killed.
    campaign.write_text(campaign.read_text().replace("warmup_s = 0.1", "warmup_s = 1"))
    fake_lab.fault(tmp_path, f"pause-{state} b01")
    with real_lab.start(tmp_path, "run", str(campaign), "--engine", "process") as runner:
        wait_for((tmp_path / ".tools" / "paused").exists, seconds=60)
        below = psutil.Process(runner.pid).children(recursive=True)
        for process in databases(runner):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        fake_lab.fault(tmp_path, "")
        real_lab.ended(runner, 1)
    (run_folder,) = tmp_path.glob("data/runs/*")
    record = records(run_folder)[TRIAL]
    assert record["status"] == "failed" and "PostgreSQL does not answer the lab" in record["error"]
    assert not list((tmp_path / "data" / ".live").iterdir())
    assert living(below) == []
