"""One trial after the other: each attempt measured, digested and recorded, and what ends the run instead."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from runner.digest.trial import Digest, digest_session
from runner.limits import Limit
from runner.measure import machine
from runner.measure.counters import wait_for_room
from runner.measure.loading import Bench
from runner.measure.session import Member, measure
from runner.measure.sites import Sites
from runner.measurement import Measurement
from runner.model import SCHEMA, CannotGoOnError, LabError, State, Trial
from runner.planning.plan import Clock, by_session, next_attempt, slice_order
from runner.planning.search import Searches
from runner.running.preparing import Prepared
from runner.store import RunFolder, free_bytes, public, raw_hashes, sync_raw, write_json

WAIT = "Waiting for room in the kernel's table of tracked connections: the next trial opens up to {:,}."
FULL_BYTES = 16 * 2**20
"""With less room than this on a disk that it writes to, a trial that failed did so for that."""


class Reporter(Protocol):
    """Who hears how a campaign goes."""

    def say(self, text: str) -> None:
        """One line that the user should see."""

    def plan(self, trials: Sequence[Trial]) -> None:
        """The trials to come, in order."""

    def begin(self, trial: Trial) -> None:
        """A trial starts."""

    def step(self, text: str) -> None:
        """What the trial is doing."""

    def end(self, trial: Trial, record: dict[str, Any]) -> None:
        """A trial has ended, with its record."""

    def skip(self, trials: Sequence[Trial]) -> None:
        """Trials that are not needed any more."""


@dataclass(frozen=True)
class Stopping:
    """When a run ends before its last session: with its budget of time, or load by load where a look finds it settled.

    After as many sessions as `looks` has, `look` is asked which loads (by the names of their sessions) need no further
    one, and what to say.
    """

    budget_s: float = math.inf
    until: str = ""
    looks: Collection[int] = ()
    look: Callable[[RunFolder], tuple[Collection[str], str]] | None = None


TO_THE_END = Stopping()


@dataclass(frozen=True)
class RunResult:
    """How a campaign ended."""

    run: RunFolder
    trials: int
    failed: tuple[str, ...]
    """One sentence a failed trial."""
    warnings: tuple[str, ...]


@contextlib.contextmanager
def resumable(run: RunFolder, report: Reporter) -> Iterator[None]:
    """Say how to go on where the user or the machine, not a trial, ends a run: no engine any more, a full disk."""
    go_on = f"`bench run --resume {run.path.name}` goes on."
    try:
        yield
    except KeyboardInterrupt:
        report.say(f"Interrupted: {go_on}")
        raise
    except (CannotGoOnError, OSError) as error:
        said = str(error) if isinstance(error, LabError) else f"The system refused: {error.strerror or error}."
        raise LabError(f"{said} Then {go_on}", exit_code=1) from error


def run_trials(
    bench: Bench,
    run: RunFolder,
    trials: Sequence[Trial],
    prepared: Prepared,
    report: Reporter,
    stopping: Stopping = TO_THE_END,
) -> tuple[str, ...]:
    """Run the trials in order, those of a session side by side; return a sentence for each that failed."""
    machine.raise_open_files()
    report.plan(trials)
    failed = []
    # Of each trial the last attempt, as `note` gets it below: disturbed ones showed nothing.
    searches = Searches({record["order"]: record for record in run.records()}.values())
    for planned in _needed(run, trials, report, stopping):
        unit = [searches.settle(trial) for trial in planned]
        prepared.require_unchanged()
        wait_for_room([trial.cell for trial in unit], lambda needed: report.say(WAIT.format(needed)))
        report.begin(unit[0])
        records = _run_unit(bench, run, unit, prepared, report.step)
        attempt = records[0]["attempt"]
        while (why := [each["error"] for each in records if each["disturbed"]]) and attempt < prepared.attempts:
            report.say(f"{unit[0].session or records[0]['trial_id']} is repeated: {why[0]}")
            attempt += 1
            again = [next_attempt(trial, attempt) for trial in unit]
            records = _run_unit(bench, run, again, prepared, report.step)
        for trial, record in zip(unit, records, strict=True):
            if record["status"] == "interrupted":
                raise CannotGoOnError(record["error"])
            searches.note(record)
            report.end(trial, record)
            if record["error"] is not None:
                failed.append(f"{record['trial_id']}: {record['error']}")
    return tuple(failed)


def _needed(run: RunFolder, trials: Sequence[Trial], report: Reporter, stopping: Stopping) -> Iterator[list[Trial]]:
    """Yield the sessions, and trials of their own, that are needed and within the budget when their turn comes."""
    clock, looked, settled, units = Clock(trials), 0, frozenset[str](), by_session(trials)
    for number, unit in enumerate(units):
        done = unit[0].block - 1
        if stopping.look is not None and done in stopping.looks and done > looked:
            looked = done
            found, words = stopping.look(run)
            settled = frozenset(found)
            report.say(f"After {done} sessions {words}.")
        if unit[0].session is not None and unit[0].session.partition("-")[2] in settled:
            clock.skip(unit)
            report.skip(unit)
            continue
        if clock.elapsed_s() + clock.takes_s(unit) > stopping.budget_s:
            left = sum(map(len, units[number:]))
            go_on = f"`bench run --resume {run.path.name}` goes on"
            budget = f"{stopping.budget_s / 60:g} min" if stopping.budget_s >= 60 else f"{stopping.budget_s:g} s"
            report.say(f"The budget of {budget} ends here, with {left} trials left: {go_on}.")
            report.skip([trial for rest in units[number:] for trial in rest])
            return
        yield unit
        clock.end(unit)


@dataclass
class _Fate:
    """What became of one trial so far."""

    state: State = "failed"
    error: str | None = None
    measurement: Measurement | None = None
    digest: Digest | None = None


def _run_unit(
    bench: Bench, run: RunFolder, unit: Sequence[Trial], prepared: Prepared, step: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Measure, digest and record a session, or a single trial; return the records.

    An interruption is recorded and raised again. A session is kept or lost as a whole: where one of its trials was
    disturbed, all are to be repeated.
    """
    for trial in unit:
        run.append("running", trial.trial_id)  # first: a folder without it would be in the way of a resumed run
        run.trial(trial.trial_id).mkdir(parents=True)
    started = datetime.now(UTC).isoformat()
    fates = {trial.trial_id: _Fate() for trial in unit}
    try:
        _measure_unit(bench, run, unit, prepared, step, fates)
        step("digest")
        _digest_unit(run, unit, fates, is_last=unit[0].attempt >= prepared.attempts)
    except KeyboardInterrupt:
        _end_all(fates, "interrupted", "interrupted before its end")
        raise
    except CannotGoOnError as lost:
        _end_all(fates, "interrupted", str(lost))
    except Exception as unknown:  # noqa: BLE001 - the trial's boundary: whatever happened is recorded, the next trial runs
        _end_all(fates, "failed", _sentence(unknown))
    finally:
        if any(fate.state == "failed" for fate in fates.values()) and (full := _full_disk(run, bench.sites)):
            said = next((fate.error for fate in fates.values() if fate.error is not None), None)
            _end_all(fates, "interrupted", f"{full} The trial said: {said}")
        records = [_record(run, trial, started, fates[trial.trial_id]) for trial in unit]
        for record in records:
            write_json(run.trial(record["trial_id"]) / "trial.json", record)
        for record in records:
            run.append(record["status"], record["trial_id"], error=record["error"])
    return records


