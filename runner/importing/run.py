"""Make a run from files of k6. Each file becomes a trial, with the file as its raw samples."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from runner.digest.imported import SUMMARY, ImportedDigest, cell_of, digest_imported, samples_of
from runner.digest.imported_usage import SAMPLES
from runner.digest.k6 import read_summary
from runner.digest.tables import build_tables
from runner.importing.cpu.catalogue import CpuFile, read_cpu, write_samples
from runner.importing.files import K6File, recognize
from runner.importing.names import subject_name, trial_ids
from runner.manifest import CampaignOfRun, FileOfRun, Manifest, Origin
from runner.model import SCHEMA, LabError, Trial, record_of
from runner.store import (
    IMPORTED_RAW,
    RunFolder,
    TrialRecord,
    data_folder,
    filling_run,
    free_bytes,
    public,
    raw_hashes,
    runs_folder,
    sha256,
    write_json,
)
from runner.verdict.words import reason

CAMPAIGN = "imported"
SUBJECT = "imported"
"""Name of the server that was loaded, if the user gives no name."""
Progress = Callable[[str, int, int], None]
"""A function that receives a file's name, the number of bytes read so far, and the file's size."""


@dataclass(frozen=True)
class Given:
    """A file of k6 to import, the name of the loaded server, and further files about the load."""

    path: Path
    subject: str = SUBJECT
    summary: Path | None = None
    """k6's summary of the load."""
    cpu: CpuFile | None = None
    """Samples of the server's CPU."""


def _no_progress(_name: str, _read_bytes: int, _bytes: int) -> None:
    """Show no progress."""


def import_files(given: Sequence[Given], progress: Progress = _no_progress) -> RunFolder:
    """Return a new run with a trial for each file.

    Several files of the same subject count as repeats of the same load. If a file cannot be
    imported, raise LabError and leave no run.
    """
    for each in given:
        subject_name(each.subject)
        if each.summary is not None:
            read_summary(each.summary)
    files = [recognize(each.path) for each in given]
    _require_room(files)
    with filling_run(CAMPAIGN) as run:
        _fill(run, given, files, progress)
    return run


def found_or_imported(path: Path, progress: Progress = _no_progress) -> RunFolder:
    """Return the run that was imported from this file and from no other file.

    If there is no such run, import the file, and return the new run.
    """
    wanted = path.stat().st_size
    for known in sorted(runs_folder().glob(f"*-{CAMPAIGN}-*/run.json")):
        run = RunFolder(known.parent)
        origin = run.manifest().origin
        files = () if origin is None else origin.files
        if len(files) == 1 and files[0].bytes == wanted and files[0].sha256 == sha256(path):
            return run
    return import_files([Given(path)], progress)


def _require_room(files: Sequence[K6File]) -> None:
    """Raise LabError if the disk of the runs has too little room for copies of the files."""
    needed = sum(each.path.stat().st_size for each in files)
    free = free_bytes(data_folder())
    if needed > free:
        raise LabError(
            f"The files have {needed / 1e9:.1f} GB, but the disk of the lab has only "
            f"{free / 1e9:.1f} GB free: free some space.",
            exit_code=1,
        )


def _fill(
    run: RunFolder, given: Sequence[Given], files: Sequence[K6File], progress: Progress
) -> None:
    """Write all files of an imported run: raw files, records, manifest and tables."""
    places: Counter[str] = Counter()
    remarks: list[str] = []
    records: list[TrialRecord] = []
    ids = trial_ids([each.subject for each in given])
    for order, (each, file, trial_id) in enumerate(zip(given, files, ids, strict=True), start=1):
        places[each.subject] += 1
        trial = Trial(trial_id, order, places[each.subject], cell_of(each.subject))
        _copy(run, trial, each, file)
        record, said = _digested(run, trial, each, progress)
        records.append(record)
        name = each.path.name
        remarks += [f"{name}: {sentence}" if len(given) > 1 else sentence for sentence in said]
    run.write_manifest(_manifest(run, given, records, remarks))
    for record in records:
        write_json(run.record(record["trial_id"]), record)
        run.append(record["status"], record["trial_id"], error=record["error"])
    build_tables(run)


def _copy(run: RunFolder, trial: Trial, given: Given, file: K6File) -> None:
    """Copy a file of k6 into its trial's folder, with k6's summary and CPU samples if given."""
    folder = run.trial(trial.trial_id)
    folder.mkdir()
    shutil.copyfile(file.path, folder / file.raw_name)
    if given.summary is not None:
        shutil.copyfile(given.summary, folder / SUMMARY)
    if given.cpu is not None:
        write_samples(read_cpu(given.cpu), folder / SAMPLES)


def _digested(
    run: RunFolder, trial: Trial, given: Given, progress: Progress
) -> tuple[TrialRecord, tuple[str, ...]]:
    """Digest a trial, and return its record, and remarks for readers of the report.

    The message of a LabError names the user's file instead of the lab's copy of this file.
    """
    size = given.path.stat().st_size
    try:
        found = digest_imported(
            run, trial, progress=lambda read: progress(given.path.name, read, size)
        )
    except LabError as error:
        copy = samples_of(run.trial(trial.trial_id))
        said = str(error).replace(str(copy), str(given.path))
        raise LabError(said, error.exit_code) from None
    return _record(run, found), found.remarks


def _record(run: RunFolder, found: ImportedDigest) -> TrialRecord:
    """Return the record of an imported trial, which is the content of its trial.json."""
    digest = found.digest
    trial = found.trial
    error = None if digest.broken is None else public(digest.broken)
    return {
        "schema": SCHEMA,
        "run_id": run.path.name,
        "trial_id": trial.trial_id,
        "order": trial.order,
        "block": trial.block,
        "cell": record_of(trial.cell),
        "attempt": trial.attempt,
        "session": None,
        "status": "sealed" if error is None else "failed",
        "error": error,
        "disturbed": False,
        "measurement": None,
        "checks": [asdict(check) for check in digest.checks],
        "verdict": digest.verdict.limit.verdict,
        "verdict_cause": digest.verdict.cause.value,
        "verdict_reason": reason(digest.verdict),
        "evidence": digest.evidence,
        "mode": digest.mode,
        "metrics": digest.metrics,
        "raw": raw_hashes(run.trial(trial.trial_id)),
    }


def _manifest(
    run: RunFolder,
    given: Sequence[Given],
    records: Sequence[TrialRecord],
    remarks: Sequence[str],
) -> Manifest:
    """Return the manifest of an imported run, with the names of the files and the remarks.

    The manifest says nothing about the machine, because the machine is not known.
    """
    files = []
    for each, record in zip(given, records, strict=True):
        samples = next(raw for name, raw in record["raw"].items() if name in IMPORTED_RAW)
        files.append(FileOfRun(name=each.path.name, subject=each.subject, **samples))
    names = ", ".join(each.name for each in files)
    unknown = (
        "machine and versions"
        if any(each.cpu for each in given)
        else "machine, CPU use and versions"
    )
    imported = f"The lab imported {names} and measured nothing itself, so {unknown} are not known."
    return Manifest(
        schema=SCHEMA,
        run_id=run.path.name,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        campaign=CampaignOfRun(
            name=CAMPAIGN,
            title=f"Imported: {names}",
            servers=tuple(dict.fromkeys(each.subject for each in given)),
        ),
        origin=Origin(files=tuple(files)),
        host_warnings=(imported, *dict.fromkeys(remarks)),
    )
