"""Tests with several hosts: each host is a Docker engine in a network namespace of this machine.

In some tests, a load is divided between two generators, and the lab merges their results. In other
tests, a host is lost, frozen or restarted during a load.
"""

import contextlib
import gzip
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import fleet_hosts
import numpy as np
import pandas as pd
import pytest
import real_lab
from fake_lab import rebuilt, wait_for
from real_lab import load, with_changed
from scipy import stats

from runner.digest.tables import rebuild
from runner.present.why.profiles import UNKNOWN, read_profiles
from runner.store import RunFolder

pytestmark = [pytest.mark.docker, pytest.mark.long]

WRK = load("static", connections=20, duration_s=2)
LONG = load("static", connections=20, duration_s=4)
ENDLESS = load("static", connections=20, duration_s=90)
INSERTS = load("devices-insert", connections=20, pool_sizes=[10], duration_s=90)
RATES = load("rates", rates_rps=[2000], duration_s=5, vus=100)
CLOSED = load("experiments", vus=51, iterations=20001)


@pytest.fixture(scope="module")
def fleet():
    with fleet_hosts.hosts() as made:
        yield made


@pytest.fixture
def nothing_left(fleet):
    """Check after the test that no container is left, and that no program of the lab listens."""
    yield
    assert fleet.containers() == []
    assert [machine.listening() for machine in fleet.machines.values()] == [set()] * 3


def campaign(*loads):
    return real_lab.campaign(["gin"], *loads, server_cpus=1, repeats=1)


def measured(root, fleet, *loads, **how):
    """Run a campaign on the hosts; return the run, and its trials as a dict by workload."""
    made = real_lab.run(root, campaign(*loads), "--hosts", fleet.file(root, **how), code=None)
    return made, {row["workload"]: row for row in made.trials.to_dict("records")}


def sealed(root, fleet, *loads, **how):
    """Run a campaign on the hosts as `measured` does, and check that no trial has failed."""
    run, trials = measured(root, fleet, *loads, **how)
    assert [trial["error"] for trial in trials.values() if trial["status"] != "sealed"] == []
    return run, trials


@pytest.fixture(scope="module")
def divided(fleet, tmp_path_factory):
    """Return a run with a load of each kind, and the run's trials.

    Each load is divided between two generators.
    """
    found = measured(real_lab.make(tmp_path_factory.mktemp("divided")), fleet, WRK, RATES, CLOSED)
    assert fleet.containers() == []
    return found


def counted(run, trial):
    """Return a trial's folder, the number of the load's requests, and the stored measurement.

    The number is the server's count of requests, minus the number of the probe's requests.
    """
    folder = run.folder / "trials" / trial["trial_id"]
    record = json.loads((folder / "trial.json").read_text())["measurement"]
    # If the probe's requests would have been too much for the server, the lab did not start the
    # probe, and this file does not exist.
    probe = folder / "probe.parquet"
    probed = len(pd.read_parquet(probe)) if probe.exists() else 0
    return (
        folder,
        record["counters_after"]["requests"] - record["counters_before"]["requests"] - probed,
        record,
    )


def roles_of(run):
    return [host["roles"] for host in run.manifest["hosts"]]


@pytest.mark.load
def test_no_file_of_a_run_has_an_address(divided):
    """No file may contain the address of a host, not even the logs of wrk and of the servers."""
    run, _ = divided
    logs = [path.read_text() for path in run.folder.rglob("generator.log")]
    assert any("@ http://SERVER:" in text for text in logs)
    for file in filter(Path.is_file, run.folder.rglob("*")):
        text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        assert fleet_hosts.NETWORK.encode() not in text, file


@pytest.mark.load
def test_wrk_from_two_hosts_is_merged_exactly(divided):
    run, trials = divided
    trial = trials["static"]
    assert trial["status"] == "sealed", trial["error"]
    folder, server_count, record = counted(run, trial)
    parts = [json.loads((folder / name).read_text()) for name in ("wrk.json", "wrk.g2.json")]
    assert [part["connections"] for part in parts] == [10, 10]
    # This test itself computes the expected number of requests and the expected rate, from the
    # files of both parts of the load. The number must also agree with the server's count.
    assert trial["requests"] == sum(part["requests"] for part in parts)
    assert trial["rps"] == pytest.approx(
        sum(1e6 * part["requests"] / part["duration_us"] for part in parts), rel=1e-9
    )
    assert 0 <= server_count - trial["requests"] <= 20
    assert 1 < trial["server_start_ms"] < 5000
    text = json.dumps([record, run.manifest])
    assert not any(word in text for word in (fleet_hosts.NETWORK, "gen1", "certificates"))
    assert roles_of(run) == ["server", "generator 1 and database and probe", "generator 2"]
    subjects = {"server", "generator", "generator 2", "host", "host 1", "host 2"}
    assert subjects <= set(run.table("resources")["subject"])
    with rebuilt(run.folder):
        rebuild(RunFolder(run.folder))


