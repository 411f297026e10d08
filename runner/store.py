"""Read and write data/: paths, formats, the schema version, atomic writes, and the journal.

No other module builds paths inside data/.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import json
import lzma
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypeAlias, TypedDict, TypeVar, cast

from runner.generator_traits import TRAITS
from runner.model import SCHEMA, LabError, State
from runner.places import hide_from_git, places
from runner.profiled import DATABASE_STACKS, EVENTS, STACKS

if TYPE_CHECKING:
    import pydantic

    from runner.manifest import Manifest  # imports pydantic, which takes 0.1 s

OF_GENERATORS = tuple(name for traits in TRAITS.values() for name in traits.raw_files)
IMPORTED_RAW = ("k6.json", "k6.json.gz", "k6.json.zst", "k6.csv", "k6.csv.gz", "k6.csv.zst")
"""Possible names of the file with an imported trial's samples."""
RAW_FILES = (
    *dict.fromkeys((*OF_GENERATORS, *IMPORTED_RAW)),
    "resources.parquet",
    "probe.parquet",
    STACKS,
    DATABASE_STACKS,
    EVENTS,
)  # base names, to which `raw_name` adds the numbers of slice and generator
_RAW = re.compile(
    "|".join(
        re.escape(name).replace(r"\.", r"(?:-\d{2,3})?(?:\.g\d{1,2})?\.", 1) for name in RAW_FILES
    )
)
TABLES = ("trials", "latency", "throughput", "resources")
SLICES = "slices"  # additional table of a run with sessions
PROFILES = (
    *("profiles", "profile_slices", "counters"),
    *("timeline_windows", "timeline_samples"),
)  # additional tables of a run with profiles
OF_SCRIPTS = ("endpoints", "checks", "users", "thresholds", "metrics")
"""Additional tables of a run in which users' k6 scripts load the servers."""
OPTIONAL = (SLICES, *PROFILES, *OF_SCRIPTS)  # tables that a run may lack
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
"""Pattern of the ids of runs and trials.

The ids are names of folders, so the pattern permits no path that leads out of the parent folder.
"""
LEFT_OUT = ("all", "seeds", "engines")
"""Names of the committed runs that only a checkout contains, because a wheel leaves them out."""
OWNER = ".owner"
"""Name of a file with the pid of the process that is filling a run's folder.

The process removes the file when it has finished.
"""
LARGEST_JSON = 64 * 2**20
"""A JSON file of more than this many bytes is refused.

A manifest has only a few kB, and the record of a trial only a few dozen kB.
"""
PACKED = "trials.jsonl.xz"
"""Name of the file that contains the records of an exported run.

Each line is a record, and the records are in the order of the trials.
"""
LARGEST_UNPACKED = 256 * 2**20
"""Records of an exported run are refused if they have more than this many bytes after unpacking.

A thousand records have about 6 MB.
"""
T = TypeVar("T")
_DECODERS: dict[type, Any] = {}


def lab_root() -> Path:
    """Return the folder in which the user works: a checkout, $BENCH_ROOT or the current folder."""
    return places().root


def raw_name(name: str, number: int | None, generator: int = 1) -> str:
    """Return the name of a raw file with base name `name`, for one slice and one generator.

    For example, `k6-03.g2.json.gz` is the file of the third slice and the second generator.
    `number` is the number of the slice, or None for a load without slices.
    """
    stem, _, ending = name.partition(".")
    of_slice = "" if number is None else f"-{number:02d}"
    of_generator = "" if generator == 1 else f".g{generator}"
    return f"{stem}{of_slice}{of_generator}.{ending}"


def raw_files(folder: Path) -> list[Path]:
    """Return the raw files in a trial's folder, sorted by name."""
    return (
        sorted(path for path in folder.iterdir() if _RAW.fullmatch(path.name))
        if folder.is_dir()
        else []
    )


def fsync_folder(folder: Path) -> None:
    """Make renamed and new files in `folder` durable, so that they survive a power failure."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _make_folder_of(path: Path) -> None:
    """Create the folder in which `path` will be written.

    If the folder is in the folder of figures, let git ignore the figures (see `hide_from_git`).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    figures = places().figures
    if path.absolute().is_relative_to(figures):
        hide_from_git(figures)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file beside `path`; the caller must write this file.

    On success, fsync the file, rename it to `path`, and fsync the folder. On an error, remove the
    temporary file, and leave `path` unchanged.
    """
    _make_folder_of(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
        fsync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target`, which replaces `target` on success.

    On an error, `target` is unchanged. At the beginning, remove the temporary folders that killed
    processes left beside `target`.
    """
    _make_folder_of(target)
    _remove_abandoned(target)
    suffix = f"{os.getpid()}-{secrets.token_hex(4)}"
    new = target.with_name(f".{target.name}.{suffix}.tmp")
    old = target.with_name(f".{target.name}.{suffix}.old")
    new.mkdir()
    try:
        yield new
        if target.exists():
            target.rename(old)
        try:
            new.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
        fsync_folder(target.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)


