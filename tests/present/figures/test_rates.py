"""Tests of sweeps over rates, and of searches for the highest rate.

A sweep must find the known knee, the brackets of searches must have the right medians, and the
limit must be named.
"""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import synthetic_rates
from figure_checks import changed, dots, lines, marks, picture, tables_of, text_of, words
from known_means import known_mean
from scipy.stats import gmean

from runner.present.chart.value import charts, made
from runner.present.comparison import searches
from runner.present.figures import sweeps
from runner.present.figures.sweeps import Sweep, knee
from runner.present.frames import Tables
from runner.present.look.numbers import number

RATES_FIGURES = charts("rates")
RATES = np.array(synthetic_rates.RATES_RPS)


@pytest.fixture(scope="module")
def tables() -> Tables:
    """Return a run of three servers in six blocks, without closed loads."""
    return tables_of("rates")


def swept_axum(tables: Tables) -> pd.DataFrame:
    return sweeps.swept(tables).query("server == 'axum' and status == 'sealed'")


@pytest.mark.parametrize("capacity", [1000.0, 4321.0, 20_000.0])
def test_the_knee_of_one_queue_is_half_of_its_capacity(capacity: float) -> None:
    # By Kleinrock (1979), the power (rate / response time) of an M/M/1 system is greatest at the
    # rate at which the system holds one request on average. This rate is half of its capacity.
    offered = np.linspace(capacity / 100, capacity * 0.99, 99)
    for quantile in (0.5, 0.9, 0.99):
        ms = 1000 * -np.log(1 - quantile) / (capacity - offered)
        assert knee(offered, ms, np.ones(99)).rate_rps == pytest.approx(capacity / 2, rel=0.011)


def test_a_flat_curve_has_its_knee_at_the_last_sustained_rate() -> None:
    ms = np.where(RATES <= 4000, 2.0, 900.0)
    assert knee(RATES, ms, RATES <= 4000).rate_rps == 4000
    # Here 8,000/s was sustained, but a lower rate was not. So 8,000/s does not count, because a
    # user who raises the rate meets the lower rate first.
    assert knee(RATES, ms, (RATES <= 4000) | (RATES == 8000)).rate_rps == 4000


@pytest.mark.parametrize(
    ("offered", "ms", "sustained", "why"),
    [
        (RATES, np.full(9, 2.0), np.ones(9), "none up to 8,000/s"),
        (RATES, RATES**2, np.ones(9), "at or below 250/s"),
        (RATES, np.full(9, 900.0), np.zeros(9), "below 250/s"),
        (RATES, np.full(9, np.nan), np.ones(9), "too few requests"),
        ([500.0, 1000.0], [1.0, 2.0], [1, 1], "too few rates (2)"),
    ],
)
def test_no_knee_is_an_answer(
    offered: list[float], ms: list[float], sustained: list[float], why: str
) -> None:
    found = knee(offered, ms, sustained)
    assert math.isnan(found.rate_rps) and found.why == why


def test_noise_moves_the_knee_by_one_rate_at_most() -> None:
    """Noise rarely moves the knee beyond the next lower or higher rate of the sweep.

    The first line of the table about the knee in docs/method-evidence.md says so.
    """
    rng = np.random.default_rng(7)
    capacity = 5500.0
    near = []
    made = []
    load = np.minimum(RATES / capacity, 0.98)
    stable = RATES / capacity < 0.98
    shapes = [
        0.2 + 2.3 / (capacity * (1 - load)) * 1000,
        0.6 * (1 + 0.6 * load**8 / (1 - load)),
        (0.2 + 2.3 / (capacity * (1 - load)) * 1000) * (1 + 1.5 * np.exp(-RATES / 400)),
        0.6 * (1 + 2 * load**3 / (1 - load)),
    ]
    for shape in shapes:
        exact = int(np.flatnonzero(knee(RATES, shape, stable).rate_rps == RATES)[0])
        for _ in range(500):
            noise = np.exp(0.15 * rng.standard_normal((3, 9))) * np.where(
                rng.random((3, 9)) < 0.1, 2.0, 1.0
            )
            ms = np.median(shape * noise, axis=0)
            near.append(
                abs(int(np.flatnonzero(knee(RATES, ms, stable).rate_rps == RATES)[0]) - exact) <= 1
            )
            made.append(math.isfinite(knee(RATES[:4], ms[:4], stable[:4]).rate_rps))
    assert np.mean(near) > 0.99
    assert np.mean(made) < 0.03