def _end_all(fates: Mapping[str, _Fate], state: State, error: str) -> None:
    """Note the end of every trial that has no error yet."""
    for fate in fates.values():
        fate.state, fate.error = state, fate.error if state == "failed" and fate.error is not None else error


def _sentence(error: Exception) -> str:
    """Return an error as it stands in a record."""
    if isinstance(error, LabError):
        return str(error)
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return f"the system refused: {error.strerror or error}{where}"
    return f"{type(error).__name__}: {error}"


def _measure_unit(
    bench: Bench,
    run: RunFolder,
    unit: Sequence[Trial],
    prepared: Prepared,
    step: Callable[[str], None],
    fates: Mapping[str, _Fate],
) -> None:
    """Measure what can be measured of a session; the rest has its error."""
    cell = unit[0].cell
    workload = prepared.workloads[cell.workload]
    members = []
    for trial in unit:
        fates[trial.trial_id].error = prepared.error_for(trial.cell, workload)
        if fates[trial.trial_id].error is None:
            ready = prepared.servers[trial.cell.server]
            members.append(Member(trial.trial_id, ready, trial.cell, run.trial(trial.trial_id)))
    if not members:
        return
    order = [(members[0].trial_id, 1)]
    if cell.slices is not None:
        order = slice_order([member.trial_id for member in members], cell.slices, f"{prepared.seed} {unit[0].session}")
    for trial_id, found in measure(bench, workload, members, order, step).items():
        fate = fates[trial_id]
        if isinstance(found, Measurement):
            fate.measurement = found
            sync_raw(run.trial(trial_id))
            run.append("raw", trial_id)
        else:
            fate.error = _sentence(found)


