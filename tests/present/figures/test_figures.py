"""Tests of the numbers, the texts and the files of figures.

The numbers must be right, and the texts must be readable. The files must be the same everywhere,
byte for byte.
"""

import hashlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import synthetic_database
import synthetic_run
from built import ROOT
from figure_checks import dots, folder_of, lines, picture, read, readable, tables_of, words
from marking import long_but
from PIL import Image
from scipy.stats import gmean, lognorm

from runner.columns import columns
from runner.model import LabError
from runner.present.answers import inserts
from runner.present.chart.drawing import draw
from runner.present.chart.sentences import describe
from runner.present.chart.value import ServerLoad, charts, made
from runner.present.figures import closed_loads, seconds, slices
from runner.present.frames import Tables, read_tables, sealed_trials
from runner.present.look import captions, palette, style
from runner.present.look.numbers import number
from runner.store import RunFolder

FIGURES = charts("report")
STORED = charts("postgres")


@pytest.fixture(scope="module")
def tables() -> Tables:
    return tables_of("three")


@pytest.mark.parametrize(("server", "median"), [("axum", 250.0), ("gin", 280.0), ("nginx", 200.0)])
def test_spectrum_has_the_known_percentiles(tables: Tables, server: str, median: float) -> None:
    ((x, ms),) = lines(picture("latency-spectrum", tables), 0, server)
    known = lognorm(synthetic_run.SIGMA, scale=median).ppf(1 - 1 / x)
    assert np.allclose(ms, known, rtol=0.01)
    # The trial with the fewest requests has 264,600. The line ends at the percentile beyond which
    # 100 of these requests lie: 1 - 100/264600 = 99.962 %.
    assert 99.95 < 100 - 100 / x[-1] <= 100 - 100 * 100 / 264_600


def test_spectrum_names_percentiles_and_its_finding(tables: Tables) -> None:
    figure = picture("latency-spectrum", tables)
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert ticks == ["50", "90", "99", "99.9"]
    assert figure.axes[0].get_xlabel() == "percentile of the requests"
    # For each server, the p99.9 of these log-normal latencies is 5.47 times the median. So the
    # ratio of two p99.9 is the ratio of the two medians. The load with nginx has the ratio
    # 280/200 = 1.40, and the load without nginx has the ratio 280/250 = 1.12.
    assert (
        made("latency-spectrum", tables).title
        == "k6 is the limit: the slowest server's p99.9 is 1.12 to 1.40 times the fastest's"
    )


def test_density_peaks_at_the_mode_and_sums_to_all_requests(tables: Tables) -> None:
    frame = made("latency-density", tables).frame
    rows = frame[(frame["panel"] == "experiments, N = 3000") & (frame["server"] == "gin")]
    assert rows["y"].sum() == pytest.approx(100)
    # The logarithm of a log-normal latency has a symmetric distribution, so its peak is at the
    # median.
    assert rows.loc[rows["y"].idxmax(), "x"] == pytest.approx(280, rel=0.06)


def test_rate_over_time_has_the_known_rate(tables: Tables) -> None:
    figure = picture("requests-over-time", tables)
    ((t_s, rps),) = lines(figure, 1, "gin")  # panel 0 is axum's, panel 1 gin's, panel 2 nginx's
    assert rps.mean() == pytest.approx(9000, rel=0.005)
    assert rps.max() == pytest.approx(9000 * 1.05, rel=0.005)
    assert np.allclose(np.diff(t_s), 1.0)
    # The second load lasts 12 s and has panels for two servers. Here, too, a bin is 1 s wide.
    ((fine, _),) = lines(figure, 4, "gin")
    assert np.allclose(np.diff(fine), 1.0)
    assert figure.axes[0].get_ylim()[0] == 0


def test_empty_bins_are_0_and_a_partial_last_bin_is_left_out() -> None:
    trials = pd.DataFrame({"trial_id": ["a"]})
    bins = pd.DataFrame(
        {"trial_id": "a", "t_s": [0.0, 0.1, 0.30000000000000004, 0.5], "requests": [10, 10, 30, 1]}
    )
    assert closed_loads.rates(trials, bins, 0.1)["a"].tolist() == [100.0, 100.0, 0.0, 300.0, 0.0]


