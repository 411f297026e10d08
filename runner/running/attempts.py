"""Run trials one after another: measure, digest and record each attempt at a trial.

The run ends early if the user interrupts it, or if it cannot continue on this machine.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from runner.digest.trial import Digest, digest_session
from runner.manifest import THE_DATABASE
from runner.measure import machine
from runner.measure.counters import wait_for_room
from runner.measure.loading import Bench
from runner.measure.session import Member, measure
from runner.measure.sites import Sites
from runner.measurement import Measurement
from runner.model import SCHEMA, CannotGoOnError, LabError, State, Trial, Workload, record_of
from runner.planning.catalog import campaign_workload
from runner.planning.plan import TimeLeft, by_session, next_attempt, slice_order
from runner.planning.search import Searches
from runner.running.preparing import Prepared
from runner.running.stopping import TO_THE_END, Stopping
from runner.store import (
    RecordedVerdict,
    RunFolder,
    TrialRecord,
    free_bytes,
    public,
    raw_hashes,
    sync_raw,
    write_json,
)
from runner.verdict.limits import Limit
from runner.verdict.words import reason

if TYPE_CHECKING:
    from runner.console import TrialProgress  # prints to the terminal; this module only calls it

WAIT = (
    "Waiting until the kernel's table of tracked connections has room, because the next "
    "trial opens up to {:,} connections."
)
# A disk with less free space than this counts as full. If a trial fails while a disk is full, the
# lab assumes that the full disk is the reason for the failure.
FULL_BYTES = 16 * 2**20


Step = Callable[[str], None]
"""A function that is called with the name of each step when the step begins."""
Measuring = Callable[
    [Bench, Workload, Sequence[Member], Sequence[tuple[str, int]], Step],
    Mapping[str, Measurement | LabError],
]
"""A function that measures the servers of a session, as `session.measure` does."""
Digesting = Callable[[RunFolder, Mapping[Trial, Measurement]], Mapping[Trial, Digest | LabError]]
"""A function that digests the measured trials of a session, as `digest_session` does."""
Executor = Callable[[RunFolder, Sequence[Trial], Prepared, Step], list[TrialRecord]]
"""A function that makes an attempt at a session or a single trial, as `run_unit` does."""


@dataclass(frozen=True)
class RunResult:
    """The run of a campaign, and how the run ended."""

    run: RunFolder
    trials: int
    failed: tuple[str, ...]  # one sentence per failed trial
    warnings: tuple[str, ...]


def run_trials(
    run: RunFolder,
    trials: Sequence[Trial],
    prepared: Prepared,
    report: TrialProgress,
    stopping: Stopping = TO_THE_END,
    execute: Executor | None = None,
) -> tuple[str, ...]:
    """Run the trials in order; return a sentence for each failed trial.

    The trials of a session run side by side. `execute` is the function that makes an attempt; by
    default, this is `run_unit`.

    If the user interrupts the run, raise KeyboardInterrupt. If the run cannot continue, for example
    because the engine does not respond any more or a disk is full, raise LabError. In both cases, a
    message says how to resume the run, if the run can be resumed.
    """
    machine.raise_open_files()
    report.plan(trials)
    failed = []
    can_resume = all(api.commit is None for api in prepared.bench.campaign.owns)
    resume = f"continue with `bench run --resume {run.path.name}`" if can_resume else ""
    # In a resumed run, each search continues from the results so far. Only the last attempt of each
    # trial counts.
    searches = Searches({record["order"]: record for record in run.records()}.values())
    try:
        for planned in _needed(run, trials, report, stopping, resume):
            unit = [searches.settle(trial) for trial in planned]
            records = _attempted(run, unit, prepared, report, execute or run_unit)
            for trial, record in zip(unit, records, strict=True):
                if record["status"] == "interrupted":
                    raise CannotGoOnError(str(record["error"]))
                searches.note(record)
                report.end(trial, record)
                if record["error"] is not None:
                    failed.append(f"{record['trial_id']}: {record['error']}")
    except KeyboardInterrupt:
        report.say(f"Interrupted: {resume}." if resume else "Interrupted.")
        raise
    except (CannotGoOnError, OSError) as error:
        said = (
            str(error)
            if isinstance(error, LabError)
            else f"The operating system refused an operation: {error.strerror or error}."
        )
        then = f" Then {resume}." if resume else ""
        raise LabError(f"{said}{then}", exit_code=1) from error
    return tuple(failed)


def _needed(
    run: RunFolder, trials: Sequence[Trial], report: TrialProgress, stopping: Stopping, resume: str
) -> Iterator[list[Trial]]:
    """Yield each session or single trial that is still needed, until the time budget is used up.

    A session is not needed if an earlier interim look (see `Stopping`) has settled its load.
    """
    clock = TimeLeft(trials, stopping.clock)
    looked = 0
    settled = frozenset[str]()
    units = by_session(trials)
    for number, unit in enumerate(units):
        done = unit[0].block - 1
        if done > looked and (found := stopping.look(run, done)):
            looked = done
            settled = found.loads
            report.say(f"After {done} sessions {found.words}.")
        if unit[0].session is not None and unit[0].session.partition("-")[2] in settled:
            clock.skip(unit)
            report.skip(unit)
            continue
        if clock.elapsed_s() + clock.takes_s(unit) > stopping.budget_s - stopping.kept_s:
            left = [trial for rest in units[number:] for trial in rest]
            budget = (
                f"{stopping.budget_s / 60:g} min"
                if stopping.budget_s >= 60
                else f"{stopping.budget_s:g} s"
            )
            then = f", with {len(left)} trials left: {resume}" if resume else ""
            report.say(f"The budget of {budget} is used up{then}.")
            report.skip(left)
            return
        yield unit
        clock.end(unit)


def _attempted(
    run: RunFolder,
    unit: Sequence[Trial],
    prepared: Prepared,
    report: TrialProgress,
    execute: Executor,
) -> Sequence[TrialRecord]:
    """Repeat a session or a single trial until an attempt is undisturbed.

    Make at most as many attempts as the campaign allows. Return the records of the last attempt.
    """
    prepared.require_unchanged()
    wait_for_room([trial.cell for trial in unit], lambda needed: report.say(WAIT.format(needed)))
    report.begin(unit[0])
    for attempt in count(unit[0].attempt):
        tried = [next_attempt(trial, attempt) for trial in unit]
        records = execute(run, tried, prepared, report.step)
        why = next((each["error"] for each in records if each["disturbed"]), None)
        if why is None or attempt >= prepared.bench.campaign.attempts:
            break
        report.say(f"{unit[0].session or records[0]['trial_id']} is repeated: {why}")
    return records


@dataclass
class _Fate:
    """The state of one trial, and its results so far."""

    state: State = "failed"
    error: str | None = None
    measurement: Measurement | None = None
    digest: Digest | None = None


def run_unit(
    run: RunFolder,
    unit: Sequence[Trial],
    prepared: Prepared,
    step: Step,
    measuring: Measuring = measure,
    digesting: Digesting = digest_session,
) -> list[TrialRecord]:
    """Measure, digest and record a session, or a single trial; return the records.

    An interruption is recorded, too. When a step begins, `step` is called with the step's name.
    """
    for trial in unit:
        run.append(
            "running", trial.trial_id
        )  # before mkdir, because a folder that the journal does not name blocks a resumed run
        run.trial(trial.trial_id).mkdir(parents=True)
    started = datetime.now(UTC).isoformat()
    fates = {trial.trial_id: _Fate() for trial in unit}
    try:
        _measure_unit(run, unit, prepared, step, fates, measuring)
        step("digest")
        is_last = unit[0].attempt >= prepared.bench.campaign.attempts
        _digest_unit(run, unit, fates, digesting, is_last=is_last)
    except KeyboardInterrupt:
        _interrupt(fates, "interrupted before its end")
        raise
    except CannotGoOnError as lost:
        _interrupt(fates, str(lost))
    # Record any error of a trial, so that the next trial can run.
    except Exception as unknown:  # noqa: BLE001
        for fate in fates.values():
            fate.state = "failed"
            fate.error = fate.error or _sentence(unknown)
    finally:
        if any(fate.state == "failed" for fate in fates.values()):
            _blame_the_machines(run, prepared.bench.sites, fates)
        _hide_addresses(run, prepared.bench.sites, fates)
        records = [_record(run, trial, started, fates[trial.trial_id]) for trial in unit]
        for record in records:
            write_json(run.record(record["trial_id"]), record)
        for record in records:
            run.append(record["status"], record["trial_id"], error=record["error"])
    return records


def _blame_the_machines(run: RunFolder, sites: Sites, fates: Mapping[str, _Fate]) -> None:
    """If a host was lost or a disk is full, mark the trials as interrupted instead of failed.

    In these cases, the machines caused the failure, not the servers. A resumed run repeats
    interrupted trials, but not failed trials.
    """
    if loss := next((site.loss for site in sites.all if site.loss), ""):
        _interrupt(fates, loss)
    elif full := _full_disk(run, sites):
        said = next((fate.error for fate in fates.values() if fate.error is not None), None)
        _interrupt(fates, f"{full} The error of the trial was: {said}")


def _hide_addresses(run: RunFolder, sites: Sites, fates: Mapping[str, _Fate]) -> None:
    """Replace the addresses of hosts by words, in the errors and in the logs of the trials."""
    for trial_id, fate in fates.items():
        fate.error = fate.error and sites.without_addresses(fate.error)
        for log in run.trial(trial_id).glob("*.log"):
            text = log.read_text(encoding="utf-8", errors="replace")
            if (shown := sites.without_addresses(text)) != text:
                log.write_text(shown, encoding="utf-8")


def _interrupt(fates: Mapping[str, _Fate], error: str) -> None:
    for fate in fates.values():
        fate.state = "interrupted"
        fate.error = error


def _sentence(error: Exception) -> str:
    """Return a sentence that describes an error, for a trial's record."""
    if isinstance(error, LabError):
        return str(error)
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return f"the operating system refused an operation: {error.strerror or error}{where}"
    return f"{type(error).__name__}: {error}"


