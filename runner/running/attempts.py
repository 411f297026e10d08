"""One trial after the other: each attempt measured, digested and recorded, and what ends the run instead."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from runner.digest.trial import Digest, digest_trial
from runner.measure import machine
from runner.measure.conntrack import wait_for_room
from runner.measure.loading import Bench
from runner.measure.trial import measure
from runner.measurement import Measurement
from runner.model import SCHEMA, CannotGoOnError, LabError, State, Trial
from runner.planning.plan import next_attempt
from runner.planning.search import Searches
from runner.running.preparing import Prepared
from runner.store import RunFolder, free_bytes, public, raw_hashes, sync_raw, write_json

WAIT = "Waiting for room in the kernel's table of tracked connections: the next trial opens up to {:,}."
ATTEMPTS = 3
"""How often a trial is tried that the machine disturbed. The last attempt stands if it keeps every invariant."""
FULL_BYTES = 16 * 2**20
"""With less room than this on a disk that it writes to, a trial that failed did so for that."""


class Reporter(Protocol):
    """Who is told how a campaign goes."""

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


@dataclass(frozen=True)
class Outcome:
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
    bench: Bench, run: RunFolder, trials: Sequence[Trial], prepared: Prepared, report: Reporter
) -> tuple[str, ...]:
    """Run the trials in order; return a sentence for each that failed."""
    machine.raise_open_files()
    report.plan(trials)
    failed = []
    # Of each trial the last attempt, as `note` is told below: disturbed ones showed nothing.
    searches = Searches({record["order"]: record for record in run.records()}.values())
    for planned in trials:
        trial = searches.settle(planned)
        prepared.require_unchanged()
        wait_for_room(trial.cell, lambda needed: report.say(WAIT.format(needed)))
        report.begin(trial)
        record = _run_trial(bench, run, trial, prepared, report.step)
        while record["disturbed"] and record["attempt"] < ATTEMPTS:
            report.say(f"{record['trial_id']} is repeated: {record['error']}")
            again = next_attempt(trial, record["attempt"] + 1)
            record = _run_trial(bench, run, again, prepared, report.step)
        if record["status"] == "interrupted":
            raise CannotGoOnError(record["error"])
        searches.note(record)
        report.end(trial, record)
        if record["error"] is not None:
            failed.append(f"{record['trial_id']}: {record['error']}")
    return tuple(failed)


def _run_trial(
    bench: Bench, run: RunFolder, trial: Trial, prepared: Prepared, step: Callable[[str], None]
) -> dict[str, Any]:
    """Measure, digest and record one trial; return its record. An interruption is recorded and goes on up."""
    run.append("running", trial.trial_id)  # first: a folder without it would be in the way of a resumed run
    run.trial(trial.trial_id).mkdir(parents=True)
    started = datetime.now(UTC).isoformat()
    measurement: Measurement | None = None
    digest: Digest | None = None
    state: State = "failed"
    error: str | None = None
    try:
        measurement = _measure(bench, trial, prepared, run, step)
        sync_raw(run.trial(trial.trial_id))
        run.append("raw", trial.trial_id)
        step("digest")
        digest = digest_trial(run, trial, measurement)
        error = digest.broken or (digest.taken if trial.attempt < ATTEMPTS else None)
        state = "sealed" if error is None else "failed"
    except KeyboardInterrupt:
        state, error = "interrupted", "interrupted before its end"
        raise
    except CannotGoOnError as lost:
        state, error = "interrupted", str(lost)
    except LabError as known:
        error = str(known)
    except OSError as refused:
        where = f": {refused.filename}" if refused.filename else ""
        error = f"the system refused: {refused.strerror or refused}{where}"
    except Exception as unknown:  # noqa: BLE001 - the trial's boundary: whatever happened is recorded, the next trial runs
        error = f"{type(unknown).__name__}: {unknown}"
    finally:
        if state == "failed" and (full := _full_disk(run)):
            state, error = "interrupted", f"{full} The trial said: {error}."
        error = None if error is None else public(error)
        record = _record(run, trial, started, state, error, measurement, digest)
        write_json(run.trial(trial.trial_id) / "trial.json", record)
        run.append(state, trial.trial_id, error=error)
    return record


def _full_disk(run: RunFolder) -> str | None:
    """Say which disk is full, and what to do; None where none is."""
    if free_bytes(run.path) < FULL_BYTES:
        return "The disk of the run is full: free some of it."
    if free_bytes(Path(tempfile.gettempdir())) < FULL_BYTES:
        return "The disk of temporary files is full: free some of it, or set TMPDIR to a folder elsewhere."
    return None


def _measure(
    bench: Bench, trial: Trial, prepared: Prepared, run: RunFolder, step: Callable[[str], None]
) -> Measurement:
    workload = prepared.workloads[trial.cell.workload]
    error = prepared.error_for(trial.cell, workload)
    if error is not None:
        raise LabError(error, exit_code=1)
    ready = prepared.servers[trial.cell.server]
    return measure(bench, ready, workload, trial.cell, run.trial(trial.trial_id), step)


def _record(
    run: RunFolder,
    trial: Trial,
    started: str,
    state: State,
    error: str | None,
    measurement: Measurement | None,
    digest: Digest | None,
) -> dict[str, Any]:
    """Return trial.json: everything that is known of a trial, whatever became of it."""
    return {
        "schema": SCHEMA,
        "run_id": run.path.name,
        **asdict(trial),
        "started_at": started,
        "ended_at": datetime.now(UTC).isoformat(),
        "status": state,
        "error": error,
        "disturbed": digest is not None and digest.disturbed,
        "measurement": measurement.to_json() if measurement else None,
        "checks": [asdict(check) for check in digest.checks] if digest else [],
        "verdict": digest.verdict.verdict if digest else "inconclusive",
        "verdict_reason": digest.verdict.reason if digest else "the trial failed before it could be judged",
        "mode": digest.mode if digest else None,
        "metrics": digest.metrics if digest else {},
        "raw": raw_hashes(run.trial(trial.trial_id)),
    }
