"""Join the trials' parts into the run's tables, and rebuild the tables from raw files.

A part is a file with the rows that one trial adds to one table.
"""

import math
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from runner.columns import columns, schema_of
from runner.digest.imported import digest_imported
from runner.digest.k6_raw import GroupWriter
from runner.digest.loads import part
from runner.digest.trial import Digest, digest_session
from runner.measurement import Measurement
from runner.model import LabError, Trial
from runner.store import (
    OF_SCRIPTS,
    SLICES,
    TABLES,
    RunFolder,
    TrialRecord,
    Values,
    decode,
    replacing,
    sha256,
)

GROUP_ROWS = 200_000  # rows in a row group; with a group per trial, files are five times larger
STEPS = {"t_s": 2**-14, "dt_s": 2**-14, "cpu_pct": 2**-7, "switches_per_s": 2**-3}
"""Steps to which `shrink` rounds values of resources.parquet in an exported run, by column.

The values are rounded to multiples of the step. The steps are far below the sampler's resolution.
They are powers of two, because numbers rounded to such steps end with zero bytes, which compress
well.
"""
Record: TypeAlias = TrialRecord
Spread = Callable[[Callable[[Any], Values], Iterable[Any]], Iterable[Values]]
"""Type of `map`, and of functions like `map` that use many processes.

Unlike `map`, such a function may return the results in any order, and may process an item twice.
"""


def build_tables(run: RunFolder, salvaged: Mapping[str, Record] | None = None) -> None:
    """Write the run's tables from the trials' records and parts, and remove the parts.

    A trial is salvaged if its k6 file is damaged, but the intact samples of the file are used.
    `salvaged` has new records of such trials, by trial id. The tables use these records instead of
    the records on disk, which are not changed.

    Raise LabError if a trial was sealed twice, or if a record has a value of the wrong type.
    """
    records = run.records()
    sealed = [record["order"] for record in records if record["status"] == "sealed"]
    if len(set(sealed)) < len(sealed):
        raise LabError(
            f"{run.path} has a trial that was sealed twice, so statistics would count it "
            "twice: remove one of its two attempts.",
            exit_code=1,
        )
    rows = [_typed_row((salvaged or {}).get(record["trial_id"], record)) for record in records]
    of_scripts = [name for name in OF_SCRIPTS if part(run, name, "_").parent.is_dir()]
    for name in (*_names(records), *of_scripts):
        schema = schema_of(name)
        paths = [part(run, name, record["trial_id"]) for record in records]
        tables = (
            rows if name == "trials" else (pq.read_table(path) for path in paths if path.exists())
        )
        # The doubles of samples hardly ever repeat, so a dictionary does not make the file smaller.
        # But splitting the bytes of the doubles into streams saves a third of the space.
        encoding = _encoding(schema, 9, split=name == "resources")
        with (
            replacing(run.table(name)) as temporary,
            GroupWriter(temporary, schema, GROUP_ROWS, **encoding) as writer,
        ):
            for table in tables:
                writer.write(table.select(schema.names).cast(schema))
    shutil.rmtree(run.tables / "parts", ignore_errors=True)


def _names(records: Iterable[Record]) -> tuple[str, ...]:
    """Return the names of a run's tables, with the table of slices if the run has sessions."""
    return (*TABLES, SLICES) if any(map(_is_sliced, records)) else TABLES


def _is_sliced(record: Record) -> bool:
    return record.get("session") is not None


def _typed_row(record: Record) -> pa.Table:
    """Return a trial's row of tables/trials.parquet as an Arrow table of one row.

    Raise LabError if a value of the record has the wrong type.
    """
    try:
        return pa.Table.from_pylist([trial_row(record)], schema=schema_of("trials"))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise LabError(
            f"The record of {record['trial_id']} has a value of the wrong type ({error}).", 1
        ) from None


def trial_row(record: Record) -> Values:
    """Return a trial's row of tables/trials.parquet from its record."""
    evidence = record.get("evidence") or {}
    known = {**record["cell"], **record, **record["metrics"], **evidence}
    known["trial_order"] = record["order"]
    known["mode"] = record.get("mode") or record["cell"].get("mode")
    return {column.name: known.get(column.name) for column in columns("trials")}


def _encoding(schema: pa.Schema, level: int, *, split: bool) -> dict[str, object]:
    """Return the Parquet options for a table.

    With `split`, the bytes of doubles are split into streams, and all other columns use a
    dictionary. Without `split`, all columns use a dictionary. Each page has a checksum, because
    damaged values could otherwise be read as other numbers.
    """
    doubles = [each.name for each in schema if split and pa.types.is_floating(each.type)]
    others = [name for name in schema.names if name not in doubles]
    return {
        "compression": "zstd",
        "compression_level": level,
        "use_dictionary": others,
        "use_byte_stream_split": doubles,
        "write_page_checksum": True,
    }