def test_the_knees_of_a_sweep_and_what_was_the_limit_beyond(tables: Tables) -> None:
    # A server's knee is at the rate at which rate x (capacity - rate) is largest. For axum this
    # product is 14 million at 4,000/s, 13.5 million at 3,000/s and 12.5 million at 5,000/s, so the
    # knee is at 4,000/s.
    expected = {
        "knee, requests/s": ("4,000", "2,000", "2,000"),
        "knee by block": ("4,000–4,000 (6)", "2,000–2,000 (6)", "2,000–2,000 (6)"),
        "limit beyond the knee": ("server", "server", "generator"),
        "sustained up to": ("6,000", "4,000", "3,000"),
        "limit beyond": ("server", "server", "generator"),
        "response times compare up to": ("5,000", "3,000", "2,000"),
    }
    table = sweeps.knee_table(tables).set_index("server").loc[["axum", "gin", "echo"]]
    assert {name: tuple(table[name]) for name in expected} == expected


def test_a_knee_belongs_to_the_first_limit_beyond_it(tables: Tables) -> None:
    """The note names the generator if the generator is the first limit above the knee.

    It does so even if no trial meets a limit at the first rate above the knee, and only some trials
    meet a limit at the second rate above the knee.
    """
    axum = swept_axum(tables)
    axum.loc[axum["rate_rps"] >= 6000, "verdict"] = "generator-bound"
    assert Sweep(axum).knee_note == "knee at 4,000/s, the generator's"
    axum.loc[axum[axum["rate_rps"] == 6000].index[:4], "verdict"] = (
        "offered"  # now only two of the six trials met a limit
    )
    assert Sweep(axum).knee_note == "knee at 4,000/s, the generator's"
    axum.loc[axum["rate_rps"] == 6000, "verdict"] = "server-bound"
    assert Sweep(axum).knee_note == "knee at 4,000/s"
    axum.loc[axum["rate_rps"] >= 5000, "verdict"] = "offered"
    assert Sweep(axum).knee_note == "knee at 4,000/s"


def test_curves_have_the_known_percentiles_up_to_the_sample(tables: Tables) -> None:
    axum = swept_axum(tables)
    curve = Sweep(axum).curves.set_index(["series", "rate_rps"])
    # Each block has a factor (0.98, 1.00 or 1.02), by which all its response times are multiplied.
    blocks = np.array([synthetic_rates.factor(block) for block in range(1, 7)])
    for series, quantile in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        found = curve.loc[(series, 3000.0), ["mean", "low", "high"]]
        each_ms = 1000 * -np.log(1 - quantile) / 4500 * blocks
        assert found.tolist() == pytest.approx(known_mean(each_ms))
    probe = curve.loc[("probe p50", 3000.0), "mean"]
    assert probe == pytest.approx(synthetic_rates.PROBE_MS * gmean(blocks), rel=1e-3)
    few = Sweep(axum[axum["block"] <= 3]).curves.set_index(["series", "rate_rps"])
    low, high = few.loc[("p50", 3000.0), ["low", "high"]]
    assert (low, high) == pytest.approx(
        (1000 * np.log(2) / 4500 * 0.98, 1000 * np.log(2) / 4500 * 1.02)
    )
    # In a trial of 2,500 requests, 25 are beyond the p99. Six such trials together have enough
    # requests for a p99, but three do not.
    assert ("p99", 250.0) in curve.index
    assert ("p99", 250.0) not in Sweep(axum[axum["block"] <= 3]).curves.set_index(
        ["series", "rate_rps"]
    ).index


def test_a_rate_is_sustained_only_if_most_trials_sustain_it(tables: Tables) -> None:
    axum = swept_axum(tables)
    for unsustained, is_sustained in ((2, True), (3, False)):
        trials = axum.copy()
        rows = trials[axum["rate_rps"] == 2000].index[:unsustained]
        trials.loc[rows, ["sustained", "verdict"]] = [0.0, "inconclusive"]
        row = Sweep(trials).outcomes.set_index("rate_rps").loc[2000.0]
        assert bool(row["sustained"]) is is_sustained
        assert not row["offered"] and row["letter"] == "?"


def test_points_show_what_was_offered_limited_and_not_sustained(tables: Tables) -> None:
    figure = picture("rates-latency", tables)
    names = [text.get_text() for text in figure.texts]
    assert [name for name in names if name in synthetic_rates.THREE] == ["axum", "echo", "gin"]
    points = marks(figure, 0, "p90")
    assert [points[rate][2:] for rate in (250.0, 5000.0, 6000.0)] == [
        ("o", True),
        ("o", True),
        ("o", False),
    ]
    assert (points[8000.0][0], points[8000.0][2]) == (1500.0, "x")
    blocks = [synthetic_rates.factor(block) for block in range(1, 7)]
    assert points[4000.0][0] == pytest.approx(1000 * np.log(10) / 3500 * gmean(blocks))
    ((x, _),) = lines(figure, 0, "knee")
    assert x[0] == 4000
    assert [text.get_text() for text in figure.axes[1].texts if text.get_text() in {"S", "G"}] == [
        "G",
        "G",
        "G",
    ]
    assert marks(figure, 0, "probe p95").keys() == set(RATES)
    said = words(figure)
    for text in (
        "knee at 2,000/s, the generator's",
        "sustained to 6,000/s; then: server",
    ):
        assert text in said
    assert "reference" not in said