@pytest.mark.load
def test_an_open_load_of_two_halves_is_one_load(divided, root, fleet, nothing_left):
    """An open load from two generators gives the same results as the whole load from one generator.

    In both cases the probe does not run on the server's host.
    """
    run, halves = divided
    trial = halves["rates"]
    assert trial["status"] == "sealed", trial["error"]
    folder, server_count, _ = counted(run, trial)
    parts = [
        real_lab.k6_durations(folder / name)["value"] for name in ("k6.json.gz", "k6.g2.json.gz")
    ]
    assert all(abs(len(each) - 5000) <= 3 for each in parts)
    durations = np.concatenate(parts)
    assert trial["requests"] == len(durations) and trial["dropped"] == 0
    for name, q in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
        assert trial[f"latency_{name}_ms"] == pytest.approx(np.quantile(durations, q), rel=1e-9), (
            name
        )
    assert server_count == len(durations)

    run, trials = sealed(root, fleet, RATES, generators=("gen1",), probe="gen2")
    one = trials["rates"]
    assert abs(one["requests"] - trial["requests"]) <= 5
    # Here both generators share a CPU, so each of them waits for the other. This wait may be half
    # of a response time, because a response time is only about a millisecond.
    assert one["latency_p50_ms"] == pytest.approx(trial["latency_p50_ms"], rel=0.5, abs=0.3)
    assert roles_of(run) == ["server", "generator and database", "probe"]
    # The probe's times are converted to the runner's clock, so its requests lie within the load.
    folder, _, record = counted(run, one)
    sent = pd.read_parquet(folder / "probe.parquet")["sent_ns"]
    assert one["probe_requests"] >= 95  # the probe sends a hundredth of the load's 10,000 requests
    assert (
        sent.between(
            record["load_started_mono_ns"] - 1e9, record["load_ended_mono_ns"] + 1e9
        ).mean()
        > 0.95
    )


@pytest.mark.load
def test_a_closed_load_of_k6_is_divided_as_k6_does(divided):
    run, trials = divided
    trial = trials["experiments"]
    folder = run.folder / "trials" / trial["trial_id"]
    parts = [
        json.loads((folder / name).read_text())
        for name in ("k6-summary.json", "k6-summary.g2.json")
    ]
    done_by = [part["metrics"]["iterations"]["count"] for part in parts]
    assert sum(done_by) == 20001 and abs(done_by[0] - 20001 * 26 / 51) < 1
    # Both generators share a CPU, so one of them may end its part earlier. Then the trial fails. It
    # must not fail for any other reason.
    assert trial["status"] == "sealed" or "loaded at the same time" in trial["error"], trial[
        "error"
    ]


@pytest.mark.load
def test_every_part_has_what_a_host_needs(root, fleet, nothing_left):
    done = real_lab.bench(root, "doctor", "--hosts", fleet.file(root), "--json", code=0)
    said = {row["subject"]: row["text"] for row in json.loads(done.stdout)}
    assert "Gbit/s" in said["network"]
    assert "can be profiled" in said["server: perf"]
    assert "can be profiled" in said["generator 1 and database and probe: perf"]
    for role in ("server", "generator 1 and database and probe", "generator 2"):
        assert "engine" in said[role]
        offset_s = float(said[f"{role}: clock"].split()[0])
        error_ms = float(said[f"{role}: clock"].split()[-2])
        # Here all hosts are network namespaces of one machine, so they have the same clock.
        assert abs(offset_s) <= error_ms / 1000 < 0.02


