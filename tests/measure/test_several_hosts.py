"""Tests, on a single machine, of the support for several hosts.

They cover the hosts file, the division of a load into parts, and the merging of the parts' results,
for which the exact values are known.
"""

import contextlib
import io
import json
import os
import queue
import re
import select
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import psutil
import pytest
from built import ROOT
from cells import cell_of
from docker.errors import DockerException
from k6_digests import digest, read_table
from k6_files import EPOCH_NS, Request, announce, iteration_lines, request_lines, write_lines
from made_evidence import evidence, network
from measured import measured
from wrk_files import WRK_RESULT

from runner.digest.k6 import spool_together
from runner.digest.k6_raw import spool_points
from runner.digest.reconcile import answered_all_along, begun_together, between
from runner.digest.verdict import judge
from runner.digest.wrk import merge_generators, read_wrk
from runner.measure.connecting import connect
from runner.measure.fleet import NEEDS, Fleet, FleetIdle
from runner.measure.generators.command import Command
from runner.measure.heartbeat import Vigil
from runner.measure.lab import Lab
from runner.measure.sites import Job
from runner.measure.station import Station, answer
from runner.measure.station_client import StationClient
from runner.measurement import Between, Part
from runner.model import Blame, LabError, LoadPart
from runner.planning.hosts import Hosts, read_hosts
from runner.store import raw_name
from runner.verdict.limits import Limit

HOSTS = """
[host.sut]
engine = "ssh://bench@10.0.0.2"
address = "10.0.0.2"

[host.gen]
engine = "local"
address = "10.0.0.3"
cpus = [1, 2]

[roles]
server = "sut"
generators = ["gen"]
"""


def hosts_file(folder, text=HOSTS):
    (folder / "hosts.toml").write_text(text)
    return str(folder / "hosts.toml")


def test_roles_that_are_left_out_have_a_host(tmp_path):
    hosts = read_hosts(hosts_file(tmp_path))
    assert (hosts.server, hosts.database, hosts.generators, hosts.probe) == (
        "sut",
        "sut",
        ("gen",),
        "gen",
    )
    assert hosts.used == ("sut", "gen")
    assert hosts["gen"].cpus == (1, 2)
    assert [hosts.roles(name) for name in hosts.used] == [
        "server and database",
        "generator and probe",
    ]


@pytest.mark.fault(
    "a hosts file has an unknown name, no address or no certificates", "one sentence with the line"
)
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            'server = "sut"',
            'server = "nobody"',
            "line 12: there is no host 'nobody': choose from sut, gen",
        ),
        ('server = "sut"', 'client = "sut"', "line 12: unknown key 'client'"),
        ('generators = ["gen"]', "generators = []", "generators = [] must be a name"),
        (
            'generators = ["gen"]',
            'generators = ["gen", "sut"]',
            "line 13: a generator on the server's host must be the first generator: name 'sut'",
        ),
        (
            'engine = "local"',
            'engine = "tcp://10.0.0.3:2376"',
            "without certificates, anybody on the network can use an engine",
        ),
        (
            'engine = "local"',
            'engine = "http://10.0.0.3"',
            "must be local, unix:///SOCKET, ssh://",
        ),
        (
            'engine = "local"',
            'engine = "tcp://10.0.0.3:2376"\ncertificates = "/no"',
            "the folder /no must contain the files ca.pem",
        ),
        ('address = "10.0.0.3"', 'address = "0.0.0.0"', "must be the IP address of the host"),
        ('address = "10.0.0.3"', 'address = "gen.lab"', "must be the IP address of the host"),
        ("cpus = [1, 2]", "cpus = [1, 1]", "must be a list of different numbers"),
        ("[host.gen]", '[host."a b"]', "must be a table [host.NAME]"),
        ("[roles]", "[role]", "unknown key 'role'"),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence_with_its_line(tmp_path, old, new, says):
    with pytest.raises(LabError, match=rf"\A.*{re.escape(says)}.*\Z"):
        read_hosts(hosts_file(tmp_path, HOSTS.replace(old, new)))


