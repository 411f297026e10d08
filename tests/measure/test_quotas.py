"""Tests of CPU quotas that the lab did not set, with fake control groups of both versions."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import synthetic_run
from cells import cell_of
from figure_checks import read
from measured import measured

from runner.digest.resources import Counter
from runner.digest.usage import evidence, measure_usage
from runner.digest.verdict import judge
from runner.measure import cgroups, quotas
from runner.measure.attached import Listener
from runner.measure.quotas import Throttling, quota_of
from runner.measurement import Measurement, Placement, Quota
from runner.model import UserApi
from runner.present.answers import evidence as shown_evidence
from runner.present.answers import findings
from runner.present.frames import choose
from runner.running.user_api import remarks_on_process
from runner.store import decode
from runner.verdict.limits import Cause, Limit
from runner.verdict.words import reason

PID = 4242
"""The pid of the fake server."""
PERIOD_US = 100_000


class Tree:
    """A fake /proc and /sys/fs/cgroup with control groups of one version."""

    def __init__(self, root, version):
        self.root = root
        self.proc = root / "proc"
        groups = cgroups.mounts(root)
        self.mount = groups / "cpu" if version == 1 else groups
        self.version = version
        (self.proc / "self" / "ns").mkdir(parents=True)
        self.namespace(quotas.FIRST_NAMESPACE)
        self.mount.mkdir(parents=True)
        if version == 2:
            (groups / "cgroup.controllers").write_text("cpu memory\n")

    def namespace(self, name):
        link = self.proc / "self" / "ns" / "cgroup"
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def process(self, pid, path):
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        line = f"2:cpuacct:/\n1:cpu:{path}\n" if self.version == 1 else f"0::{path}\n"
        (folder / "cgroup").write_text(line)

    def group(self, path, quota_us=None, throttled_ns=0, period_us=PERIOD_US):
        """Make a control group without a quota, or with `quota_us`, and return its folder."""
        folder = self.mount / path.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        if self.version == 1:
            (folder / "cpu.cfs_quota_us").write_text(f"{-1 if quota_us is None else quota_us}\n")
            (folder / "cpu.cfs_period_us").write_text(f"{period_us}\n")
            (folder / "cpu.stat").write_text(f"nr_periods 9\nthrottled_time {throttled_ns}\n")
        else:
            limit = "max" if quota_us is None else quota_us
            (folder / "cpu.max").write_text(f"{limit} {period_us}\n")
            stat = f"usage_usec 5\nnr_periods 9\nthrottled_usec {throttled_ns // 1000}\n"
            (folder / "cpu.stat").write_text(stat)
        return folder


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def tree(request, tmp_path):
    made = Tree(tmp_path, request.param)
    made.process("self", "/lab")
    made.group("/lab")
    return made


def quota_in(tree):
    return quota_of(PID, tree.root)


def throttled_ns(tree):
    return Throttling(quotas.find(PID, tree.root)).read()


def open_below(folder):
    """Return the files in a folder that this process has open."""
    opened = [Path(each.path) for each in psutil.Process().open_files()]
    return [path for path in opened if path.is_relative_to(folder)]


def test_without_any_quota_the_throttled_time_is_0(tree):
    tree.process(PID, "/docker/one")
    # this throttled time remains from a quota that the group had earlier
    tree.group("/docker/one", throttled_ns=7_000_000)
    tree.group("/docker")
    assert quota_in(tree) == Quota(None, known=True, shared=False)
    assert throttled_ns(tree) == 0


def test_the_tightest_quota_of_the_group_and_all_above_counts(tree):
    """Among the quotas of the server's group and of the groups above it, the lowest quota counts.

    The throttled times are added up over the groups that have a quota.
    """
    tree.process(PID, "/pods/pod/container")
    tree.group("/pods/pod/container", 150_000, 1_000_000)
    tree.group("/pods/pod", 20_000, 30_000_000, period_us=40_000)
    tree.group("/pods", throttled_ns=500_000_000)
    tree.group("/other", 1000, 900_000_000)
    assert quota_in(tree) == Quota(0.5, known=True, shared=False)
    assert throttled_ns(tree) == 31_000_000


def test_the_throttled_time_is_read_from_files_that_stay_open(tree):
    tree.process(PID, "/one/two")
    tree.group("/one", 50_000, 1_000_000)
    tree.group("/one/two")
    throttling = Throttling(quotas.find(PID, tree.root))
    kept = tree.mount / "one" / "cpu.stat"
    assert open_below(tree.root) == [kept], "only the group with a quota"
    assert throttling.read() == 1_000_000
    tree.group("/one", 50_000, 5_000_000)
    kept.rename(kept.with_name("moved"))
    assert throttling.read() == 5_000_000, "the file is not opened again"


def test_without_the_controller_only_groups_above_have_a_quota(tree):
    tree.process(PID, "/slice/scope")
    (tree.mount / "slice" / "scope").mkdir(parents=True)
    tree.group("/slice", 25_000, 2_000_000)
    assert quota_in(tree) == Quota(0.25, known=True, shared=False)
    assert throttled_ns(tree) == 2_000_000


def test_a_quota_of_a_group_that_holds_the_lab_too_is_shared(tree):
    tree.process(PID, "/lab/server")
    tree.group("/lab/server")
    tree.group("/lab", 80_000)
    assert quota_in(tree) == Quota(0.8, known=True, shared=True)


UNKNOWN = {
    "a path out of the namespace": lambda tree: tree.process(PID, "/../../docker/one"),
    "a group that is not mounted here": lambda tree: tree.process(PID, "/docker/one"),
    "a process that has ended": lambda _: None,
}


@pytest.mark.parametrize("how", UNKNOWN)
def test_what_cannot_be_read_is_not_known_and_never_0(tree, how):
    UNKNOWN[how](tree)
    assert quota_in(tree) == Quota(None, known=False, shared=False)
    assert throttled_ns(tree) is None


@pytest.mark.parametrize("text", ["", "much\n", None], ids=["empty", "no number", "a folder"])
def test_a_quota_that_cannot_be_read_is_not_known(tree, text):
    """If the quota of the server's own group cannot be read, the server's quota counts as unknown.

    The readable quota of the group above is reported nevertheless, because it limits the server.
    """
    tree.process(PID, "/one/two")
    tree.group("/one", 50_000, 1_000_000)
    unreadable = tree.group("/one/two")
    unreadable /= "cpu.cfs_quota_us" if tree.version == 1 else "cpu.max"
    unreadable.unlink()
    if text is None:
        unreadable.mkdir()
    else:
        unreadable.write_text(text)
    assert quota_in(tree) == Quota(0.5, known=False, shared=False)
    assert throttled_ns(tree) is None


def test_in_a_namespace_groups_above_its_root_are_not_known(tree):
    tree.namespace("cgroup:[4026532999]")
    tree.process(PID, "/")
    tree.group("/", 50_000, 1_000_000)
    assert quota_in(tree) == Quota(0.5, known=False, shared=True)
    assert throttled_ns(tree) is None


def test_throttling_without_counters_is_not_known(tree):
    tree.process(PID, "/one")
    folder = tree.group("/one", 50_000, 1_000_000)
    (folder / "cpu.stat").write_text("nr_periods 9\n")
    assert throttled_ns(tree) is None
    (folder / "cpu.stat").unlink()
    assert throttled_ns(tree) is None


def test_a_kernel_without_cgroup_namespaces_shows_all(tree):
    (tree.proc / "self" / "ns" / "cgroup").unlink()
    tree.process(PID, "/one")
    tree.group("/one")
    assert quota_in(tree).known


# --- metrics and verdicts that the digest derives from a quota ------------------------------------

CELL = cell_of(server="own-api", workload="own-get", path="/", vus=4, iterations=100)
SECONDS = np.array([0.0, 10.0])


def used_by(
    quota, cpu_s=4.85, throttled_s=4.0, placement=None, cell=CELL, generator_throttled_s=math.nan
):
    """Return metrics and evidence for a load of ten seconds.

    In this load, the server used `cpu_s` seconds of CPU time, and waited `throttled_s` seconds
    because of the quota.
    """
    measurement = measured(quota=quota, placement=placement or Placement((0,), (1,)))
    server = {"cpu_s": np.array([0.0, cpu_s]), "throttled_s": np.array([0.0, throttled_s])}
    idle = {"cpu_s": np.array([0.0, 1.0]), "steal_s": np.zeros(2)}
    counters = {name: Counter(SECONDS, idle) for name in ("generator", "sampler", "host")}
    counters["server"] = Counter(SECONDS, server)
    held = {"throttled_s": np.array([0.0, generator_throttled_s])}
    counters["generator"] = Counter(SECONDS, idle | held)
    metrics = measure_usage(counters, measurement, 10.0, 1000)
    return metrics, evidence(cell, measurement, metrics)


def test_a_server_at_a_foreign_quota_is_the_limit():
    """If a server uses up a quota that the lab did not set, the server is the limit.

    The verdict's reason must name the quota.
    """
    metrics, found = used_by(Quota(0.5))
    assert (metrics["server_quota_cores"], metrics["server_throttled_pct"]) == (
        0.5,
        pytest.approx(40),
    )
    assert (found.server_share, found.cores) == (pytest.approx(0.97), 0.5)
    verdict = judge(found)
    assert verdict.cause is Cause.SERVER_BUSY
    assert "server used 97 % of its 0.5 of a core (a quota that is not the lab's)" in reason(
        verdict
    )


@pytest.mark.parametrize(
    ("quota", "share", "cores", "foreign"),
    [
        (Quota(0.5), 1.0, 0.5, True),
        (Quota(4.0), 1.0, 2.0, False),
        (Quota(), 1.0, 2.0, False),
        (Quota(), 0.25, 0.5, False),
        (Quota(0.8), 0.25, 0.5, False),
        (Quota(0.3), 0.25, 0.3, True),
        (Quota(0.3, known=False), 1.0, 0.3, True),
        (None, 0.5, 1.0, False),
    ],
)
def test_the_tighter_of_the_labs_and_a_foreign_quota_counts(quota, share, cores, foreign):
    placement = Placement((0, 1), (2,))
    _, found = used_by(quota, placement=placement, cell=replace(CELL, share=share))
    assert (found.cores, found.foreign_quota) == (pytest.approx(cores), foreign)
    assert found.server_share == pytest.approx(0.485 / cores)


def test_what_is_not_known_of_throttling_is_null_and_said():
    metrics, found = used_by(Quota(known=False), cpu_s=2.0, throttled_s=math.nan)
    assert math.isnan(metrics["server_throttled_pct"]) and found.throttled_share is None
    verdict = judge(found)
    assert verdict.limit is Limit.UNKNOWN
    assert "it is not known whether a CPU quota held the server back" in reason(verdict)


def test_unknown_cpu_of_the_generator_is_not_0():
    metrics, _ = used_by(Quota())
    unknown = dict.fromkeys(("generator_cpu_mean_pct", "generator_cpu_peak_1s_pct"))
    found = evidence(CELL, measured(quota=Quota()), {**metrics, **unknown})
    assert found.generator_share is None
    verdict = judge(found)
    assert verdict.cause is Cause.GENERATOR_CPU_UNKNOWN
    assert "generator 0 %" not in reason(verdict)


def test_a_quota_on_the_lab_makes_the_generator_the_limit():
    metrics, found = used_by(Quota(), cpu_s=3.0, throttled_s=0.0, generator_throttled_s=2.0)
    assert metrics["generator_throttled_share"] == pytest.approx(0.2)
    assert judge(found).cause is Cause.GENERATOR_BUSY
    metrics, found = used_by(
        Quota(0.8, shared=True), cpu_s=3.0, throttled_s=2.0, generator_throttled_s=2.0
    )
    assert judge(found).cause is Cause.QUOTA_SHARED


def test_a_record_from_before_quotas_has_no_value_of_them():
    older = {name: value for name, value in asdict(measured()).items() if name != "quota"}
    found = decode(Measurement, json.loads(json.dumps(older)), "record")
    assert found.quota is None
    metrics, _ = used_by(None)
    assert "server_quota_cores" not in metrics
    again = json.loads(json.dumps(asdict(measured(quota=Quota(0.5, known=False)))))
    assert decode(Measurement, again, "record").quota == Quota(0.5, known=False)


# --- sentences about quotas -----------------------------------------------------------------------


@pytest.fixture
def tables(tmp_path):
    return read(synthetic_run.build(tmp_path / "run"))


def under(tables, tmp_path, **columns):
    """Set the given columns to the given values in all trials of a run; return the run's tables."""
    path = tmp_path / "run" / "tables" / "trials.parquet"
    tables.trials.drop(columns=["load", "terms", "load_order", "quota_cores"]).assign(
        **columns
    ).to_parquet(path)
    return read(tmp_path / "run")