def test_cpu_over_time_has_the_burst_and_ends_with_the_load(tables: Tables) -> None:
    figure = picture("cpu-over-time", tables)
    # axum uses 45 % under `experiments`, and 1.3 times as much for one second from BURST_AT_S on.
    ((t_s, used),) = lines(figure, 0, "axum")
    assert np.median(used) == pytest.approx(45, rel=0.01)
    burst = synthetic_run.BURST_AT_S + 0.5
    assert used[np.argmin(np.abs(t_s - burst))] == pytest.approx(45 * 1.3, rel=0.01)
    assert t_s.max() <= 30
    # The sampler continues after the load, until the generator has ended. The figure does not draw
    # the server's CPU use after the load.
    trial = tables.sealed("k6").iloc[0]
    rows = tables.resources[
        (tables.resources["trial_id"] == trial["trial_id"]) & (tables.resources["t_s"] > 0)
    ]
    after = rows.assign(t_s=rows["t_s"] + trial["duration_s"], cpu_pct=1.0)
    longer = replace(tables, resources=pd.concat([tables.resources, after], ignore_index=True))
    for before, drawn in zip(
        figure.axes[0].lines, picture("cpu-over-time", longer).axes[0].lines, strict=True
    ):
        assert np.array_equal(before.get_xydata(), drawn.get_xydata(), equal_nan=True)


def test_cpu_over_time_labels_the_quota(tables: Tables) -> None:
    """The CPU that a trial may use is drawn as a line, with a label at the height of the line."""
    for share, label in ((0.5, "quota 50 %"), (1.0, "1 CPU")):
        held = replace(tables, trials=tables.trials.assign(share=share))
        for ax in picture("cpu-over-time", held).axes:
            ((_, height),) = [
                (line.get_xdata(), float(line.get_ydata()[0]))
                for line in ax.lines
                if line.get_label() == "given"
            ]
            assert height == 100 * share
            assert [(text.get_text(), text.xy[1]) for text in ax.texts] == [(label, height)]


def sliced(tables: Tables, tmp_path: Path) -> Tables:
    """Return the run with a table of slices, as if each trial of 30 s had three slices of 10 s."""
    trials = tables.sealed("k6").query("workload == 'experiments'")
    rows = [
        {"trial_id": row["trial_id"], "place": place, "kept": True, "duration_s": 10.0}
        for row in trials.to_dict("records")
        for place in (1, 2, 3)
    ]
    folder = RunFolder(tmp_path)
    folder.tables.mkdir()
    every = pd.DataFrame(rows).reindex(columns=[each.name for each in columns("slices")])
    every.to_parquet(folder.table("slices"))
    return replace(tables, folder=folder)


@pytest.mark.parametrize("name", ["requests-over-time", "cpu-over-time"])
def test_slices_are_drawn_apart(name: str, tables: Tables, tmp_path: Path) -> None:
    """Each slice of a trial is drawn as a line of its own, whose seconds begin at 0."""
    frame = made(name, sliced(tables, tmp_path)).frame
    gin = frame[(frame["panel"] == "experiments, N = 3000") & (frame["server"] == "gin")]
    known = gin.dropna(subset="y")
    assert sorted(known["number"].unique()) == [1, 2, 3]
    for _, rows in known.groupby("number"):
        assert (rows["x"] - rows["begin"]).iloc[0] == 0.5
    begins = np.sort(gin["begin"].unique())
    assert (np.diff(begins) > (known["x"] - known["begin"]).max()).all()
    # A row without a value breaks the line after each slice.
    assert gin["y"].isna().sum() == 3
    assert not made(name, tables).frame["number"].gt(1).any()


def test_slices_have_the_rates_of_their_own_seconds(tables: Tables, tmp_path: Path) -> None:
    whole = made("requests-over-time", tables).frame
    apart = made("requests-over-time", sliced(tables, tmp_path)).frame
    values = [
        frame[frame["panel"].eq("experiments, N = 3000") & frame["server"].eq("gin")]["y"].dropna()
        for frame in (whole, apart)
    ]
    # The last bin of a slice usually covers less than a second, so it is left out.
    kept = [second for second in range(29) if second % 10 != 9]
    assert values[1].tolist() == pytest.approx(values[0].iloc[kept].tolist(), rel=1e-9)


def test_a_band_is_the_middle_half_from_four_trials_on() -> None:
    cell = ServerLoad("load", "gin", pd.DataFrame())
    values = pd.DataFrame([[1.0, 2.0, 3.0, 4.0, 100.0]], index=[0.5])
    few = slices.curve(cell, {1: values.iloc[:, :3]}).iloc[0]
    many = slices.curve(cell, {1: values}).iloc[0]
    assert (few["low"], few["y"], few["high"]) == (1.0, 2.0, 3.0)
    assert (many["low"], many["y"], many["high"]) == (2.0, 3.0, 4.0)


