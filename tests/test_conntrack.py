"""A full table of tracked connections: seen, waited for, and a trial's fault that is not the server's."""

from dataclasses import replace

import pytest
from measured import measured

from runner.digest.reconcile import kept_packets
from runner.digest.trial import Digest
from runner.limits import Limit, Verdict
from runner.measure import counters
from runner.measurement import Counters
from runner.model import Cell, Check

# As the kernel prints it: hexadecimal, a row a CPU.
STATISTICS = """entries  clashres found new drop early_drop
00000007  00000000 00000000 00000000 00000003 00000000
00000007  00000000 00000000 00000000 000000ad 00000000
"""


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setattr(counters, "NETFILTER", tmp_path)
    monkeypatch.setattr(counters, "COUNTERS", tmp_path / "statistics")
    return tmp_path


def test_drops_are_summed_over_the_cpus(table):
    assert counters.dropped_packets() is None
    (table / "statistics").write_text(STATISTICS)
    assert counters.dropped_packets() == 3 + 0xAD


KIND = ("gin", "go", "gin", "realistic", "wrk-matrix", "wrk", "closed", "close", "/x")
CLOSE = Cell(*KIND, connections=100, duration_s=1.0, warmup_s=0.5)


@pytest.mark.fault("the kernel's table of tracked connections is full", "the next trial waits for room")
def test_a_full_table_is_waited_for(table, monkeypatch):
    needed = counters.connections_of(CLOSE)
    assert needed >= 45_000  # 1.5 s of close mode
    (table / "nf_conntrack_max").write_text("262144")
    (table / "nf_conntrack_count").write_text(str(262_144 - needed + 1))
    said = []

    def sleep(_):
        (table / "nf_conntrack_count").write_text(str(262_144 - needed))

    monkeypatch.setattr(counters.time, "sleep", sleep)
    counters.wait_for_room([CLOSE], said.append)
    assert said == [needed]
    counters.wait_for_room([CLOSE], said.append)
    assert said == [needed]


def test_nothing_is_waited_for_without_tracking_or_where_half_of_the_table_is_free(table):
    counters.wait_for_room([CLOSE], lambda needed: pytest.fail("waited"))
    (table / "nf_conntrack_max").write_text("20000")  # the trial needs more than the whole table
    (table / "nf_conntrack_count").write_text("10000")
    counters.wait_for_room([CLOSE], lambda needed: pytest.fail("waited"))


def test_kept_connections_need_little_room():
    assert counters.connections_of(replace(CLOSE, mode="keepalive")) < 5_000


@pytest.mark.parametrize(("dropped", "ok"), [(5, True), (8, False), (None, True)])
def test_a_dropped_packet_makes_a_trial_invalid_and_the_machine_is_to_blame(dropped, ok):
    drops = kept_packets(measured(counters_before=Counters(0, 0, 0, 5), counters_after=Counters(9, 9, 9, dropped)))
    assert drops.ok is ok
    failed = [check for check in (drops, Check("7 keepalive mode", False, "42")) if not check.ok]
    assert Digest({}, tuple(failed), Verdict(Limit.UNKNOWN, "")).disturbed is not ok
