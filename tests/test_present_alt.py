"""Alt texts say what the figures show: kind and axes, then the drawn numbers in their order, and what is left out."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic_database
import synthetic_rates
import synthetic_run
from figure_checks import lines, picture, text_of, words
from marking import long_but
from matplotlib.figure import Figure

from runner.model import LabError
from runner.present.case import Case, choose
from runner.present.chart import charts
from runner.present.chart.sentences import LIMIT
from runner.present.frames import Tables, read_tables
from runner.present.look.style import number
from runner.store import RunFolder

ROOT = Path(__file__).parents[1]
FIGURES, RATES_FIGURES, VERDICT_FIGURES = charts("report"), charts("rates"), charts("verdict")
STORED_FIGURES = charts("postgres")
OF_A_RUN = FIGURES | STORED_FIGURES | RATES_FIGURES
SCALES = {"axum": 1.2, "gin": 0.8, "nginx": 1.0}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Three servers, one closed load by k6 and the wrk matrix; their rates over time differ by `SCALES`."""
    folder = synthetic_run.build(tmp_path_factory.mktemp("three"), k6=("experiments",), failed=False)
    whole = read_tables(RunFolder(folder))
    scale = whole.throughput["trial_id"].str.partition("-")[0].map(SCALES)
    return replace(whole, throughput=whole.throughput.assign(requests=whole.throughput["requests"] * scale))


