"""Tests of spikes under a real load: bursts of CPU time at known times must be found.

A steady server must have no spike. If a server is held back, the lab must name the reason.
"""

import json
import sys

import pandas as pd
import pytest
import real_lab
from hindering import Hinderer
from real_lab import campaign, load

from runner.present.frames import read_tables
from runner.present.spikes.cause_words import title
from runner.present.spikes.causes import Cause
from runner.present.spikes.coincidence import seen
from runner.present.spikes.hindrance import Hold
from runner.present.spikes.view import most_pronounced, survey, view
from runner.store import RunFolder

pytestmark = [pytest.mark.load, pytest.mark.long, real_lab.needs("k6")]

SHARE_PCT, BURSTS = 60, ((4.0, 0.3), (6.5, 0.6))
"""Share of a CPU that each burst uses, in percent, and the bursts as (begin, duration) in seconds.

The begin of a burst is counted from the server's start. The load begins within two seconds after
the server's start.
"""
BURSTING = "b01-bursting-rates-r20"
STOP_S, BUSY_S = 0.4, 0.5
HINDERED = campaign(
    ["hindered"],
    load("rates", rates_rps=[100], duration_s=10, vus=100),
    copies={"hindered": "reference"},
    environment={"hindered": {"REFERENCE_CPU_MS_PER_REQUEST": "3"}},
    attempts=1,
)
"""A campaign with 100 requests/s, each of which costs 3 ms of CPU time: 30 % of a core in all."""
CAMPAIGN = campaign(
    ["bursting", "duty"],
    load("rates", rates_rps=[20], duration_s=8, vus=10),
    copies={"bursting": "reference", "duty": "reference"},
    environment={"bursting": {"BURSTS": "yes"}, "duty": {"REFERENCE_CPU_PCT": "30"}},
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    root = real_lab.make(tmp_path_factory.mktemp("spikes"))
    folder = root / "servers" / "reference"
    original = real_lab.REPOSITORY / "servers" / "reference"
    folder.unlink()
    folder.mkdir()
    for path in original.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "server.toml").unlink()
    burst = ",".join(f"{at}:{length}" for at, length in BURSTS)
    script = str(real_lab.HERE / "fakes" / "bursting_server.py")
    log = str(root / "bursts.json")
    command = [sys.executable, script, "{artifact}", log, str(SHARE_PCT / 100), burst]
    described = (original / "server.toml").read_text()
    (folder / "server.toml").write_text(described.replace('["{artifact}"]', json.dumps(command)))
    real_lab.run(root, CAMPAIGN, "--engine", "process")
    return root


@pytest.fixture(scope="module")
def hindered(tmp_path_factory):
    """Return the view of a trial whose server was hindered twice, and the times of the hindrances.

    First the server was paused by SIGSTOP (`stopped`). Later, another program used the server's CPU
    (`busy`). The times are a dict from these two words to (begin, end), in seconds after the begin
    of the first request.
    """
    root = real_lab.make(tmp_path_factory.mktemp("hindered"))
    program = (real_lab.REPOSITORY / "servers" / "reference" / "build" / "server").resolve()
    hinderer = Hinderer(program, stop_at_s=4, stop_s=STOP_S, busy_at_s=8, busy_s=BUSY_S)
    hinderer.start()
    try:
        run = real_lab.run(root, HINDERED, "--engine", "process")
    finally:
        hinderer.end()
    tables = read_tables(RunFolder(run.folder))
    shown_trial = view(tables, real_lab.standing(tables.trials)["trial_id"].iloc[0], "")
    samples = run.folder / "trials" / shown_trial.case.trial_id / "k6.json.gz"
    began_s = began(samples)
    return shown_trial, {
        each.kind: (each.begin_s - began_s, each.end_s - began_s) for each in hinderer.done
    }


def began(samples):
    """Return the begin of the first request in k6's samples, in seconds since the epoch."""
    requests = real_lab.k6_durations(samples)
    return (requests["time"].map(pd.Timestamp.timestamp) - requests["value"] / 1000).min()


