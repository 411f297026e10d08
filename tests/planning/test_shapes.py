"""Tests of the shapes of loads, and of the flat columns in which they are stored."""

import json
import re
from collections import Counter

import pyarrow.parquet as pq
import pytest
from built import ROOT
from cells import cell_of, changed

from runner.flat import LoadColumns
from runner.model import LabError, Load, Trial, record_of
from runner.planning.catalog import campaign_from_manifest
from runner.shapes import (
    Bisections,
    Closed,
    Duration,
    ForTime,
    Iterations,
    Ramp,
    Search,
    Steps,
    Sweep,
    SweepOfCapacity,
)
from runner.store import RunFolder, decode

DATA = ROOT / "data"
RUNS = ("sample", "all", "seeds", "engines")
LATER = {"share": 1.0, "database_share": 1.0, "idle": "polling", "slices": None}
"""The columns that the oldest run lacks, with the values that were in effect in that run."""
FROM_THE_RESULT = {"duration_s", "slices", "mode"}
"""Columns of the table of trials that contain the measured value instead of the cell's value."""


def cells_of(run):
    """Yield (id, recorded columns of the cell) for each trial of a committed run."""
    for record in RunFolder(DATA / run).records():
        yield record["trial_id"], record["cell"]


def read(columns):
    return decode(Trial, {"trial_id": "x", "order": 1, "block": 1, "cell": columns}, "x").cell


@pytest.mark.parametrize("run", RUNS)
def test_every_cell_of_a_committed_run_is_stored_again_as_it_was(run):
    count = 0
    for _, columns in cells_of(run):
        stored = record_of(read(columns))
        assert {name: stored[name] for name in columns} == columns
        assert [name for name in stored if name in columns] == list(columns)
        added = {name: stored[name] for name in stored.keys() - columns.keys()}
        assert added.items() <= LATER.items()
        count += 1
    assert count >= 18


@pytest.mark.parametrize("run", RUNS)
def test_every_row_of_a_committed_table_is_a_cell_that_gives_the_row_again(run):
    """If a row of a committed table is read as a cell, writing the cell gives the same row.

    Columns that contain a measured value, or that the table lacks, are taken from the trial's
    record.
    """
    rows = pq.read_table(DATA / run / "tables" / "trials.parquet").to_pylist()
    recorded = dict(cells_of(run))
    assert len(rows) == len(recorded)
    for row in rows:
        record = recorded[row["trial_id"]]
        in_table = (row.keys() & record.keys()) - FROM_THE_RESULT
        assert in_table >= {"server", "workload", "vus", "connections", "rate_rps", "objective"}
        known = record | {name: row[name] for name in in_table}
        stored = record_of(read(known))
        assert {name: stored[name] for name in in_table} == {name: row[name] for name in in_table}


@pytest.mark.parametrize("run", RUNS)
def test_cells_of_committed_runs_have_the_names_that_their_trials_have(run):
    """The id of each trial must end in the name that the trial's cell has now.

    The id never changes, because it names the trial's folder. So the names of cells must not change
    either.
    """
    for trial_id, columns in cells_of(run):
        cell = read(columns)
        named = re.fullmatch(r"[bs]\d+-(.+?)(\.a\d+)?", trial_id)[1]
        assert named == cell.cell_id == f"{cell.server}-{cell.load_id}"


def test_committed_runs_have_all_four_shapes():
    shapes = Counter(type(read(columns).shape) for run in RUNS for _, columns in cells_of(run))
    assert shapes.keys() == {Closed, ForTime, Steps, Search}


@pytest.mark.parametrize("run", RUNS)
def test_the_campaign_of_a_committed_run_is_stored_again_as_it_was(run):
    loads = campaign_from_manifest(RunFolder(DATA / run).manifest()).loads
    stored = json.loads(json.dumps(record_of(loads)))
    manifest = json.loads((DATA / run / "run.json").read_text())
    for given, again in zip(manifest["campaign"]["loads"], stored, strict=True):
        assert {name: again[name] for name in given} == given


@pytest.mark.parametrize(
    ("columns", "shape", "load_id"),
    [
        pytest.param(
            {"vus": 3000, "iterations": 100},
            Closed(3000, 100),
            "experiments-vus3000",
            id="iterations",
        ),
        pytest.param(
            {"tool": "wrk", "connections": 8, "duration_s": 2.0},
            ForTime(8, 2.0),
            "experiments-c8-keepalive",
            id="connections for a time",
        ),
        pytest.param(
            {"vus": 5, "duration_s": 2.0, "mode": "close"},
            ForTime(5, 2.0),
            "experiments-vus5-close",
            id="users for a time",
        ),
        pytest.param(
            {"vus": 9, "first_rate_rps": 10.0, "rate_rps": 30.0, "steps": 3, "step_s": 1.0},
            Steps(9, 10.0, 30.0, 3, 1.0),
            "experiments-r10-30",
            id="a ramp",
        ),
        pytest.param(
            {"first_rate_rps": 10.0, "rate_rps": 10.0, "steps": 1, "step_s": 1.0},
            Steps(None, 10.0, 10.0, 1, 1.0),
            "experiments-r10",
            id="a rate, users not known yet",
        ),
        pytest.param(
            {
                "vus": 9,
                "step_s": 1.0,
                "objective": "p99 <= 1.5 ms",
                "search_low_rps": 10.0,
                "search_high_rps": 90.0,
                "bisection": 2,
            },
            Search(9, "p99 <= 1.5 ms", 10.0, 90.0, 2, 1.0),
            "experiments-p99le1_5ms-s2",
            id="a step of a search, its rate not known yet",
        ),
    ],
)
def test_columns_say_the_shape_and_the_shape_the_name(columns, shape, load_id):
    cell = cell_of(**columns)
    assert (cell.shape, cell.load_id) == (shape, load_id)
    assert changed(cell) == cell


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        pytest.param({"vus": 1}, "a load of this shape needs duration_s", id="no length"),
        pytest.param({"iterations": 1}, "a load of this shape needs vus", id="no users"),
        pytest.param(
            {"vus": 1, "iterations": 1, "duration_s": 1.0},
            "duration_s = 1.0 contradicts",
            id="two lengths",
        ),
        pytest.param(
            {"vus": 1, "iterations": 1, "load_model": "open"},
            "a load of this shape needs first_rate_rps",
            id="an open load without a rate",
        ),
        pytest.param(
            {"tool": "wrk", "vus": 1, "connections": 1, "duration_s": 1.0},
            "vus = 1 contradicts",
            id="users of a generator that has connections",
        ),
    ],
)
def test_columns_that_are_no_shape_are_refused_in_a_sentence(columns, said):
    with pytest.raises(ValueError, match=said):
        cell_of(**columns)
    given = record_of(cell_of(vus=1, iterations=1)) | {"vus": None, "iterations": None} | columns
    with pytest.raises(LabError, match=rf"^x: cell: {said}"):
        read(given)