def test_matrix_has_means_ranges_and_hollow_points(tables: Tables) -> None:
    figure = picture("wrk-requests", tables)
    # the panels with kept connections are on the left
    found = [dots(figure, panel, "gin")[0] for panel in range(0, 8, 2)]
    blocks = gmean([0.98, 1, 1.02])
    assert [dot.value for dot in found] == pytest.approx(
        blocks * np.array([16130.4, 51324.0, 73320.0, 65988.0])
    )
    assert found[2].high - found[2].low == pytest.approx(73320 * 0.04)
    # With one connection, the generator was the limit, so the dot is hollow. With more connections,
    # the server was the limit.
    assert [dot.is_filled for dot in found] == [False, True, True, True]
    said = words(figure)
    assert all(name in said for name in ("1 connection ", "10 connections", "1,000 connections"))


def test_matrix_has_one_axis_for_all_panels(tables: Tables) -> None:
    for name in ("wrk-requests", "wrk-cpu-per-request"):
        limits = {ax.get_xlim() for ax in picture(name, tables).axes}
        assert len(limits) == 1 and limits.pop()[0] == 0


def test_matrix_has_the_fastest_server_on_top(tables: Tables) -> None:
    """The figure of wrk's rates has the fastest server on top, and each dot has its number."""
    for ax in picture("wrk-requests", tables).axes[::2]:
        assert [label.get_text() for label in ax.get_yticklabels()] == ["nginx", "axum", "gin"]
        drawn = {line.get_label(): float(line.get_xdata()[0]) for line in ax.lines}
        for text in ax.texts:
            server = ("nginx", "axum", "gin")[int(text.xy[1])]
            assert text.get_text() == number(drawn[server]) and text.xy[0] == drawn[server]


def test_a_disturbed_attempt_is_no_trial_left_out() -> None:
    """If a later attempt of a trial was sealed, the trial is not counted as left out.

    The disturbed attempt of the trial is counted as repeated.
    """
    names = [
        "b01-gin-static",
        "b01-gin-static.a2",
        "b02-gin-static",
        "b03-gin-static",
        "b03-gin-static.a2",
    ]
    status = ["failed", "sealed", "sealed", "failed", "failed"]
    attempt = [1.0, 2.0, 1.0, 1.0, 2.0]
    trials = pd.DataFrame(
        {"trial_id": names, "server": "gin", "load": "static", "status": status, "attempt": attempt}
    )
    words = (
        "2 trials, 2 per server and load; 2 disturbed attempts repeated; 1 failed trial left out"
    )
    assert captions.trial_counts(trials) == words


def test_what_a_ramp_leaves_to_be_answered_is_no_rate() -> None:
    """Requests that are answered after the last step of a ramp are not part of any rate.

    The ramp has two steps of 0.2 s. The server then needs 0.1 s more to empty its queue.
    """
    trial = pd.DataFrame({"trial_id": ["a"], "duration_s": [0.5], "steps": [2.0], "step_s": [0.2]})
    bins = pd.DataFrame(
        {
            "trial_id": "a",
            "t_s": [0.0, 0.1, 0.2, 0.3, 0.4],
            "requests": [1, 2, 3, 4, 9],
            "failed": 0,
        }
    )
    found = seconds.answered(trial, SimpleNamespace(throughput=bins))
    assert found["value"].tolist() == [10.0, 20.0, 30.0, 40.0]
    assert found["t_s"].tolist() == pytest.approx([0.05, 0.15, 0.25, 0.35])


def test_a_caption_ends_with_its_source_and_no_more(tables: Tables) -> None:
    for name in ("latency-spectrum", "wrk-requests"):
        caption = made(name, tables).caption
        assert caption.splitlines()[-1] == f"Data: run {tables.manifest.run_id}."
        assert not re.search("Verdicts|Engine|Machine", caption)


def test_provenance_counts_trials_verdicts_and_failures(tables: Tables) -> None:
    text = captions.provenance(tables)
    for said in (
        "1 failed trial left out",
        "Verdicts: ",
        "Engine: process",
        "Example CPU @ 2.50GHz",
    ):
        assert said in text
    every = len(sealed_trials(tables.trials))
    assert text.startswith(f"Run {tables.manifest.run_id}") and f"{every} trials" in text


def test_files_of_figures_have_their_provenance(tables: Tables, tmp_path: Path) -> None:
    figure = picture("latency-spectrum", tables)
    png, svg = style.save(figure, tmp_path, "figure", "Run 1. Engine: docker.")
    with Image.open(png) as read:
        assert read.info["Description"] == "Run 1. Engine: docker."
    assert "Run 1. Engine: docker." in svg.read_text()