def _digest_unit(run: RunFolder, unit: Sequence[Trial], fates: Mapping[str, _Fate], *, is_last: bool) -> None:
    """Digest what was measured; a session that the machine disturbed is failed as a whole."""
    measured = {trial: found for trial in unit if (found := fates[trial.trial_id].measurement) is not None}
    for trial, digest in digest_session(run, measured).items():
        fate = fates[trial.trial_id]
        if not isinstance(digest, Digest):
            fate.error = _sentence(digest)
            continue
        fate.digest = digest
        fate.error = digest.broken or (None if is_last else digest.taken)
        fate.state = "sealed" if fate.error is None else "failed"
    disturbed = next((fate for fate in fates.values() if fate.digest and fate.digest.disturbed and fate.error), None)
    # Who does not rest takes CPU from the others, in the last attempt too.
    restless = any(fate.digest and fate.digest.restless for fate in fates.values())
    if disturbed is not None and (restless or not is_last):
        for fate in fates.values():
            if fate.state == "sealed":
                fate.state, fate.error = "failed", f"its session was disturbed: {disturbed.error}"


def _full_disk(run: RunFolder, sites: Sites) -> str | None:
    """Say which disk is full, and what to do; None where none is."""
    for site in sites.all:
        with contextlib.suppress(LabError):  # a host that is gone: the trial has said so
            if (room := site.room()) is not None and room < FULL_BYTES:
                return f"The disk of the host of the {site.name} is full: free some of it."
    if free_bytes(run.path) < FULL_BYTES:
        return "The disk of the run is full: free some of it."
    if free_bytes(Path(tempfile.gettempdir())) < FULL_BYTES:
        return "The disk of temporary files is full: free some of it, or set TMPDIR to a folder elsewhere."
    return None


def _record(run: RunFolder, trial: Trial, started: str, fate: _Fate) -> dict[str, Any]:
    """Return trial.json: everything that is known of a trial, whatever became of it."""
    digest = fate.digest
    return {
        "schema": SCHEMA,
        "run_id": run.path.name,
        **asdict(trial),
        "started_at": started,
        "ended_at": datetime.now(UTC).isoformat(),
        "status": fate.state,
        "error": None if fate.error is None else public(fate.error),
        "disturbed": digest is not None and digest.disturbed,
        "measurement": asdict(fate.measurement) if fate.measurement else None,
        "checks": [asdict(check) for check in digest.checks] if digest else [],
        "verdict": digest.verdict.verdict if digest else Limit.UNKNOWN.verdict,
        "verdict_reason": digest.verdict.reason if digest else "the trial failed before it could be judged",
        "mode": digest.mode if digest else None,
        "metrics": digest.metrics if digest else {},
        "raw": raw_hashes(run.trial(trial.trial_id)),
    }