def at_rates(tables: Tables, *rates_rps: float) -> Tables:
    """Return the run with only the trials at these rates."""
    return replace(tables, trials=tables.trials[tables.trials["rate_rps"].isin(rates_rps)])


def test_one_rate_is_a_dot_plot_without_a_knee(tables: Tables) -> None:
    one = at_rates(tables, 2000.0)
    figure = picture("rates-latency", one)
    (panel,) = figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["axum", "gin", "echo"]
    blocks = gmean([synthetic_rates.factor(block) for block in range(1, 7)])
    for server in synthetic_rates.THREE:
        known = [synthetic_rates.quantile_ms(server, 2000.0, q) * blocks for q in (0.5, 0.9, 0.99)]
        assert [dot.value for dot in dots(figure, 0, server)] == pytest.approx(known)
    curves = [line for line in panel.lines if line.get_label() != "range"]
    assert all(len(line.get_xdata()) == 1 for line in curves)
    assert "nee" not in words(figure) + text_of("rates-latency", one)


def test_a_number_stands_beside_its_own_dot(tables: Tables) -> None:
    for name in ("rates-latency", "cpu-peaks"):
        for ax in picture(name, at_rates(tables, 2000.0)).axes:
            drawn = {
                (float(line.get_xdata()[0]), float(line.get_ydata()[0]))
                for line in ax.lines
                if line.get_label() in synthetic_rates.THREE
            }
            assert ax.texts and {text.xy for text in ax.texts} <= drawn
            for text in ax.texts:
                assert text.get_text().split()[-1] == number(text.xy[0])


def test_the_title_of_a_sweep_says_what_was_sustained(tables: Tables) -> None:
    assert made("rates-latency", tables).title == "axum sustains 6,000 requests/s, echo 3,000"
    echo = replace(tables, trials=tables.trials.query("server == 'echo'"))
    assert (
        made("rates-latency", echo).title
        == "echo sustains 3,000 requests/s; then the generator is the limit"
    )


def test_peaks_are_shown_at_the_highest_rate_that_all_sustained(tables: Tables) -> None:
    """Peaks are shown at the highest rate at which every server's verdict is "offered".

    In this run the verdict is "offered" up to 80 % of a server's capacity. echo has the smallest
    capacity, 3,500 requests/s, so peaks are shown at 2,000 requests/s.
    """
    chart = made("cpu-peaks", tables)
    assert chart.panels == ["rates: 2,000 requests/s"]
    blocks = chart.frame.set_index(["series", "server"])["y"]
    assert blocks["peak over 1 s"].tolist() == pytest.approx([55.0] * 3)
    assert blocks["peak over 0.1 s"].tolist() == pytest.approx([60.0] * 3)
    assert all(ax.get_xlim()[0] == 0 for ax in picture("cpu-peaks", tables).axes)


def test_no_peak_is_shown_of_a_server_on_a_quota(tables: Tables) -> None:
    for column, value in (("share", 0.1), ("quota_cores", 0.5)):
        held = replace(tables, trials=tables.trials.assign(**{column: value}))
        assert made("cpu-peaks", held).frame.empty
        assert "a peak on a share is the quota" in text_of("cpu-peaks", held)


def steps(*found: tuple[float, bool, str]) -> pd.DataFrame:
    rows = pd.DataFrame(found, columns=["rate_rps", "objective_kept", "verdict"])
    return rows.assign(
        objective_kept=rows["objective_kept"].astype(float), verdict_cause="", probe_p95_ms=3.0
    )


@pytest.mark.parametrize(
    ("verdict", "high"),
    [
        ("server-bound", 2000),
        ("offered", 2000),
        ("generator-bound", np.inf),
        ("inconclusive", np.inf),
        ("database-bound", np.inf),
    ],
)
def test_a_bracket_is_closed_only_by_the_servers_own_limit(verdict: str, high: float) -> None:
    shown = searches.outcome(
        steps(
            (4000, False, "server-bound"),
            (1000, True, "offered"),
            (2000, False, verdict),
            (1500, True, "offered"),
        )
    )
    assert (shown.low_rps, shown.high_rps, shown.probe_p95_ms) == (1500, high, 3.0)


def test_brackets_at_the_edges_of_the_search() -> None:
    open_end = searches.outcome(steps((4000, True, "offered")))
    assert (open_end.high_rps, open_end.limit) == (np.inf, searches.RANGE_ENDS)
    broken_at_once = searches.outcome(steps((500, False, "server-bound")))
    assert broken_at_once == searches.SearchOutcome(
        low_rps=0.0, high_rps=500.0, limit="server", probe_p95_ms=3.0
    )