def _remove_abandoned(target: Path) -> None:
    """Remove the temporary folders that killed processes left beside `target`.

    The name of such a folder contains the id of its process. If the process still runs, the folder
    is in use, and is kept.
    """
    for folder in target.parent.glob(f".{glob.escape(target.name)}.*-*.tmp"):
        pid = folder.name.removeprefix(f".{target.name}.").partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _as_json(value: Any, indent: int | None = 1) -> bytes:
    """Return `value` as JSON with a final line feed.

    Raise ValueError for NaN, infinities, and text that is not valid Unicode.
    """
    return (json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """Write `value` atomically as indented JSON; raise ValueError for NaN and infinities."""
    with replacing(path) as temporary:
        temporary.write_bytes(_as_json(value))


def _read(path: Path) -> bytes:
    """Return a file's bytes.

    Raise LabError if the path is not a regular file, or if the file is larger than LARGEST_JSON.
    """
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > LARGEST_JSON:
        raise LabError(
            f"{path} is not a file of the lab, because it is not a regular file or has more "
            "than 64 MiB."
        )
    return path.read_bytes()


def read_json(path: Path) -> Any:
    """Return the values of a JSON file.

    Raise LabError if the file is missing, invalid or too large.
    """
    try:
        return json.loads(_read(path).decode())
    except FileNotFoundError:
        raise LabError(f"{path} does not exist.", exit_code=1) from None
    except (ValueError, OSError, RecursionError) as error:
        raise LabError(f"{path} cannot be read as JSON: {error}.", exit_code=1) from None


def decode(kind: type[T], value: Any, said: str, *, more: bool = False, exit_code: int = 1) -> T:
    """Convert plain JSON values to the dataclass `kind` and the dataclasses that it contains.

    If a value is missing or has the wrong type, raise LabError with a message that begins with
    `said`. If `more` is False, also raise LabError for a field that `kind` does not have. Only a
    later version of the lab writes such a field, and it may also have changed the meaning of the
    other fields.
    """
    import pydantic  # noqa: PLC0415 - this import takes 0.1 s, and most commands decode nothing

    if kind not in _DECODERS:
        _DECODERS[kind] = pydantic.TypeAdapter(kind)
    try:
        given = json.dumps(value if isinstance(value, dict) else {})
        found: T = _DECODERS[kind].validate_json(
            given, strict=True, extra="ignore" if more else "forbid"
        )
    except pydantic.ValidationError as error:
        raise LabError(f"{said}: {_first_fault(error)}.", exit_code) from None
    return found


def _first_fault(error: pydantic.ValidationError) -> str:
    """Return a clause that names the first fault of a value, and the location of this fault."""
    fault = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, fault["loc"]))
    if fault["type"] == "model_type":  # pydantic's own message would name a Python class
        return f"{where}: it is not a JSON object"
    message = fault["msg"].removeprefix("Value error, ")
    return f"it has no {where}" if fault["type"] == "missing" else f"{where}: {message}"


def as_manifest(given: Any, where: str) -> Manifest:
    """Convert plain JSON values to a manifest; errors name `where`, the source of the values.

    Fields may be missing, and unknown fields are kept. Raise LabError if the schema is not SCHEMA,
    if the run id is missing, or if a value has a wrong type.
    """
    import pydantic  # noqa: PLC0415 - this import takes 0.1 s, and many commands read no manifest

    from runner.manifest import Manifest  # noqa: PLC0415

    schema = given.get("schema") if isinstance(given, dict) else None
    if schema != SCHEMA:
        raise LabError(
            f"{where} has the format of schema {schema!r}, but this version of the lab "
            f"reads only schema {SCHEMA}: open the run with the version of the lab that "
            "wrote it."
        )
    run_id = given.get("run_id")
    if not isinstance(run_id, str) or not NAME.fullmatch(run_id):
        raise LabError(f"{where} is not a manifest of the lab: it has no run_id.")
    try:
        return Manifest.of(given)
    except pydantic.ValidationError as error:
        raise LabError(f"{where} is not a manifest of the lab: {_first_fault(error)}.") from None


