"""Measure the remaining trials of a run.

In a new run, all trials remain. In an interrupted run, the trials without a result remain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.manifest import Condition, Difference, Manifest, PlacementOfRun
from runner.model import LabError, State, Trial
from runner.planning.plan import by_session, next_attempt
from runner.running.attempts import run_trials
from runner.running.preparing import Prepared, Setting
from runner.running.stopping import TO_THE_END, Stopping
from runner.store import RunFolder, TrialRecord, read_json, sweep, write_json

if TYPE_CHECKING:
    from runner.console import TrialProgress

NEW_IS_FINE = {Condition.TOOL, Condition.BINARY, Condition.IMAGE}
"""Conditions of a run (tools, binaries, images) that its manifest may lack when the run resumes.

A manifest lacks a server's binary, for example, if the server could not be built when the run
began. If the server can be built now, the run can be resumed. But if the manifest contains such a
condition, and the condition has changed, the run cannot be resumed.
"""


def cannot_go_on(why: str) -> LabError:
    """Return the error that explains why a run cannot be resumed."""
    return LabError(f"The run cannot be resumed: {why}. Start a new run.")


# --- find the trials that an interrupted run still needs ------------------------------------------


@dataclass(frozen=True)
class Rest:
    """The remaining trials of a run, and the lines that must be added to the run's journal.

    The lines are missing because the runner died before it wrote them.
    """

    trials: Sequence[Trial]
    """The trials that need a further attempt.

    The field `attempt` of each of these trials contains the number of the further attempt.
    """
    states: Mapping[str, State]
    """State of each attempt, by the trial id of the attempt.

    For a trial in `recorded`, this is the state in the record, not the state in the journal.
    """
    unplanned: Sequence[Trial]
    """Trials whose first line, with the state `planned`, must be added to the journal.

    The runner died before it had written the whole plan of the run into the journal.
    """
    recorded: Sequence[TrialRecord]
    """Complete records of trials whose last state must be added to the journal.

    The runner died after it had written the record, but before it wrote the line of the journal.
    """

    def write_down(self, run: RunFolder) -> None:
        """Append the missing lines to the journal."""
        for trial in self.unplanned:
            run.append("planned", trial.trial_id)
        for record in self.recorded:
            run.append(record["status"], record["trial_id"], error=record["error"])


def rest_of(run: RunFolder, planned: Sequence[Trial], most_attempts: int) -> Rest:
    """Find the remaining trials of a run from its journal and its records.

    Raise LabError if the campaign's plan has changed since the run began.
    """
    states = run.states()
    unplanned = _unplanned(states, planned)
    recorded = [
        record
        for record in run.records()
        if states.get(record["trial_id"]) in ("running", "raw")
        and record["status"] in ("sealed", "failed")
    ]
    states |= {record["trial_id"]: record["status"] for record in recorded}
    return Rest(_unfinished(run, states, planned, most_attempts), states, unplanned, recorded)


def _unplanned(states: Mapping[str, State], planned: Sequence[Trial]) -> Sequence[Trial]:
    begun = [name for name in states if ".a" not in name]
    if begun != [trial.trial_id for trial in planned[: len(begun)]]:
        raise cannot_go_on("a server.toml or a workload has changed since the run began")
    return planned[len(begun) :]


def _unfinished(
    run: RunFolder, states: Mapping[str, State], planned: Sequence[Trial], most_attempts: int
) -> list[Trial]:
    """Return the trials that need a further attempt, each with the number of that attempt.

    The trials of a session are repeated together or not at all.
    """
    left: list[Trial] = []
    for unit in by_session(planned):
        names = [
            [name for name in states if name.split(".a")[0] == trial.trial_id] for trial in unit
        ]
        begun = max(sum(states[name] != "planned" for name in attempts) for attempts in names)
        # An attempt is complete if each trial of the session was sealed in it, or failed in it. The
        # session needs no further attempt if a complete attempt was not disturbed, or if it was the
        # last attempt that the campaign allows.
        for attempt in range(1, begun + 1):
            tried = [next_attempt(trial, attempt).trial_id for trial in unit]
            ended = all(states.get(name) in ("sealed", "failed") for name in tried)
            records = (read_json(run.record(name)) for name in tried)
            if ended and (
                attempt >= most_attempts or not any(record["disturbed"] for record in records)
            ):
                break
        else:
            left += [next_attempt(trial, begun + 1) for trial in unit]
    return left


# --- check that machines, tools and servers are those with which the run began --------------------


def require_same_setting(begun: Manifest, setting: Setting) -> None:
    """Raise LabError if machines, CPUs, the state of idle CPUs, or tools differ from the manifest.

    The manifest names the machines, CPUs and tools with which the run began. If the remaining
    trials used other machines, CPUs or tools, the manifest would be wrong for these trials.
    """
    now = begun.model_copy(
        update={
            "machine": setting.machine,
            "hosts": setting.hosts,
            "placement": PlacementOfRun.of_placement(setting.placement),
            "tools": begun.tools | setting.versions,
            "idle": setting.idle,
        }
    )
    for difference in _unlike(begun, now):
        if difference.condition is Condition.IDLE_CPUS:
            why = setting.opened.idle.problem or "another state was requested"
            raise cannot_go_on(
                f"the state of its idle CPUs was {difference.here_in_words} when the run began, "
                f"which is not possible now ({why})"
            )
        raise cannot_go_on(f"its {_noun(difference)} has changed since the run began")


def require_same_servers(begun: Manifest, prepared: Prepared) -> None:
    """Raise LabError if a binary or an image has changed since the run began."""
    servers = prepared.servers.items()
    now = begun.model_copy(
        update={
            "artifacts": {name: ready.binary for name, ready in servers if ready.binary},
            "images": {name: ready.image for name, ready in servers if ready.image},
            "database": prepared.database,
        }
    )
    nouns = {Condition.BINARY: "binary", Condition.IMAGE: "image"}
    for difference in _unlike(begun, now):
        noun = nouns.get(difference.condition)
        if noun is not None:
            values = f"{str(difference.here)[:19]} then, {str(difference.there)[:19]} now"
            raise cannot_go_on(
                f"the {noun} of {difference.what} has changed since the run began ({values})"
            )


def _unlike(begun: Manifest, now: Manifest) -> list[Difference]:
    """Return the conditions that have changed since the run began.

    Leave out a condition of NEW_IS_FINE that the run's manifest does not contain.
    """
    return [
        difference
        for difference in begun.differences_from(now)
        if difference.here is not None or difference.condition not in NEW_IS_FINE
    ]


def _noun(difference: Difference) -> str:
    if difference.condition in (Condition.MACHINE, Condition.HOSTS):
        return "machine"
    if difference.condition in (Condition.CPUS, Condition.DATABASE_CPUS):
        return "CPU placement"
    return difference.what


# --- measure the trials that remain ---------------------------------------------------------------


def measure_remaining(
    run: RunFolder,
    planned: Sequence[Trial],
    prepared: Prepared,
    report: TrialProgress,
    stopping: Stopping = TO_THE_END,
) -> int:
    """Measure the remaining trials of a run; return how many trials remained before the call.

    Finished trials are not changed. An unfinished trial is repeated as a new attempt. In a new run,
    all trials remain.
    """
    rest = rest_of(run, planned, prepared.bench.campaign.attempts)
    sweep(run)
    rest.write_down(run)
    _break_up(run, rest)
    run_trials(run, rest.trials, prepared, report, stopping)
    return len(rest.trials)


def _break_up(run: RunFolder, rest: Rest) -> None:
    """Mark the sealed trials of unfinished sessions as interrupted.

    The trials of a session count only together, so the whole session is repeated, and the sealed
    trials of its earlier attempts must not count.
    """
    error = "its session was interrupted"
    for trial in rest.trials:
        for attempt in range(1, trial.attempt):
            name = next_attempt(trial, attempt).trial_id
            if rest.states.get(name) == "sealed":
                record = read_json(run.record(name))
                write_json(run.record(name), record | {"status": "interrupted", "error": error})
                run.append("interrupted", name, error=error)
