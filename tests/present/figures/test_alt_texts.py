"""Tests of alt texts.

An alt text says the kind of the figure, its axes, the drawn numbers in their order, and what is
left out. Pages must contain the alt texts of their figures.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
import synthetic_database
import synthetic_rates
import synthetic_run
from built import ROOT
from figure_checks import (
    DrawnDot,
    dots,
    lines,
    marks,
    picture,
    probed_case,
    read,
    tables_of,
    text_of,
    words,
)
from IPython.display import Image
from marking import long_but
from matplotlib.figure import Figure
from scipy.stats import gmean
from shown import alts, cells

from runner.model import LabError
from runner.present.chart.sentences import LIMIT, describe, fit, pale, said
from runner.present.chart.value import Axis, Chart, Fact, charts, extreme
from runner.present.frames import Tables
from runner.present.look.numbers import number
from runner.present.notebook import notebooks, pages

STORED_FIGURES = charts("postgres")
RATES_FIGURES = charts("rates")
OF_A_RUN = charts("report") | STORED_FIGURES | RATES_FIGURES
SCALES = {"axum": 1.2, "gin": 0.8, "nginx": 1.0}


@pytest.fixture(scope="module")
def tables() -> Tables:
    """Return a run of three servers under a closed load of k6, and under several loads of wrk.

    The servers' rates under k6 are multiplied by the factors in `SCALES`, both in the table of
    trials and in the table of throughput over time.
    """
    whole = tables_of("one load")
    scale = whole.throughput["trial_id"].str.partition("-")[0].map(SCALES)
    of_server = whole.trials["server"].map(SCALES)
    rps = whole.trials["throughput_rps"] * of_server.where(whole.trials["tool"].eq("k6"), 1.0)
    return replace(
        whole,
        throughput=whole.throughput.assign(requests=whole.throughput["requests"] * scale),
        trials=whole.trials.assign(throughput_rps=rps),
    )


def after(text: str, name: str) -> list[str]:
    """Return the numbers that directly follow the server's name in the text, as strings."""
    return re.findall(rf"\b{name} ([\d,.]*\d)", text)


def order(text: str, names: Sequence[str]) -> list[str]:
    """Return the names that are followed by a number in the text, in order of first occurrence."""
    at = {name: re.search(rf"\b{name} \d", text) for name in names}
    return sorted((name for name in names if at[name]), key=lambda name: at[name].start())  # type: ignore[union-attr]


