"""Profile the servers of a run after its trials."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from runner.digest.profiles import build_profiles
from runner.measure.profiling import Profiling
from runner.measure.session import measure
from runner.model import CannotGoOnError, LabError
from runner.planning.catalog import campaign_servers
from runner.planning.profiles import Profile, plan_profiles
from runner.running.attempts import run_unit
from runner.running.preparing import Prepared
from runner.store import RunFolder

if TYPE_CHECKING:
    from runner.console import TrialProgress


def profile_servers(run: RunFolder, prepared: Prepared, report: TrialProgress) -> tuple[str, ...]:
    """Profile the servers under each load that asks for it, and write the tables of profiles.

    Return a sentence for everything that was not profiled. The run's trials are valid without its
    profiles, so nothing is raised but an interruption.
    """
    campaign = prepared.bench.campaign
    profiles = plan_profiles(campaign, campaign_servers(campaign))
    if not profiles:
        return ()
    if prepared.bench.lab.fleet is not None:
        return ("The servers were not profiled: profiles of other hosts are not supported.",)
    try:
        instrument = Profiling.of(prepared.bench)
    except LabError as refused:
        return (f"The servers were not profiled: {refused}",)
    run.profiles.path.mkdir(exist_ok=True)
    measuring = partial(measure, instrument=instrument)
    failed: list[str] = []
    for profile in _remaining(run, profiles):
        report.say(f"Profiling {len(profile.trials)} servers under {profile.load_id} …")
        report.begin(profile.trials[0])
        try:
            records = run_unit(run.profiles, profile.trials, prepared, report.step, measuring)
        except CannotGoOnError as lost:
            return (*failed, f"The servers were not profiled: {lost}")
        failed += [
            f"The profile {each['trial_id']} failed: {each['error']}"
            for each in records
            if each["error"] is not None
        ]
    build_profiles(run)
    return tuple(failed)


def _remaining(run: RunFolder, profiles: Sequence[Profile]) -> list[Profile]:
    """Return the profiles that have not ended; remove what an interrupted one left."""
    folder = run.profiles
    left = []
    for profile in profiles:
        if all(folder.record(trial.trial_id).is_file() for trial in profile.trials):
            continue
        left.append(profile)
        for trial in profile.trials:
            shutil.rmtree(folder.trial(trial.trial_id), ignore_errors=True)
    return left
