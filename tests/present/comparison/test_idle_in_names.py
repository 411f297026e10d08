"""Tests of names of loads that say whether idle CPUs were asleep.

A name says so only if idle CPUs were asleep in some trials of the run, and kept awake in others.
"""

import pandas as pd
import pytest
import synthetic_run
from figure_checks import tables_of

from runner.present.frames import Tables, read_tables, sealed_trials
from runner.present.look import captions
from runner.store import RunFolder

ASLEEP = "idle CPUs asleep"


def with_idle(folder, *states: str) -> Tables:
    """Return a run whose blocks have these states of idle CPUs in turn.

    A failed trial has the state `polling`, because the lab observed no state in this trial, and
    stored the state that the campaign asked for.
    """
    run = synthetic_run.build(folder, k6=(), trials=2)

    def given(trials: pd.DataFrame) -> pd.DataFrame:
        found = [states[block % len(states)] for block in trials["block"]]
        idle = pd.Series(found, index=trials.index).where(trials["status"] == "sealed", "polling")
        return trials.assign(idle=idle)

    synthetic_run.rewrite(run, "trials", given)
    return read_tables(RunFolder(run))


@pytest.mark.parametrize("state", ["system", "polling"])
def test_a_run_of_one_state_has_names_without_it(tmp_path, state):
    tables = with_idle(tmp_path / "run", state)
    assert not tables.trials["load"].str.contains("idle").any()
    failed = tables.trials[tables.trials["status"] != "sealed"]
    assert set(failed["load"]) <= set(sealed_trials(tables.trials)["load"])


def test_loads_that_differ_in_idle_cpus_have_different_names(tmp_path):
    tables = with_idle(tmp_path / "run", "system", "polling")
    sealed = sealed_trials(tables.trials)
    assert sealed["load"].str.endswith(ASLEEP).tolist() == sealed["idle"].eq("system").tolist()
    assert sealed.groupby("load")["idle"].nunique().eq(1).all()


def test_the_sample_says_once_that_idle_cpus_were_kept_awake():
    tables = tables_of("sample")
    assert not tables.trials["load"].str.contains("idle").any()
    assert captions.manifest_facts(tables.manifest)["Idle CPUs"] == "kept awake"