def test_a_step_of_a_search_with_its_rate_is_an_open_load_of_one_rate():
    searched = Search(9, "p99 <= 10 ms", 10.0, 90.0, 2, 1.5, rate_rps=30.0)
    opened = Steps(9, 30.0, 30.0, 1, 1.5)
    cell = cell_of(vus=9, first_rate_rps=30.0, rate_rps=30.0, steps=1, step_s=1.5)
    step = changed(
        cell, objective="p99 <= 10 ms", search_low_rps=10.0, search_high_rps=90.0, bisection=2
    )
    assert (cell.shape, step.shape) == (opened, searched)
    for name in ("rates_rps", "window_s", "to_begin", "sockets", "offered_s", "last_rate_rps"):
        assert getattr(step, name) == getattr(cell, name)


@pytest.mark.parametrize(
    "columns",
    [
        {"vus": 7, "iterations": 100, "slices": 6},
        {"vus": 7, "duration_s": 3.0, "slices": 6},
        {"vus": 7, "first_rate_rps": 9.0, "rate_rps": 9.0, "steps": 1, "step_s": 3.0, "slices": 6},
    ],
)
def test_slices_together_are_the_whole(columns):
    cell = cell_of(**columns)
    slices = [cell.slice(number).columns() for number in range(1, 7)]
    for name in ("iterations", "duration_s", "step_s"):
        if name in columns:
            assert sum(getattr(each, name) for each in slices) == pytest.approx(columns[name])
    assert {(each.vus, each.slices) for each in slices} == {(7, None)}


FORMS = {
    Iterations(100, slice_s=3.0): {"iterations": 100, "slice_s": 3.0, "slices": 2},
    Duration(3.0): {"slice_s": 3.0, "slices": 2},
    Sweep((5.0, 9.0), 3.0): {"rates_rps": (5.0, 9.0), "duration_s": 3.0},
    SweepOfCapacity((40.0,), 3.0): {"rates_pct": (40.0,), "slice_s": 3.0, "slices": 2},
    Ramp(5.0, 9.0, 3, 2.0): {"from_rps": 5.0, "to_rps": 9.0, "steps": 3, "step_s": 2.0},
    Bisections("p99 <= 10 ms", 5.0, 9.0, 4, 2.0): {
        "objective": "p99 <= 10 ms",
        "from_rps": 5.0,
        "to_rps": 9.0,
        "bisections": 4,
        "duration_s": 2.0,
    },
}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_columns_say_the_form_of_a_load_and_back(form):
    columns = LoadColumns("w", 1, 1.0, vus=(7, 8), **FORMS[form])
    load = Load.from_columns(columns)
    assert (load.form, load.users, load.columns()) == (form, (7, 8), columns)


@pytest.mark.parametrize(
    ("form", "shapes"),
    [
        (Iterations(100), [Closed(7, 100)]),
        (Duration(3.0), [ForTime(7, 6.0)]),
        (Sweep((5.0, 9.0), 3.0), [Steps(7, 5.0, 5.0, 1, 6.0), Steps(7, 9.0, 9.0, 1, 6.0)]),
        (SweepOfCapacity((40.0,), 3.0), []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_form_in_slices_makes_shapes_of_the_length_of_all_slices(form, shapes):
    assert form.shapes(7, 2) == shapes


def test_a_search_has_a_shape_for_each_bisection_and_a_ramp_one():
    search = Bisections("p99 <= 10 ms", 5.0, 9.0, 2, 3.0).shapes(7, None)
    assert search == [Search(7, "p99 <= 10 ms", 5.0, 9.0, number, 3.0) for number in (1, 2)]
    assert Ramp(5.0, 9.0, 3, 2.0).shapes(7, None) == [Steps(7, 5.0, 9.0, 3, 2.0)]


def test_columns_of_a_load_that_are_no_form_are_refused():
    with pytest.raises(ValueError, match="a load of this shape needs duration_s"):
        Load.from_columns(LoadColumns("w", 1, 1.0, vus=(7,)))
    with pytest.raises(ValueError, match=r"duration_s = 2\.0 contradicts"):
        Load.from_columns(LoadColumns("w", 1, 1.0, vus=(7,), iterations=9, duration_s=2.0))
