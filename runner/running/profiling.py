"""Profile the servers of a run after its trials."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from runner.digest.profiles import build_profiles
from runner.measure.perf import refusal
from runner.measure.profiling import Profiling
from runner.measure.session import measure
from runner.model import Campaign, CannotGoOnError, LabError, Trial
from runner.planning.catalog import campaign_servers
from runner.planning.plan import TimeLeft, estimate_s
from runner.planning.profiles import Profile, plan_profiles
from runner.profiled import TIMELINE
from runner.running.attempts import run_unit
from runner.running.preparing import Prepared
from runner.store import RunFolder, read_json

if TYPE_CHECKING:
    from runner.console import TrialProgress

NOT_PROFILED = "The servers were not profiled"
DATABASE_NOT_PROFILED = "The databases were not profiled"
"""A sentence that says why profiles are missing begins with this text or with NOT_PROFILED."""
MOST_OF_A_BUDGET = 0.5
"""At most this share of a time budget is kept for the profiles.

The rest of the budget is for the trials, because a run without trials has no ratios.
"""


@dataclass(frozen=True)
class TimeBudget:
    """The time that a run's profiles may take, and the clock (in seconds) that measures it."""

    seconds: float
    clock: Callable[[], float]


def kept_s(profiles: Sequence[Profile], budget_s: float) -> float:
    """Return the number of seconds of a run's budget that are kept for the run's profiles."""
    estimated_s = sum(estimate_s(trial) for profile in profiles for trial in profile.trials)
    return min(estimated_s, MOST_OF_A_BUDGET * budget_s)


def profiles_left(run: RunFolder, campaign: Campaign) -> list[Profile]:
    """Return the profiles of a run that are not finished; in a new run, these are all profiles."""
    profiles = plan_profiles(campaign, campaign_servers(campaign))
    return [each for each in profiles if not all(_ended(run, trial) for trial in each.trials)]


def obstacle(*, of_hosts: bool) -> str | None:
    """Return a sentence that says why servers cannot be profiled.

    Return None if they can be profiled. `of_hosts` is True for a run on several hosts. For such a
    run, always return None, because only a start of perf on the server's host can show whether that
    host permits profiles.
    """
    why = None if of_hosts else refusal()
    return None if why is None else f"{NOT_PROFILED}: {why}"


def _ended(run: RunFolder, trial: Trial) -> bool:
    path = run.profiles.record(trial.trial_id)
    return path.is_file() and read_json(path)["status"] in ("sealed", "failed")


def profile_servers(
    run: RunFolder,
    profiles: Sequence[Profile],
    prepared: Prepared,
    report: TrialProgress,
    budget: TimeBudget,
) -> tuple[str, ...]:
    """Profile the servers under each load of `profiles`, and write the tables of profiles.

    Return sentences that say which profiles are missing, and why. The run's trials are valid
    without profiles, so a failed profile raises no error. Only KeyboardInterrupt is raised.
    """
    if not profiles:
        return ()
    if (why := obstacle(of_hosts=prepared.bench.lab.fleet is not None)) is not None:
        return (why,)
    if prepared.bench.lab.fleet is not None:
        report.say("Starting perf in a container on the host of the server …")
    with contextlib.ExitStack() as stack:
        try:
            instrument = stack.enter_context(Profiling.opened(prepared.bench))
        except LabError as refused:
            return (f"{NOT_PROFILED}: {refused}",)
        run.profiles.path.mkdir(exist_ok=True)
        without_database = []
        if (why := instrument.database_refusal) is not None:
            without_database.append(f"{DATABASE_NOT_PROFILED}: {why}")
        try:
            failed = _profiled(run, profiles, prepared, report, budget, instrument)
            return (*without_database, *failed)
        except KeyboardInterrupt:
            report.say(f"Interrupted: continue with {_resume(run)}.")
            raise
        finally:
            build_profiles(run)


def _profiled(
    run: RunFolder,
    profiles: Sequence[Profile],
    prepared: Prepared,
    report: TrialProgress,
    budget: TimeBudget,
    instrument: Profiling,
) -> tuple[str, ...]:
    """Make profiles until the budget is used up; return sentences about the missing profiles."""
    clock = TimeLeft([trial for each in profiles for trial in each.trials], budget.clock)
    failed: list[str] = []
    for number, profile in enumerate(profiles):
        if clock.elapsed_s() + clock.takes_s(profile.trials) > budget.seconds:
            left = len(profiles) - number
            return (
                *failed,
                f"{NOT_PROFILED} under {left} of {len(profiles)} loads: the budget is used up. "
                f"Continue with {_resume(run)}.",
            )
        report.say(_doing(profile))
        report.begin(profile.trials[0])
        _remove_left(run, profile)
        try:
            of_session = replace(instrument, session=profile.session)
            measuring = partial(measure, instrument=of_session)
            records = run_unit(run.profiles, profile.trials, prepared, report.step, measuring)
        except CannotGoOnError as lost:
            return (*failed, f"{NOT_PROFILED}: {lost}")
        clock.end(profile.trials)
        failed += [
            f"{NOT_PROFILED}: {each['trial_id']} failed: {each['error']}"
            for each in records
            if each["error"] is not None
        ]
    return tuple(failed)


def _doing(profile: Profile) -> str:
    """Return a sentence that tells the user which profile is being made."""
    count = len(profile.trials)
    servers = f"{count} server{'s' * (count != 1)}"
    if not profile.session.startswith(TIMELINE):
        return f"Profiling {servers} under {profile.load_id} …"
    return (
        f"Recording {servers} under {profile.load_id} without a break, to see which functions "
        "run during a spike …"
    )


def note_missing(run: RunFolder, missing: Sequence[str]) -> None:
    """Write the sentences about missing profiles into the manifest, for the report.

    These sentences replace the sentences about missing profiles that the manifest already contains.
    """
    manifest = run.manifest()
    ours = (NOT_PROFILED, DATABASE_NOT_PROFILED)
    others = [said for said in manifest.host_warnings if not said.startswith(ours)]
    warnings = (*others, *missing)
    if warnings != tuple(manifest.host_warnings):
        run.write_manifest(manifest.model_copy(update={"host_warnings": warnings}))


def _remove_left(run: RunFolder, profile: Profile) -> None:
    """Remove the files of an interrupted attempt at a profile."""
    for trial in profile.trials:
        shutil.rmtree(run.profiles.trial(trial.trial_id), ignore_errors=True)


def _resume(run: RunFolder) -> str:
    return f"`bench run --resume {run.path.name}`"
