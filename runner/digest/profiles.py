"""Build the tables of a run's profiles: call stacks, slices and events."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from runner.columns import schema_of
from runner.digest.categories import the_rules
from runner.digest.perf_files import Stacks, read_events, read_stacks
from runner.digest.tables import build_tables, have_parts, rebuild
from runner.model import LabError
from runner.profiled import EVENTS, STACKS, kind_of
from runner.store import SLICES, RunFolder, TrialRecord, raw_name, replacing

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class _Slice:
    """A slice of a profile: its place, the times of its load, its requests, and its CPU time."""

    place: int
    begin_s: float
    end_s: float
    answered: int
    """Requests between these times."""
    counted: int
    """Requests while perf ran. perf starts before the load and stops after it."""
    cpu_us_per_request: float | None


@dataclass(frozen=True)
class _Profile:
    """A sealed profile: its record, its folder, and its slices except those that were left out."""

    record: TrialRecord
    folder: Path
    slices: Sequence[_Slice]

    @property
    def names(self) -> dict[str, str]:
        """Columns that every row of the profile has."""
        session = str(self.record.get("session"))
        return {
            "trial_id": self.record["trial_id"],
            "server": str(self.record["cell"]["server"]),
            "load": session.removeprefix("p-"),
        }


def build_profiles(run: RunFolder) -> None:
    """Write the tables of a run's profiles from their records and raw files.

    A run without a sealed profile has no such tables. Raise LabError if a raw file is damaged.
    """
    folder = run.profiles
    if not any(record["status"] == "sealed" for record in folder.records()):
        return
    if have_parts(folder):
        build_tables(folder)
    else:
        rebuild(folder)
    profiles = list(_profiles(folder))
    stacks, slices = _recorded(profiles)
    _write(run.table("profiles"), "profiles", stacks)
    _write(run.table("profile_slices"), "profile_slices", slices)
    _write(run.table("counters"), "counters", _counted(profiles))


def ensure_profiles(run: RunFolder) -> None:
    """Build the tables of a run's profiles if they are missing."""
    if run.profiles.path.is_dir() and not run.table("profile_slices").is_file():
        build_profiles(run)


def _profiles(folder: RunFolder) -> Iterator[_Profile]:
    rows: dict[str, Rows] = defaultdict(list)
    for row in pq.read_table(folder.table(SLICES)).to_pylist():
        rows[row["trial_id"]].append(row)
    for record in folder.records():
        if record["status"] != "sealed":
            continue
        measured = record.get("measurement") or {}
        facts = {each["place"]: each for each in measured.get("slices", ())}
        slices = [
            _slice(row, facts[row["place"]]) for row in rows[record["trial_id"]] if row["kept"]
        ]
        yield _Profile(record, folder.trial(record["trial_id"]), slices)


def _slice(row: Mapping[str, Any], facts: Mapping[str, Any]) -> _Slice:
    """Return a slice, from its row in the table of slices and its facts in the record.

    If the server does not count requests, `counted` is the number of answers.
    """
    before = facts["counters_before"]["requests"]
    after = facts["counters_after"]["requests"]
    cpu_ms = row["server_cpu_ms_per_request"]
    begin_s = row["begin_mono_ns"] / 1e9
    return _Slice(
        place=row["place"],
        begin_s=begin_s,
        end_s=begin_s + row["duration_s"],
        answered=row["answered"],
        counted=row["answered"] if before is None or after is None else after - before,
        cpu_us_per_request=None if cpu_ms is None else 1000 * cpu_ms,
    )


def _recorded(profiles: Iterable[_Profile]) -> tuple[Rows, Rows]:
    """Return the rows of `profiles` and of `profile_slices`."""
    stacks: Rows = []
    slices: Rows = []
    for profile in profiles:
        for each in profile.slices:
            row = {**profile.names, "place": each.place, "kind": kind_of(each.place)}
            row |= {"requests": each.answered, "cpu_us_per_request": each.cpu_us_per_request}
            if kind_of(each.place) == "recorded" and each.answered:
                path = profile.folder / raw_name(STACKS, each.place)
                found = read_stacks(path, each.begin_s, each.end_s)
                stacks += _stack_rows({**profile.names, "place": each.place}, found, each.answered)
                row["sampled_us_per_request"] = found.cpu_ns.total() / 1000 / each.answered
            slices.append(row)
    return stacks, slices


def _stack_rows(names: Mapping[str, Any], found: Stacks, requests: int) -> Iterator[dict[str, Any]]:
    rules = the_rules()
    for stack, cpu_ns in sorted(found.cpu_ns.items()):
        yield {
            **names,
            "stack": stack,
            "category": rules.category(stack.split(";")),
            "samples": found.samples[stack],
            "us_per_request": cpu_ns / 1000 / requests,
        }


def _counted(profiles: Iterable[_Profile]) -> Rows:
    """Return the rows of `counters`: the events of all counted slices of a profile together."""
    rows = []
    for profile in profiles:
        counted = [each for each in profile.slices if kind_of(each.place) == "counted"]
        requests = sum(each.counted for each in counted)
        counts: dict[str, list[float | None]] = defaultdict(list)
        for each in counted if requests else ():
            for event in read_events(profile.folder / raw_name(EVENTS, each.place)):
                counts[event.name].append(event.count)
        for name, values in counts.items():
            known = [value for value in values if value is not None]
            supported = len(known) == len(values)
            per_request = sum(known) / requests if supported else None
            row = {"event": name, "per_request": per_request, "supported": supported}
            rows.append({**profile.names, **row})
    return rows


def _write(path: Path, name: str, rows: Rows) -> None:
    try:
        table = pa.Table.from_pylist(rows, schema=schema_of(name))
    except (pa.ArrowException, TypeError) as error:
        raise LabError(f"{path} cannot be written: {error}.", exit_code=1) from None
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", compression_level=9)
