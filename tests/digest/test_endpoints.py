"""Tests of the tables about a load of a k6 script.

The numbers of the tables must agree with the lines of a stored file of k6.
"""

from itertools import product
from string import ascii_lowercase

import k6_files
import k6_samples
import pyarrow.parquet as pq
import pytest
from k6_samples import CLOSED

from runner.digest.endpoints import MOST_ENDPOINTS
from runner.digest.labels import MOST_LABELS, Labelling, Labels, collapsed
from runner.digest.watched import Selection, selection_of
from runner.importing.run import Given, import_files
from runner.model import OTHER_ENDPOINTS
from runner.store import OF_SCRIPTS

UUID = "3f2b8c1e-1111-4222-8333-abcdef012345"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def tables(lab):
    """Import the stored closed load, and return the tables about its script as lists of rows."""
    for name in ("servers", "notebooks"):
        (lab / name).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_ROOT", str(lab))
        run = import_files([Given(CLOSED)])
    return {name: pq.read_table(run.table(name)).to_pylist() for name in OF_SCRIPTS}


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://h/items/17", "http://h/items/{id}"),
        (f"http://h/users/{UUID}/x", "http://h/users/{id}/x"),
        ("http://h/c/9f86d081884c7d659a2feaa0c55ad015", "http://h/c/{id}"),
        ("http://h/v2/items?page=3&size=5", "http://h/v2/items?page&size"),
        ("http://user:secret@h/a", "http://h/a"),
        ("http://h/administration-overview", "http://h/administration-overview"),
        ("http://[::1/a", "http://[::1/a"),
    ],
)
def test_identifiers_in_urls_collapse(url, endpoint):
    assert collapsed(url) == endpoint


def test_endpoints_have_the_percentiles_of_their_lines(tables):
    rows = {row["endpoint"]: row for row in tables["endpoints"] if row["endpoint"]}
    assert list(rows) == ["GET /items/{id}", "POST buy"]
    assert rows["POST buy"]["name"] == "buy"
    requests = k6_samples.points(CLOSED, "http_reqs")
    posts = [each for each in requests if each["tags"]["name"] == "buy"]
    assert rows["POST buy"]["requests"] == len(posts)
    assert rows["POST buy"]["failures"] == f"{len(posts)} x status 400"
    urls = {each["tags"]["url"] for each in requests} - {"buy"}
    assert rows["GET /items/{id}"]["urls"] == len(urls)
    for name, method in (("GET /items/{id}", "GET"), ("POST buy", "POST")):
        expected = k6_samples.percentile(CLOSED, 50, method=method)
        tail_percent = rows[name]["latency_tail_percent"]
        assert rows[name]["latency_p50_ms"] is None or (
            rows[name]["latency_p50_ms"] == pytest.approx(expected)
        )
        if tail_percent is not None:
            tail = k6_samples.percentile(CLOSED, tail_percent, method=method)
            assert rows[name]["latency_tail_ms"] == pytest.approx(tail)


def test_too_many_endpoints_share_one_row(bare_lab, tmp_path):
    """If a script has more endpoints than the table allows, the rarest endpoints share one row.

    The script requests 6,000 different paths. The lab keeps fewer than 6,000 labels for a load, so
    some paths already share one label before the table is made.
    """
    names = ["".join(letters) for letters in product(ascii_lowercase[:19], repeat=3)][:6000]
    lines = []
    for place, name in enumerate([*names, *names[:150]]):
        request = k6_files.Request(k6_files.EPOCH_NS + place * 1_000_000, 1, 0, 1, 10**6, 1)
        own = k6_files.request_lines(request, stock=True)
        lines += [line.replace("/experiments", f"/{name}") for line in own]
        lines += k6_files.iteration_lines(request.end_ns, 1_100_000, stock=True)
    path = k6_files.write_lines(tmp_path / "results.json", lines)
    run = import_files([Given(path)])
    rows = [row for row in pq.read_table(run.table("endpoints")).to_pylist() if row["endpoint"]]
    assert len(rows) == MOST_ENDPOINTS
    others = [row for row in rows if row["endpoint"] == OTHER_ENDPOINTS]
    assert len(others) == 1
    assert sum(row["requests"] for row in rows) == 6150
    assert sum(row["urls"] for row in rows) == 6000
    assert {row["requests"] for row in rows[:150]} == {2}


def test_the_slowest_requests_are_shared_out(tables):
    """The table gives each endpoint's share of the requests above p99.

    The test computes the expected shares from the file, without the lab's code.
    """
    durations = k6_samples.points(CLOSED, "http_req_duration")
    limit_ms = k6_samples.percentile(CLOSED, 99)
    slow = [each["tags"]["method"] for each in durations if each["value"] > limit_ms]
    rows = [row for row in tables["endpoints"] if row["endpoint"]]
    for row in rows:
        assert row["share_of_slowest"] == pytest.approx(slow.count(row["method"]) / len(slow))


def test_groups_have_rows_of_their_own(tables):
    rows = {row["group"]: row for row in tables["endpoints"] if row["endpoint"] is None}
    requests = k6_samples.points(CLOSED, "http_reqs")
    browsed = [each for each in requests if each["tags"]["group"] == "::browse"]
    assert rows["::browse"]["requests"] == len(browsed)


def test_thresholds_without_a_summary_are_those_of_the_file(tables):
    durations = [each["value"] for each in k6_samples.points(CLOSED, "http_req_duration")]
    checks = [each["value"] for each in k6_samples.points(CLOSED, "checks")]
    found = {(row["metric"], row["threshold"]): row for row in tables["thresholds"]}
    expected = {
        ("http_req_duration", "p(95)<500"): (k6_samples.percentile(CLOSED, 95), True),
        ("http_req_duration", "max<6"): (max(durations), False),
        ("checks", "rate>0.9"): (checks.count(1) / len(checks), False),
    }
    assert set(found) == set(expected)
    for name, (value, kept) in expected.items():
        assert found[name]["value"] == pytest.approx(value)
        assert (found[name]["kept"], found[name]["kept_by_k6"]) == (kept, None)


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        ("http_reqs", Selection("http_reqs")),
        ("http_reqs{group:::G}", Selection("http_reqs", (("group", "::G"),))),
        ("a{ y:2, x:'1' }", Selection("a", (("x", "1"), ("y", "2")))),
        ("a{}", Selection("a")),
        ("a{x}", None),
        ("a{x:1", None),
    ],
)
def test_selections_are_read_as_k6_writes_them(text, selection):
    assert selection_of(text) == selection


def test_checks_are_counted_by_name(tables):
    points = k6_samples.points(CLOSED, "checks")
    for row in tables["checks"]:
        own = [each["value"] for each in points if each["tags"]["check"] == row["check"]]
        assert (row["passes"], row["fails"]) == (own.count(1), own.count(0))


def test_labels_beyond_the_limit_share_one():
    labels = Labelling()
    numbers = {labels.number(Labels(name=f"page {each}"), "") for each in range(MOST_LABELS + 50)}
    assert len(numbers) <= MOST_LABELS + 2
    assert labels.labels[-1].name == OTHER_ENDPOINTS