def test_headings_say_how_a_load_was_driven(tables: Tables) -> None:
    assert "closed loop, N = 3000, zero think time: response time at saturation" in words(
        picture("latency-spectrum", tables)
    )
    part = tables.trials["workload"].eq("experiments-md5")
    shares = replace(
        tables, trials=tables.trials.assign(terms=part.map({True: "0.1 of a core", False: ""}))
    )
    headings = made("latency-spectrum", shares).headings.values()
    assert [name for name, _ in headings] == ["experiments", "experiments-md5, 0.1 of a core"]
    trials = pd.DataFrame(
        [{"workload": "rates", "load_model": "open", "rate_rps": 500.0, "first_rate_rps": np.nan}]
    )
    assert (
        captions.load_heading(trials, "response time")
        == "open loop, 500 requests/s offered: response time"
    )


READ = {"three": FIGURES, "database": FIGURES | STORED}
READ |= dict.fromkeys(("rates", "nine rates", "gin's rates"), charts("rates"))
READ |= dict.fromkeys(("published", "sample"), charts("published"))
"""For each run, the figures that the tests of this module draw with the run's data.

test_themes.py draws the other figures of the sample, and the figures of the run of nine servers.
"""


@pytest.mark.parametrize(
    ("run", "name"), [(run, name) for run, names in READ.items() for name in names]
)
def test_text_is_inside_large_enough_and_apart(run: str, name: str) -> None:
    """The texts of a figure lie inside the figure, are large enough and do not overlap.

    No calibration server is drawn.
    """
    chart = made(name, tables_of(run))
    figure = draw(chart)
    readable(figure)
    assert len(describe(chart)) <= 700
    labels = {line.get_label() for ax in figure.axes for line in ax.lines}
    assert "reference" not in labels and "reference" not in words(figure)


def test_a_server_looks_the_same_in_all_figures() -> None:
    nine = tables_of("nine")
    looks = palette.identities(nine.trials)
    assert list(looks) == [
        "actix",
        "axum",
        "hyper",
        "echo",
        "fiber",
        "gin",
        "gnet",
        "nethttp",
        "nginx",
    ]
    assert (
        len({look.color for look in looks.values()})
        == len({look.marker for look in looks.values()})
        == 9
    )
    for name in ("latency-spectrum", "requests-over-time"):
        # Each of the nine servers has a panel for each load. The panels of the first load come
        # first.
        axes = picture(name, nine).axes[:9]
        drawn = {line.get_label(): line.get_color() for ax in axes for line in ax.lines}
        for server, ax in zip(looks, axes, strict=True):
            assert {str(line.get_label()) for line in ax.lines} & looks.keys() == {server}
        assert all(
            drawn[server] in {look.color, palette.pale(look.color)}
            for server, look in looks.items()
        )


def test_direct_labels_keep_their_distance_and_order() -> None:
    moved = style.spread_out([0.5, 0.5, 0.51, 0.99, 1.0], 0.1)
    assert np.all(np.diff(moved) >= 0.1 - 1e-9)
    assert moved[0] >= 0 and moved[-1] <= 1 + 1e-9
    assert style.spread_out([0.1, 0.9], 0.1) == [0.1, 0.9]


K6 = {"latency-spectrum", "latency-density", "requests-over-time", "cpu-over-time"}
WRK = {"wrk-requests", "wrk-cpu-per-request"}
OTHERS = {"ratios", "cpu-peaks"}
"""Figures for which no run in ODD has data.

They need more trials, or loads at an offered rate.
"""
POOLS, STATIC = ({name for name in STORED if part in name} for part in ("pool-size", "static"))
RAMPS = STORED.keys() - POOLS - STATIC
ALONE = {"servers": {"axum": synthetic_run.THREE["axum"]}, "trials": 1, "failed": False}
LONG = {"my-very-long-experimental-server-name": ("Zig", "zap", 50.0, 250.0)}
UNKNOWN = LONG | {"elixir": ("Elixir", "phoenix", 90.0, 400.0)}
closed = synthetic_run.build
stored = partial(synthetic_database.build, servers=synthetic_database.THREE, trials=2)
ODD = {
    "nothing": (closed, {"k6": (), "wrk": False}, K6 | WRK | OTHERS),
    "no k6": (closed, {"k6": ()}, K6 | OTHERS),
    "no wrk": (closed, {"wrk": False}, WRK | OTHERS),
    "single trial": (closed, {"trials": 1}, OTHERS),
    "unknown language": (closed, {"servers": UNKNOWN}, OTHERS),
    "single server": (closed, ALONE, OTHERS),
    "no ramp": (stored, {"ramp": False}, RAMPS),
    "no closed loop": (stored, {"closed": False}, POOLS),
    "no static": (stored, {"static": False}, STATIC),
    "no database": (stored, {"ramp": False, "closed": False}, RAMPS | POOLS),
    "single trial of a database": (stored, {"trials": 1}, set()),
    "single server with a database": (stored, ALONE, set()),
    "unknown language with a database": (stored, {"servers": LONG}, set()),
}
"""Runs that lack something. Each key says what is odd about the run.

Each value has the function that builds the run, the function's arguments, and the names of the
figures that must say that the run has no data for them.
"""