def _measure_unit(
    run: RunFolder,
    unit: Sequence[Trial],
    prepared: Prepared,
    step: Step,
    fates: Mapping[str, _Fate],
    measuring: Measuring,
) -> None:
    """Measure those trials of a session whose server and database can be started.

    For each other trial, note in `fates` why its server or its database cannot be started.
    """
    cell = unit[0].cell
    workload = campaign_workload(prepared.bench.campaign, cell.workload, run.scripts)
    members = []
    for trial in unit:
        needed = (trial.cell.server, THE_DATABASE) if workload.database else (trial.cell.server,)
        if error := next(filter(None, map(prepared.errors.get, needed)), None):
            fates[trial.trial_id].error = error
        else:
            ready = prepared.servers[trial.cell.server]
            members.append(Member(trial.trial_id, ready, trial.cell, run.trial(trial.trial_id)))
    if not members:
        return
    names = [member.trial_id for member in members]
    order = slice_order(
        names, cell.slices or 1, f"{prepared.bench.campaign.seed} {unit[0].session}"
    )
    for trial_id, found in measuring(prepared.bench, workload, members, order, step).items():
        fate = fates[trial_id]
        if isinstance(found, Measurement):
            fate.measurement = found
            sync_raw(run.trial(trial_id))
            run.append("raw", trial_id)
        else:
            fate.error = _sentence(found)


