"""CPU that a server burns at known times under a real load is found.

A steady server has no spike.
"""

import json
import sys

import pandas as pd
import pytest
import real_lab
from real_lab import campaign, load

from runner.present.frames import read_tables
from runner.present.spikes.coincidence import seen
from runner.present.spikes.view import most_pronounced, survey, view
from runner.store import RunFolder

pytestmark = [pytest.mark.load, pytest.mark.long, real_lab.needs("k6")]

SHARE_PCT, BURSTS = 60, ((4.0, 0.3), (6.5, 0.6))
"""Of a CPU; seconds after the server's start, and how long.

The load begins within two seconds of it.
"""
BURSTING = "b01-bursting-rates-r20"
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
def tables(lab):
    return read_tables(RunFolder(next(lab.glob("data/runs/*"))))


def shown(tables, name):
    """The last attempt of a trial: the machine may have disturbed those before it."""
    return view(
        tables, real_lab.standing(tables.trials).set_index("name").loc[name, "trial_id"], ""
    )


def test_the_bursts_are_found_and_their_trial_is_shown_first(lab, tables):
    """Where others took the CPU away in the middle of a burst, it is two spikes."""
    bursting = shown(tables, BURSTING)
    requests = real_lab.k6_durations(
        next(lab.glob(f"data/runs/*/trials/{bursting.case.trial_id}/k6.json.gz"))
    )
    began = (
        requests["time"].map(pd.Timestamp.timestamp) - requests["value"] / 1000
    ).min()  # s since the epoch
    bursts = json.loads((lab / "bursts.json").read_text())
    assert len(bursts) == len(BURSTS)
    found = list(bursting.server.counted)
    for begin, end, cpu_s in bursts:
        burst = [spike for spike in found if spike.overlaps(begin - began, end - began)]
        assert burst, found
        assert burst[0].start_s == pytest.approx(begin - began, abs=0.1)
        assert burst[-1].end_s == pytest.approx(end - began, abs=0.1)
        assert max(spike.height_pct for spike in burst) == pytest.approx(SHARE_PCT, rel=0.2)
        assert sum(spike.excess_ms for spike in burst) == pytest.approx(1000 * cpu_s, rel=0.2)
        found = [spike for spike in found if spike not in burst]
    assert found == []
    assert most_pronounced(survey(tables)) == bursting.case.trial_id


def test_a_steady_server_has_none(tables):
    assert shown(tables, "b01-duty-rates-r20").server.counted == ()


def test_the_new_columns_are_measured(tables):
    host = tables.resources.query("subject == 'host'")
    assert (host["switches_per_s"] > 10).mean() > 0.9 and host["steal_ms"].notna().all()
    server = tables.resources.query("subject == 'server' and t_s > 0")
    assert (
        server["connections"].dropna().is_monotonic_increasing or server["trial_id"].nunique() > 1
    )
    assert server["requests"].notna().any() and server["threads"].notna().any()
    bursting = shown(tables, BURSTING)
    assert {kind.kind: kind.unknown for kind in bursting.events}["connection storm"] == ""
    assert isinstance(seen(bursting.events, bursting.server.spikes[-1]), tuple)