def shrink(path: Path) -> None:
    """Make a file resources.parquet smaller: round its values as STEPS says, and compress it more.

    Raise LabError if the file is damaged.
    """
    try:
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise LabError(f"{path.name} is damaged: {error}.", exit_code=1) from None
    for name in set(STEPS) & set(table.column_names):
        rounded = pc.multiply(pc.round(pc.divide(table[name], STEPS[name])), STEPS[name])
        table = table.set_column(table.column_names.index(name), name, rounded)
    pq.write_table(
        table, path, row_group_size=GROUP_ROWS, **_encoding(table.schema, 19, split=True)
    )


def have_tables(run: RunFolder) -> bool:
    """Return whether every table of a run exists and is intact, and covers the run's trials.

    The tables cover the trials if two conditions are met. The table `trials` has the same trials as
    the records, and each sealed trial with a probe has a file with the probe's table. If the run
    has no records, the lab cannot know which trials there should be, so it checks only that the
    tables are intact.
    """
    try:
        records = run.records()
        for name in _names(records):
            pq.read_metadata(run.table(name))
        known = pq.read_table(run.table("trials"), columns=["trial_id"])["trial_id"].to_pylist()
    except (OSError, pa.ArrowException):
        return False
    return not records or (
        set(known) == {each["trial_id"] for each in records} and _have_probes(run, records)
    )


def _have_probes(run: RunFolder, records: Sequence[Record]) -> bool:
    probed = (
        each["trial_id"]
        for each in records
        if each["status"] == "sealed" and "probe.parquet" in each["raw"]
    )
    return all((run.tables / "probe" / f"{trial_id}.parquet").is_file() for trial_id in probed)


def have_parts(run: RunFolder) -> bool:
    """Return whether every sealed trial of a run has its parts of the tables.

    The function looks only for each trial's part of the table `resources`, and for the file with
    the probe's table. These two files stand for all parts of the trial, because a user who removes
    the folder tables/ removes all parts.
    """
    records = run.records()
    sealed = [record["trial_id"] for record in records if record["status"] == "sealed"]
    return all(part(run, "resources", trial_id).is_file() for trial_id in sealed) and _have_probes(
        run, records
    )


def verify_sealed(run: RunFolder) -> None:
    """Check the raw files of every sealed trial against their stored SHA-256.

    Raise LabError if a raw file is missing or differs.
    """
    for record in run.records():
        if record["status"] == "sealed":
            _verify_raw(run, record)


def _verify_raw(run: RunFolder, record: Record) -> None:
    for name, sealed in record["raw"].items():
        path = run.trial(record["trial_id"]) / name
        if not path.is_file():
            raise LabError(
                f"{path} is missing, so the tables of this run cannot be rebuilt: restore "
                "the file.",
                exit_code=1,
            )
        if sha256(path) != sealed["sha256"]:
            raise LabError(
                f"The SHA-256 of {path} differs from the sealed one, so the file has changed since "
                "the trial was sealed: restore the file.",
                exit_code=1,
            )


def ensure_tables(run: RunFolder, say: Callable[[str], None], *, salvage: bool = False) -> None:
    """Rebuild the run's tables if a table is missing, or if damaged samples are to be salvaged.

    Raise LabError if the tables cannot be rebuilt (see `rebuild`).
    """
    intact = have_tables(run)
    if intact and not salvage:
        return
    if run.is_exported:
        found = "" if intact else f"A table in {run.tables} is missing or damaged. "
        raise LabError(found + _no_raw_files(run), exit_code=1)
    say("Rebuilding the tables from the raw samples …")
    rebuild(run, salvage=salvage)


def _no_raw_files(run: RunFolder) -> str:
    """Return sentences that say why an exported run's tables cannot be rebuilt, and what to do."""
    return (
        f"{run.path} is an exported run without raw files, so its tables cannot be rebuilt. Use "
        "the original run, or export it once more."
    )


def rebuild(
    run: RunFolder, *, salvage: bool = False, spread: Spread = map, threads: int = 2
) -> None:
    """Digest all trials again from their sealed raw files, and rewrite the tables.

    With `salvage`, the intact samples of a damaged k6 file are written into the tables, but the
    trial with the damaged file counts as failed. `spread` is `map`, or a function that distributes
    the sessions over processes. Each process uses `threads` threads.

    Raise LabError if the run is an exported copy, if a raw file is missing or has changed, or if a
    metric differs from its value in the sealed record.
    """
    if run.is_exported:
        raise LabError(_no_raw_files(run), exit_code=1)
    is_imported = run.is_imported
    again = partial(
        _rebuild_session,
        run.path.resolve(),
        is_imported=is_imported,
        salvage=salvage,
        threads=threads,
    )
    sessions: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in run.records():
        if record.get("measurement") is not None or is_imported:
            session = record.get("session")
            name = session if session and _is_sliced(record) else record["trial_id"]
            sessions[name, record["attempt"]].append(record)  # trials of one attempt stay together
    salvaged: dict[str, Record] = {}
    for found in spread(again, list(sessions.values())):
        salvaged |= found
    build_tables(run, salvaged)