def test_a_users_api_is_not_loaded_from_other_hosts(bench, tmp_path):
    code, _, err = bench(
        "--url", "http://127.0.0.1:9/", "--hosts", hosts_file(tmp_path), command="run"
    )
    assert code == 2 and "--hosts works only with a campaign" in err


def cell(workload, tool, **more):
    return cell_of(workload=workload, tool=tool, **more)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_parts_of_a_load_are_the_whole(count):
    whole = cell("experiments", "k6", vus=100, iterations=1001)
    parts = [part.of(whole).columns() for part in LoadPart.all(count)]
    users = [part.vus for part in parts]
    assert sum(users) == 100 and max(users) - min(users) <= 1
    assert sum(part.iterations for part in parts) == pytest.approx(1001, abs=count)


def test_a_load_that_cannot_be_divided_says_so():
    with pytest.raises(LabError, match="fewer connections than there are generators"):
        LoadPart(1, 2).of(cell("static", "wrk", connections=1, duration_s=1.0))


def test_raw_files_are_named_by_slice_and_generator():
    assert (raw_name("k6.json.gz", None), raw_name("wrk.json", None, 2)) == (
        "k6.json.gz",
        "wrk.g2.json",
    )
    assert raw_name("k6.json.gz", 3, 2) == "k6-03.g2.json.gz"


def requests_at(times_ms, seed):
    rng = np.random.default_rng(seed)
    return [
        Request(EPOCH_NS + int(at * 1e6), 1000, 0, 2000, int(rng.integers(10**5, 10**8)), 3000)
        for at in times_ms
    ]


def k6_file(path, requests, shift_ns=0):
    moved = [replace(each, end_ns=each.end_ns + shift_ns) for each in requests]
    lines = [
        line
        for each in moved
        for line in request_lines(each) + iteration_lines(each.end_ns, each.duration)
    ]
    return write_lines(path, announce(lines))


def digested(raw, *part):
    """Digest the samples of a generator, which are in the file `raw`.

    If `part` is given, also digest the samples of a second generator, whose clock differs. `part`
    consists of the second generator's file, and the ns to add to the times in this file. Return the
    result of the digest, and a list of three tables: requests, latency and throughput.
    """
    spool = partial(spool_together, further=[part]) if part else spool_points
    return digest(raw, spool=spool), [
        read_table(raw, name) for name in ("requests", "latency", "throughput")
    ]


def test_two_generators_are_digested_as_one_whatever_the_clocks(tmp_path):
    first = requests_at(range(0, 5000, 3), 1)
    second = requests_at(range(1, 5000, 2), 2)
    one = k6_file(tmp_path / "k6.json.gz", first)
    whole = k6_file(
        tmp_path / "whole.json.gz", sorted(first + second, key=lambda each: each.end_ns)
    )
    expected, tables = digested(whole)
    for ahead_ns in (0, 3_600_000_000_000, -777_777):
        two = k6_file(tmp_path / f"k6.g2.{ahead_ns}.json.gz", second, ahead_ns)
        found, merged = digested(one, two, -ahead_ns)
        # These fields differ, because each file has its own lines that declare metrics, and its own
        # numbering of labels.
        own = {"steady": None, "lines": 0, "labelling": None, "kinds": {}}
        assert (found.labels, found.labelling.counts, found.kinds) == ([], {}, {})
        assert replace(found, **own) == replace(expected, **own)
        for name in ("seconds", "in_flight", "iteration_mean_ms"):
            assert getattr(found.steady, name) == pytest.approx(
                getattr(expected.steady, name), rel=1e-12
            )
        for pair in zip(merged, tables, strict=True):
            order = [name for name in pair[0].columns if name != "trial_id"]
            pd.testing.assert_frame_equal(
                *(each.sort_values(order, ignore_index=True) for each in pair)
            )


@pytest.mark.fault(
    "the samples of one of several generators are cut off", "refused; the file is named"
)
def test_damage_in_a_part_names_its_file_and_line(tmp_path):
    one = k6_file(tmp_path / "k6.json.gz", requests_at(range(100), 1))
    two = k6_file(tmp_path / "k6.g2.json", requests_at(range(100), 2))
    two.write_text(two.read_text()[:-400])
    with pytest.raises(LabError, match=r"k6\.g2\.json"):
        digested(one, two, 0)