@pytest.fixture(scope="module")
def nine(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return read_tables(RunFolder(synthetic_run.build(tmp_path_factory.mktemp("nine"), synthetic_run.NINE)))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Three servers with a database behind them: ramps, pools and closed loops."""
    folder = synthetic_database.build(tmp_path_factory.mktemp("stored"), synthetic_database.THREE, failed=False)
    return read_tables(RunFolder(folder))


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return read_tables(RunFolder(synthetic_database.build(tmp_path_factory.mktemp("eight"))))


@pytest.fixture(scope="module")
def offered(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Three servers, sweeps and searches in six blocks."""
    return read_tables(RunFolder(synthetic_rates.build(tmp_path_factory.mktemp("offered"), closed=False)))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    folder = synthetic_rates.build(tmp_path_factory.mktemp("many"), synthetic_run.NINE, blocks=3, closed=False)
    return read_tables(RunFolder(folder))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = synthetic_rates.build(tmp_path_factory.mktemp("case"), blocks=2, sweep=False, search=False)
    found = choose(read_tables(RunFolder(folder)))
    assert found is not None
    return found


# --- reading a text and a figure --------------------------------------------------------------------------


def after(text: str, name: str) -> list[str]:
    """The numbers that directly follow a server's name."""
    return re.findall(rf"\b{name} (?:from )?([\d,.]*\d)", text)


def order(text: str, names: Sequence[str]) -> list[str]:
    """The names in the order in which they first carry a number."""
    at = {name: re.search(rf"\b{name} (?:from )?\d", text) for name in names}
    return sorted((name for name in names if at[name]), key=lambda name: at[name].start())  # type: ignore[union-attr]


def drawn(figure: Figure, label: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Every line of a label, over all panels."""
    return [line for panel in range(len(figure.axes)) for line in lines(figure, panel, label)]


def points(figure: Figure, label: str) -> list[dict[float, tuple[float, bool]]]:
    """For each panel that has marks of a label: x -> value, and whether it is filled."""
    found = []
    for ax in figure.axes:
        marks = [each.lines[0] for each in ax.containers if each.get_label() == label]
        values = {float(m.get_xdata()[0]): (float(m.get_ydata()[0]), m.get_markerfacecolor() != "white") for m in marks}
        found += [values] if values else []
    return found


# --- every figure -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "names"),
    long_but(
        [("tables", FIGURES), ("stored", OF_A_RUN), ("offered", RATES_FIGURES), ("case", VERDICT_FIGURES)],
        [
            *(("tables", FIGURES), ("nine", FIGURES), ("stored", OF_A_RUN), ("eight", OF_A_RUN)),
            *(("offered", RATES_FIGURES), ("many", RATES_FIGURES), ("case", VERDICT_FIGURES)),
        ],
    ),
)
def test_a_text_is_sentences_of_kind_axes_and_numbers(
    run: str, names: dict[str, object], request: pytest.FixtureRequest
) -> None:
    for name in names:
        text = text_of(name, request.getfixturevalue(run))
        if text.startswith("Nothing is drawn of "):
            continue
        assert len(text) <= LIMIT, f"{name}: {len(text)}"
        assert re.match(r"(Line chart|Ridge plot|Pairs of bar charts|Dot plot|Forest plot|Of one trial)", text), text
        first = text.partition(". ")[0]
        assert "(across" in first or "bar charts" in first, text
        assert text.endswith(".") and len(re.findall(r"\d", text.removeprefix(first))) > 3, text
        assert not re.search(r"nan|None|  |\n|–[^\d]|\(\)|\.\.|; \.|, \.", text), text
        assert "reference" not in text


def test_an_unknown_figure_is_one_sentence(tables: Tables, case: Case) -> None:
    for name, subject in (("nope", tables), ("verdict-cpu", tables), ("cpu-peaks", case)):
        with pytest.raises(LabError, match=rf"^There is no figure '{name}' of .*\.$"):
            text_of(name, subject)


@pytest.mark.parametrize("name", OF_A_RUN)
def test_a_figure_without_data_has_the_sentence_that_it_shows(name: str, stored: Tables, offered: Tables) -> None:
    run = offered if name in RATES_FIGURES else stored
    failed = replace(run, trials=run.trials.assign(status="failed"))
    said, _, reason = text_of(name, failed).partition(". ")
    assert said.startswith("Nothing is drawn of ")
    assert "was sealed" in reason and reason in words(picture(name, failed))
    none = replace(run, trials=run.trials.iloc[:0])
    assert "This run has no" in text_of(name, none)


# --- closed loads -----------------------------------------------------------------------------------------


def test_percentiles_are_those_of_the_lines(tables: Tables) -> None:
    text, figure = text_of("latency-spectrum", tables), picture("latency-spectrum", tables)
    assert order(text, synthetic_run.THREE) == ["nginx", "axum", "gin"]
    for server in synthetic_run.THREE:
        ((x, ms),) = drawn(figure, server)
        at = {mark: number(float(ms[np.argmin(abs(x - mark))])) for mark in (10, 1000)}
        assert after(text, server) == [at[10], at[1000]]
    assert "p90 values" in text and "p99.9 values" in text and "generator-bound 9 of 9" in text


def test_medians_and_ends_are_those_of_the_ridges(tables: Tables) -> None:
    text, (ax,) = text_of("latency-density", tables), picture("latency-density", tables).axes
    assert order(text, synthetic_run.THREE) == ["nginx", "axum", "gin"]
    outlines = [np.asarray(line.get_xdata(), float) for line in ax.lines if len(line.get_xdata()) > 2]
    # From the lowest row upwards: the last server first. An outline begins and ends with an empty bin.
    for server, x in zip(("nginx", "gin", "axum"), outlines, strict=True):
        median = number(synthetic_run.THREE[server][3])
        assert f"{server} {median} ms ({number(x[1])} to {number(x[-2])})" in text
    assert [label.get_text() for label in ax.texts] == ["200 ms", "280 ms", "250 ms"]


def test_rates_are_those_of_the_lines_and_pale_ones_are_named(tables: Tables) -> None:
    text, figure = text_of("requests-over-time", tables), picture("requests-over-time", tables)
    assert order(text, SCALES) == ["axum", "nginx", "gin"]
    for server, scale in SCALES.items():
        ((_, rps),) = drawn(figure, server)
        assert f"{server} {number(float(np.median(rps)))}/s ({number(rps.min())} to {number(rps.max())})" in text
        assert np.median(rps) == pytest.approx(9000 * scale, rel=0.06)
    assert "; all are pale" in text
    bound = tables.trials["verdict"].where(tables.trials["server"] != "gin", "server-bound")
    assert "; pale: axum and nginx" in text_of(
        "requests-over-time", replace(tables, trials=tables.trials.assign(verdict=bound))
    )


def test_peaks_over_time_are_those_that_are_marked(tables: Tables) -> None:
    text, figure = text_of("cpu-over-time", tables), picture("cpu-over-time", tables)
    marked = drawn(figure, "peak")
    assert len(marked) == 3
    for t_s, peak in marked:
        assert f" {number(peak[0])} % at {t_s[1]:.3g} s" in text
    assert order(text, SCALES) == ["gin", "axum", "nginx"]
    (gin,) = after(text, "gin")
    assert float(gin) == pytest.approx(82 * 1.3 * 1.02, rel=0.01)  # the burst of the busiest trial
    typical = [np.median(y) for _, y in drawn(figure, "server")]
    assert f"(typically {number(float(np.median(typical[:3])))} %)" in text  # the first panel is axum's
    assert "k6 typically uses 99.0 %" in text
    unsampled = tables.resources[~tables.resources["trial_id"].str.startswith("gin")]
    assert "; nothing is known of gin" in text_of("cpu-over-time", replace(tables, resources=unsampled))


def test_bars_are_told_cheapest_first_and_fullest_first(tables: Tables) -> None:
    text, figure = text_of("cpu-peaks", tables), picture("cpu-peaks", tables)
    peak, cost = (dict(zip(("axum", "gin", "nginx"), ax.patches, strict=True)) for ax in figure.axes[:2])
    costs, peaks = text.split("the costs are")[1].split("the peaks are")
    assert order(costs, SCALES) == ["nginx", "axum", "gin"] and order(peaks, SCALES) == ["gin", "axum", "nginx"]
    for server in SCALES:
        assert after(costs, server) == [number(cost[server].get_width())]
        assert after(peaks, server) == [number(peak[server].get_width())]
    swapped = tables.trials["server"].map({"gin": "nginx", "nginx": "gin", "axum": "axum"})
    other = text_of("cpu-peaks", replace(tables, trials=tables.trials.assign(server=swapped)))
    assert order(other.split("the costs are")[1], SCALES) == ["gin", "axum", "nginx"]


# --- the wrk matrix ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first", "best"),
    [("wrk-requests", ["nginx", "axum", "gin"], max), ("wrk-cpu-per-request", ["nginx", "axum", "gin"], min)],
)
def test_the_matrix_tells_each_servers_peak(
    tables: Tables, name: str, first: list[str], best: Callable[[Sequence[float]], float]
) -> None:
    text, figure = text_of(name, tables), picture(name, tables)
    assert order(text, SCALES) == first
    for server in SCALES:
        medians = [[value for value, _ in panel.values()] for panel in points(figure, server)]
        assert len(medians) == 2
        for panel in medians:
            assert number(best(panel)) in after(text, server) or f"over {number(best(panel))}" in text
        assert re.search(rf"{server} [^;]*?{number(best(medians[0]))}(/s| ms) at 100\b", text)


def test_hollow_points_are_told_as_drawn(tables: Tables) -> None:
    text, figure = text_of("wrk-requests", tables), picture("wrk-requests", tables)
    hollow_of = {
        server: [not full for _, full in panel.values()] for server in SCALES for panel in points(figure, server)[:1]
    }
    assert hollow_of == {"axum": [True, *[False] * 3], "gin": [True, *[False] * 3], "nginx": [True] * 4}
    assert "hollow are axum and gin at 1; nginx everywhere" in text
    assert "hollow" not in text_of("wrk-cpu-per-request", tables).lower()


# --- ramps and pools --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in STORED_FIGURES if "pool-size" not in name])
def test_ramps_tell_the_highest_point_of_each_line(stored: Tables, name: str) -> None:
    text, figure = text_of(name, stored), picture(name, stored)
    highest = {}
    for server in synthetic_database.THREE:
        ((t_s, value),) = drawn(figure, server)
        known = np.isfinite(value)
        top = int(np.argmax(value[known]))
        highest[server] = float(value[known][top])
        assert re.search(
            rf"{server} [^;]*?{re.escape(number(highest[server]))}[^;]*? at {t_s[known][top]:.10g} s", text
        )
    rising = "p90" in name
    ranked = sorted(highest, key=lambda server: highest[server] if rising else -highest[server])
    assert [highest[server] for server in order(text, list(highest))] == [highest[server] for server in ranked]
    assert ("lowest first" if rising else "highest first") in text


def test_ramps_tell_what_was_kept_and_who_was_the_limit(stored: Tables, eight: Tables) -> None:
    text = text_of("inserts-answered", stored)
    assert "the rate was kept to the last, 5,000/s, by axum, to 4,000/s by gin and to 3,500/s by echo" in text
    assert "the limit was nobody for axum, the generator for echo and the server for gin" in text
    assert "5 servers" in text_of("inserts-answered", eight)
    unkept = replace(stored, throughput=stored.throughput.assign(failed=stored.throughput["requests"]))
    assert "the rate was kept at no step by axum, echo and gin" in text_of("inserts-answered", unkept)
    assert "up to 450 requests waited for one, with echo and gin" in text_of("inserts-pool-in-use", stored)
    assert "in each trial as many as answers with 2xx" in text_of("inserts-rows", stored)
    assert "what PostgreSQL may use, 100 %" in text_of("inserts-database-cpu", stored)


@pytest.mark.parametrize(("name", "best"), [("inserts-by-pool-size", max), ("inserts-latency-by-pool-size", min)])
def test_pools_tell_the_best_size_and_what_is_hollow(
    stored: Tables, name: str, best: Callable[[Sequence[float]], float]
) -> None:
    text, figure = text_of(name, stored), picture(name, stored)
    for server in synthetic_database.THREE:
        ((*_,),) = [points(figure, server)]
        (panel,) = points(figure, server)
        value = best([value for value, _ in panel.values()])
        assert re.search(rf"{server} [^;]*?{re.escape(number(value))}(/s| ms) at 64\b", text)
    assert order(text, list(synthetic_database.THREE)) == ["axum", "gin", "echo"]
    assert "hollow are axum and gin at 4; echo everywhere" in text


# --- constant rates ---------------------------------------------------------------------------------------


def test_sweeps_tell_knee_and_ends_as_drawn(offered: Tables) -> None:
    text, figure = text_of("rates-latency", offered), picture("rates-latency", offered)
    assert len(drawn(figure, "knee")) == 3
    for server, p90, knee in zip(("axum", "echo", "gin"), points(figure, "p90"), drawn(figure, "knee"), strict=True):
        at = float(knee[0][0])
        low, high = min(p90), max(p90)
        first, middle, last = (number(p90[rate][0]) for rate in (low, at, high))
        whose = "k6's" if server == synthetic_rates.LIMITED_BY_K6 else "its"
        ends = f"{first} ms at {low:,.0f}/s, {middle} ms at {whose} knee of {at:,.0f}/s and {last} ms at {high:,.0f}/s"
        assert f"{server}'s p90 is {ends}" in text
    assert (
        text.count("sustained to 6,000/s (then: server)") == text.count("sustained to 3,000/s (then: generator)") == 1
    )


def test_many_sweeps_are_told_by_their_ends(many: Tables) -> None:
    text = text_of("rates-latency", many)
    # Six servers have no limit within the rates, and no knee: axum 4,000 is the highest, echo and gin have 2,000.
    assert "the knees run, highest first, from axum 4,000/s to gin 2,000/s (1 more lies between)" in text
    assert "1 of them k6's, and 6 servers without one" in text
    assert "highest sustained rates run" in text and "to echo 3,000/s (7 more lie between)" in text


def test_objectives_tell_the_marks_highest_first(offered: Tables, many: Tables) -> None:
    text, figure = text_of("rates-objective", offered), picture("rates-objective", offered)
    marks = {server: float(drawn(figure, server)[0][0][0]) for server in synthetic_rates.THREE}
    assert sorted(marks, key=lambda server: -marks[server]) == ["axum", "gin", "echo"]
    assert order(text.replace("at least ", ""), list(marks)) == ["axum", "gin", "echo"]
    for server in ("axum", "gin"):
        assert f"{server} {marks[server]:,.0f} (" in text
    assert f"echo at least {marks['echo']:,.0f} (k6 was the limit)" in text
    assert "more lie between" in text_of("rates-objective", many)


# --- one trial --------------------------------------------------------------------------------------------


def test_two_clients_have_the_drawn_medians_and_their_ratio(case: Case) -> None:
    text, figure = text_of("verdict-two-clients", case), picture("verdict-two-clients", case)
    ours, probes = (float(drawn(figure, f"median of {name}")[0][0][0]) for name in ("k6", "probe"))
    assert f"k6's median is {number(ours)} ms, the probe's {number(probes)} ms" in text
    assert f"{number(ours / probes)} times as long" in text and "gin under “experiments, N = 2931”" in text
    dots = max((y for _, y in drawn(figure, "probe")), key=len)
    assert f"{len(dots):,} requests of the probe took {number(dots.min())} to {number(dots.max())} ms" in text
    assert "There was no probe." in text_of("verdict-two-clients", replace(case, probe=None))


def test_sides_are_told_fullest_first_with_what_they_were_given(case: Case) -> None:
    text, figure = text_of("verdict-cpu", case), picture("verdict-cpu", case)
    assert text.index("the generator k6 used 99.0 %") < text.index("the server gin used 90.0 %")
    ((_, used),) = drawn(figure, "server")
    assert f"of the 100 % given ({number(used.min())} to {number(used.max())} over time)" in text
    idle = replace(case, row=case.row | {"generator_cpu_mean_pct": 10.0})
    other = text_of("verdict-cpu", idle)
    assert other.index("the server gin used 90.0 %") < other.index("the generator k6 used 10.0 %")


# --- much to tell -----------------------------------------------------------------------------------------


def test_nine_servers_have_the_extremes_and_a_count(nine: Tables) -> None:
    text = text_of("cpu-peaks", nine)
    assert "from nginx 0.0133 ms to echo 0.0944 ms (7 more lie between)" in text
    assert "from hyper 0.0450 ms to echo 0.106 ms (6 more lie between)" in text  # md5 has no nginx
    medians = text_of("latency-density", nine)
    assert order(medians, list(synthetic_run.NINE)) == sorted(
        synthetic_run.NINE, key=lambda of: synthetic_run.NINE[of][3]
    )
    rates = text_of("wrk-requests", nine)
    assert "from nginx 97,500/s at 100 to" in rates and "of 36 points are hollow" in rates


def test_loads_that_do_not_fit_are_counted(nine: Tables) -> None:
    one = nine.trials[nine.trials["load"] == "experiments, N = 3000"]
    loads = [one.assign(load=f"experiments, N = {users}", load_order=users) for users in range(1, 13)]
    text = text_of("latency-density", replace(nine, trials=pd.concat(loads, ignore_index=True)))
    left = re.search(r"(\d+) more loads are not described here", text)
    assert left and len(text) <= LIMIT
    assert len(re.findall(r"In “experiments, N = \d+”", text)) + int(left[1]) == 12