def _rebuild_session(
    path: Path, session: Sequence[Record], *, is_imported: bool, salvage: bool, threads: int
) -> dict[str, Record]:
    """Rewrite all parts of the tables for a session's trials, and return the salvaged records.

    The keys of the result are the ids of the salvaged trials.

    Raise LabError if a metric of a trial that is not salvaged differs from its value in the trial's
    record. Metrics that the record lacks are not compared, because an earlier version of the lab
    may have computed fewer metrics.

    If a record has no `mode`, an older version of the lab wrote the record. In that version,
    percentiles excluded the time of connecting, and an open load ended with its last answer. So the
    metrics in such a record are not compared if the load was open, or if the observed mode is not
    `keepalive`.
    """
    run = RunFolder(path)
    if is_imported:
        return _rebuild_imported(run, session, threads)
    damaged = [record for record in session if salvage and _damaged(run, record)]
    whole = [record for record in session if record not in damaged]
    salvaged: dict[str, Record] = {}
    for each in damaged:
        for record, digest in _again(run, [each], salvage=True):
            said = (
                f"salvaged: {digest.metrics['requests']} requests from before the damaged place "
                "in the file"
            )
            error = f"{said}; {record['error'] or 'the trial had been sealed'}"
            salvaged[record["trial_id"]] = {
                **record,
                "metrics": digest.metrics,
                "mode": digest.mode,
                "status": "failed",
                "error": error,
            }
    for record in whole:
        _verify_raw(run, record)
    for record, digest in _again(run, whole, threads=threads):
        redefined = record["cell"].get("load_model") == "open" or digest.mode != "keepalive"
        if "mode" not in record and redefined:
            continue
        _require_same(record, digest)
    return salvaged


def _rebuild_imported(run: RunFolder, records: Sequence[Record], threads: int) -> dict[str, Record]:
    """Rewrite all parts of the tables for imported trials.

    Return an empty dictionary, because no imported trial is salvaged. Raise LabError if a metric
    differs from its value in the trial's record.
    """
    for record in records:
        _verify_raw(run, record)
        trial = _trial_of(record, f"{record['trial_id']}: the record of the trial cannot be read")
        _require_same(record, digest_imported(run, trial, threads=threads).digest)
    return {}


def _trial_of(record: Record, said: str) -> Trial:
    """Return the trial that a record describes.

    If the record does not describe a valid trial, raise LabError with a message that begins with
    `said`.
    """
    return decode(Trial, {each.name: record.get(each.name) for each in fields(Trial)}, said)


def _require_same(record: Record, digest: Digest) -> None:
    """Raise LabError if a metric of the digest differs from its value in the sealed record."""
    differing = sorted(
        k for k, v in record["metrics"].items() if not _same(digest.metrics.get(k), v)
    )
    if differing:
        said = "the raw files now give other values than when the trial was sealed"
        raise LabError(f"{record['trial_id']}: {said}: {', '.join(differing)}.", exit_code=1)


def _same(found: object, sealed: object) -> bool:
    """Return whether two values are equal, or differ only by the rounding of floats.

    The rounding may differ, because two versions of the lab may add numbers in different orders.
    """
    if isinstance(found, float) and isinstance(sealed, float):
        return math.isclose(found, sealed, rel_tol=1e-10, abs_tol=1e-10)
    return found == sealed


def _damaged(run: RunFolder, record: Record) -> bool:
    raw = run.trial(record["trial_id"]) / "k6.json.gz"
    sealed = record["raw"].get(raw.name)
    return raw.is_file() and (
        not record["metrics"] or sealed is None or sha256(raw) != sealed["sha256"]
    )


def _again(
    run: RunFolder, records: Sequence[Record], *, salvage: bool = False, threads: int = 2
) -> list[tuple[Record, Digest]]:
    """Digest the trials of a session again, and return pairs of a record and the new digest.

    If a trial cannot be digested, raise the LabError that says why. But without `salvage`, leave
    the trial out if its record has no metrics, because then the trial could not be digested when it
    was recorded, either.
    """
    said = (
        f"{records[0]['trial_id'] if records else ''}: this version of the lab cannot "
        "rebuild tables from the trial's record"
    )
    try:
        trials = [_trial_of(record, said) for record in records]
        measured = [decode(Measurement, record["measurement"], said) for record in records]
        found = digest_session(
            run, dict(zip(trials, measured, strict=True)), salvage=salvage, threads=threads
        )
    except LabError:
        raise
    except Exception as error:
        raise LabError(f"{said} ({type(error).__name__}: {error}).", exit_code=1) from error
    digested = []
    for trial, record in zip(trials, records, strict=True):
        each = found[trial]
        if isinstance(each, Digest):
            digested.append((record, each))
        elif record["metrics"] or salvage:
            raise each
    return digested
