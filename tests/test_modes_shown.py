"""What happened to connections may be `mixed`: every figure and table of a run takes it, and names it."""

import pandas as pd
import pytest
import synthetic_rates
import synthetic_run
from matplotlib import pyplot as plt

from runner.columns import columns
from runner.digest.tables import trial_row
from runner.present.answers.summary import summarize
from runner.present.chart import charts, describe, draw, made
from runner.present.figures import sweeps
from runner.present.frames import Tables, read_tables
from runner.store import RunFolder


@pytest.fixture(scope="module", params=["closed", "open"])
def mixed(request, tmp_path_factory):
    """A run whose k6 trials, half of them, found some connections closed."""
    folder = tmp_path_factory.mktemp(request.param)
    synthetic_run.build(folder) if request.param == "closed" else synthetic_rates.build(folder, closed=False)
    path = folder / "tables" / "trials.parquet"
    trials = pd.read_parquet(path)
    trials.loc[trials["tool"].eq("k6") & (trials["block"] % 2 == 0), "mode"] = "mixed"
    trials.to_parquet(path)
    return read_tables(RunFolder(folder))


@pytest.mark.parametrize("name", [name for name, found in charts().items() if found.subject is Tables])
def test_every_figure_takes_it(mixed, name):
    chart = made(name, mixed)
    plt.close(draw(chart))
    assert describe(chart)


def test_loads_and_sweeps_are_named_by_it(mixed):
    loads = mixed.trials.loc[mixed.trials["mode"] == "mixed", "load"]
    assert loads.size and loads.str.contains(", mixed").all()
    assert mixed.trials["load_order"].notna().all()
    assert not summarize(mixed).empty
    swept = sweeps.swept(mixed)
    assert all(name.endswith(", mixed") for name in swept.loc[swept["mode"] == "mixed", "sweep"])


def test_a_trial_s_row_has_the_mode_that_happened():
    cell = {"mode": "keepalive", "server": "a"}
    record = {"trial_id": "t", "order": 1, "cell": cell, "metrics": {"opened_pct": 12.0}}
    assert trial_row({**record, "mode": "mixed"})["mode"] == "mixed"
    assert trial_row({**record, "mode": None})["mode"] == trial_row(record)["mode"] == "keepalive"
    assert trial_row(record)["opened_pct"] == 12


def test_runs_without_the_new_columns_open(tmp_path):
    new = {"opened_pct", "ended_late_s", "probe_reopened_pct"}
    assert new <= {column.name for column in columns("trials") if column.optional}
    folder = synthetic_rates.forget(synthetic_rates.build(tmp_path, closed=False), *new)
    trials = read_tables(RunFolder(folder)).trials
    assert trials[list(new)].isna().all(axis=None)