def public(text: str) -> str:
    """Return a text without the private names in it, so that it can be published.

    The paths of the lab's folders, of the user's home and of the folder for temporary files are
    replaced by short names. User and password in a URL are replaced by `***`.
    """
    own = ((lab_root(), "."), (places().data, "DATA"), (Path(__file__).parents[1], "."))
    temporary = Path(tempfile.gettempdir())
    for path, name in (*own, (Path.home(), "~"), (temporary, "TMP")):
        if path != Path("/"):
            text = text.replace(str(path), name)
    return re.sub(r"://[^@/\s]+@", "://***@", text)


def last_line(log: Path) -> str:
    """Return the last line of a program's log as `: "LINE"`, for the end of an error message.

    If there is no line or no log, return an empty text.
    """
    lines = (
        log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if log.exists()
        else []
    )
    return f': "{public(lines[-1])[:200]}"' if lines else ""


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


Values: TypeAlias = dict[str, Any]
"""Values by column name. columns.csv describes the columns."""


class RawFile(TypedDict):
    """Size and SHA-256 of a raw file."""

    bytes: int
    sha256: str


class RecordedVerdict(TypedDict):
    """Fields of trial.json about a trial's verdict."""

    verdict: str
    verdict_cause: str | None
    verdict_reason: str
    evidence: Values


class TrialRecord(TypedDict):
    """Content of trial.json: everything known about one trial, whether it succeeded or failed.

    The fields that are NotRequired may be missing in runs of earlier versions.
    """

    schema: NotRequired[int]
    run_id: NotRequired[str]
    trial_id: str
    order: int
    block: int
    cell: Values
    attempt: int
    session: NotRequired[str | None]
    started_at: NotRequired[str]
    ended_at: NotRequired[str]
    status: State
    error: str | None
    disturbed: bool
    measurement: NotRequired[Values | None]
    checks: NotRequired[list[Values]]
    verdict: NotRequired[str]
    verdict_cause: NotRequired[str | None]
    verdict_reason: NotRequired[str]
    evidence: NotRequired[Values]
    mode: NotRequired[str | None]
    metrics: Values
    raw: dict[str, RawFile]


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run: runs/<run_id>/ in the data folder, or an exported run (data/sample/)."""

    path: Path

    @property
    def tables(self) -> Path:
        """Folder of the tables, which are rebuilt from raw samples."""
        return self.path / "tables"

    @property
    def scripts(self) -> Path:
        """Folder of the run's copy of the user's script."""
        return self.path / "script"

    @property
    def profiles(self) -> ProfileFolder:
        """Folder of the run's profiles. It is like a run's folder, but has no manifest."""
        return ProfileFolder(self.path / "profiles")

    @property
    def journal(self) -> Path:
        """File to which a line is appended whenever a trial's state changes."""
        return self.path / "journal.jsonl"

    @property
    def packed(self) -> Path:
        """File with the records of an exported run. Any other run has a folder for each trial."""
        return self.path / PACKED

    def table(self, name: str) -> Path:
        """Return the path of the table with this name, such as `trials`."""
        return self.tables / f"{name}.parquet"

    def trial(self, trial_id: str) -> Path:
        """Return the folder of one trial."""
        return self.path / "trials" / trial_id

    def record(self, trial_id: str) -> Path:
        """Return the path of one trial's trial.json."""
        return self.trial(trial_id) / "trial.json"

    def manifest(self) -> Manifest:
        """Return the manifest of the run, which is in the file run.json.

        Raise LabError if the file is missing, invalid or of another schema.
        """
        path = self.path / "run.json"
        return as_manifest(read_json(path), str(path))

    @property
    def is_imported(self) -> bool:
        """True if the run was imported from files that the lab had not recorded."""
        return self.manifest().origin is not None

    @property
    def is_exported(self) -> bool:
        """True if the run is an exported copy, which has tables and records, but no raw files."""
        return self.packed.exists()

    def write_manifest(self, manifest: Manifest) -> None:
        """Write run.json atomically, without fields that were not given."""
        write_json(self.path / "run.json", manifest.as_json())

    @property
    def run_id(self) -> str:
        """The run's id from its manifest."""
        return self.manifest().run_id

    def records(self) -> list[TrialRecord]:
        """Return the record of every trial, in the order of the trials.

        Raise LabError if a file is not a trial's record.
        """
        paths = sorted(self.path.glob("trials/*/trial.json"))
        if self.packed.exists() and paths:
            raise LabError(
                f"{self.path} has records of trials both in {PACKED} and in trials/: remove "
                "one of the two."
            )
        read = (_record(read_json(path), str(path), path.parent.name) for path in paths)
        found = _unpacked(self.packed) if self.packed.exists() else read
        return sorted(found, key=lambda record: (record["order"], record["attempt"]))

    def record_hashes(self) -> dict[str, str]:
        """Return the SHA-256 of each trial's trial.json, by trial id.

        For an exported run, these are the hashes of the original files.
        """
        return {
            record["trial_id"]: hashlib.sha256(_text_of(record)).hexdigest()
            for record in self.records()
        }

    def append(self, state: State, trial_id: str, **facts: Any) -> None:
        """Append one fsynced line to the journal: the trial's new state, the time, and `facts`.

        If a crash has left an incomplete last line, first remove that line. The new state that it
        announces was never reached, because the lab acts only after a line is complete.
        """
        line = {"at": datetime.now(UTC).isoformat(), "trial_id": trial_id, "state": state, **facts}
        first = not self.journal.exists()
        with self.journal.open("ab+") as handle:
            handle.seek(max(0, handle.seek(0, os.SEEK_END) - 1))
            if handle.read(1) not in (b"", b"\n"):
                handle.seek(0)
                handle.truncate(handle.read().rfind(b"\n") + 1)
            handle.write((json.dumps(line, ensure_ascii=False) + "\n").encode())
            handle.flush()
            os.fsync(handle.fileno())
        if first:
            fsync_folder(self.path)

    def states(self) -> dict[str, State]:
        """Return the last state of each trial that the journal names, by trial id.

        If a crash has left an incomplete last line, ignore that line.
        """
        states: dict[str, State] = {}
        if not self.journal.exists():
            return states
        for number, line in enumerate(self.journal.read_bytes().split(b"\n")[:-1], start=1):
            said = f"{self.journal}, line {number}, is not a journal entry"
            try:
                entry = decode(_JournalLine, json.loads(line), said, more=True)
            except (ValueError, RecursionError):
                raise LabError(f"{said}.", exit_code=1) from None
            states[entry.trial_id] = entry.state
        return states