@pytest.mark.parametrize("odd", long_but(["nothing", "no k6", "no database"], ODD))
def test_every_figure_renders_for_odd_runs(odd: str, tmp_path: Path) -> None:
    build, shape, empty = ODD[odd]
    tables = read(build(tmp_path, **shape))
    for name in FIGURES if build is closed else STORED:
        figure = picture(name, tables)
        readable(figure)
        assert (
            ("This run has no" in words(figure))
            == made(name, tables).frame.empty
            == (name in empty)
        ), name
    if tables.has_database():
        assert inserts.findings(tables) and not inserts.printable(tables).empty


def test_no_figure_of_nine_servers_is_taller_than_1600_pixels() -> None:
    nine = tables_of("nine")
    for name in FIGURES:
        assert picture(name, nine).get_size_inches()[1] <= 16, name


def test_a_load_with_too_few_requests_for_a_percentile_says_so(tables: Tables) -> None:
    few = tables.latency.groupby("trial_id").head(3).assign(count=10)
    for latency in (few, tables.latency.iloc[:0]):
        assert "Too few requests" in words(
            picture("latency-spectrum", replace(tables, latency=latency))
        )
    some = tables.latency.where(tables.latency["trial_id"].str.contains("md5"), few)
    figure = picture("latency-spectrum", replace(tables, latency=some))
    assert "Too few requests" in figure.axes[0].texts[0].get_text()


@pytest.mark.parametrize("table", ["trials", "latency", "throughput", "resources"])
def test_a_missing_table_or_column_is_one_sentence(table: str, tmp_path: Path) -> None:
    run = RunFolder(synthetic_run.build(tmp_path, trials=1))
    frame = pd.read_parquet(run.table(table))
    frame.drop(columns="trial_id").to_parquet(run.table(table))
    remedy = r"remove \S+/tables, then `bench report .*` rebuilds the tables\.$"
    with pytest.raises(LabError, match=rf"lacks the column trial_id: {remedy}"):
        read_tables(run)
    run.table(table).write_bytes(b"not Parquet")
    with pytest.raises(LabError, match="cannot be read"):
        read_tables(run)
    run.table(table).unlink()
    with pytest.raises(LabError, match=rf"is missing: {remedy}"):
        read_tables(run)


DRAW = """
import sys
from pathlib import Path
from figure_checks import picture, read
from runner.present.chart.value import (charts)
from runner.present.look.style import save
folder, *drawn = sys.argv[1:]
for notebook, run in zip(drawn[::2], drawn[1::2]):
    tables = read(Path(run))
    for name in charts(notebook):
        save(picture(name, tables), Path(folder, notebook), name)
"""


@pytest.mark.long
def test_files_are_byte_stable_across_processes(tmp_path: Path) -> None:
    drawn = {"report": "three", "postgres": "database"}
    given = [each for name, run in drawn.items() for each in (name, str(folder_of(run).path))]
    sums = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", DRAW, str(folder), *given]
        subprocess.run(command, check=True, env=environment, cwd=ROOT / "tests" / "support")
        sums.append(
            {
                str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in folder.glob("*/*")
            }
        )
    assert len(sums[0]) == 2 * sum(len(charts(notebook)) for notebook in drawn)
    assert sums[0] == sums[1]


def test_files_are_two_pixels_a_css_pixel_and_carry_no_date(tables: Tables, tmp_path: Path) -> None:
    png, svg = style.save(picture("latency-spectrum", tables), tmp_path, "figure")
    assert int.from_bytes(png.read_bytes()[16:20], "big") == 1400
    text = svg.read_text()
    assert "<dc:date>" not in text and "<text" not in text
