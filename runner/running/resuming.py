"""What is left of a run, measured: all of one that was just created, the rest of one that was
interrupted.
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
"""What a run that did not know it when it began may have by now."""


def cannot_go_on(why: str) -> LabError:
    """Return the error that says why a run is not resumed."""
    return LabError(f"The run cannot go on: {why}. Start a new run.")


# --- what is left ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rest:
    """What is left of a run, and what its journal lacks."""

    trials: Sequence[Trial]
    """Trials without a sealed or failed attempt, each as its next attempt."""
    states: Mapping[str, State]
    unplanned: Sequence[Trial]
    """Trials of the plan that the journal lacks, because the runner died in its planning."""
    recorded: Sequence[TrialRecord]
    """Records that were complete when the runner died, of trials whose last line the journal
    lacks.
    """

    def write_down(self, run: RunFolder) -> None:
        """Append to the journal what the runner that died had not."""
        for trial in self.unplanned:
            run.append("planned", trial.trial_id)
        for record in self.recorded:
            run.append(record["status"], record["trial_id"], error=record["error"])


def rest_of(run: RunFolder, planned: Sequence[Trial], most_attempts: int) -> Rest:
    """Return what is left of a run, by its journal and its records.

    LabError if today's plan is not the one that it began with.
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
        raise cannot_go_on(
            "its plan is not the one that it began with (a server.toml or a workload changed)"
        )
    return planned[len(begun) :]


def _unfinished(
    run: RunFolder, states: Mapping[str, State], planned: Sequence[Trial], most_attempts: int
) -> list[Trial]:
    """Return the trials that have no sealed or failed attempt, each as its next one.

    Those of a session together.
    """
    left: list[Trial] = []
    for unit in by_session(planned):
        names = [
            [name for name in states if name.split(".a")[0] == trial.trial_id] for trial in unit
        ]
        begun = max(sum(states[name] != "planned" for name in attempts) for attempts in names)
        for attempt in range(
            1, begun + 1
        ):  # one that ended for all of them, and was not to be followed by another
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


# --- under the same conditions --------------------------------------------------------------------


def require_same_setting(begun: Manifest, setting: Setting) -> None:
    """Raise LabError if a run would be resumed on other machines, CPUs, or with other tools: its
    manifest would not be that of the later blocks.
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
            why = setting.opened.idle.problem or "another state was asked for"
            raise cannot_go_on(
                f"idle CPUs were {difference.here_in_words} and cannot be so now ({why})"
            )
        raise cannot_go_on(f"its {_noun(difference)} is not the one that it began with")


def require_same_servers(begun: Manifest, prepared: Prepared) -> None:
    """Raise LabError if a binary or an image is not the one that the run began with."""
    servers = prepared.servers.items()
    now = begun.model_copy(
        update={
            "artifacts": {name: ready.binary for name, ready in servers if ready.binary},
            "images": {name: ready.image for name, ready in servers if ready.image},
            "database": prepared.database,
        }
    )
    nouns = {Condition.BINARY: "artifact", Condition.IMAGE: "image"}
    for difference in _unlike(begun, now):
        noun = nouns.get(difference.condition)
        if noun is not None:
            values = f"{str(difference.here)[:19]} then, {str(difference.there)[:19]} now"
            raise cannot_go_on(
                f"the {noun} of {difference.what} is not the one that it began with ({values})"
            )


def _unlike(begun: Manifest, now: Manifest) -> list[Difference]:
    """Return in which conditions a run would go on that are not those that it began under."""
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


# --- measuring ------------------------------------------------------------------------------------


def resume(
    run: RunFolder,
    planned: Sequence[Trial],
    prepared: Prepared,
    report: TrialProgress,
    stopping: Stopping = TO_THE_END,
) -> int:
    """Measure what is left of a run, and return how many trials that were.

    Finished trials stay untouched, and one that was not finished is repeated as a new attempt. Of a
    run that was just created all is left.
    """
    rest = rest_of(run, planned, prepared.bench.campaign.attempts)
    sweep(run)
    rest.write_down(run)
    _break_up(run, rest)
    run_trials(run, rest.trials, prepared, report, stopping)
    return len(rest.trials)


def _break_up(run: RunFolder, rest: Rest) -> None:
    """Mark the sealed trials of sessions that did not come to their end: a session counts as a
    whole or not at all.
    """
    error = "its session was interrupted"
    for trial in rest.trials:
        for attempt in range(1, trial.attempt):
            name = next_attempt(trial, attempt).trial_id
            if rest.states.get(name) == "sealed":
                record = read_json(run.record(name))
                write_json(run.record(name), record | {"status": "interrupted", "error": error})
                run.append("interrupted", name, error=error)