def _digest_unit(
    run: RunFolder,
    unit: Sequence[Trial],
    fates: Mapping[str, _Fate],
    digesting: Digesting,
    *,
    is_last: bool,
) -> None:
    """Digest the measured trials, and decide which of them are sealed and which have failed.

    If the machine disturbed one of the trials, all trials of the session fail, so that the session
    is repeated.

    The last attempt (`is_last`) is not repeated. So in the last attempt, a disturbed trial has no
    effect on the other trials of the session. There is one exception: a server that is busy between
    its slices slows the other servers down. If the session has such a server, and a trial of the
    last attempt was disturbed and failed, all trials fail.
    """
    measured = {
        trial: found for trial in unit if (found := fates[trial.trial_id].measurement) is not None
    }
    for trial, digest in digesting(run, measured).items():
        fate = fates[trial.trial_id]
        if not isinstance(digest, Digest):
            fate.error = _sentence(digest)
            continue
        fate.digest = digest
        fate.error = digest.broken or (None if is_last else digest.taken)
        fate.state = "sealed" if fate.error is None else "failed"
    disturbed = next(
        (fate for fate in fates.values() if fate.digest and fate.digest.disturbed and fate.error),
        None,
    )
    # A server that is busy between its slices slows the other servers down. So with such a server,
    # even the trials of the last attempt fail.
    restless = any(fate.digest and fate.digest.restless for fate in fates.values())
    if disturbed is not None and (restless or not is_last):
        for fate in fates.values():
            if fate.state == "sealed":
                fate.state = "failed"
                fate.error = f"its session was disturbed: {disturbed.error}"