def wrk_file(path, counts, duration_us, connections=4):
    found = {
        "duration_us": duration_us,
        "requests": sum(counts.values()),
        "connections": connections,
    }
    path.write_text(json.dumps(WRK_RESULT | found | {"latency_us": sorted(counts.items())}))
    return read_wrk(path)


def test_wrks_counts_histograms_and_rates_add_up(tmp_path):
    one = wrk_file(tmp_path / "wrk.json", {10: 900, 20: 100}, 1_000_000)
    two = wrk_file(tmp_path / "wrk.g2.json", {20: 500, 30: 1500}, 2_000_000, connections=6)
    both = merge_generators([one, two])
    assert both.requests == 3000 and both.connections == 10
    assert both.requests / both.duration_s == pytest.approx(1000 + 1000)
    assert dict(zip(*(each.tolist() for each in both.raw), strict=True)) == {
        10: 900,
        20: 600,
        30: 1500,
    }


def times(begin_s, end_s):
    ends = product((("started", begin_s), ("ended", end_s)), ("wall", "mono"))
    return {f"load_{when}_{clock}_ns": int(at * 1e9) for (when, at), clock in ends}


@pytest.mark.fault("one of several generators begins late or ends early", "the trial is invalid")
@pytest.mark.parametrize(
    ("begin_s", "end_s", "ok"), [(0.2, 10.1, True), (3, 13, False), (0, 5, False)]
)
def test_generators_must_load_at_the_same_time(begin_s, end_s, ok):
    part = Part(number=2, argv=(), generator_env=(), generator_exit=0, **times(begin_s, end_s))
    walls = [(0, 10 * 10**9), (int(begin_s * 1e9), int(end_s * 1e9))]
    assert begun_together(measured(**times(0, 10), parts=(part,)), walls).ok is ok


@pytest.mark.fault(
    "one of several generators has no answers for a part of its load", "the trial is invalid"
)
def test_a_part_without_answers_for_most_of_its_load_is_found():
    wrk = cell("static", "wrk", connections=20, duration_s=6.0)
    sound = (43_000.0, 0.00023, 10)
    stalled = (7_000.0, 0.0002, 10)
    assert answered_all_along(wrk, [sound, sound])[0].ok
    assert not answered_all_along(wrk, [sound, stalled])[0].ok
    assert answered_all_along(replace(wrk, mode="close"), [sound, stalled]) == ()


@pytest.mark.fault(
    "the clocks of two hosts move against each other during a load", "the trial is invalid"
)
@pytest.mark.parametrize(("moved_ns", "ok"), [(100_000, True), (20_000_000, False)])
def test_clocks_that_move_apart_make_a_trial_invalid(moved_ns, ok):
    hosts = Between(
        clock_error_ns=200_000,
        clock_moved_ns=moved_ns,
        received_bytes=0,
        sent_bytes=0,
        segments=0,
        retransmitted=0,
        transfer_bytes_s=1e9,
        generators=(),
    )
    clocks, spoke = between(measured(between=hosts))
    assert clocks.ok is ok and spoke.ok
    assert between(measured()) == ()


@pytest.mark.fault(
    "a host is cut off for some seconds during a load, and comes back in time",
    "the trial is repeated, and the run goes on",
)
@pytest.mark.parametrize(("silent_s", "ok"), [(1.2, True), (2.9, True), (5.0, False)])
def test_a_trial_with_a_silent_host_is_repeated(silent_s, ok):
    """If a host was silent for long, the trial fails, because no request was answered meanwhile."""
    hosts = Between(
        clock_error_ns=0,
        clock_moved_ns=0,
        received_bytes=0,
        sent_bytes=0,
        segments=0,
        retransmitted=0,
        transfer_bytes_s=1e9,
        generators=(),
        silent_ns=round(silent_s * 1e9),
    )
    _, spoke = between(measured(between=hosts))
    assert spoke.ok is ok and spoke.blame is Blame.MACHINE