def drawn(figure: Figure, label: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (x, y) of all lines with this label, from all panels of a figure."""
    return [line for panel in range(len(figure.axes)) for line in lines(figure, panel, label)]


def points(figure: Figure, label: str) -> list[dict[float, tuple[float, float, str, bool]]]:
    """Return the marks with this label, as one dict for each panel that has such marks.

    A dict maps the x of a mark to the mark's value, the length of its range, its marker, and
    whether it is filled.
    """
    return [found for panel in range(len(figure.axes)) if (found := marks(figure, panel, label))]


def matrix(figure: Figure, server: str) -> list[list[DrawnDot]]:
    """Return a server's dots in a figure of wrk's loads, as one list for each connection mode.

    The panels of a mode are one column of the figure.
    """
    return [
        [dot for panel in range(side, len(figure.axes), 2) for dot in dots(figure, panel, server)]
        for side in (0, 1)
    ]


def test_what_does_not_fit_is_counted() -> None:
    assert (
        fit("Head.", ["c" * 290] * 3, "panel")
        == f"Head. {'c' * 290} 2 more panels are not described here."
    )
    assert fit("Head.", ["c" * 250] * 3, "panel").endswith("1 more panel is not described here.")
    assert fit("Head.", ["a", "b"], "panel") == "Head. a b"
    places = pd.MultiIndex.from_product(
        [["one", "other"], [f"{'s' * 20}{n}" for n in range(9)]], names=["panel", "server"]
    )
    frame = places.to_frame(index=False).assign(series="", x=1.0, y=range(18), solid=True)
    text = describe(Chart("", frame, Axis("", "x"), Axis("", "y")))
    assert (
        text.count("the highest points run from") == text.count("(7 more between)") == 2
        and len(text) <= LIMIT
    )


def test_clauses_of_few_and_many() -> None:
    rows = {
        name: pd.DataFrame({"y": [value]})
        for name, value in {"d": 4.0, "a": 1.0, "c": 3.0, "b": 2.0}.items()
    }
    fact = Fact(
        "median",
        lambda points: float(points["y"].iloc[0]),
        " ms",
        rising=True,
        order="shortest first",
    )
    assert said(fact, rows, rows) == (
        "the medians are, shortest first, a 1.00 ms, b 2.00 ms, c 3.00 ms and d 4.00 ms"
    )
    assert (
        said(fact, rows, rows, short=True)
        == "the medians run from a 1.00 ms to d 4.00 ms (2 more between)"
    )
    assert (
        said(fact, {"a": rows["a"]}, rows)
        == "the median of a is 1.00 ms; nothing is known of d, c and b"
    )
    assert said(fact, {}, rows) == "no median is known"
    assert (
        said(replace(fact, text=lambda _: "9 %"), rows, rows)
        == "the medians of a, b, c and d are all 9 %"
    )


def test_lines_have_their_extreme_and_pale_points_are_named() -> None:
    columns = ["x", "y", "solid"]
    curves = {
        "up": pd.DataFrame([(1, 5, True), (2, 9, True)], columns=columns),
        "over": pd.DataFrame([(1, 2, False), (2, 8, True), (3, 7, True)], columns=columns),
    }
    fact = extreme(Axis(""), Axis("", unit="/s"), "highest rate")
    assert said(fact, curves, [*curves, "none"]) == (
        "the highest rates are, highest first, up 9.00/s at 2 and over 8.00/s at 2; nothing is "
        "known of none"
    )
    lowest = extreme(Axis("", unit=" s"), Axis(""), "lowest cost", lowest=True)
    assert (
        said(lowest, curves, curves)
        == "the lowest costs are, lowest first, over 2.00 at 1 s and up 5.00 at 1 s"
    )
    assert (
        pale(curves) == "pale are over at 1"
        and pale(curves, short=True) == "1 of 5 points are pale"
    )
    assert pale({"up": curves["up"]}) == "none is pale"
    whole = curves | {"over": curves["over"].assign(solid=False)}
    assert pale(whole, short=True) == "pale are over everywhere"


UNREADABLE = re.compile(r"\d\.\d{5}|\de[+-]\d")
"""A number as a computer prints it, such as 657.1428571 or 1e+02."""
SHORT = ["one load", "three of a database", "rates"]


@pytest.mark.parametrize("run", long_but(SHORT, [*SHORT, "nine", "database", "nine rates"]))
def test_a_text_is_sentences_of_kind_axes_and_numbers(run: str) -> None:
    texts = [text_of(name, tables_of(run)) for name in OF_A_RUN]
    texts += [text_of(name, probed_case()) for name in charts("verdict")]
    for text in texts:
        if text.startswith("Nothing is drawn of "):
            continue
        assert len(text) <= LIMIT, f"{len(text)}: {text}"
        assert re.match(
            r"(Line chart|Ridge plot|Pairs of bar charts|Dot plot|Forest plot|Of one trial)", text
        ), text
        first = text.partition(". ")[0]
        assert "(across" in first or "bar charts" in first or "Forest" in first, text
        assert text.endswith(".") and len(re.findall(r"\d", text.removeprefix(first))) > 3, text
        assert not re.search(r"nan|None|  |\n|–[^\d]|\(\)|\.\.|; \.|, \.", text), text
        assert not UNREADABLE.search(text), text
        assert "reference" not in text


def test_an_unknown_figure_is_one_sentence(tables: Tables) -> None:
    for name, subject in (("nope", tables), ("verdict-cpu", tables), ("cpu-peaks", probed_case())):
        with pytest.raises(LabError, match=rf"^There is no figure '{name}' for .*\.$"):
            text_of(name, subject)


@pytest.mark.parametrize("name", OF_A_RUN)
def test_a_figure_without_data_has_the_sentence_that_it_shows(name: str) -> None:
    of_rates = name in RATES_FIGURES or name == "cpu-peaks"
    run = tables_of("rates" if of_rates else "three of a database")
    failed = replace(run, trials=run.trials.assign(status="failed"))
    said, _, reason = text_of(name, failed).partition(". ")
    assert said.startswith("Nothing is drawn of ")
    assert "was sealed" in reason and reason in words(picture(name, failed))
    none = replace(run, trials=run.trials.iloc[:0])
    assert "This run has no" in text_of(name, none)


def test_percentiles_are_those_of_the_lines(tables: Tables) -> None:
    text = text_of("latency-spectrum", tables)
    figure = picture("latency-spectrum", tables)
    assert order(text, synthetic_run.THREE) == ["nginx", "axum", "gin"]
    for server in synthetic_run.THREE:
        ((x, ms),) = drawn(figure, server)
        at = {mark: number(float(ms[np.argmin(abs(x - mark))])) for mark in (10, 1000)}
        assert after(text, server) == [at[10], at[1000]]
    assert "p90 values" in text and "p99.9 values" in text and "generator-bound 9 of 9" in text


def test_medians_and_ends_are_those_of_the_ridges(tables: Tables) -> None:
    text, (ax,) = text_of("latency-density", tables), picture("latency-density", tables).axes
    assert order(text, synthetic_run.THREE) == ["nginx", "axum", "gin"]
    outlines = [
        np.asarray(line.get_xdata(), float) for line in ax.lines if len(line.get_xdata()) > 2
    ]
    # The ridges are drawn from the bottom to the top, so the last server comes first. The outline
    # of a ridge begins and ends with an empty bin.
    for server, x in zip(("nginx", "gin", "axum"), outlines, strict=True):
        median = number(synthetic_run.THREE[server][3])
        assert f"{server} {median} ms ({number(x[1])} to {number(x[-2])})" in text
    assert [label.get_text() for label in ax.texts] == ["200 ms", "280 ms", "250 ms"]


def test_rates_are_those_of_the_lines_and_pale_ones_are_named(tables: Tables) -> None:
    text = text_of("requests-over-time", tables)
    figure = picture("requests-over-time", tables)
    assert order(text, SCALES) == ["axum", "nginx", "gin"]
    for server, scale in SCALES.items():
        ((_, rps),) = drawn(figure, server)
        rps = rps[np.isfinite(rps)]
        mean = scale * gmean([8820, 9000, 9180])
        assert f"{server} {mean:,.0f}/s ({number(rps.min())} to {number(rps.max())})" in text
        assert np.median(rps) == pytest.approx(9000 * scale, rel=0.06)
    assert "; all are pale" in text
    bound = tables.trials["verdict"].where(tables.trials["server"] != "gin", "server-bound")
    text = text_of(
        "requests-over-time", replace(tables, trials=tables.trials.assign(verdict=bound))
    )
    assert "; pale are axum and nginx everywhere" in text


def test_typical_use_over_time_is_that_of_the_lines(tables: Tables) -> None:
    text = text_of("cpu-over-time", tables)
    figure = picture("cpu-over-time", tables)
    assert order(text, SCALES) == ["gin", "axum", "nginx"]
    for server in SCALES:
        ((_, used),) = drawn(figure, server)
        known = used[np.isfinite(used)]
        ends = f"({number(known.min())} to {number(known.max())})"
        assert f"{server} {number(float(np.median(known)))} % {ends}" in text
    assert "the generator's typical uses of axum, gin and nginx are all 99.0 %" in text
    unsampled = tables.resources[~tables.resources["trial_id"].str.startswith("gin")]
    assert "; nothing is known of gin" in text_of(
        "cpu-over-time", replace(tables, resources=unsampled)
    )


def test_peaks_at_a_rate_are_said_as_they_are_drawn() -> None:
    rates = tables_of("rates")
    factor = rates.trials["server"].map({"axum": 0.5, "gin": 1.0, "echo": 0.8}).fillna(1.0)
    columns = ("server_cpu_peak_1s_pct", "server_cpu_peak_100ms_pct", "server_cpu_ms_per_request")
    scaled = {name: rates.trials[name] * factor for name in columns}
    unlike = replace(rates, trials=rates.trials.assign(**scaled))
    text = text_of("cpu-peaks", unlike)
    figure = picture("cpu-peaks", unlike)
    costs, peaks, fine = re.split(
        "the peaks are|the 0.1 s peaks are", text.split("the costs are")[1]
    )
    ranked = ["axum", "echo", "gin"]
    for panel, clause in enumerate((peaks, fine, costs)):
        assert order(clause, ranked) == ranked
        for server in ranked:
            (dot,) = dots(figure, panel, server)
            assert after(clause, server) == [number(dot.value)]


@pytest.mark.parametrize(
    ("name", "best", "faint"),
    [
        ("wrk-requests", max, "pale are axum and gin at 1, nginx everywhere"),
        ("wrk-cpu-per-request", min, ""),
        ("inserts-by-pool-size", max, "pale are axum and gin at 4, echo everywhere"),
        ("inserts-latency-by-pool-size", min, "pale are axum and gin at 4, echo everywhere"),
    ],
)
def test_points_have_each_servers_best_and_what_is_pale(
    name: str, best: "type[max]", faint: str
) -> None:
    run = "three of a database"
    ranked = ["axum", "gin", "echo"]
    at = 64
    count = 1
    if name.startswith("wrk"):
        run = "one load"
        ranked = ["nginx", "axum", "gin"]
        at = 100
        count = 2
    text = text_of(name, tables_of(run))
    figure = picture(name, tables_of(run))
    assert order(text, ranked) == ranked
    assert faint in text if faint else "pale" not in text.lower()
    for server in ranked:
        panels = [[dot[0] for dot in panel.values()] for panel in points(figure, server)]
        if name.startswith("wrk"):
            panels = [[dot.value for dot in side] for side in matrix(figure, server)]
        values = [number(best(panel)) for panel in panels]
        assert len(panels) == count and after(text, server) == values
        assert re.search(rf"{server} {re.escape(values[0])}(/s| ms) at {at}\b", text)
    if name == "wrk-requests":
        assert not any(dot.is_filled for side in matrix(figure, "nginx") for dot in side)


@pytest.mark.parametrize("name", [name for name in STORED_FIGURES if "pool-size" not in name])
def test_ramps_have_the_highest_and_the_lowest_peak(name: str) -> None:
    text, figure = (show(name, tables_of("three of a database")) for show in (text_of, picture))
    for panel in range(len(figure.axes)):
        peaks = {}
        for server in synthetic_database.THREE:
            ((_, value),) = lines(figure, panel, server)
            peaks[server] = float(np.nanmax(value))
        high, low = (number(end(peaks.values())) for end in (max, min))
        found = rf"peaks (run from \w+ {high}\S*( \S+)? to \w+ {low}|of [\w, ]+ are all {high})"
        assert re.search(found, text), (panel, high, low)


def test_ramps_say_what_was_sustained_and_who_was_the_limit() -> None:
    stored = tables_of("three of a database")
    text = text_of("inserts-over-time", stored)
    assert (
        "sustained to 5,000/s: axum; sustained to 4,000/s: gin (limit: server); "
        "sustained to 3,500/s: echo (limit: generator)"
    ) in text
    assert "server CPU peaks" in text and "(dashed: 100 %)" in text
    unsustained = replace(
        stored, throughput=stored.throughput.assign(failed=stored.throughput["requests"])
    )
    assert "never sustained: axum (limit: none), echo (limit: generator)" in text_of(
        "inserts-over-time", unsustained
    )
    assert "(dashed: 50.0)" in text_of("inserts-pool-and-memory", stored)


def test_sweeps_have_knee_and_ends_as_drawn() -> None:
    text, figure = (show("rates-latency", tables_of("rates")) for show in (text_of, picture))
    assert len(drawn(figure, "knee")) == 3
    for server, p90, knee in zip(
        ("axum", "echo", "gin"), points(figure, "p90"), drawn(figure, "knee"), strict=True
    ):
        at = float(knee[0][0])
        first, last = (f"{number(p90[rate][0])} ms at {rate:,.0f}/s" for rate in (min(p90), at))
        assert f"{server} {first} to {last}" in text
        whose = ", the generator's" if server == synthetic_rates.LIMITED_BY_K6 else ""
        assert f"knee at {at:,.0f}/s{whose}; sustained to " in text
    assert (
        text.count("sustained to 6,000/s; then: server")
        == text.count("sustained to 3,000/s; then: generator")
        == 1
    )


def test_objectives_have_the_marks_highest_first() -> None:
    text, figure = (show("rates-objective", tables_of("rates")) for show in (text_of, picture))
    found = {server: float(drawn(figure, server)[0][0][0]) for server in synthetic_rates.THREE}
    assert sorted(found, key=lambda server: -found[server]) == ["axum", "gin", "echo"]
    assert order(text.replace("at least ", ""), list(found)) == ["axum", "gin", "echo"]
    for server in ("axum", "gin"):
        assert f"{server} {found[server]:,.0f} (" in text
    assert f"echo at least {found['echo']:,.0f} (k6 was the limit)" in text
    assert "(7 more between)" in text_of("rates-objective", tables_of("nine rates"))


def test_two_clients_have_the_drawn_medians_and_their_ratio() -> None:
    text, figure = (show("verdict-two-clients", probed_case()) for show in (text_of, picture))
    ours, probes = (float(drawn(figure, f"median of {name}")[0][0][0]) for name in ("k6", "probe"))
    assert f"k6's median is {number(ours)} ms, the probe's {number(probes)} ms" in text
    assert (
        f"{number(ours / probes)} times as long" in text
        and "gin under “experiments, N = 2931”" in text
    )
    dots = max((y for _, y in drawn(figure, "probe")), key=len)
    assert (
        f"{len(dots):,} requests of the probe took {number(dots.min())} to {number(dots.max())} ms"
        in text
    )
    assert "There was no probe." in text_of(
        "verdict-two-clients", replace(probed_case(), probe=None)
    )


def test_sides_are_said_with_what_they_were_given() -> None:
    text, figure = (show("verdict-cpu", probed_case()) for show in (text_of, picture))
    ((_, used),) = drawn(figure, "server")
    over_time = f"({number(used.min())} to {number(used.max())} over time)"
    assert (
        f"Server: gin: 90.0 % on the average, of 100 % given {over_time}; Generator: k6: 99.0 %"
        in text
    )


def test_nine_servers_have_the_extremes_and_a_count() -> None:
    nine = tables_of("nine")
    text = text_of("cpu-peaks", tables_of("nine rates"))
    assert "are all 0.100 ms" in text and "of 9 servers" in text
    medians = text_of("latency-density", nine)
    assert order(medians.split("In “")[1], list(synthetic_run.NINE)) == ["nginx", "echo"]
    rates = text_of("wrk-requests", nine)
    highest = 97_500 * gmean([0.98, 1, 1.02])
    assert f"from nginx {highest:,.0f}/s at 100 to" in rates and "of 36 points are pale" in rates
    sweeps = text_of(
        "rates-latency", tables_of("nine rates")
    )  # six servers met no limit at any of the rates, so they have no knee
    assert (
        "(7 more between)" in sweeps
        and "knee: none up to 8,000/s; sustained to 8,000/s (6 servers)" in sweeps
    )
    assert "2 servers otherwise" in sweeps


def test_loads_that_do_not_fit_are_counted() -> None:
    nine = tables_of("nine")
    one = nine.trials[nine.trials["load"] == "experiments, N = 3000"]
    loads = [
        one.assign(load=f"experiments, N = {users}", load_order=users) for users in range(1, 13)
    ]
    text = text_of("latency-density", replace(nine, trials=pd.concat(loads, ignore_index=True)))
    left = re.search(r"(\d+) more loads are not described here", text)
    assert left and len(text) <= LIMIT
    assert len(re.findall(r"In “experiments, N = \d+”", text)) + int(left[1]) == 12


# --- alt texts on pages ---------------------------------------------------------------------------

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)


def test_special_characters_reach_the_page_as_they_are(tmp_path: Path) -> None:
    text = 'Dot plot of “p99 <= 10 ms”, a "quoted" name & an <img src=x onerror=alert(1)>.'
    output = nbformat.v4.new_output(
        "display_data", {"image/png": PNG}, metadata={"image/png": {"alt": text}}
    )
    cell = nbformat.v4.new_code_cell("report.show_figure()", outputs=[output])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "executed.ipynb")
    notebooks.export_html(tmp_path / "executed.ipynb", tmp_path / "page.html")
    assert alts(tmp_path / "page.html") == [text]


def test_every_table_that_a_text_points_to_is_on_the_page() -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        lines = "\n".join(cells(path.stem, "markdown")).splitlines()
        heads = {line.lstrip("# ") for line in lines if line.startswith("#")}
        shown = re.findall(r'report\.show_figure\("([a-z0-9-]+)"\)', " ".join(cells(path.stem)))
        assert {charts()[name].table for name in shown} - {""} <= heads, path.name


@pytest.mark.long
def test_the_page_of_a_run_carries_the_texts(bare_lab: Path, tmp_path: Path) -> None:
    synthetic_rates.build(bare_lab / "data" / "sample", blocks=2, closed=False)
    executed = tmp_path / "executed.ipynb"
    page = tmp_path / "rates.html"
    notebooks.execute(ROOT / "notebooks" / "rates.ipynb", {"run": "sample"}, executed)
    notebooks.export_html(executed, page)
    tables = read(bare_lab / "data" / "sample")
    shown = notebooks.figures_shown(executed) or []
    assert sorted(shown) == sorted(charts("rates"))
    assert alts(page) == [
        text_of(name, tables) + " For a table see “The answer”." for name in shown
    ]
    assert "p99 <= 10 ms" in " ".join(alts(page)) and "p99 <= 10 ms" not in page.read_text()


def test_a_figure_of_one_trial_is_described_by_that_trial(tmp_path: Path) -> None:
    shown: list[Image] = []
    case = probed_case()
    report = pages.open_report(str(case.tables.folder.path), case.trial_id)
    report.display = shown.append
    report.figures = tmp_path
    subjects = {"verdict-cpu": case, "requests-over-time": case.tables}
    for name in subjects:
        report.show_figure(name)
    assert [image.alt for image in shown] == [
        text_of(name, subject) + charts()[name].place for name, subject in subjects.items()
    ]