def test_a_load_under_a_quota_from_elsewhere_is_another_load(tables, tmp_path):
    gin = tables.trials["server"] == "gin"
    held = under(tables, tmp_path, server_quota_cores=np.where(gin, 0.5, np.nan))
    loads = held.trials.groupby("server")["load"].unique()
    assert all("0.5 of a core" in load for load in loads["gin"])
    assert not set(loads["gin"]) & set(loads["axum"])
    assert held.trials.loc[held.trials["server"] == "gin", "latency_p50_ms"].notna().any()


@pytest.mark.parametrize(
    ("share", "quota", "words", "place"),
    [
        (1.0, 0.5, "0.5 of a core", "On half a core, "),
        (1.0, 0.3, "0.3 of a core", "On 0.3 of a core, "),
        (1.0, 1.5, "a quota of 1.5 cores", "On a core with a quota of 1.5 cores, "),
        (0.5, 0.3, "0.5 of a core, a quota of 0.3 of a core", "On 0.3 of a core, "),
        (1.0, math.nan, "", "On a core, "),
    ],
)
def test_terms_and_sentences_contain_the_quota(tables, tmp_path, share, quota, words, place):
    row = under(tables, tmp_path, share=share, server_quota_cores=quota).trials.to_dict("records")[
        0
    ]
    assert row["terms"] == words and row["load"].endswith(words)
    assert findings.load_phrase(row).startswith(place)