BURN_US = 80.0
BURNS = real_lab.campaign(
    ["burns"],
    load("wrk-matrix", modes=["keepalive"], connections=10, duration_s=0.6, profile=True),
    copies={"burns": "reference"},
    environment={"burns": {"REFERENCE_BURN_US_PER_REQUEST": f"{BURN_US:g}"}},
    server_cpus=1,
    repeats=1,
)
"""A campaign with a server that uses BURN_US microseconds of CPU time per request.

The server uses this time in a function whose name is known.
"""


@pytest.mark.load
def test_a_known_burn_is_found_on_the_host_of_the_server(root, fleet, nothing_left):
    made = real_lab.run(root, BURNS, "--hosts", fleet.file(root), code=None)
    assert "not profiled" not in made.done.stderr, made.done.stderr
    slices = made.table("profile_slices").query("kind == 'recorded'")
    stacks = made.table("profiles")
    burnt = stacks[stacks["stack"].str.contains("known_burn")].groupby("place")["us_per_request"]
    values = burnt.sum().reindex(slices["place"]).to_numpy()
    half = stats.t.ppf(0.995, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    assert values.mean() == pytest.approx(BURN_US, abs=half + 0.03 * BURN_US)
    # perf must know the names of the kernel's functions, and of the functions of the program in the
    # container.
    by_category = stacks.groupby("category")["us_per_request"].sum()
    assert by_category.get("unknown", 0.0) < 0.05 * by_category.sum()
    assert by_category["kernel network"] > 1
    events = made.table("counters").set_index("event")["per_request"]
    assert events["syscalls:sys_enter_recvfrom"] == pytest.approx(1, abs=0.2)
    assert not any(fleet_hosts.NETWORK in text for text in stacks["stack"])


PROFILED_INSERTS = load(
    "devices-insert",
    connections=8,
    pool_sizes=[4],
    slices=2,
    slice_s=0.5,
    sessions=True,
    profile=True,
)


@pytest.mark.load
def test_the_database_on_another_host_is_profiled(root, fleet, nothing_left):
    """perf's samples of the database must add up to the CPU time that the sampler has measured.

    Most samples must show functions of PostgreSQL by name, although PostgreSQL's program is in a
    container on another host.
    """
    made = real_lab.run(root, campaign(PROFILED_INSERTS), "--hosts", fleet.file(root), code=None)
    assert "not profiled" not in made.done.stderr, made.done.stderr
    run = RunFolder(made.folder)
    slices = made.table("profile_slices")
    sampled_us = slices[slices["subject"].eq("database")]["sampled_us_per_request"]
    assert len(sampled_us) >= 4
    trials = pd.read_parquet(run.profiles.table("trials"))
    used_us = 1000 * float(trials["database_cpu_ms_per_request"].iloc[0])
    assert sampled_us.mean() == pytest.approx(used_us, rel=0.3)
    databases = read_profiles(run, "database")
    (load_id,) = databases.loads
    (found,) = databases.of(load_id)
    assert found.categories["executor"].mean > 0
    assert found.categories[UNKNOWN].mean < 0.15 * found.total.mean
    assert not read_profiles(run).stacks["stack"].str.contains("PostgresMain").any()


@pytest.mark.load
@pytest.mark.fault(
    "perf is refused on the host of the server", "the run goes on, and one sentence says what to do"
)
def test_a_host_that_refuses_perf_costs_a_sentence(root, fleet, nothing_left):
    """If perf's container starts without the rights that perf needs, the kernel refuses perf.

    The run must go on, with one warning.
    """
    plain = with_changed("runner.measure.profiler", "m.RIGHTS = ()")
    made = real_lab.run(root, BURNS, "--hosts", fleet.file(root), code=None, program=plain)
    (said,) = (each for each in made.manifest["host_warnings"] if "not profiled" in each)
    assert said.startswith(
        "The servers were not profiled: The kernel of the host of the server refuses perf"
    )
    assert len(made.trials) == 1


@pytest.mark.load
def test_only_known_hosts_are_reached_by_ssh(root, fleet, nothing_left, tmp_path):
    (root / "test.toml").write_text(campaign(WRK))
    with fleet_hosts.reached_by_ssh(fleet, tmp_path / "home") as user:
        command = ("run", "test.toml", "--json", "--hosts", fleet.file(root, ("gen1",), "ssh"))
        done = real_lab.bench(root, *command, code=0, **user)
        assert json.loads(done.stdout)["failed"] == []
        (tmp_path / "home" / ".ssh" / "known_hosts").write_text("")
        done = real_lab.bench(root, *command, code=1, **user)
        assert "known" in done.stderr, done.stderr


@pytest.mark.load
def test_a_known_delay_comes_back_and_limits_a_closed_load(root, fleet, nothing_left):
    slow = load("rates", rates_rps=[400], duration_s=4, vus=50)
    with fleet.machines["gen2"].far_away(0.005, 0.0):
        _, trials = sealed(root, fleet, WRK, slow, generators=("gen2",), engine="unix")
    closed = trials["static"]
    offered = trials["rates"]
    assert closed["verdict"] == "network-bound", closed["verdict_reason"]
    assert "the way to the server and back took 10." in closed["verdict_reason"]
    assert closed["latency_p50_ms"] == pytest.approx(11, abs=1)
    assert closed["rps"] == pytest.approx(
        20e3 / closed["latency_mean_ms"], rel=0.05
    )  # Little's law
    assert offered["verdict"] == "offered", offered["verdict_reason"]
    assert offered["latency_p50_ms"] == pytest.approx(10.6, abs=0.6)
    assert offered["probe_p50_ms"] == pytest.approx(10.6, abs=1)


@pytest.mark.load
@pytest.mark.fault(
    "the network between the hosts loses packets", "network-bound: segments were sent again"
)
def test_packets_that_are_lost_are_said(root, fleet, nothing_left):
    with fleet.machines["gen2"].far_away(0.0005, 0.03):
        trial = sealed(root, fleet, WRK, generators=("gen2",), engine="unix")[1]["static"]
    assert trial["verdict"] == "network-bound", trial["verdict_reason"]
    lost = float(re.search(r"hosts lost ([\d.]+) % of what was sent", trial["verdict_reason"])[1])
    assert 1 < lost < 8


@pytest.mark.load
def test_packets_of_the_warm_up_are_not_counted_into_the_load(root, fleet, nothing_left):
    """Requests of the warm-up that reach the server late must not count as requests of the load.

    The last packets of the warm-up leave 1.92 s after the warm-up has begun, and arrive after
    2.40 s. The warm-up ends after 1.96 s to 2.06 s.
    """
    hosts = fleet.file(root, generators=("gen2",), engine="unix")
    quick = with_changed("runner.measure.fleet", "m.WAYS = 1")
    with fleet.machines["gen2"].far_away(0.48, 0):
        made = real_lab.run(root, campaign(LONG | {"warmup_s": 1}), "--hosts", hosts, program=quick)
    (trial,) = made.trials.to_dict("records")
    assert trial["requests"] <= counted(made, trial)[1] <= trial["requests"] + 20


@pytest.mark.load
def test_a_full_network_is_the_limit(root, fleet, nothing_left):
    with fleet.machines["gen2"].narrow(20):
        run, trials = sealed(root, fleet, WRK, generators=("gen2",), engine="unix")
    trial = trials["static"]
    assert trial["verdict"] == "network-bound", trial["verdict_reason"]
    assert "the network between the hosts was full" in trial["verdict_reason"]
    assert counted(run, trial)[-1]["between"]["transfer_bytes_s"] == pytest.approx(
        20e6 / 8, rel=0.1
    )


SHORT = with_changed(
    "runner.planning.catalog",
    "load = m.load_campaign; m.load_campaign = lambda _: load('test.toml')",
)
"""A program like `bench`, but with test.toml in place of every campaign that `bench` would load."""


@pytest.mark.load
def test_check_and_calibrate_work_on_other_hosts(root, fleet, nothing_left):
    hosts = fleet.file(root)
    (inspection,) = json.loads(
        real_lab.bench(root, "check", "gin", "--hosts", hosts, "--json", code=0).stdout
    )
    assert inspection["error"] is None and len(inspection["checks"]) > 100
    (root / "test.toml").write_text(campaign(WRK, load("static-k6", vus=20, iterations=2000)))
    done = real_lab.bench(root, "calibrate", "--hosts", hosts, "--json", program=SHORT, code=0)
    assert {each["tool"] for each in json.loads(done.stdout)["ceilings"]} == {"k6", "wrk"}


def loads_of(duration_s):
    """Return a function that tells whether wrk runs a load of this duration."""
    found = ["pgrep", "-f", f"/lab/tools/wrk .*-d{duration_s}s"]
    return lambda: subprocess.run(found, capture_output=True, check=False).returncode == 0


loads = loads_of(4)
"""A function that tells whether the load LONG, which lasts 4 s, runs."""
loads_long = loads_of(90)
"""A function that tells whether a load of 90 s runs.

No test waits for the end of such a load: the tests make a host fail, which ends the run earlier.
"""


ADMINS = {"dockerd", "containerd", "containerd-shim", "sshd"}
"""Programs that run on the hosts, but do not belong to the lab."""


@contextlib.contextmanager
def under_way(root, hosts, *what, under=LONG, begun=loads, **user):
    """Start a campaign on several hosts; yield the runner's process once `begun` returns True.

    The campaign has the load `under`.
    """
    (root / "test.toml").write_text(campaign(under))
    runner = real_lab.start(root, "run", *(what or ["test.toml"]), "--hosts", hosts, **user)
    try:
        wait_for(lambda: begun() or runner.poll() is not None, 240)
        assert runner.poll() is None, runner.communicate()
        time.sleep(1)
        yield runner
    finally:
        runner.kill()


@contextlib.contextmanager
def reached(fleet, engine, home):
    """Make the engines of the hosts reachable by TLS (`tcp`) or by ssh.

    Yield the environment variables that `bench` needs to reach them: none for `tcp`.
    """
    if engine == "tcp":
        yield {}
        return
    with fleet_hosts.reached_by_ssh(fleet, home) as user:
        yield user


def failed(runner):
    """Wait for the end of a campaign that must fail; return its output."""
    done = real_lab.ended(runner, 1)
    return done.stdout + done.stderr


def cleaned(root, fleet, hosts, **user):
    """Run `bench clean` for the hosts, check that no container is left, and return its messages."""
    done = real_lab.bench(root, "clean", "--hosts", hosts, code=0, **user)
    assert fleet.containers() == []
    return done.stderr


def goes_on(root, hosts):
    resumed = real_lab.bench(root, "run", "--resume", "latest", "--hosts", hosts, "--json", code=0)
    assert json.loads(resumed.stdout)["failed"] == []


def noticed(runner, since_s):
    """Wait until a run notices a lost host, and return the run's output so far.

    Fail if the run notices the loss more than 11 s after `since_s`. The documentation promises
    10 s, and one more second is allowed for the test itself.
    """
    said = ""
    while "has not responded for too long" not in said:
        said += os.read(runner.stderr.fileno(), 65_536).decode()
    assert time.monotonic() - since_s < 11
    return said


def emptied(machine, since_s):
    """Wait until no program of the lab runs on a host; fail if one runs 15 s after `since_s`."""
    wait_for(lambda: not machine.programs() - ADMINS, since_s + 15 - time.monotonic())


def lost(runner, role, before):
    """Wait for the end of a run that has lost a host, check its messages, and return its output.

    `before` is the run's output up to the moment at which the run noticed the loss.
    """
    said = before + failed(runner)
    assert f"The host of the {role} has not responded since " in said, said
    assert f"The host of the {role} stopped responding at " in said, said
    assert "Then continue with `bench run --resume " in said, said
    return said


@pytest.mark.timed
@pytest.mark.fault(
    "the cable of the server's host is pulled under load, its engine reached by TLS",
    "within 10 s the run ends and names the host; within 15 s nothing of the lab runs there; the "
    "run can go on",
)
def test_a_server_whose_cable_is_pulled_is_noticed_and_left_clean(root, fleet, nothing_left):
    hosts = fleet.file(root)
    with under_way(root, hosts, under=ENDLESS, begun=loads_long) as runner:
        machine = fleet.machines["sut"]
        assert {"server", "python3"} <= machine.programs()
        with machine.pulled():
            pulled_s = time.monotonic()
            said = noticed(runner, pulled_s)
            emptied(machine, pulled_s)
            assert machine.listening() == set()
            lost(runner, "server", said)
    cleaned(root, fleet, hosts)
    trial = json.loads(next(root.glob("data/runs/*/trials/*/trial.json")).read_text())
    assert trial["status"] == "interrupted" and "host of the server" in trial["error"]


@pytest.mark.timed
@pytest.mark.fault(
    "the cable of a generator's host is pulled under load, its engine reached by ssh",
    "within 10 s the run ends and names the host; within 15 s nothing of the lab runs there; the "
    "run can go on",
)
def test_a_generator_over_ssh_is_noticed_and_left_clean(root, fleet, nothing_left, tmp_path):
    with fleet_hosts.reached_by_ssh(fleet, tmp_path / "home") as user:
        hosts = fleet.file(root, engine="ssh")
        under = under_way(root, hosts, under=ENDLESS, begun=loads_long, **user)
        with under as runner, fleet.machines["gen2"].pulled():
            pulled_s = time.monotonic()
            said = noticed(runner, pulled_s)
            emptied(fleet.machines["gen2"], pulled_s)
            lost(runner, "generator 2", said)
        assert fleet.machines["sut"].programs() <= ADMINS
        real_lab.bench(root, "clean", "--hosts", hosts, code=0, **user)
    (run,) = root.glob("data/runs/*")
    for file in filter(Path.is_file, run.rglob("*")):
        assert fleet_hosts.NETWORK.encode() not in file.read_bytes(), file


@pytest.mark.timed
@pytest.mark.fault(
    "all packets from the host of the database are lost under load",
    "within 10 s the run ends and names the host; within 15 s nothing of the lab runs there; "
    "bench clean removes the rest",
)
@pytest.mark.parametrize("engine", ["tcp", "ssh"])
def test_a_database_that_is_heard_no_more_is_noticed(root, fleet, nothing_left, tmp_path, engine):
    """If no packet from the database's host arrives any more, the run notices the loss and ends.

    Packets to the database's host still arrive there.
    """
    hosts = fleet.file(root, generators=("gen2",), engine=engine)
    with reached(fleet, engine, tmp_path / "home") as user:
        with under_way(root, hosts, under=INSERTS, begun=loads_long, **user) as runner:
            machine = fleet.machines["gen1"]
            assert {"postgres", "python3"} <= machine.programs()
            with fleet.one_way("gen1", heard=False):
                since_s = time.monotonic()
                said = noticed(runner, since_s)
                emptied(machine, since_s)
                lost(runner, "database", said)
        left = {each.partition(".")[0] for each in fleet.containers()}
        assert "bench-database" in left and not any("gin" in each for each in left)
        cleaned(root, fleet, hosts, **user)


@pytest.mark.timed
@pytest.mark.fault(
    "all packets to the server's host are lost under load, and it comes back while the run ends",
    "within 10 s the run ends and names the host; it leaves nothing on any host",
)
@pytest.mark.parametrize("engine", ["tcp", "ssh"])
def test_a_server_that_hears_nothing_and_comes_back_is_left_clean(
    root, fleet, nothing_left, tmp_path, engine
):
    hosts = fleet.file(root, engine=engine)
    with reached(fleet, engine, tmp_path / "home") as user:
        with under_way(root, hosts, under=ENDLESS, begun=loads_long, **user) as runner:
            machine = fleet.machines["sut"]
            with fleet.one_way("sut", heard=True):
                since_s = time.monotonic()
                said = noticed(runner, since_s)
            emptied(machine, since_s)
            lost(runner, "server", said)
        assert "Nothing was left over" in cleaned(root, fleet, hosts, **user)


@pytest.mark.timed
@pytest.mark.fault(
    "the server's host is restarted under load: its engine and all containers end",
    "the run ends and names the host; after the restart bench clean removes all, and the run can "
    "go on",
)
def test_a_host_that_is_restarted_is_cleaned_and_used_again(root, fleet, nothing_left):
    hosts = fleet.file(root)
    machine = fleet.machines["sut"]
    with under_way(root, hosts) as runner:
        machine.stop()
        try:
            said = failed(runner)
        finally:
            machine.start(fleet.certificates)
            machine.await_engine()
    assert "The host of the server stopped responding" in said, said
    cleaned(root, fleet, hosts)
    goes_on(root, hosts)


@pytest.mark.timed
@pytest.mark.fault(
    "a host is cut off for four seconds under load",
    "the run says that it is silent and that it responds again, and repeats the trial",
)
def test_a_host_that_comes_back_in_time_costs_an_attempt(root, fleet, nothing_left):
    hosts = fleet.file(root)
    with under_way(root, hosts, under=LONG | {"duration_s": 8}, begun=loads_of(8)) as runner:
        with fleet.machines["gen2"].pulled():
            time.sleep(4)
        done = real_lab.ended(runner)
    assert "The host of the generator 2 has not responded since " in done.stderr, done.stderr
    assert "The host of the generator 2 responds again." in done.stderr
    assert "has not responded for too long" not in done.stderr
    assert re.search(
        r"is repeated: invalid: .*no host was silent \(the longest silence of a host was \d",
        done.stderr,
    ), done.stderr


@pytest.mark.timed
@pytest.mark.fault(
    "a station freezes under load while its engine answers",
    "within 10 s the run ends and names the host, and removes all; the run can go on",
)
def test_a_station_that_freezes_is_noticed_and_removed(root, fleet, nothing_left):
    hosts = fleet.file(root)
    with under_way(root, hosts, under=ENDLESS, begun=loads_long) as runner:
        with fleet.machines["gen1"].client() as client:
            (station,) = (
                each.attrs["State"]["Pid"]
                for each in client.containers.list()
                if "station" in each.name
            )
        os.kill(station, signal.SIGSTOP)
        said = noticed(runner, time.monotonic())
        lost(runner, "generator 1 and database and probe", said)
    assert "Nothing was left over" in cleaned(root, fleet, hosts)


@pytest.mark.timed
@pytest.mark.fault(
    "the network of the load is cut, while the engines are reached another way",
    "the trial fails and names the generator",
)
def test_a_network_of_the_load_that_is_cut_fails_the_trial(root, fleet):
    with (
        under_way(root, fleet.file(root, engine="unix")) as runner,
        fleet.machines["gen2"].pulled(),
    ):
        said = failed(runner)
    assert "generator 2: the server cannot be reached" in said, said
    assert fleet.containers() == []


@pytest.mark.timed
@pytest.mark.fault(
    "a host freezes under load", "within 10 s the run ends, names the host, and can go on"
)
@pytest.mark.fault(
    "the runner of several hosts is killed under load", "nothing is left; the run can go on"
)
def test_a_run_goes_on_after_a_frozen_host_and_a_killed_runner(root, fleet, nothing_left):
    hosts = fleet.file(root)
    with under_way(root, hosts) as runner, fleet.machines["gen2"].client() as client:
        for each in client.containers.list():
            each.pause()
        said = failed(runner)
    assert "The host of the generator 2 stopped responding" in said, said
    cleaned(root, fleet, hosts)
    with under_way(root, hosts, "--resume", "latest") as runner:
        runner.kill()
        real_lab.ended(runner)
    wait_for(lambda: not fleet.containers(), 15)  # the watchdog removes the containers
    assert "Nothing was left over" in cleaned(root, fleet, hosts)
    goes_on(root, hosts)
    alone = real_lab.bench(root, "run", "--resume", "latest", code=2)
    assert "began on several hosts: give the hosts file of that run by --hosts" in alone.stderr


@pytest.mark.timed
@pytest.mark.fault(
    "a host's engine freezes under load",
    "within 10 s the run ends and names the host; bench clean removes all",
)
def test_an_engine_that_freezes_ends_the_run_with_its_role(root, fleet):
    hosts = fleet.file(root)
    frozen = fleet.machines["gen2"].engine.pid
    with under_way(root, hosts) as runner:
        os.kill(frozen, signal.SIGSTOP)
        try:
            said = lost(runner, "generator 2", noticed(runner, time.monotonic()))
        finally:
            os.kill(frozen, signal.SIGCONT)
    assert "generator 2" in said, said
    cleaned(root, fleet, hosts)


@pytest.mark.timed
@pytest.mark.fault(
    "the disk of a generator's host is full", "the run ends, names the host, and can go on"
)
def test_a_disk_that_is_full_over_there_ends_the_run(root, fleet, nothing_left):
    hosts = fleet.file(root, ("gen2",))
    with fleet.machines["gen2"].small_disk(640) as disk:
        with under_way(
            root, hosts, under=RATES, begun=lambda: list(disk.glob("*/_data/load"))
        ) as runner:
            room = os.statvfs(disk)
            # If the load fills the disk first, this write fails, but the disk is full anyway.
            with contextlib.suppress(OSError):
                (disk / "filling").write_bytes(bytes(room.f_bavail * room.f_frsize - 100 * 1024))
            said = failed(runner)
        assert (
            "The disk of the host of the generator and probe is full: free some space." in said
        ), said
        again = real_lab.bench(root, "run", "--resume", "latest", "--hosts", hosts, code=1)
        assert "on the disk of the host of the generator and probe" in again.stderr, again.stderr
    goes_on(root, hosts)
