"""Known ratios come back through sessions on shares of a core, in both engines; what idle CPUs did is said."""

import math

import numpy as np
import pandas as pd
import pytest
import real_lab
from scipy.special import stdtrit

from runner.measure.connecting import connect
from runner.measure.docker_engine import TROUBLE
from runner.measure.idle import DEVICE
from runner.measure.tools import find_tool
from runner.present.statistics.inference import Sample, ratio

pytestmark = [
    pytest.mark.load,
    pytest.mark.long,
    pytest.mark.skipif(find_tool("wrk") is None, reason="wrk is not installed"),
]

COST_MS = {"base": 0.2, "same": 0.2, "dearer": 0.21, "dearest": 0.3}
CAMPAIGN = """title = "known ratios"
servers = ["base", "same", "dearer", "dearest"]
repeats = 6
server_share = 0.5

[sessions]
slices = 4
slice_s = 0.5

[copies]
base = "reference"
same = "reference"
dearer = "reference"
dearest = "reference"
{environment}
[[load]]
workload = "wrk-matrix"
connections = 50
warmup_s = 0.3
""".replace(
    "{environment}",
    "".join(f'\n[environment.{name}]\nREFERENCE_CPU_MS_PER_REQUEST = "{cost:g}"\n' for name, cost in COST_MS.items()),
)
SURE = 0.9995
"""So that twelve intervals fail by chance in less than one of a hundred runs."""


def has_docker():
    try:
        connect().close()
    except TROUBLE:
        return False
    return True


@pytest.fixture(
    scope="module",
    params=["process", pytest.param("docker", marks=pytest.mark.skipif(not has_docker(), reason="no Docker engine"))],
)
def trials(request, tmp_path_factory):
    root = real_lab.make(tmp_path_factory.mktemp("lab"))
    done, found = real_lab.run(root, CAMPAIGN, "--engine", request.param)
    assert done.returncode == 0, done.stderr
    return found


@pytest.mark.parametrize("name", ["same", "dearer", "dearest"])
@pytest.mark.parametrize("column", ["server_cpu_ms_per_request", "rps"])
def test_a_known_ratio_comes_back_within_its_interval(trials, name, column):
    by_server = {server: Sample.of(own[column], own["block"]) for server, own in trials.groupby("server")}
    found = ratio(by_server[name], by_server["base"])
    truth = COST_MS[name] / COST_MS["base"]
    truth = 1 / truth if column == "rps" else truth
    wide = stdtrit(found.degrees, (1 + SURE) / 2) * found.standard_error
    assert abs(math.log(found.ratio / truth)) <= max(wide, 0.005), found
    assert found.high / found.low < 1.3


def test_the_server_is_the_limit_on_its_share_and_has_no_latency(trials):
    quiet = real_lab.is_quiet(trials)
    assert (trials.loc[quiet, "verdict"] == "server-bound").all(), trials["verdict_reason"].tolist()
    assert (trials["server_cpu_mean_pct"] < 51).all()
    assert (trials.loc[quiet, "server_cpu_mean_pct"] > 45).all()
    assert (trials.loc[quiet, "server_throttled_pct"] > 5).all()
    assert trials.loc[quiet, "verdict_reason"].str.contains("of its 0.5 of a core").all()
    assert trials[["latency_p50_ms", "latency_p99_ms", "probe_p50_ms"]].isna().all(axis=None)
    assert (trials["share"] == 0.5).all()
    # What a request costs is what it was told to cost, whatever the share: 0.2, 0.21 and 0.3 ms.
    cost = trials[quiet].groupby("server")["server_cpu_ms_per_request"].median()
    for name, value in cost.items():
        assert value == pytest.approx(COST_MS[str(name)], rel=0.06)


IDLE = """title = "idle"
servers = ["axum"]
idle = ["polling", "system"]
repeats = 2

[sessions]
slices = 2
slice_s = 1

[[load]]
workload = "wrk-matrix"
connections = 1
warmup_s = 0.3
"""


@pytest.mark.skipif(not DEVICE.exists(), reason="this kernel has no /dev/cpu_dma_latency")
def test_a_rate_of_one_connection_is_serial_and_says_what_idle_cpus_did(tmp_path):
    root = real_lab.make(tmp_path)
    done, trials = real_lab.run(root, IDLE, "--engine", "process")
    assert done.returncode == 0, done.stderr
    assert sorted(trials["idle"].unique()) == ["polling", "system"]
    taken = trials["verdict_reason"].str.contains("other programs took CPU time away")
    quiet = trials[real_lab.is_quiet(trials) & ~taken]
    serial = quiet[quiet["verdict"] == "serial"]
    assert len(serial) == len(quiet)
    assert set(serial["idle"]) == {"polling", "system"}, "no quiet trial of one of the states"
    for row in serial.to_dict("records"):
        asleep = "idle CPUs slept, and their waking is part of it" in row["verdict_reason"]
        assert asleep is (row["idle"] == "system")
        assert f"a cycle took {1e6 / row['rps']:.1f} µs" in row["verdict_reason"]
    slices = pd.read_parquet(next(root.glob("data/runs/*/tables/slices.parquet")))
    assert np.isfinite(slices["rps"]).all()