@pytest.mark.parametrize(
    ("server", "generator", "offered", "between_hosts", "limit"),
    [
        (0.5, 0.4, None, network(share=0.9), Limit.NETWORK),
        (0.5, 0.4, None, network(share=0.5), Limit.UNKNOWN),
        (0.97, 0.4, None, network(share=0.5), Limit.SERVER),
        (0.97, 0.4, None, network(share=0.9), Limit.UNKNOWN),
        (0.5, 0.9, None, network(share=0.9), Limit.UNKNOWN),
        (0.5, 0.4, None, network(lost_share=0.02), Limit.NETWORK),
        (0.97, 0.4, None, network(lost_share=0.02), Limit.SERVER),
        (0.5, 0.4, None, network(lost_share=0.001), Limit.UNKNOWN),
        (0.5, 0.4, None, network(round_trip_ms=10, median_ms=10.4), Limit.NETWORK),
        (0.5, 0.4, None, network(round_trip_ms=10, median_ms=40.0), Limit.UNKNOWN),
        # The rate of an open load is sustained even if the round trip of the network is long.
        (0.5, 0.4, 100.0, network(round_trip_ms=10, median_ms=10.4), Limit.NONE),
    ],
)
def test_the_network_is_the_limit_only_where_no_side_was(
    server, generator, offered, between_hosts, limit
):
    """The network is the limit only if neither the server nor the generator is the limit.

    Such a network is full, loses packets, or takes most of a response time.
    """
    given = evidence(
        server_share=server,
        generator_share=generator,
        generator_peak_share=generator,
        offered_rps=offered,
        network=between_hosts,
    )
    assert judge(given).limit is limit


@pytest.fixture
def station(tmp_path):
    with contextlib.closing(Station(tmp_path)) as made:
        yield made


def test_a_station_answers_any_request_and_never_ends_by_it(station):
    def asked(what, **more):
        return json.loads(answer(station, json.dumps({"do": what, **more})))

    assert asked("now")["done"] > 0 and asked("hello")["done"]["cpus"]
    assert all("error" in asked(what) for what in ("nothing", "_generate", "kills"))
    assert asked("command", id=3, name="sampler", command={}) == {
        "id": 3,
        "error": "The sampler does not run.",
    }


SECRET = "5ec4e7" * 5


@pytest.mark.parametrize("sends", [b"", SECRET.encode(), SECRET.encode() + b"a little"])
def test_a_network_that_is_silent_is_said_in_a_sentence(tmp_path, sends):
    receive = json.dumps({"id": 1, "do": "receive", "secret": SECRET})
    with (
        contextlib.closing(Station(tmp_path, transfer_limit_s=0.2)) as station,
        socket.create_connection(("127.0.0.1", station.listen("127.0.0.1"))) as channel,
    ):
        channel.sendall(sends)
        found = json.loads(answer(station, receive))
    error = "No data could be exchanged with the other host for 0.2 s."
    assert found == {"id": 1, "error": error}


def test_a_transfer_is_taken_from_who_knows_its_secret_only(station):
    """A connection without the secret is closed, and does not disturb the transfer.

    It is closed even if it comes from the same address as the connection with the secret.
    """
    port = station.listen("127.0.0.1")
    with contextlib.ExitStack() as stack:
        wrong, silent, gone, peer = (
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(4)
        )
        wrong.sendall(b"x" * 100_000)
        gone.close()
        peer.sendall(SECRET.encode() + bytes(1_000_000))
        peer.shutdown(socket.SHUT_WR)
        assert station.receive(SECRET) > 1e6
        for each in (wrong, silent):
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(1) == b""


SKEWED = """
import sys, time
real, wall, ahead = time.monotonic_ns, time.time_ns, int(sys.argv.pop(1))
time.monotonic_ns = lambda: real() + ahead
time.time_ns = lambda: wall() - 2 * ahead
from runner.measure import station
station.main()
"""


class Pipe:
    """The channel to a station that is a process of this machine.

    The station's monotonic clock is `ahead_ns` ahead, and its wall clock is twice as much behind.
    """

    complaint = b""

    def __init__(self, folder, ahead_ns):
        env = {**os.environ, "LAB_WORK": str(folder), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", SKEWED, str(ahead_ns)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env)

    def send(self, line):
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def take(self, timeout_s):
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            raise queue.Empty
        return self._process.stdout.readline() or None

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=10)


