"""The only module that knows data/: paths, formats, schema version, atomic writes and the journal."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner.model import SCHEMA, LabError, State

RAW_FILES = ("k6.json.gz", "k6-summary.json", "wrk.json", "resources.parquet", "probe.parquet")
TABLES = ("trials", "latency", "throughput", "resources")


def lab_root() -> Path:
    """Return the folder that holds servers/ and notebooks/: $BENCH_ROOT, else the nearest one upwards from here.

    Falls back to the checkout that this package was installed from in editable mode.
    """
    named = os.environ.get("BENCH_ROOT")
    candidates = [Path(named)] if named else [Path.cwd(), *Path.cwd().parents, Path(__file__).parents[1]]
    for folder in candidates:
        if (folder / "servers").is_dir() and (folder / "notebooks").is_dir():
            return folder.resolve()
    where = f"$BENCH_ROOT ({named})" if named else f"{Path.cwd()} or any folder above it"
    raise LabError(
        f"No lab in {where}: run this inside a checkout (the folder with servers/ and notebooks/), or set BENCH_ROOT."
    )


# --- atomic files -----------------------------------------------------------------------------------------


def fsync_folder(folder: Path) -> None:
    """Make renames and new names in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; on success fsync it, rename it to `path` and fsync the folder.

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


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically; NaN and infinities are refused with ValueError."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file; a missing or broken one is a LabError that names it."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise LabError(f"{path} does not exist.", exit_code=1) from None
    except (ValueError, OSError) as error:
        raise LabError(f"{path} cannot be read as JSON: {error}.", exit_code=1) from None


def last_line(log: Path) -> str:
    """Return `: "what a program said last in its log"`, or nothing where it said nothing."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return f': "{lines[-1][:200]}"' if lines else ""


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


# --- runs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunFolder:
    """One run on disk: data/runs/<run_id>/, or data/sample/."""

    path: Path

    @property
    def tables(self) -> Path:
        """Folder of the tables rebuilt from raw."""
        return self.path / "tables"

    @property
    def journal(self) -> Path:
        """The append-only log of state changes."""
        return self.path / "journal.jsonl"

    def table(self, name: str) -> Path:
        """Path of a table by its name, such as `trials`."""
        return self.tables / f"{name}.parquet"

    def trial(self, trial_id: str) -> Path:
        """Folder of one trial."""
        return self.path / "trials" / trial_id

    def manifest(self) -> dict[str, Any]:
        """Return run.json; LabError where it is missing, broken or of another schema."""
        manifest = read_json(self.path / "run.json")
        schema = manifest.get("schema") if isinstance(manifest, dict) else None
        if schema != SCHEMA:
            raise LabError(
                f"{self.path / 'run.json'} has schema {schema!r}; this version of the lab reads schema {SCHEMA}."
            )
        if not isinstance(manifest.get("run_id"), str):
            raise LabError(f"{self.path / 'run.json'} names no run_id: it is not a manifest of the lab.")
        return dict(manifest)

    @property
    def run_id(self) -> str:
        """The run's id as its manifest gives it."""
        return str(self.manifest()["run_id"])

    def records(self) -> list[dict[str, Any]]:
        """Return every trial.json of the run, in the order of the trials."""
        found = [read_json(path) for path in sorted(self.path.glob("trials/*/trial.json"))]
        return sorted(found, key=lambda record: (record["order"], record["attempt"]))

    def append(self, state: State, trial_id: str, **facts: Any) -> None:
        """Append one fsynced line to the journal: the trial's new state, when, and `facts`."""
        line = {"at": datetime.now(UTC).isoformat(), "trial_id": trial_id, "state": state, **facts}
        with self.journal.open("a") as handle:
            handle.write(json.dumps(line, ensure_ascii=False) + "\n")
            handle.flush()
            os.fsync(handle.fileno())

    def states(self) -> dict[str, State]:
        """Return the last state of each trial; a torn last line (a crash while appending) is left out."""
        states: dict[str, State] = {}
        if not self.journal.exists():
            return states
        lines = self.journal.read_text().splitlines()
        for number, line in enumerate(lines, start=1):
            try:
                entry = json.loads(line)
                states[entry["trial_id"]] = entry["state"]
            except (ValueError, KeyError, TypeError):
                if number < len(lines):
                    raise LabError(f"{self.journal}, line {number}: not a journal entry.", exit_code=1) from None
        return states


def new_run(campaign: str) -> RunFolder:
    """Create the folder of a new run under data/runs/; its name sorts by time."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = lab_root() / "data" / "runs" / f"{stamp}-{campaign}-{secrets.token_hex(2)}"
    (folder / "trials").mkdir(parents=True)
    fsync_folder(folder.parent)
    return RunFolder(folder)


def find_run(run: str) -> RunFolder:
    """Resolve a run id, a path, `latest` or `sample` to a run folder; LabError where it has no readable manifest."""
    data = lab_root() / "data"
    if run == "sample":
        folder = data / "sample"
    elif run == "latest":
        known = sorted(path.parent for path in data.glob("runs/*/run.json"))
        if not known:
            raise LabError("There is no run yet: make one with `bench run quick`, or use `sample`.")
        folder = known[-1]
    elif "/" in run or run in {".", ".."}:
        folder = Path(run).expanduser().resolve()
    else:
        folder = data / "runs" / run
    if not (folder / "run.json").is_file():
        raise LabError(f"There is no run {run!r}: no run.json in {folder}.")
    found = RunFolder(folder)
    found.manifest()  # a broken one is told now, before any work
    return found


def figures_folder(run: RunFolder) -> Path:
    """Return figures/<run_id>/, or figures/sample/ for the committed sample."""
    root = lab_root()
    name = "sample" if run.path == root / "data" / "sample" else run.run_id
    return root / "figures" / name


def published_csv() -> Path:
    """Path of the published comparisons that the lab repeats."""
    return lab_root() / "data" / "published.csv"


def calibration_file() -> Path:
    """Path of what `bench calibrate` found on this machine."""
    return lab_root() / "data" / "calibration.json"


def overhead_file() -> Path:
    """Path of what `bench overhead` measured on this machine."""
    return lab_root() / "data" / "overhead.json"


def raw_hashes(folder: Path) -> dict[str, dict[str, Any]]:
    """Return size and SHA-256 of each raw file in a trial's folder, by name."""
    found = (folder / name for name in RAW_FILES)
    return {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in found if path.exists()}


def export_compact(run: RunFolder, destination: Path) -> None:
    """Copy what figures need (manifest, journal, trial records, tables without single requests) to `destination`.

    A run that is there is replaced; a folder that holds anything else is a LabError.
    """
    if destination.exists() and any(destination.iterdir()):
        if not (destination / "run.json").is_file() or destination.resolve() == run.path.resolve():
            raise LabError(f"{destination} holds something else than an exported run: name an empty or a new folder.")
        shutil.rmtree(destination)
    (destination / "tables").mkdir(parents=True, exist_ok=True)
    for name in ("run.json", "journal.jsonl"):
        shutil.copy(run.path / name, destination / name)
    for name in TABLES:
        shutil.copy(run.table(name), destination / "tables")
    if (run.tables / "probe").is_dir():
        shutil.copytree(run.tables / "probe", destination / "tables" / "probe")
    for record in sorted(run.path.glob("trials/*/trial.json")):
        target = destination / "trials" / record.parent.name
        target.mkdir(parents=True)
        shutil.copy(record, target)
