"""Build the tables of a run's profiles: call stacks, slices, events, and timelines."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from runner.columns import schema_of
from runner.digest.categories import Observed, Rules, the_rules
from runner.digest.perf_files import Stacks, read_events, read_samples, read_stacks
from runner.digest.tables import build_tables, have_parts, rebuild
from runner.model import LabError
from runner.profiled import (
    DATABASE_STACKS,
    EVENTS,
    STACKS,
    TIMELINE,
    Kind,
    kind_of,
    load_of,
)
from runner.store import SLICES, RunFolder, TrialRecord, Values, raw_name, replacing

Rows = list[Values]


@dataclass(frozen=True)
class _Slice:
    """A slice of a profile, with the numbers that the tables of profiles need."""

    place: int
    """Number of the slice among the slices of its server, counted from 1."""
    begin_s: float
    """Time when the load began, in seconds by the monotonic clock."""
    end_s: float
    """Time when the load ended, in seconds by the monotonic clock."""
    answered: int
    """Number of requests answered during the load."""
    counted: int
    """Number of requests that the server counted while perf ran.

    This number may be larger than `answered`, because perf starts before the load and ends after
    the load.
    """
    cpu_us_per_request: float | None


@dataclass(frozen=True)
class _Profile:
    """A sealed profile: the record, the folder, and the slices that were not left out."""

    record: TrialRecord
    folder: Path
    slices: Sequence[_Slice]

    @property
    def names(self) -> dict[str, str]:
        """Values of the columns that all rows of the profile share: trial_id, server and load."""
        return {
            "trial_id": self.record["trial_id"],
            "server": str(self.record["cell"]["server"]),
            "load": load_of(self.session),
        }

    @property
    def session(self) -> str:
        """Name of the profile's session."""
        return str(self.record.get("session"))

    @property
    def is_timeline(self) -> bool:
        """True if the profile is a timeline.

        A timeline is one load without a break, and keeps the time of each sample.
        """
        return self.session.startswith(TIMELINE)

    def of_kind(self, kind: Kind) -> list[_Slice]:
        """Return the profile's slices of one kind: recorded, counted or plain."""
        return [each for each in self.slices if kind_of(self.session, each.place) == kind]


def build_profiles(run: RunFolder) -> None:
    """Write the tables of a run's profiles, from the profiles' records and raw files.

    If no profile of the run is sealed, write no tables. Raise LabError if a raw file is damaged.
    """
    folder = run.profiles
    if not any(record["status"] == "sealed" for record in folder.records()):
        return
    if have_parts(folder):
        build_tables(folder)
    else:
        rebuild(folder)
    every = list(_profiles(folder))
    profiles = [each for each in every if not each.is_timeline]
    timelines = [each for each in every if each.is_timeline]
    stacks, slices = _recorded(profiles)
    _write(run.table("profiles"), "profiles", stacks)
    _write(run.table("profile_slices"), "profile_slices", slices)
    _write(run.table("counters"), "counters", _counted(profiles))
    if timelines:
        windows = list(_windows(folder, timelines))
        _write(run.table("timeline_windows"), "timeline_windows", windows)
        samples = [row for each in timelines for row in _samples(each)]
        _write(run.table("timeline_samples"), "timeline_samples", samples)


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
    """Return a slice of a profile.

    `row` is the slice's row in the table `slices`, and `facts` is the slice's entry in the record's
    measurement. If the server does not count requests, `counted` is the number of answers.
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
    """Return the rows of the tables `profiles` and `profile_slices`, in this order."""
    stacks: Rows = []
    slices: Rows = []
    for profile in profiles:
        for each in profile.slices:
            kind = kind_of(profile.session, each.place)
            names = {**profile.names, "place": each.place}
            row = {**names, "kind": kind, "subject": "server", "requests": each.answered}
            row |= {"cpu_us_per_request": each.cpu_us_per_request}
            slices.append(row)
            if kind != "recorded" or not each.answered:
                continue
            mine, row["sampled_us_per_request"] = _sampled(profile, each, "server")
            stacks += mine
            if (profile.folder / raw_name(DATABASE_STACKS, each.place)).is_file():
                theirs, sampled_us = _sampled(profile, each, "database")
                stacks += theirs
                beside = {"subject": "database", "cpu_us_per_request": None}
                slices.append({**row, **beside, "sampled_us_per_request": sampled_us})
    return stacks, slices


def _sampled(profile: _Profile, each: _Slice, subject: Observed) -> tuple[Rows, float]:
    """Return a recorded slice's rows of the table `profiles`, and the CPU time of all these rows.

    In a recorded slice, perf samples call stacks. `subject` says whose call stacks the rows are:
    the server's or the database's. The CPU time is in µs per request.
    """
    file = STACKS if subject == "server" else DATABASE_STACKS
    found = read_stacks(profile.folder / raw_name(file, each.place), each.begin_s, each.end_s)
    names = {**profile.names, "place": each.place, "subject": subject}
    rules = the_rules(subject)
    rows = list(_stack_rows(names, found, each.answered, rules))
    return rows, found.cpu_ns.total() / 1000 / each.answered


def _stack_rows(
    names: Mapping[str, Any], found: Stacks, requests: int, rules: Rules
) -> Iterator[Values]:
    for stack, cpu_ns in sorted(found.cpu_ns.items()):
        yield {
            **names,
            "stack": stack,
            "category": rules.category(stack.split(";")),
            "samples": found.samples[stack],
            "us_per_request": cpu_ns / 1000 / requests,
        }


def _counted(profiles: Iterable[_Profile]) -> Rows:
    """Return the rows of the table `counters`: one row for each profile and event.

    In a counted slice, perf counts events. A row says how often the event occurred per request, in
    all counted slices of the profile together. If the machine cannot count the event, this number
    is None.
    """
    rows = []
    for profile in profiles:
        counted = profile.of_kind("counted")
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


def _windows(folder: RunFolder, timelines: Sequence[_Profile]) -> Iterator[Values]:
    """Yield the rows of `timeline_windows`: the servers' CPU use as the sampler measured it."""
    names = {each.record["trial_id"]: each.names for each in timelines}
    table = pq.read_table(
        folder.table("resources"),
        columns=["trial_id", "t_s", "dt_s", "cpu_pct"],
        filters=[("subject", "=", "server"), ("trial_id", "in", list(names))],
    )
    for row in table.to_pylist():
        yield {**row, **names[row["trial_id"]]}


def _samples(timeline: _Profile) -> Iterator[Values]:
    """Yield a timeline's rows of `timeline_samples`, in the order of their times."""
    rules = the_rules()
    for each in timeline.of_kind("recorded"):
        path = timeline.folder / raw_name(STACKS, each.place)
        found = read_samples(path, each.begin_s, each.end_s)
        for sample in sorted(found, key=lambda one: one.at_s):
            yield {
                **timeline.names,
                "t_s": sample.at_s - each.begin_s,
                "cpu_ms": sample.period_ns / 1e6,
                "category": rules.category(sample.stack),
                "stack": ";".join(sample.stack),
            }


def _write(path: Path, name: str, rows: Rows) -> None:
    try:
        table = pa.Table.from_pylist(rows, schema=schema_of(name))
    except (pa.ArrowException, TypeError) as error:
        raise LabError(f"{path} cannot be written: {error}.", exit_code=1) from None
    with replacing(path) as temporary:
        pq.write_table(
            table, temporary, compression="zstd", compression_level=9, write_page_checksum=True
        )
