"""Tests of perf on another host, with a fake in place of that host.

The times of perf's samples must be converted from the host's clock to this machine's clock. Further
tests check what happens if an engine refuses perf, or if a host is lost.
"""

import contextlib
import gzip
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from docker.errors import APIError

from runner.digest.perf_files import parse_stacks
from runner.measure import profiler
from runner.measure.profiler import FarPerf, by_our_clock, refusal_of
from runner.measure.profiling import Profiling
from runner.measure.sites import Clock
from runner.model import CannotGoOnError, LabError

SAMPLES = b"""tokio-rt: worker 30588/30606 30754.939157:    2004008
\tffffffff8201c3ad tcp_v4_rcv ([kernel.kallsyms])
\t          2b9e66 axum::serve (/server)

nginx 7/7 30755.000001:    2004008
\t          2b9e66 main 12/12 1.000000: 5 (/server)

"""
"""Two samples with names that are difficult to parse.

The name of the first sample's thread has a colon and a space. The name of the second sample's
function looks like the first line of a sample.
"""


@pytest.mark.parametrize(
    ("ahead_ns", "expected_s"),
    [
        (0, [30754.939157, 30755.000001]),
        (30_000_000_000_000, [754.939157, 755.000001]),
        (-1_500_000, [30754.940657, 30755.001501]),
    ],
)
def test_samples_get_the_times_of_this_machine(ahead_ns, expected_s):
    text = by_our_clock(SAMPLES, ahead_ns)
    before = list(parse_stacks(SAMPLES.decode().splitlines(keepends=True)))
    found = list(parse_stacks(text.decode().splitlines(keepends=True)))
    assert [each.at_s for each in found] == pytest.approx(expected_s, abs=1e-9)
    assert [each.stack for each in found] == [each.stack for each in before]
    assert (ahead_ns == 0) == (text == SAMPLES)


def test_the_clock_after_the_load_counts(tmp_path):
    """The times of samples are converted by the offset that the host's clock has after the load.

    The test changes this offset during the load, so the offset before the load would be wrong.
    """
    site = SimpleNamespace(clock=Clock(0, 0))
    out = tmp_path / "perf.txt.gz"

    class Profiler:
        def observing(self, _how, _pid, _cpus, path):
            path.write_bytes(gzip.compress(SAMPLES))
            return Mock(__enter__=Mock(), __exit__=Mock(return_value=None))

    with FarPerf(Profiler(), (0,), site).recording(7, out):
        site.clock = Clock(1_000_000_000, 0)
    with gzip.open(out, "rt") as lines:
        assert [each.at_s for each in parse_stacks(lines)] == [30753.939157, 30754.000001]


def test_an_engine_that_refuses_is_one_sentence():
    client = Mock()
    client.containers.create.side_effect = APIError("unknown capability")
    place = SimpleNamespace(role="server", client=client, image=lambda make: "sha256:1")
    assert refusal_of(place, Mock()) == (
        "The engine of the server refuses a container with the rights of perf: unknown capability."
    )


SERVER = SimpleNamespace(role="server")
DATABASE = SimpleNamespace(role="database")
REFUSED = "The kernel of the host of the database refuses perf."


def bench_of(database, *, database_cpus=(0,)):
    """Return a fake bench: the facts about a run on several hosts that `Profiling` needs."""
    sites = SimpleNamespace(server="server's site", database="database's site")
    return SimpleNamespace(
        lab=SimpleNamespace(fleet=SimpleNamespace(server=SERVER, database=database), ledger=None),
        sites=sites,
        placement=SimpleNamespace(database=database_cpus),
        cpus_of=lambda site: (0, 1, 2) if site is sites.database else (7,),
    )


@pytest.fixture
def profiled_hosts(monkeypatch):
    """Return a list that gets the role of each host on which the lab would start perf.

    No container is started: in place of a container, the lab gets the role of the host.
    """
    started = []

    @contextlib.contextmanager
    def of_place(place, _ledger):
        started.append(place.role)
        yield place.role

    monkeypatch.setattr(profiler, "profiler", of_place)
    return started


def test_perf_runs_beside_the_database_on_its_host(profiled_hosts):
    with Profiling.opened(bench_of(DATABASE)) as profiling:
        assert profiling.of_server == FarPerf("server", (7,), "server's site")
        assert profiling.of_database == FarPerf("database", (1, 2), "database's site")
    with Profiling.opened(bench_of(DATABASE, database_cpus=(0, 1, 2))) as profiling:
        assert profiling.of_database.cpus == (0, 1, 2)


@pytest.mark.parametrize("bench", [bench_of(SERVER), bench_of(DATABASE, database_cpus=())])
def test_perf_runs_once_if_no_database_runs_elsewhere(profiled_hosts, bench):
    with Profiling.opened(bench) as profiling:
        assert profiling.of_database == profiling.of_server
    assert profiled_hosts == ["server"]


def test_a_refusal_of_the_database_s_host_leaves_the_servers(profiled_hosts, monkeypatch):
    of_place = profiler.profiler

    def refusing(place, ledger):
        if place is DATABASE:
            raise LabError(REFUSED)
        return of_place(place, ledger)

    monkeypatch.setattr(profiler, "profiler", refusing)
    with Profiling.opened(bench_of(DATABASE)) as profiling:
        assert (profiling.of_database, profiling.database_refusal) == (None, REFUSED)
        assert profiling.of_server.profiler == "server"


def test_a_lost_host_of_the_database_ends_the_profiles(profiled_hosts, monkeypatch):
    def losing(place, _ledger):
        raise CannotGoOnError("The host of the database is lost.")

    monkeypatch.setattr(profiler, "profiler", losing)
    with pytest.raises(CannotGoOnError), Profiling.opened(bench_of(DATABASE)):
        pass
