"""The only module that knows data/: paths, formats, schema version, atomic writes and the
journal.
"""

from __future__ import annotations

import contextlib
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

if TYPE_CHECKING:
    import pydantic

    from runner.manifest import Manifest  # imports pydantic, which takes 0.1 s

OF_GENERATORS = tuple(name for traits in TRAITS.values() for name in traits.raw_files)
RAW_FILES = (*OF_GENERATORS, "resources.parquet", "probe.parquet")  # as `raw_name` numbers them
_RAW = re.compile(
    "|".join(
        re.escape(name).replace(r"\.", r"(?:-\d{2,3})?(?:\.g\d{1,2})?\.", 1) for name in RAW_FILES
    )
)
TABLES = ("trials", "latency", "throughput", "resources")
SLICES = "slices"  # one table more, of a run with sessions
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
"""Ids of runs and trials: names of folders, which cannot lead out of the folder that they are in.
"""
LARGEST_JSON = 64 * 2**20  # a manifest has some kB, a trial's record some dozen
PACKED = "trials.jsonl.xz"
"""The records of an exported run, a line each, in the order of the trials."""
LARGEST_UNPACKED = 256 * 2**20  # a thousand records have 6 MB
T = TypeVar("T")
_DECODERS: dict[type, Any] = {}


def lab_root() -> Path:
    """Return the folder that holds servers/ and notebooks/: $BENCH_ROOT, else the nearest one
    upwards from here.

    Falls back to the checkout that this package was installed from in editable mode.
    """
    named = os.environ.get("BENCH_ROOT")
    candidates = (
        [Path(named)] if named else [Path.cwd(), *Path.cwd().parents, Path(__file__).parents[1]]
    )
    for folder in candidates:
        if (folder / "servers").is_dir() and (folder / "notebooks").is_dir():
            return folder.resolve()
    where = f"$BENCH_ROOT ({named})" if named else f"{Path.cwd()} or any folder above it"
    raise LabError(
        f"No lab in {where}: run this inside a checkout (the folder with servers/ and "
        "notebooks/), or set BENCH_ROOT."
    )


def raw_name(name: str, number: int | None, generator: int = 1) -> str:
    """Return a raw file's name: `k6-03.g2.json.gz` of the third slice and second generator, plain
    without either.
    """
    stem, _, ending = name.partition(".")
    of_slice = "" if number is None else f"-{number:02d}"
    of_generator = "" if generator == 1 else f".g{generator}"
    return f"{stem}{of_slice}{of_generator}.{ending}"


def raw_files(folder: Path) -> list[Path]:
    """Return the raw files in a trial's folder, by name."""
    return (
        sorted(path for path in folder.iterdir() if _RAW.fullmatch(path.name))
        if folder.is_dir()
        else []
    )


def fsync_folder(folder: Path) -> None:
    """Make renames and new names in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`.

    On success fsync it, rename it to `path` and fsync the folder.

    On an error the temporary file is removed and whatever stood at `path` is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
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
    """Yield a temporary folder beside `target`, which takes its place once all is written.

    Else nothing changes.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    suffix = secrets.token_hex(4)
    new, old = (target.with_name(f".{target.name}.{suffix}.{end}") for end in ("tmp", "old"))
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


def _as_json(value: Any, indent: int | None = 1) -> bytes:
    """Return `value` as JSON that ends its line.

    ValueError for NaN, infinities and what is no Unicode.
    """
    return (json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically.

    NaN and infinities are refused with ValueError.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(_as_json(value))


def _read(path: Path) -> bytes:
    """Return what a file holds; LabError if it is no regular file, or a huge one."""
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > LARGEST_JSON:
        raise LabError(
            f"{path} is no file of the lab: it is not a regular file, or has more than 64 MiB."
        )
    return path.read_bytes()


def read_json(path: Path) -> Any:
    """Read a JSON file; a missing, broken or huge one is a LabError that names it."""
    try:
        return json.loads(_read(path).decode())
    except FileNotFoundError:
        raise LabError(f"{path} does not exist.", exit_code=1) from None
    except (ValueError, OSError, RecursionError) as error:
        raise LabError(f"{path} cannot be read as JSON: {error}.", exit_code=1) from None


def decode(kind: type[T], value: Any, said: str, *, more: bool = False, exit_code: int = 1) -> T:
    """Return plain JSON values as the frozen dataclass `kind`, with all that is in it.

    LabError, which begins with `said`, where a value is missing or of another type, or (unless
    `more`) where there is one that `kind` does not have: a later version may mean something else by
    the others.
    """
    import pydantic  # noqa: PLC0415 - it takes 0.1 s, and most commands decode nothing

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
    """Say what is wrong first in a value, and where in it."""
    fault = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, fault["loc"]))
    if fault["type"] == "model_type":  # pydantic would name a class of ours
        return f"{where}: it is no JSON object"
    message = fault["msg"].removeprefix("Value error, ")
    return f"it has no {where}" if fault["type"] == "missing" else f"{where}: {message}"