def test_the_evidence_says_how_much_of_a_quota_was_left(tables, tmp_path):
    """The evidence must say how much CPU time the server used, and how much its quota allowed.

    If it is unknown how long the quota held the server back, the evidence must say so.
    """
    values = {
        "server_quota_cores": 0.5,
        "server_cpu_mean_pct": 45.0,
        "server_throttled_pct": np.nan,
    }
    case = choose(under(tables, tmp_path, **values))
    rows = shown_evidence.evidence_table(case).set_index("evidence")
    assert rows.loc["CPU of the server", "value"].startswith("45.0 % of 50 %")
    assert rows.loc["server held back by its quota", "value"] == "not known"


URL = "http://127.0.0.1:9000/"


@pytest.mark.parametrize(
    ("quota", "said"),
    [
        (Quota(), []),
        (
            Quota(0.5),
            [
                f"The server at {URL} may use only 0.5 of a core, because of a CPU quota that "
                "the lab did not set."
            ],
        ),
        (
            Quota(1.5, shared=True),
            [
                f"The server at {URL} may use only 1.5 cores, because of a CPU quota that limits "
                "the load generator, too."
            ],
        ),
        (
            Quota(known=False),
            [
                f"Whether a CPU quota limits the server at {URL} is not known, because some of "
                "the server's control groups cannot be read."
            ],
        ),
    ],
)
def test_a_quota_is_said_before_the_run(quota, said):
    api = UserApi("own-api", "/", "/", url=URL, address="127.0.0.1", port=9000)
    remarks = remarks_on_process(api, Listener(PID, ""), {PID: quota}.__getitem__)
    assert list(remarks) == said
