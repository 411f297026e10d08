"""Tests of `bench run --as-written`: a script's own options define the load, as in the user's CI.

The tests compare the lab's numbers with k6's own data points and results.
"""

import gzip
import json
import shutil
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import real_lab
from own_api import run, tiny

from runner.model import LabError
from runner.running.user_api import Asked, plan_user_api

needs_load = [real_lab.needs("k6"), real_lab.needs_two_cpus]
VENDORED = "export const fast = ['/one', '/two'];\n"
SCRIPT = """import http from 'k6/http';
import exec from 'k6/execution';
import { check, group, sleep } from 'k6';
import { Trend } from 'k6/metrics';
import { SharedArray } from 'k6/data';
import { fast } from './vendor/paths.js';

const items = new SharedArray('items', () => JSON.parse(open('./items.json')));
const mine = new Trend('my_time', true);

export const options = {
  discardResponseBodies: true,
  scenarios: {
    browsing: {
      executor: 'constant-vus', vus: 3, duration: '2s', exec: 'browse', tags: { kind: 'b' },
    },
    buying: {
      executor: 'per-vu-iterations', vus: 2, iterations: 5, startTime: '1s',
      env: { PATH_OF: '/buy' },
    },
  },
  thresholds: {
    'http_req_duration{kind:b}': ['p(95)<5000'],
    'http_req_duration{expected_response:true}': ['max<0.001'],
    my_time: ['avg>0'],
  },
};

export function setup() {
  http.get(`${__ENV.BASE_URL}/slow`);
  return { token: 17 };
}

export function browse(data) {
  group('reading', () => {
    const answers = http.batch(fast.map((path) => ['GET', `${__ENV.BASE_URL}${path}`]));
    check(answers[0], { 'is fine': (answer) => answer.status === 200 });
    mine.add(answers[1].timings.duration);
  });
  if (data.token !== 17 || items.length !== 2) exec.test.abort('setup() or a file is missing');
  sleep(0.02);
}

export default function (data) {
  http.get(`${__ENV.BASE_URL}${__ENV.PATH_OF}/${data.token}`, { tags: { name: 'buy' } });
}

export function teardown(data) {
  http.get(`${__ENV.BASE_URL}/gone/${data.token}`);
}

export function handleSummary() {
  return { 'ITS_SUMMARY': 'written' };
}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return real_lab.make(tmp_path_factory.mktemp("lab"))


@dataclass(frozen=True)
class Made:
    """A run of the script, the server's own counts of requests, and k6's data points by metric."""

    run: object
    seen: dict
    points: dict[str, list]

    @property
    def row(self):
        return self.run.trials.iloc[0]

    def of_load(self, metric):
        """Return k6's data points of a metric, except the points from setup() and teardown()."""
        apart = ("::setup", "::teardown")
        return [each for each in self.points[metric] if each["tags"].get("group") not in apart]


@pytest.fixture(scope="module")
def made(in_lab):
    (in_lab / "vendor").mkdir()
    (in_lab / "vendor" / "paths.js").write_text(VENDORED)
    (in_lab / "items.json").write_text('["chair", "table"]')
    script = SCRIPT.replace("ITS_SUMMARY", str(in_lab / "summary.txt"))
    with tiny(5) as server:
        found = run(in_lab, "--as-written", "--probe-path", "/x", url=server.url, script=script)
        seen = server.seen
    points = {}
    raw = found.folder / "trials" / found.trials.loc[0, "trial_id"] / "k6.json.gz"
    with gzip.open(raw, "rt") as lines:
        for record in map(json.loads, lines):
            if record["type"] == "Point":
                points.setdefault(record["metric"], []).append(record["data"])
    return Made(found, seen, points)


pytestmark = [pytest.mark.timed, *needs_load]


def test_the_load_is_that_of_the_script_s_options(made):
    """The load must be the one that the script's options describe.

    For 2 s, three users pause for 20 ms in each iteration. Two other users iterate five times each.
    """
    iterations = pd.Series([each["tags"]["scenario"] for each in made.points["iterations"]])
    assert iterations.value_counts()["buying"] == 10
    assert 50 < iterations.value_counts()["browsing"] < 3 * 2000 / 25
    assert made.row["vus"] == 5 and made.row["status"] == "sealed"


def test_requests_of_setup_and_teardown_are_in_no_number_of_the_load(made):
    durations = [each["value"] for each in made.of_load("http_req_duration")]
    assert len(made.points["http_req_duration"]) == len(durations) + 2
    assert made.row["requests"] == len(durations)
    assert made.row["latency_p50_ms"] == pytest.approx(np.median(durations), rel=1e-9)
    assert (
        made.row["latency_max_ms"]
        < 2000
        < max(each["value"] for each in made.points["http_req_duration"])
    )
    # The server also counts the requests of setup() and teardown(), and the requests that the lab
    # sends before the load.
    assert made.seen["requests"] > made.row["requests"] + 2