def as_manifest(given: Any, where: str) -> Manifest:
    """Return plain values of JSON as a manifest.

    LabError, which names `where` they are from, for another schema, without a run's id, and if a
    value is of another type than the lab writes. Fields may be missing, and unknown ones are kept.
    """
    import pydantic  # noqa: PLC0415 - it takes 0.1 s, and many commands read no manifest

    from runner.manifest import Manifest  # noqa: PLC0415

    schema = given.get("schema") if isinstance(given, dict) else None
    if schema != SCHEMA:
        raise LabError(
            f"{where} has schema {schema!r}; this version of the lab reads schema {SCHEMA}."
        )
    run_id = given.get("run_id")
    if not isinstance(run_id, str) or not NAME.fullmatch(run_id):
        raise LabError(f"{where} names no run_id: it is not a manifest of the lab.")
    try:
        return Manifest.of(given)
    except pydantic.ValidationError as error:
        raise LabError(f"{where} is not a manifest of the lab: {_first_fault(error)}.") from None


def public(text: str) -> str:
    """Return a text as it may be published: no path of this machine above the lab, no password in a
    URL.
    """
    package = Path(__file__).parents[1]
    temporary = Path(tempfile.gettempdir())
    for path, name in ((lab_root(), "."), (package, "."), (Path.home(), "~"), (temporary, "TMP")):
        if path != Path("/"):
            text = text.replace(str(path), name)
    return re.sub(r"://[^@/\s]+@", "://***@", text)


def last_line(log: Path) -> str:
    """Return `: "what a program said last in its log"`, or nothing if it said nothing."""
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
"""Values by name, as columns.csv has the columns of the tables."""


class RawFile(TypedDict):
    """Size and SHA-256 of a raw file."""

    bytes: int
    sha256: str


class RecordedVerdict(TypedDict):
    """What trial.json says of a trial's verdict."""

    verdict: str
    verdict_cause: str | None
    verdict_reason: str
    evidence: Values