def _full_disk(run: RunFolder, sites: Sites) -> str | None:
    """Return a sentence that says which disk is full and what to do.

    Return None if no disk is full.
    """
    rooms: dict[str, int | None] = {}
    for site in sites.all:
        # Ignore a host that cannot be reached, because the trial's own error already says that this
        # host cannot be reached.
        with contextlib.suppress(LabError):
            rooms[f"the host of the {site.name}"] = site.room()
    rooms |= {
        "the run": free_bytes(run.path),
        "temporary files": free_bytes(Path(tempfile.gettempdir())),
    }
    full = next(
        (whose for whose, room in rooms.items() if room is not None and room < FULL_BYTES), None
    )
    remedy = ", or set TMPDIR to a folder on another disk" if full == "temporary files" else ""
    return f"The disk of {full} is full: free some space{remedy}." if full else None


def _verdict(digest: Digest | None) -> RecordedVerdict:
    """Return the fields of trial.json about the verdict.

    If there is no digest, the trial failed before it could be judged, so the verdict is unknown.
    """
    if digest is None:
        return {
            "verdict": Limit.UNKNOWN.verdict,
            "verdict_cause": None,
            "verdict_reason": "the trial failed before it could be judged",
            "evidence": {},
        }
    verdict = digest.verdict
    return {
        "verdict": verdict.limit.verdict,
        "verdict_cause": verdict.cause.value,
        "verdict_reason": reason(verdict),
        "evidence": digest.evidence,
    }


def _record(run: RunFolder, trial: Trial, started: str, fate: _Fate) -> TrialRecord:
    """Return the content of trial.json: all that is known about a trial, even if it failed."""
    digest = fate.digest
    return {
        "schema": SCHEMA,
        "run_id": run.path.name,
        "trial_id": trial.trial_id,
        "order": trial.order,
        "block": trial.block,
        "cell": record_of(trial.cell),
        "attempt": trial.attempt,
        "session": trial.session,
        "started_at": started,
        "ended_at": datetime.now(UTC).isoformat(),
        "status": fate.state,
        "error": None if fate.error is None else public(fate.error),
        "disturbed": digest is not None and digest.disturbed,
        "measurement": asdict(fate.measurement) if fate.measurement else None,
        "checks": [asdict(check) for check in digest.checks] if digest else [],
        **_verdict(digest),
        "mode": digest.mode if digest else None,
        "metrics": digest.metrics if digest else {},
        "raw": raw_hashes(run.trial(trial.trial_id)),
    }