def test_the_time_of_setup_is_not_a_part_of_the_load(made):
    """setup() waits for an answer for 2 s, and the load that follows lasts 2 s.

    The load's duration is that of its own requests, so setup() does not lower its rate.
    """
    ends = pd.to_datetime([each["time"] for each in made.of_load("http_req_duration")], utc=True)
    lasted_s = (ends.max() - ends.min()).total_seconds()
    assert 1.9 < lasted_s < 3
    assert made.row["duration_s"] == pytest.approx(lasted_s, abs=0.1)
    assert made.row["rps"] == pytest.approx(made.row["requests"] / lasted_s, rel=0.05)


def test_setup_and_teardown_have_their_groups(made):
    groups = made.run.table("endpoints").dropna(subset="group").set_index("group")
    assert set(groups.index) == {"::setup", "::teardown", "::reading", ""}
    assert groups.loc[["::setup", "::teardown"], "requests"].to_list() == [1, 1]
    assert groups.loc["::setup", "latency_mean_ms"] >= 2000
    of_group = [
        each for each in made.points["http_reqs"] if each["tags"].get("group") == "::reading"
    ]
    assert groups.loc["::reading", "requests"] == len(of_group)


def test_endpoints_have_names_and_addresses(made):
    rows = made.run.table("endpoints").dropna(subset="endpoint").set_index("endpoint")
    assert set(rows.index) == {"GET /one", "GET /two", "GET buy"}
    assert rows.loc["GET buy", "requests"] == 10
    assert rows["requests"].sum() == made.row["requests"]


def test_thresholds_are_those_that_k6_evaluated(made):
    """The result of each threshold is stored as k6 evaluated it.

    If a threshold is broken, k6 ends with exit code 99. The trial must not fail because of this
    code.
    """
    rows = made.run.table("thresholds").set_index(["metric", "threshold"])
    assert made.run.records[0]["measurement"]["generator_exit"] == 99
    assert rows["kept_by_k6"].to_dict() == rows["kept"].to_dict()
    assert rows["kept"].to_dict() == {
        ("http_req_duration{kind:b}", "p(95)<5000"): True,
        ("http_req_duration{expected_response:true}", "max<0.001"): False,
        ("my_time", "avg>0"): True,
    }


def test_the_load_that_the_samples_show_is_stored(made):
    seen = made.run.check("the load that the samples show")
    assert seen["ok"] and seen["detail"].startswith("Its samples show")


def test_the_script_s_own_summary_is_not_written(made, in_lab):
    assert not (in_lab / "summary.txt").exists()
    assert "handleSummary, which the lab does not run" in " ".join(
        made.run.manifest["host_warnings"]
    )


@pytest.mark.long
def test_the_tables_are_the_same_if_made_anew(made, in_lab):
    before = {name: made.run.table(name) for name in ("trials", "endpoints", "thresholds")}
    shutil.rmtree(made.run.folder / "tables")
    real_lab.bench(in_lab, "report", made.run.folder.name, code=0)
    for name, table in before.items():
        pd.testing.assert_frame_equal(made.run.table(name), table)


FENCED = """import http from 'k6/http';
export const options = { vus: 2, iterations: 20, hosts: { 'elsewhere.test': '127.0.0.1' } };
export default function () { http.get('http://elsewhere.test/'); http.get(__ENV.BASE_URL); }
"""


@pytest.mark.long
def test_a_script_as_written_reaches_no_other_host(root):
    """A script whose own option `hosts` names another host does not reach that host."""
    with tiny(2) as server:
        made = run(root, "--as-written", url=server.url, script=FENCED, code=1)
    assert "20 of 40 requests went to another host or port" in made.records[0]["error"]


CONFLICTS = [
    ({"script": None}, "--as-written takes the load from the options of a script"),
    ({"vus": 5, "iterations": 50}, "omit --vus and --iterations"),
    ({"rates_rps": (5,)}, "omit --rate"),
    ({"objective": "p99<=5ms"}, "omit --objective"),
    ({"close": True}, "omit --close"),
    ({"urls": ("http://127.0.0.1:1/", "http://127.0.0.1:2/")}, "can load only one server"),
]


@pytest.mark.parametrize(("asked", "words"), CONFLICTS)
def test_options_that_a_script_replaces_are_refused(asked, words):
    given = {"urls": ("http://127.0.0.1:1/",), "script": "my.js", "as_written": True} | asked
    with pytest.raises(LabError) as caught:
        plan_user_api(Asked(**given), None, None)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "export const options = { scenarios: { a: { executor: 'externally-controlled', vus: 1,"
            " duration: '5s' } } };",
            "the executor externally-controlled",
        ),
        ("export const options = { vus: 20001, duration: '5s' };", "20,001 virtual users"),
        ("export const options = { vus: 3, iterations: 2 };", "be less than the number of VUs"),
        (
            "import 'https://jslib.k6.io/k6-utils/1.4.0/index.js';",
            "download it beside the script",
        ),
    ],
)
def test_scripts_that_cannot_run_are_refused(tmp_path, text, words):
    (tmp_path / "my.js").write_text(f"{text}\nexport default function () {{}}\n")
    with tiny(1) as server, pytest.raises(LabError) as caught:
        asked = Asked(urls=(server.url,), script=str(tmp_path / "my.js"), as_written=True)
        plan_user_api(asked, None, None)
    assert words in str(caught.value)