@dataclass(frozen=True)
class ProfileFolder(RunFolder):
    """The folder of a run's profiles, with records and raw files as in a run, but no manifest."""

    @property
    def scripts(self) -> Path:
        """Folder of the run's copy of the user's script."""
        return self.path.parent / "script"

    @property
    def is_imported(self) -> bool:
        """False, because the lab records every profile itself."""
        return False


@dataclass(frozen=True)
class _JournalLine:
    trial_id: str
    state: State


@dataclass(frozen=True)
class _RecordedCell:
    """Columns that the cell in every trial.json must have, because trial ids contain them."""

    server: str
    workload: str


@dataclass(frozen=True)
class _Record:
    """Fields that every trial.json has, even if the trial failed."""

    trial_id: str
    order: int
    block: int
    attempt: int
    cell: _RecordedCell
    status: State
    error: str | None
    disturbed: bool
    metrics: Values
    raw: dict[str, Values]
    session: str | None = None


def _record(found: Any, where: str, folder: str | None = None) -> TrialRecord:
    """Check that `found` is a trial's record, and return it.

    `where` names the source of `found` in errors. `folder` is the name of the folder that contains
    the record, or None for an exported run. Raise LabError if `found` lacks a field of a record, if
    it belongs to another trial than `folder`, or if the name of its trial or of a raw file is not
    valid.
    """
    record = decode(_Record, found, f"{where} is not a trial's record", more=True)
    if folder not in (None, record.trial_id):
        raise LabError(
            f"{where} holds the record of another trial than the one after which its folder "
            "is named.",
            exit_code=1,
        )
    if not NAME.fullmatch(record.trial_id) or not all(map(_RAW.fullmatch, record.raw)):
        raise LabError(
            f"{where} is not a trial's record, because the trial or a file that it names "
            "cannot be part of a run.",
            exit_code=1,
        )
    return cast("TrialRecord", found)  # the required fields are checked