class Folder:
    """A substitute for the container of a station.

    The lab copies files from the container by Docker. Here a folder takes the place of the
    container's folder /work.
    """

    def __init__(self, folder):
        self._folder = folder

    def get_archive(self, path):
        with tarfile.open(fileobj=(packed := io.BytesIO()), mode="w") as tar:
            tar.add(self._folder / Path(path).relative_to("/work"), arcname=Path(path).name)
        return iter([packed.getvalue()]), {}


@pytest.mark.timed
def test_stations_with_wrong_clocks_begin_together(tmp_path):
    """Loads begin together on two hosts, although one clock is 8 s ahead and the other 3 s behind.

    The loads run `date`, which prints the time at which each load really began.
    """
    waits = []
    logs = []
    with contextlib.ExitStack() as stack:
        stations = []
        for name, ahead_ns in (("a", 8 * 10**9), ("b", -3 * 10**9)):
            (tmp_path / name).mkdir()
            pipe = stack.enter_context(contextlib.closing(Pipe(tmp_path / name, ahead_ns)))
            vigil = Vigil(print)
            stations.append(StationClient(name, Folder(tmp_path / name), pipe, "127.0.0.1", vigil))
            stations[-1].look_at_clock()
            clock = stations[-1].clock
            assert abs(clock.offset_ns - ahead_ns) <= clock.error_ns < 20_000_000
            assert abs(stations[-1].wall_ahead_ns() + 2 * ahead_ns) < 20_000_000
        begin = time.monotonic_ns() + 1_000_000_000
        wall = time.time_ns() + 1_000_000_000
        for station in stations:
            station.new_paths({})  # creates the folder of a load
            logs.append(tmp_path / f"{station.name}.log")
            command = Command(("date", "+%s%N"), {}, 10)
            waits.append(
                station.load(
                    Job(command, tuple(os.sched_getaffinity(0)), {}, logs[-1], begin), None
                )
            )
        loads = [wait() for wait in waits]
    assert all(abs(int(log.read_text()) - wall) < 150_000_000 for log in logs)
    assert all(0 <= load.load_started_mono_ns - begin < 150_000_000 for load in loads)