def test_the_highest_rate_of_each_server_is_bracketed(tables: Tables) -> None:
    """The true highest rate of a server lies between the two medians that the table gives.

    Each search ends with a bracket: the highest rate that kept the objective, and the lowest rate
    that did not. The table gives the median of the lower ends, and the median of the upper ends.
    """
    table = searches.answers(tables).set_index("server")
    for server in ("axum", "gin"):
        limits = [synthetic_rates.limit(server, block) for block in range(1, 7)]
        row = table.loc[server]
        # Seven bisections of 250 to 16,000 requests/s leave a bracket whose ends differ by a factor
        # of (16,000 / 250) ** (1 / 2 ** 7) = 1.033.
        assert row["kept_rps"] <= np.median(limits) < row["broken_rps"] <= row["kept_rps"] * 1.04
        assert row["low_rps"] <= min(limits) and max(limits) < row["high_rps"]
        assert row["confidence"] == pytest.approx(1 - 2 / 2**6) and row["limit"] == "server"
    echo = table.loc["echo"]
    assert (
        echo["kept_rps"] <= 0.9 * 3500 * 1.03
        and echo["broken_rps"] == np.inf
        and echo["limit"] == "generator"
    )
    assert searches.words(echo.to_dict()) == f"at least {echo['kept_rps']:,.0f} (k6 was the limit)"
    assert searches.findings(tables) == [
        "rates, search for p99 <= 10 ms: the highest rate that kept the objective, in requests/s, "
        "as the median of the searches: "
        f"axum {table.loc['axum', 'kept_rps']:,.0f}; gin {table.loc['gin', 'kept_rps']:,.0f}; "
        f"echo at least {echo['kept_rps']:,.0f} (k6 was the limit)."
    ]
    figure = picture("rates-objective", tables)
    for server in synthetic_rates.THREE:
        ((x, _),) = lines(figure, 0, server)
        assert x[0] == table.loc[server, "kept_rps"]
    assert len(lines(figure, 0, "search")) == 18 and len(lines(figure, 0, "open")) == 1
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert any(text.startswith("≥ 3,") and text.endswith("k6 was the limit") for text in texts)


def test_open_ends_leave_the_median_open_only_if_they_move_it(tables: Tables) -> None:
    steps = tables.searches()
    gin = steps[(steps["server"] == "gin") & (steps["objective_kept"] == 0)]
    broken = tables.trials.index.isin(gin.index)
    whole = searches.answers(tables).set_index("server").loc["gin"]
    for blocks, known in (((5, 6), True), ((1, 2), True), ((1, 2, 3), False)):
        rows = broken & tables.trials["block"].isin(blocks)
        row = (
            searches.answers(changed(tables, rows, verdict="generator-bound"))
            .set_index("server")
            .loc["gin"]
        )
        assert row["kept_rps"] == whole["kept_rps"] and row["high_rps"] == np.inf
        assert (
            math.isfinite(row["broken_rps"]) is known and row["broken_rps"] >= whole["broken_rps"]
        )
        assert row["limit"] in {"server 4, generator 2", "generator 3, server 3"}


def test_few_searches_have_no_interval(tables: Tables) -> None:
    nine = tables_of("nine rates")
    column = "highest rate that kept it, requests/s"
    table = searches.printable(searches.answers(nine)).set_index("server")
    assert table["95 % interval"].str.contains("not enough trials").all()
    assert table.loc["hyper", column].endswith("(the search ended there)")
    assert "not enough trials for an interval" in searches.findings(nine)[0]
    kept = (tables.trials["server"] == "gin") & (tables.trials["objective_kept"] == 1)
    lost = changed(
        tables, kept & (tables.trials["objective"] != ""), status="failed", verdict="inconclusive"
    )
    without = searches.printable(searches.answers(lost)).set_index("server")
    assert without.loc["gin", column].startswith("less than ")


def test_open_loads_are_in_no_figure_of_closed_ones(tables: Tables) -> None:
    assert tables.of("k6").empty and tables.sealed("k6").empty
    assert tables.ramps(database=False).empty and tables.ramps(database=True).empty
    assert len(tables.sweeps()) == 3 * 9 * 6 and len(tables.searches()) == 3 * 7 * 6
    assert "no closed-load k6 trials" in words(picture("latency-spectrum", tables))
    assert (
        set(tables.sweeps()["sustained"]) == {0.0, 1.0}
        and tables.sweeps()["objective_kept"].isna().all()
    )
    plain = tables_of("three")
    for name, found in RATES_FIGURES.items():
        assert found.needs(tables) and not found.needs(plain)
        assert "This run has no" in words(picture(name, plain))