def _unpacked(path: Path) -> list[TrialRecord]:
    """Read the records of an exported run.

    Raise LabError if a record is invalid, or if two records are of the same trial.
    """
    unpacker = lzma.LZMADecompressor(
        lzma.FORMAT_XZ, memlimit=128 * 2**20
    )  # a file that was packed at xz's highest level needs at most 65 MiB to unpack
    try:
        data = unpacker.decompress(_read(path), max_length=LARGEST_UNPACKED)
    except (lzma.LZMAError, OSError) as error:
        raise LabError(f"{path} cannot be unpacked: {error}.", exit_code=1) from None
    if not unpacker.eof or unpacker.unused_data:
        raise LabError(
            f"{path} is not a complete file of records: it is cut off, has further data "
            "after its end, or unpacks to more than 256 MiB.",
            exit_code=1,
        )
    records: dict[str, TrialRecord] = {}
    for number, line in enumerate(io.BytesIO(data), start=1):
        where = f"{path}, line {number}"
        try:
            record = _record(json.loads(line.decode()), where)
        except (ValueError, RecursionError) as error:
            raise LabError(f"{where} cannot be read as JSON: {error}.", exit_code=1) from None
        if record["trial_id"] in records:
            raise LabError(f"{where} is a second record of {record['trial_id']}.", exit_code=1)
        records[record["trial_id"]] = record
    return list(records.values())


def _text_of(record: TrialRecord, indent: int | None = 1) -> bytes:
    """Return a record as the bytes of trial.json.

    Raise LabError if the record contains a value that JSON cannot express.
    """
    try:
        return _as_json(record, indent)
    except ValueError as error:
        raise LabError(
            f"The record of {record['trial_id']} cannot be written, because JSON has no "
            f"such value ({error}).",
            1,
        ) from None


@contextlib.contextmanager
def filling_run(campaign: str) -> Iterator[RunFolder]:
    """Yield the folder of a new run, which the caller must fill completely.

    On an error, remove the folder. If the process is killed, the next process that calls this
    function removes the folder.
    """
    _remove_half_filled()
    run = new_run(campaign)
    owner = run.path / OWNER
    owner.write_text(f"{os.getpid()}\n")
    try:
        yield run
        owner.unlink()
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise


def _remove_half_filled() -> None:
    """Remove the folders of runs that killed processes had not filled completely.

    If the process that fills a folder still runs, the folder is kept.
    """
    for owner in runs_folder().glob(f"*/{OWNER}"):
        try:
            pid = owner.read_text().strip()
        except OSError:  # the process has just finished, and removed the file
            continue
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(owner.parent, ignore_errors=True)


def new_run(campaign: str) -> RunFolder:
    """Create the folder of a new run. Its name begins with the time, so that runs sort by time."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = runs_folder() / f"{stamp}-{campaign}-{secrets.token_hex(2)}"
    data_folder()
    (folder / "trials").mkdir(parents=True)
    fsync_folder(folder.parent)
    return RunFolder(folder)


def find_run(run: str) -> RunFolder:
    """Find a run by its id, its path, `latest`, or the name of a committed run (`sample`).

    Raise LabError if the run has no readable manifest, or contains a link or a device.
    """
    if run == "latest":
        known = sorted(path.parent for path in runs_folder().glob("*/run.json"))
        if not known:
            raise LabError(
                "There is no run yet: measure one with `bench run quick`, or use the committed "
                "run `sample`."
            )
        folder = known[-1]
    elif "/" in run or run in {".", ".."}:
        folder = Path(run).expanduser().resolve()
    else:
        kept = (place / run for place in _named_places())
        folder = next((each for each in kept if (each / "run.json").is_file()), runs_folder() / run)
    if not (folder / "run.json").is_file():
        if run in LEFT_OUT:
            places().need_checkout(f"The run {run!r}")
        raise LabError(f"There is no run {run!r}: {folder} has no run.json.")
    found = RunFolder(folder)
    found.manifest()  # raises LabError for an invalid manifest, before any work
    for path in folder.rglob("*"):
        if _is_link_or_device(path):
            raise LabError(
                f"{path} is a link or a device, but a run may contain only regular files: "
                "remove it."
            )
    return found


def _is_link_or_device(path: Path) -> bool:
    """Return True if a path is neither a folder nor a regular file.

    Return False if the path no longer exists, because then it was the temporary file of a process
    that is writing into the run.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISDIR(mode) or stat.S_ISREG(mode))


def figures_folder(run: RunFolder) -> Path:
    """Return the folder of a run's figures: figures/<run_id>/.

    The figures of a committed run are in a folder with the run's name, such as figures/sample/.
    """
    name = run.path.name if run.path.parent in _named_places() else run.run_id
    return places().figures / name