WORKS = """
import sys, time
until = time.process_time() + 0.3
while time.process_time() < until: pass
held = bytearray(40 * 2**20)
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.timed
def test_what_a_server_took_is_read_on_its_host(tmp_path):
    """A station's counts of a process must agree with psutil's counts.

    The process uses 0.3 s of CPU time and 40 MiB of memory.
    """
    pipe = subprocess.PIPE
    with (
        contextlib.closing(Pipe(tmp_path, 0)) as channel,
        subprocess.Popen([sys.executable, "-c", WORKS], stdin=pipe, stdout=pipe) as worker,
    ):
        station = StationClient("server", Folder(tmp_path), channel, "127.0.0.1", Vigil(print))
        worker.stdout.readline()
        seen = psutil.Process(worker.pid)
        spent = station.spent(worker.pid)
        assert spent.user_ns + spent.system_ns == pytest.approx(
            1e9 * sum(seen.cpu_times()[:2]), abs=20_000_000
        )
        assert spent.voluntary_switches == seen.num_ctx_switches().voluntary
        # Half as many faults as pages of 4 KiB are enough, because some kernels map larger pages.
        assert spent.page_faults > 40 * 2**20 / 4096 / 2
        assert station.resident(worker.pid) == pytest.approx(seen.memory_info().rss, rel=0.05)
        worker.communicate(b"")
        assert station.spent(worker.pid) is None


# --- how the lab reaches an engine ----------------------------------------------------------------


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_certificates_of_the_page_can_sign_no_others(tmp_path):
    """With a certificate from the commands in docs/fleet.md, a host cannot sign other certificates.

    OpenSSL must accept the hosts' certificates, but reject a certificate that is signed with the
    key of a host.
    """
    page = (ROOT / "docs" / "fleet.md").read_text()
    (block,) = (each for each in page.split("```console\n") if "openssl" in each)
    made = re.sub(r"(?m)^\$ ", "", block.partition("```")[0])
    forged = """
        openssl verify -CAfile ca.pem -purpose sslserver server.pem
        openssl verify -CAfile ca.pem -purpose sslclient cert.pem
        signed="$new -CA server.pem -CAkey server-key.pem -addext basicConstraints=CA:FALSE"
        $signed -subj /CN=forged -keyout forged-key.pem -out forged.pem
        openssl verify -CAfile ca.pem -untrusted server.pem forged.pem || echo rejected
        """
    done = subprocess.run(
        ["bash", "-ec", made + forged],
        env={**os.environ, "HOME": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split("\n")[:3] == ["server.pem: OK", "cert.pem: OK", "rejected"]


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh")
@pytest.mark.parametrize(
    ("engine", "config"),
    [
        ("ssh://me@10.0.0.2", ""),
        ("ssh://me@10.0.0.2:2200", ""),
        ("ssh://me@10.0.0.2", "Host 10.0.0.2\n  Port 2022\n"),
        ("ssh://me@10.0.0.2:2200", "Host 10.0.0.2\n  Port 2022\n"),
    ],
)
def test_an_engine_is_reached_at_the_port_that_ssh_takes(engine, config, tmp_path, monkeypatch):
    """The lab connects to the port that OpenSSH chooses for the same URL and configuration."""
    paramiko = pytest.importorskip("paramiko")
    file = tmp_path / ".ssh" / "config"
    file.parent.mkdir()
    file.write_text(config)
    monkeypatch.setenv("HOME", str(tmp_path))
    connected = Mock(side_effect=paramiko.SSHException("refused"))
    monkeypatch.setattr(paramiko.SSHClient, "connect", connected)
    with pytest.raises(DockerException, match="refused"):
        connect(engine, timeout_s=1)
    chosen = subprocess.check_output(["ssh", "-G", "-F", file, engine], text=True)
    assert f"\nport {connected.call_args.kwargs['port']}\n" in chosen


# --- programs and CPUs of a host ------------------------------------------------------------------


def test_the_image_of_the_instruments_has_all_that_a_station_imports():
    """The image of the instruments must contain all modules that a station imports."""
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, runner.measure.station;"
            "print(*{name.split('.')[1] for name in sys.modules if name.startswith('runner.')})",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(said.stdout.split())
    assert {"measure", "model"} <= imported
    assert imported <= {name.removesuffix(".py") for name in NEEDS}


def test_generators_get_cpus_after_the_server():
    said = {"boot": "b", "facts": {"cpus": 4}}
    place = SimpleNamespace(role="all", cpus=(0, 1, 2), said=said, station=Mock())
    hosts = Hosts((), server="all", database="all", generators=("all",), probe="all")
    fleet = Fleet(hosts, {"all": place}, Mock())
    with pytest.raises(RuntimeError, match=r"Call Fleet\.place\(\) before Fleet\.sites"):
        _ = fleet.sites
    assert fleet.place(server_cpus=1, database_cpus=0).generator == (1, 2)
    assert fleet.sites.generator_hosts[0].cpus == 2


def test_no_host_polls_if_one_host_cannot():
    """Idle CPUs are in the same state on all hosts, and this state is the one that is recorded."""
    states = {}

    def host(name, problem):
        def ask(what, state):
            assert what == "idle"
            states[name] = "system" if problem else state
            return problem

        return SimpleNamespace(role=name, station=SimpleNamespace(ask=ask))

    idle = FleetIdle(
        {"server": host("server", None), "generator": host("generator", "a file is missing")}
    )
    idle.ask("polling")
    assert states == {"server": "system", "generator": "system"}
    assert idle.state == "system"
    assert idle.problem == "on the host of the generator a file is missing"


def test_this_machine_is_one_place_however_often_named(tmp_path):
    lab = Lab(engine=Mock(), ledger=Mock(), idle=Mock(), reaped=(), warnings=())
    assert lab.sites.server is lab.sites.server
    assert lab.sites.all == (lab.sites.server,)