class TrialRecord(TypedDict):
    """Everything that is known of one trial: trial.json, whatever became of it.

    What is not required was not written by every version.
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
    """One run on disk: data/runs/<run_id>/, or an exported one such as data/sample/."""

    path: Path

    @property
    def tables(self) -> Path:
        """Folder of the tables rebuilt from raw."""
        return self.path / "tables"

    @property
    def scripts(self) -> Path:
        """Folder of the run's copy of a script that the user brought."""
        return self.path / "script"

    @property
    def journal(self) -> Path:
        """The append-only log of state changes."""
        return self.path / "journal.jsonl"

    @property
    def packed(self) -> Path:
        """The records of an exported run; one that is not exported has a folder for each trial."""
        return self.path / PACKED

    def table(self, name: str) -> Path:
        """Path of a table by its name, such as `trials`."""
        return self.tables / f"{name}.parquet"

    def trial(self, trial_id: str) -> Path:
        """Folder of one trial."""
        return self.path / "trials" / trial_id

    def record(self, trial_id: str) -> Path:
        """File with what is known of one trial."""
        return self.trial(trial_id) / "trial.json"

    def manifest(self) -> Manifest:
        """Return run.json; LabError if it is missing, broken or of another schema."""
        path = self.path / "run.json"
        return as_manifest(read_json(path), str(path))

    def write_manifest(self, manifest: Manifest) -> None:
        """Write run.json, atomically: what was given, and no defaults."""
        write_json(self.path / "run.json", manifest.as_json())

    @property
    def run_id(self) -> str:
        """The run's id as its manifest gives it."""
        return self.manifest().run_id

    def records(self) -> list[TrialRecord]:
        """Return the record of every trial, in the order of the trials.

        LabError for one that is of something else.
        """
        paths = sorted(self.path.glob("trials/*/trial.json"))
        if self.packed.exists() and paths:
            raise LabError(
                f"{self.path} has records both in {PACKED} and in trials/: it is no run of the lab."
            )
        read = (_record(read_json(path), str(path), path.parent.name) for path in paths)
        found = _unpacked(self.packed) if self.packed.exists() else read
        return sorted(found, key=lambda record: (record["order"], record["attempt"]))

    def record_hashes(self) -> dict[str, str]:
        """Return the SHA-256 of each trial's trial.json, as it is or was before the run was
        exported; by trial id.
        """
        return {
            record["trial_id"]: hashlib.sha256(_text_of(record)).hexdigest()
            for record in self.records()
        }

    def append(self, state: State, trial_id: str, **facts: Any) -> None:
        """Append one fsynced line to the journal: the trial's new state, when, and `facts`.

        A torn last line, of a crash while appending, goes: what it was to say had not happened yet.
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
        """Return the last state of each trial.

        A torn last line (a crash while appending) is left out.
        """
        states: dict[str, State] = {}
        if not self.journal.exists():
            return states
        for number, line in enumerate(self.journal.read_bytes().split(b"\n")[:-1], start=1):
            said = f"{self.journal}, line {number}: not a journal entry"
            try:
                entry = decode(_JournalLine, json.loads(line), said, more=True)
            except (ValueError, RecursionError):
                raise LabError(f"{said}.", exit_code=1) from None
            states[entry.trial_id] = entry.state
        return states


@dataclass(frozen=True)
class _JournalLine:
    trial_id: str
    state: State


@dataclass(frozen=True)
class _Record:
    """What every trial.json has, whatever became of the trial."""

    trial_id: str
    order: int
    block: int
    attempt: int
    cell: Values
    status: State
    error: str | None
    disturbed: bool
    metrics: Values
    raw: dict[str, Values]
    session: str | None = None


def _record(found: Any, where: str, folder: str | None = None) -> TrialRecord:
    """Return a trial's record.

    LabError if it is not one of this version, or names foreign folders or files.
    """
    record = decode(_Record, found, f"{where} is not a trial's record", more=True)
    if folder not in (None, record.trial_id):
        raise LabError(
            f"{where} is not the record of the trial that its folder is named after.", exit_code=1
        )
    if not NAME.fullmatch(record.trial_id) or not all(map(_RAW.fullmatch, record.raw)):
        raise LabError(
            f"{where} is not a trial's record: it names a trial or a file that no run has.",
            exit_code=1,
        )
    return cast("TrialRecord", found)  # what it must have is there


def _unpacked(path: Path) -> list[TrialRecord]:
    """Read the records of an exported run.

    LabError if one is broken, or of a trial that another one is of.
    """
    unpacker = lzma.LZMADecompressor(
        lzma.FORMAT_XZ, memlimit=128 * 2**20
    )  # at its highest level xz takes 65 MiB
    try:
        data = unpacker.decompress(_read(path), max_length=LARGEST_UNPACKED)
    except (lzma.LZMAError, OSError) as error:
        raise LabError(f"{path} cannot be unpacked: {error}.", exit_code=1) from None
    if not unpacker.eof or unpacker.unused_data:
        raise LabError(
            f"{path} is cut off, goes on after its end, or unpacks to more than 256 MiB.",
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
    """Return a record's bytes as trial.json has them.

    LabError if a value is none that the lab writes.
    """
    try:
        return _as_json(record, indent)
    except ValueError as error:
        raise LabError(
            f"The record of {record['trial_id']} has a value that no trial has ({error}).", 1
        ) from None


def new_run(campaign: str) -> RunFolder:
    """Create the folder of a new run under data/runs/; its name sorts by time."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = lab_root() / "data" / "runs" / f"{stamp}-{campaign}-{secrets.token_hex(2)}"
    (folder / "trials").mkdir(parents=True)
    fsync_folder(folder.parent)
    return RunFolder(folder)