def short_name(run: RunFolder) -> str:
    """Return the shortest text by which `find_run` finds a run: its folder's name, or its path."""
    known = (*_named_places(), runs_folder())
    return run.path.name if run.path.parent in known else str(run.path)


def _named_places() -> tuple[Path, Path]:
    """Return the folders in which `find_run` finds a run by the name of the run's folder."""
    return places().data, places().committed


def remember(run: RunFolder) -> None:
    """Record that a run was begun in this lab, so that `begun_here` returns True for this run.

    The record contains the SHA-256 of the run's manifest.
    """
    note = _note_of(run)
    note.parent.mkdir(exist_ok=True)
    note.write_text(sha256(run.path / "run.json") + "\n", encoding="utf-8")


def begun_here(run: RunFolder) -> bool:
    """Return True if a run was begun in this lab, and its manifest has not changed since then."""
    note = _note_of(run)
    return note.is_file() and note.read_text(encoding="utf-8").strip() == sha256(
        run.path / "run.json"
    )


def _note_of(run: RunFolder) -> Path:
    return places().data / ".begun" / run.path.name


def sweep(run: RunFolder) -> None:
    """Remove temporary files and partial tables that a runner left when it ended early."""
    for path in run.path.rglob(".*.tmp"):
        path.unlink()
    shutil.rmtree(run.tables / "parts", ignore_errors=True)


def data_folder() -> Path:
    """Return the folder of runs, calibrations and locks; create it if it is missing."""
    folder = places().data
    folder.mkdir(parents=True, exist_ok=True)
    hide_from_git(folder)
    return folder


def runs_folder() -> Path:
    """Return the folder of the runs, which the first run creates."""
    return places().data / "runs"


def free_bytes(folder: Path) -> int:
    """Return the number of bytes that this user may still write below `folder`."""
    return shutil.disk_usage(folder).free


def sync_raw(folder: Path) -> None:
    """Make a trial's raw files durable, before the journal records that they exist."""
    for path in raw_files(folder):
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
    fsync_folder(folder)


def raw_hashes(folder: Path) -> dict[str, RawFile]:
    """Return size and SHA-256 of each raw file in a trial's folder, by name."""
    return {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in raw_files(folder)
    }


def export_compact(
    run: RunFolder, destination: Path, shrink: Callable[[Path], None] = lambda _: None
) -> None:
    """Copy the parts of a run that figures need: manifest, journal, records, and tables.

    The table of the load's single requests is left out. `shrink` makes the copied table of
    resources smaller. If `destination` already contains an exported run, the finished copy replaces
    that run. Raise LabError if `destination` contains any other file, or is the folder of the run
    itself.
    """
    if destination.exists() and any(destination.iterdir()):
        known = (destination / name for name in ("run.json", "journal.jsonl", "tables"))
        inside = [
            path.relative_to(destination) for path in destination.rglob("*") if not path.is_dir()
        ]
        ours = all(map(_exported, inside)) and all(path.exists() for path in known)
        if not ours or destination.resolve() == run.path.resolve():
            raise LabError(
                f"{destination} contains files that are not of an exported run, so it is "
                "not replaced: name an empty or a new folder."
            )
    with replacing_folder(destination) as folder:
        tables = folder / "tables"
        tables.mkdir()
        for name in ("run.json", "journal.jsonl"):
            shutil.copy(run.path / name, folder)
        optional = (name for name in OPTIONAL if run.table(name).exists())
        for name in (*TABLES, *optional):
            shutil.copy(run.table(name), tables)
        if (run.tables / "probe").is_dir():
            shutil.copytree(run.tables / "probe", tables / "probe")
        (folder / PACKED).write_bytes(
            lzma.compress(b"".join(_text_of(each, indent=None) for each in run.records()))
        )
        shrink(tables / "resources.parquet")


def _exported(inside: Path) -> bool:
    """Return True if a file can belong to an exported run.

    `inside` is the file's path relative to the run's folder. The files trial.json of trials are
    accepted because earlier versions of the lab exported them.
    """
    if inside.parts[0] == "trials":
        return len(inside.parts) == 3 and inside.name == "trial.json"
    if inside.parts[0] == "tables":
        return inside.parts[1:2] == ("probe",) or inside.stem in (*TABLES, *OPTIONAL)
    return str(inside) in ("run.json", "journal.jsonl", PACKED)
