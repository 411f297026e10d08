"""A full table of tracked connections: seen, waited for, and a trial's fault that is not the server's."""

import pytest

from runner.digest.reconcile import KERNEL_DROPS, kept_packets
from runner.digest.trial import Digest
from runner.measure import conntrack
from runner.model import Check, Counters, Verdict

# As the kernel prints it: hexadecimal, a row a CPU.
STATISTICS = """entries  clashres found new drop early_drop
00000007  00000000 00000000 00000000 00000003 00000000
00000007  00000000 00000000 00000000 000000ad 00000000
"""


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setattr(conntrack, "NETFILTER", tmp_path)
    monkeypatch.setattr(conntrack, "COUNTERS", tmp_path / "statistics")
    return tmp_path


def test_drops_are_summed_over_the_cpus(table):
    assert conntrack.dropped_packets() is None
    (table / "statistics").write_text(STATISTICS)
    assert conntrack.dropped_packets() == 3 + 0xAD


def test_a_full_table_is_waited_for(table, monkeypatch):
    (table / "nf_conntrack_max").write_text("1000")
    (table / "nf_conntrack_count").write_text("501")
    said = []

    def sleep(_):
        (table / "nf_conntrack_count").write_text("500")

    monkeypatch.setattr(conntrack.time, "sleep", sleep)
    conntrack.wait_for_room(lambda: said.append("waiting"))
    assert said == ["waiting"]
    conntrack.wait_for_room(lambda: said.append("waiting"))
    assert said == ["waiting"]


def test_without_tracking_nothing_is_waited_for(table):
    conntrack.wait_for_room(lambda: pytest.fail("waited"))


class Measured:
    counters_before = Counters(0, 0, 0, 5)

    def __init__(self, dropped):
        self.counters_after = Counters(9, 9, 9, dropped)


@pytest.mark.parametrize(("dropped", "ok"), [(5, True), (8, False), (None, True)])
def test_a_dropped_packet_makes_a_trial_invalid(dropped, ok):
    assert kept_packets(Measured(dropped)).ok is ok


def test_it_is_the_machine_that_is_to_blame():
    drops, other = Check(KERNEL_DROPS, False, "3 dropped"), Check("7 keepalive mode", False, "42")
    verdict = Verdict("inconclusive", "")
    assert Digest({}, (drops, other), verdict).disturbed
    assert not Digest({}, (other,), verdict).disturbed