def find_run(run: str) -> RunFolder:
    """Resolve a run id, a path, `latest` or the name of a committed run (`sample`) to a run folder.

    LabError if it has no readable manifest.
    """
    data = lab_root() / "data"
    if run == "latest":
        known = sorted(path.parent for path in data.glob("runs/*/run.json"))
        if not known:
            raise LabError("There is no run yet: make one with `bench run quick`, or use `sample`.")
        folder = known[-1]
    elif "/" in run or run in {".", ".."}:
        folder = Path(run).expanduser().resolve()
    else:
        committed = data / run / "run.json"
        folder = committed.parent if committed.is_file() else data / "runs" / run
    if not (folder / "run.json").is_file():
        raise LabError(f"There is no run {run!r}: no run.json in {folder}.")
    found = RunFolder(folder)
    found.manifest()  # a broken one is refused before any work
    for path in folder.rglob("*"):
        if not (path.is_dir() or path.is_file()) or path.is_symlink():
            raise LabError(f"{path} is a link or a device: a run of the lab holds files only.")
    return found


def figures_folder(run: RunFolder) -> Path:
    """Return figures/<run_id>/, or for a committed run the folder of its name, such as
    figures/sample/.
    """
    root = lab_root()
    name = run.path.name if run.path.parent == root / "data" else run.run_id
    return root / "figures" / name


def short_name(run: RunFolder) -> str:
    """Return the shortest name by which `find_run` finds a run again."""
    data = lab_root() / "data"
    return run.path.name if run.path.parent in {data, data / "runs"} else str(run.path)


def remember(run: RunFolder) -> None:
    """Note that a run was begun here, with the manifest that it has; `begun_here` asks for it."""
    note = _note_of(run)
    note.parent.mkdir(exist_ok=True)
    note.write_text(sha256(run.path / "run.json") + "\n", encoding="utf-8")


def begun_here(run: RunFolder) -> bool:
    """Return whether a run was begun in this lab, and has the manifest still that it began with."""
    note = _note_of(run)
    return note.is_file() and note.read_text(encoding="utf-8").strip() == sha256(
        run.path / "run.json"
    )


def _note_of(run: RunFolder) -> Path:
    return lab_root() / "data" / ".begun" / run.path.name


def sweep(run: RunFolder) -> None:
    """Remove what a runner that died had half written: temporary files, and tables' parts."""
    for path in run.path.rglob(".*.tmp"):
        path.unlink()
    shutil.rmtree(run.tables / "parts", ignore_errors=True)


def data_folder() -> Path:
    """Return the lab's data/, made if it is missing: runs, what was published, and what this
    machine can do.
    """
    folder = lab_root() / "data"
    folder.mkdir(exist_ok=True)
    return folder


def free_bytes(folder: Path) -> int:
    """Return how much more may be written below `folder`, by this user."""
    return shutil.disk_usage(folder).free


def sync_raw(folder: Path) -> None:
    """Make a trial's raw files durable, as the journal is about to say that they are there."""
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
    """Copy what figures need (manifest, journal, records, tables without single requests), a large
    table shrunk.

    An exported run there is replaced, once the copy is complete; a folder that holds anything else
    is a LabError.
    """
    if destination.exists() and any(destination.iterdir()):
        known = (destination / name for name in ("run.json", "journal.jsonl", "tables"))
        inside = [
            path.relative_to(destination) for path in destination.rglob("*") if not path.is_dir()
        ]
        ours = all(map(_exported, inside)) and all(path.exists() for path in known)
        if not ours or destination.resolve() == run.path.resolve():
            raise LabError(
                f"{destination} holds something else than an exported run: name an empty or a "
                "new folder."
            )
    with replacing_folder(destination) as folder:
        tables = folder / "tables"
        tables.mkdir()
        for name in ("run.json", "journal.jsonl"):
            shutil.copy(run.path / name, folder)
        for name in (*TABLES, *([SLICES] if run.table(SLICES).exists() else [])):
            shutil.copy(run.table(name), tables)
        if (run.tables / "probe").is_dir():
            shutil.copytree(run.tables / "probe", tables / "probe")
        (folder / PACKED).write_bytes(
            lzma.compress(b"".join(_text_of(each, indent=None) for each in run.records()))
        )
        shrink(tables / "resources.parquet")


def _exported(inside: Path) -> bool:
    """Return whether an exported run has such a file.

    Those of earlier versions have a trial.json for each trial.
    """
    if inside.parts[0] == "trials":
        return len(inside.parts) == 3 and inside.name == "trial.json"
    if inside.parts[0] == "tables":
        return inside.parts[1:2] == ("probe",) or inside.stem in (*TABLES, SLICES)
    return str(inside) in ("run.json", "journal.jsonl", PACKED)