@pytest.fixture(scope="module")
def tables(lab):
    return read_tables(RunFolder(next(lab.glob("data/runs/*"))))


def shown(tables, name):
    """Return the view of a trial's last attempt, because earlier attempts were disturbed."""
    return view(
        tables, real_lab.standing(tables.trials).set_index("name").loc[name, "trial_id"], ""
    )


def test_the_bursts_are_found_and_their_trial_is_shown_first(lab, tables):
    """Each burst is found as a spike, or as two spikes if another program interrupted the burst."""
    bursting = shown(tables, BURSTING)
    began_s = began(next(lab.glob(f"data/runs/*/trials/{bursting.case.trial_id}/k6.json.gz")))
    bursts = json.loads((lab / "bursts.json").read_text())
    assert len(bursts) == len(BURSTS)
    found = list(bursting.server.counted)
    for begin, end, cpu_s in bursts:
        burst = [spike for spike in found if spike.overlaps(begin - began_s, end - began_s)]
        assert burst, found
        assert burst[0].start_s == pytest.approx(begin - began_s, abs=0.1)
        assert burst[-1].end_s == pytest.approx(end - began_s, abs=0.1)
        assert max(spike.height_pct for spike in burst) == pytest.approx(SHARE_PCT, rel=0.2)
        assert sum(spike.excess_ms for spike in burst) == pytest.approx(1000 * cpu_s, rel=0.2)
        found = [spike for spike in found if spike not in burst]
    assert found == []
    assert most_pronounced(survey(tables)) == bursting.case.trial_id


def test_the_cause_of_the_bursts_is_the_servers_own_work(tables):
    bursting = shown(tables, BURSTING)
    counted = [
        found.cause
        for spike, found in zip(bursting.server.spikes, bursting.explanations, strict=True)
        if not spike.settling
    ]
    assert counted and set(counted) == {Cause.OWN_WORK}
    assert "own work" in title(bursting)


def test_a_stopped_server_is_named_and_caught_up(hindered):
    trial, at_s = hindered
    begin_s, end_s = at_s["stopped"]
    (stopped,) = [each for each in trial.hindrances if each.hold is Hold.STOPPED]
    assert stopped.start_s == pytest.approx(begin_s, abs=0.1)
    assert stopped.end_s == pytest.approx(end_s, abs=0.1)
    (cause,) = [
        found
        for spike, found in zip(trial.server.spikes, trial.explanations, strict=True)
        if spike.overlaps(end_s - 0.1, end_s + 0.3)
    ]
    assert (cause.cause, cause.hindrance) == (Cause.CAUGHT_UP, stopped)


def test_a_busy_neighbour_is_named(hindered):
    trial, at_s = hindered
    begin_s, end_s = at_s["busy"]
    waits = [each for each in trial.hindrances if each.hold is Hold.WAITED]
    during = [each for each in waits if each.overlaps(begin_s, end_s)]
    assert sum(each.length_s for each in during) == pytest.approx(end_s - begin_s, rel=0.5)
    assert max(each.others_pct for each in during) > 40


def test_a_steady_server_has_none(tables):
    assert shown(tables, "b01-duty-rates-r20").server.counted == ()


def test_the_new_columns_are_measured(tables):
    host = tables.resources.query("subject == 'host'")
    assert (host["switches_per_s"] > 10).mean() > 0.9 and host["steal_ms"].notna().all()
    server = tables.resources.query("subject == 'server' and t_s > 0")
    for _, trial in server.groupby("trial_id"):
        assert trial["connections"].dropna().is_monotonic_increasing
    assert server["requests"].notna().any() and server["threads"].notna().any()
    bursting = shown(tables, BURSTING)
    assert {kind.kind: kind.unknown for kind in bursting.events}["connection storm"] == ""
    assert isinstance(seen(bursting.events, bursting.server.spikes[-1]), tuple)
