"""Alternative texts say what went in: kind and axes, then the known values in their order, and what is left out."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import bs4
import nbformat
import pandas as pd
import pytest
import synthetic_rates
from built import ROOT
from figure_checks import picture, probed_case, tables_of, text_of, words
from IPython.display import Image
from marking import long_but

from runner.model import LabError
from runner.present.case import Case
from runner.present.chart import Axis, Chart, Fact, charts, describe, extreme
from runner.present.chart.sentences import LIMIT
from runner.present.frames import Tables, read_tables
from runner.present.notebook import notebooks, page, pages
from runner.store import find_run

STORED_FIGURES, RATES_FIGURES = charts("postgres"), charts("rates")
OF_A_RUN = charts("report") | STORED_FIGURES | RATES_FIGURES


@pytest.fixture(scope="module")
def case() -> Case:
    return probed_case()


# --- sentences ----------------------------------------------------------------------------------------------

MEDIAN = Fact("median", lambda points: float(points["y"].iloc[0]), " ms", rising=True, order="shortest first")
ALIKE = replace(MEDIAN, text=lambda _: "9 %")
LOWEST = extreme(Axis("", unit=" s"), Axis(""), "lowest cost", lowest=True)
UP, OVER, NONE = [(1, 5, True), (2, 9, True)], [(1, 2, False), (2, 8, True), (3, 7, True)], [(1, None, True)]
FOUR = {name: [(1, value, True)] for name, value in {"d": 4.0, "a": 1.0, "c": 3.0, "b": 2.0}.items()}
CLAUSES: list[tuple[Fact, Mapping[str, list[tuple[int, float | None, bool]]], str]] = [
    (MEDIAN, FOUR, "the medians are, shortest first, a 1.00 ms, b 2.00 ms, c 3.00 ms and d 4.00 ms; none is pale"),
    (ALIKE, FOUR, "the medians of a, b, c and d are all 9 %; none is pale"),
    (MEDIAN, dict.fromkeys("bcd", NONE) | {"a": FOUR["a"]}, "the median of a is 1.00 ms; nothing is known of b, c and"),
    (MEDIAN, {"a": NONE}, "no median is known."),
    (LOWEST, {"up": UP, "over": OVER}, "lowest first, over 2.00 at 1 s and up 5.00 at 1 s; pale are over at 1."),
    (LOWEST, {"up": UP, "over": [(1, 2, False)]}, "over 2.00 at 1 s and up 5.00 at 1 s; pale are over everywhere."),
]


def chart_of(fact: Fact, curves: Mapping[str, list[tuple[int, float | None, bool]]], **shape: str) -> Chart:
    rows = [("P", name, "", *point) for name, points in curves.items() for point in points]
    frame = pd.DataFrame(rows, columns=["panel", "server", "series", "x", "y", "solid"])
    return Chart("", frame, Axis("", "x"), Axis("", "y"), facts=(fact,), **shape)  # type: ignore[arg-type]


@pytest.mark.parametrize(("fact", "curves", "clause"), CLAUSES)
def test_what_is_said_of_a_panel(
    fact: Fact, curves: Mapping[str, list[tuple[int, float | None, bool]]], clause: str
) -> None:
    assert clause in describe(chart_of(fact, curves, pale="Pale points do not rank."))


@pytest.mark.parametrize(
    ("count", "end"), [(2, "pale."), (5, "1 more load is not described here."), (6, "2 more loads are n")]
)
def test_of_a_long_text_the_ends_are_said_and_what_does_not_fit_is_counted(count: int, end: str) -> None:
    servers = {f"{'s' * 20}{number}": [(1, float(number), number > 1), (2, 0.0, True)] for number in range(9)}
    panels = [chart_of(MEDIAN, servers).frame.assign(panel=panel) for panel in "PQRSTU"[:count]]
    text = describe(replace(chart_of(MEDIAN, servers, pale="Pale."), frame=pd.concat(panels)))
    assert len(text) <= LIMIT and end in text, text
    assert (
        text.count("the medians run from") == text.count("(7 more between); 2 of 18 points are pale.") == min(count, 4)
    )


SHORT = ["one load", "three of a database", "rates"]


@pytest.mark.parametrize("run", long_but(SHORT, [*SHORT, "nine", "database", "nine rates"]))
def test_a_text_is_sentences_of_kind_axes_and_numbers(run: str) -> None:
    texts = [text_of(name, tables_of(run)) for name in OF_A_RUN]
    texts += [text_of(name, probed_case()) for name in charts("verdict")]
    for text in texts:
        if text.startswith("Nothing is drawn of "):
            continue
        assert len(text) <= LIMIT, f"{len(text)}: {text}"
        assert re.match(r"(Line chart|Ridge plot|Pairs of bar charts|Dot plot|Forest plot|Of one trial)", text), text
        first = text.partition(". ")[0]
        assert "(across" in first or "bar charts" in first or "Forest" in first, text
        assert text.endswith(".") and len(re.findall(r"\d", text.removeprefix(first))) > 3, text
        assert not re.search(r"nan|None|  |\n|–[^\d]|\(\)|\.\.|; \.|, \.", text), text
        assert "reference" not in text


def test_an_unknown_figure_is_one_sentence(case: Case) -> None:
    for name, subject in (("nope", case.tables), ("verdict-cpu", case.tables), ("cpu-peaks", case)):
        with pytest.raises(LabError, match=rf"^There is no figure '{name}' of .*\.$"):
            text_of(name, subject)


@pytest.mark.parametrize("name", OF_A_RUN)
def test_a_figure_without_data_has_the_sentence_that_it_shows(name: str) -> None:
    run = tables_of("rates" if name in RATES_FIGURES else "three of a database")
    failed = replace(run, trials=run.trials.assign(status="failed"))
    said, _, reason = text_of(name, failed).partition(". ")
    assert said.startswith("Nothing is drawn of ")
    assert "was sealed" in reason and reason in words(picture(name, failed))
    assert "This run has no" in text_of(name, replace(run, trials=run.trials.iloc[:0]))


# --- figures ------------------------------------------------------------------------------------------------

PALE, LIMITS = (
    "pale are axum and gin at 1, nginx everywhere",
    "limit: none (axum); limit: generator (echo); limit: serv",
)
POOLS = "pale are axum and gin at 4, echo everywhere; limit: server 12, pool 3 (axum and gin); limit: generator 12, "
KEPT = (
    "limit: none; kept to 5,000/s (axum); limit: generator; kept to 3,500/s (echo); limit: server; kept to 4,000/s (g"
)
SAID = [
    ("one load", "latency-spectrum", "p90 values are, fastest first, nginx 405 ms, axum 506 ms and gin 567 ms; "
     "the p99.9 values are, fastest first, nginx 1,095 ms, axum 1,368 ms and gin 1,532 ms."),
    ("one load", "latency-spectrum", "Verdicts: generator-bound 9 of 9."),
    ("one load", "latency-density", "the medians are, shortest first, nginx 200 ms (15.1 to 2,659), "
     "axum 250 ms (19.3 to 3,244) and gin 280 ms (21.3 to 3,584)."),
    ("one load", "requests-over-time", "of axum, gin and nginx are all 9,000/s (8,556 to 9,444); all are pale."),
    ("one load", "cpu-over-time", "the peaks are, highest first, gin 109 % at 6 s, axum 59.7 % at 6 s and nginx 15.9 % "
     "at 6 s; the typical uses are, highest first, gin 82.0 %, axum 45.0 % and nginx 12.0 %; "
     "the generator's typical uses of axum, gin and nginx are all 99.0 %."),
    ("one load", "cpu-peaks", "the costs are, cheapest first, nginx 0.0133 ms, axum 0.0500 ms and gin 0.0911 ms; the "
     "peaks are, highest first, gin 107 %, axum 58.5 % and nginx 15.6 %; the 0.1 s peaks are, highest first, gin 107"),
    ("one load", "wrk-requests", "nginx 97,500/s at 100, axum 78,000/s at 100 and gin 73,320/s at 100; " + PALE),
    ("one load", "wrk-requests", "nginx 26,250/s at 100, axum 21,000/s at 100 and gin 19,740/s at 100; " + PALE),
    ("one load", "wrk-cpu-per-request", "nginx 0.0102 ms at 100, axum 0.0127 ms at 100 and gin 0.0135 ms at 100."),
    ("one load", "wrk-cpu-per-request", "nginx 0.0377 ms at 100, axum 0.0471 ms at 100 and gin 0.0502 ms at 100."),
    ("three of a database", "inserts-by-pool-size", "axum 6,000/s at 64, gin 4,200/s at 64 and echo 3,600/s at 64; "
     + POOLS),
    ("three of a database", "inserts-latency-by-pool-size", "lowest first, axum 307 ms at 64, gin 438 ms at 64 and "
     "echo 511 ms at 64; " + POOLS),
    ("three of a database", "inserts-answered", "highest first, axum 5,000/s at 18.5 s, gin 4,200/s at 16.5 s and "
     "echo 3,600/s at 14.5 s; " + KEPT),
    ("three of a database", "static-answered", "highest first, axum 5,000/s at 18.5 s, gin 4,200/s at 16.5 s and "
     "echo 3,600/s at 14.5 s; " + KEPT),
    *[("three of a database", f"{load}-latency-p90", "lowest first, axum 4.06 ms at 0.5 s, gin 121 ms at 16.5 s and "
       "echo 121 ms at 14.5 s; " + LIMITS) for load in ("inserts", "static")],
    *[("three of a database", f"{load}-server-cpu", "highest first, echo 95.0 % at 14.5 s, gin 95.0 % at 16.5 s and "
       "axum 79.2 % at 18.5 s; " + LIMITS) for load in ("inserts", "static")],
    ("three of a database", "inserts-server-memory", "of axum, echo and gin are all 39.0 MiB at 19.5 s; " + LIMITS),
    ("three of a database", "inserts-pool-in-use", "axum 50.0 at 18.5 s, echo 50.0 at 14.5 s and gin 50.0 at 16.5 s; "
     "limit: none (axum); limit: generator; up to 450 waited (echo); limit: server; up to 450 waited (gin)."),
    ("three of a database", "inserts-database-cpu", "dashed: what PostgreSQL may use, 100 %. "),
    ("three of a database", "inserts-database-cpu", "highest first, axum 60.0 % at 18.5 s, gin 50.4 % at 16.5 s and "
     "echo 43.2 % at 14.5 s; " + LIMITS),
    ("three of a database", "inserts-rows", "9 trials: in each trial as many as answers with 2xx."),
    ("three of a database", "inserts-rows", "highest first, axum 55,000 at 20 s, gin 52,800 at 20 s and echo 49,600 at "
     "20 s; limit: none; 55,000 rows (axum); limit: generator; 49,600 rows (echo); limit: server; 52,800 rows (gin)."),
    ("database", "inserts-answered", "kept to 5,000/s (5 servers)"),
    ("rates", "rates-latency", "the p90s are, fastest first, axum 0.318 ms at 250/s to 0.658 ms at 4,000/s, gin 0.542 "
     "ms at 250/s to 0.921 ms at 2,000/s and echo 0.708 ms at 250/s to 1.54 ms at 2,000/s; knee at 4,000/s; sustained "
     "to 6,000/s; then: server (axum); knee at 2,000/s, the generator's; sustained to 3,000/s; then: generator (echo); "
     "knee at 2,000/s; sustained to 4,000/s; then: server (gin)."),
    ("rates", "rates-objective", "fastest first, axum 6,654 (6,442–7,101), gin 4,022 (3,957–4,223) and echo at least "
     "3,102 (k6 was the limit)."),
    ("probed", "verdict-two-clients", "k6's median is 280 ms, the probe's 0.250 ms: k6's is 1,120 times as long."),
    ("probed", "verdict-two-clients", "Of one trial, gin under “experiments, N = 2931”: "),
    ("probed", "verdict-two-clients", "1,200 requests of the probe took 0.0398 to 1.57 ms."),
    ("probed", "verdict-cpu", "Server: gin: 90.0 % on the average, of 100 % given (90.0 to 117 over time); Generator: "
     "k6: 99.0 % on the average, of 100 % given"),
    ("nine", "cpu-peaks", "the costs run from nginx 0.0133 ms to echo 0.0944 ms (7 more between)"),
    ("nine", "latency-density", "from nginx 200 ms (15.1 to 2,659) to echo 284 ms (21.3 to 3,766) (7 more between)."),
    ("nine", "wrk-requests", "nginx 97,500/s at 100 to nethttp 40,560/s at 100 (7 more between); 12 of 36 points are"),
    ("nine rates", "rates-latency", "(7 more between); knee: none up to 8,000/s; sustained to 8,000/s (6 servers); "
     "knee at 4,000/s; sustained to 6,000/s; then: server (axum); 2 servers otherwise."),
    ("nine rates", "rates-objective", "k6 was the limit) (7 more between)"),
]  # fmt: skip
"""Run, figure and a part of its text: the numbers are those that were put into the run."""


@pytest.mark.parametrize(("run", "name", "part"), SAID)
def test_a_figures_text_has_the_known_numbers_in_their_order(run: str, name: str, part: str) -> None:
    assert part in text_of(name, probed_case() if run == "probed" else tables_of(run))


def test_what_differs_from_server_to_server_is_said_of_each(case: Case) -> None:
    one, stored = tables_of("one load"), tables_of("three of a database")
    scale = one.throughput["trial_id"].str.partition("-")[0].map({"axum": 1.2, "gin": 0.8, "nginx": 1.0})
    scaled = replace(one, throughput=one.throughput.assign(requests=one.throughput["requests"] * scale))
    rates = "highest first, axum 10,800/s (10,267 to 11,333), nginx 9,000/s (8,556 to 9,444) and gin 7,200/s (6,845 to "
    assert rates in text_of("requests-over-time", scaled)
    bound = one.trials["verdict"].where(one.trials["server"] != "gin", "server-bound")
    ranked = replace(one, trials=one.trials.assign(verdict=bound))
    assert "; pale are axum and nginx everywhere" in text_of("requests-over-time", ranked)
    unsampled = one.resources[~one.resources["trial_id"].str.startswith("gin")]
    assert "; nothing is known of gin" in text_of("cpu-over-time", replace(one, resources=unsampled))
    unkept = replace(stored, throughput=stored.throughput.assign(failed=stored.throughput["requests"]))
    assert text_of("inserts-answered", unkept).count("never kept") == 3
    assert "There was no probe." in text_of("verdict-two-clients", replace(case, probe=None))


# --- on a page ----------------------------------------------------------------------------------------------

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def alts(page: Path) -> list[str]:
    return [str(image["alt"]) for image in bs4.BeautifulSoup(page.read_text(), "html.parser").find_all("img")]


def test_a_text_with_special_characters_reaches_the_page_as_it_is(tmp_path: Path) -> None:
    text = 'Dot plot of “p99 <= 10 ms”, a "quoted" name & an <img src=x onerror=alert(1)>.'
    output = nbformat.v4.new_output("display_data", {"image/png": PNG}, metadata={"image/png": {"alt": text}})
    cell = nbformat.v4.new_code_cell("report.show_figure()", outputs=[output])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "executed.ipynb")
    notebooks.export_html(tmp_path / "executed.ipynb", tmp_path / "page.html")
    assert alts(tmp_path / "page.html") == [text]


def test_every_table_that_a_text_points_to_is_on_the_page() -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        texts = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
        heads = {line.lstrip("# ") for text in texts for line in text.splitlines() if line.startswith("#")}
        shown = {name for text in texts for name in re.findall(r'report\.show_figure\("([a-z0-9-]+)"\)', text)}
        assert {charts()[name].table for name in shown} - {""} <= heads, path.name


@pytest.mark.long
def test_the_page_of_a_run_carries_the_texts(bare_lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic_rates.build(bare_lab / "data" / "sample", blocks=2, closed=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    executed, page = tmp_path / "executed.ipynb", tmp_path / "rates.html"
    notebooks.execute(ROOT / "notebooks" / "rates.ipynb", {"run": "sample"}, executed)
    notebooks.export_html(executed, page)
    tables, shown = read_tables(find_run("sample")), notebooks.figures_shown(executed) or []
    assert sorted(shown) == sorted(charts("rates"))
    assert alts(page) == [text_of(name, tables) + " For a table see “The answer”." for name in shown]
    assert "p99 <= 10 ms" in " ".join(alts(page)) and "p99 <= 10 ms" not in page.read_text()


def test_a_figure_of_one_trial_is_described_by_that_trial(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Image] = []
    monkeypatch.setattr(page, "display", shown.append)
    assert case.tables.folder is not None
    report = pages.open_report(str(case.tables.folder.path), case.trial_id)
    report.figures = tmp_path
    subjects: dict[str, Case | Tables] = {"verdict-cpu": case, "cpu-peaks": case.tables}
    for name in subjects:
        report.show_figure(name)
    assert [image._repr_png_()[1]["alt"] for image in shown] == [
        text_of(name, subject) + charts()[name].place for name, subject in subjects.items()
    ]
