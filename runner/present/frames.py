"""Read the tables of a run as pandas frames, and check their columns.

`Tables` contains the frames of a run. `Case` is one trial with the samples of the probe.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from runner.columns import columns
from runner.generator_traits import is_sized_by_connections, traits_of
from runner.manifest import Manifest
from runner.model import CALIBRATION, OWN_SCRIPT, LabError, core_words, setting_text
from runner.served import served_rps, success_rps
from runner.store import RunFolder, Values, short_name
from runner.verdict.evidence import Verdict, evidence_of
from runner.verdict.limits import MOST_FAILED, Cause, Limit
from runner.verdict.older import older_verdict
from runner.verdict.words import reason, rule_words

FRAMES = ("trials", "latency", "throughput", "resources")
MOST_ROWS = 100_000_000
TWICE = 2.0
"""Threshold for the generator's median response time divided by the probe's.

If the ratio is above this threshold, the generator timed its own queue: the server caused less than
half of the response time that the generator reports.
"""
MODES = {"keepalive": "keep-alive", "close": "close"}
"""Words for each connection mode that a load can have.

The mode that the lab observed in a trial can also be `mixed`, which has no entry here.
"""


@dataclass(frozen=True, eq=False)
class Tables:
    """The data of one run from which figures are drawn: the manifest and four frames.

    The frame `trials` has these columns in addition to the columns of the file:

    - `load` is the name of the load in words, without the server. `load_brief`,
      `load_without_terms`, `load_without_pool` and `load_shape` are shorter names (see `LoadName`).
    - `load_order` is the position of the load among the loads of the run.
    - `terms` says in words which quotas and how many slices the load has. The text may be empty.
    - `throughput_rps` is the rate of successful requests. For a closed load, this rate includes
      the probe's requests. For an open load, it includes only the generator's requests.
    - `verdict_rule` is the rule that decided the verdict, in words.

    All steps of a search are one load, although the steps have different rates. `folder` is the
    run's folder, which contains the probe's samples in one file per trial.
    """

    manifest: Manifest
    trials: pd.DataFrame
    latency: pd.DataFrame
    throughput: pd.DataFrame
    resources: pd.DataFrame
    folder: RunFolder | None = None

    def of(self, tool: str) -> pd.DataFrame:
        """Return the trials of a tool's closed loads, including failed trials, sorted by load.

        Trials of calibration servers are left out. If the tool's loads have a number of connections
        and no number of users (wrk), trials with a database are also left out, because they compare
        sizes of the server's pool of database connections.
        """
        by_connections = self.trials["tool"].map(is_sized_by_connections).astype(bool)
        inserts = by_connections & self.trials["pool_size"].notna()
        return self._compared(self.trials["tool"].eq(tool) & ~self._offered & ~inserts)

    def sealed(self, tool: str) -> pd.DataFrame:
        """Return the sealed trials among those that `of` returns."""
        return sealed_trials(self.of(tool))

    def timed(self, tool: str) -> pd.DataFrame:
        """Return the trials of `sealed` that have response times.

        A trial whose server had only a share of a core has no response times, because such times
        would mostly show how long the server waits for the next period of its quota.
        """
        chosen = self.sealed(tool)
        return chosen[chosen["latency_p50_ms"].notna()]

    @property
    def copies(self) -> dict[str, str]:
        """The servers that ran under a second name, as a mapping from this name to the server.

        A name is left out if it ran with other environment variables than the server, or if one of
        the two ran in a container and the other as a process. The results of such a name can
        differ from the server's by more than noise.
        """
        campaign = self.manifest.campaign
        ran = set(self.trials["server"])

        def given(label: str) -> list[tuple[str, str]]:
            return sorted(
                (name, value) for who, name, value in campaign.environment if who == label
            )

        return {
            label: who
            for label, who in campaign.copies
            if {label, who} <= ran
            and given(label) == given(who)
            and (label in campaign.processes) == (who in campaign.processes)
        }

    def ramps(self, *, database: bool) -> pd.DataFrame:
        """Return the trials at rising arrival rates, including failed trials, sorted by load.

        With `database`, return only trials with a database, including those at a constant rate.
        A constant rate counts as a ramp of one step, so that figures show the pool's use over time
        at this rate, too. Without `database`, return only trials without a database.
        """
        offered = self._offered & self.trials["objective"].eq("")
        stored = self.trials["pool_size"].notna()
        return self._compared(
            offered & (stored if database else ~stored & (self.trials["steps"] > 1))
        )

    def sweeps(self) -> pd.DataFrame:
        """Return the trials at constant arrival rates without a database, sorted by load and rate.

        Failed trials are included.
        """
        ramps = (self.trials["steps"] > 1) | self.trials["pool_size"].notna()
        return self._compared(self._offered & self.trials["objective"].eq("") & ~ramps)

    def searches(self) -> pd.DataFrame:
        """Return the steps of all searches for the highest rate that keeps an objective.

        Failed steps are included.
        """
        return self._compared(self._offered & self.trials["objective"].ne(""))

    def pools(self) -> pd.DataFrame:
        """Return closed-loop trials with a database, including failed trials, sorted by load."""
        return self._compared(
            self.trials["load_model"].eq("closed") & self.trials["pool_size"].notna()
        )

    def has_database(self) -> bool:
        """Return True if the run has a workload with a database behind its servers."""
        return bool(self.trials["pool_size"].notna().any())

    def samples(self, table: str, trial_id: str) -> pd.DataFrame:
        """Return the rows of one trial from a table that is stored as one file per trial.

        `table` is `probe` or `requests`. Return no rows if the run did not store this file. Raise
        LabError if the file cannot be read or lacks a column.
        """
        path = self._path_of_samples(table, trial_id)
        rows = pd.DataFrame(columns=[column.name for column in columns(table)])
        if path is not None:
            rows = _read(path, table, "")
        return rows.assign(trial_id=trial_id)

    def number_of_samples(self, table: str, trial_id: str) -> int:
        """Return the number of rows that `samples` returns, without reading the rows.

        A trial may have millions of requests, whose rows need gigabytes of memory. Raise LabError
        if the file cannot be read.
        """
        path = self._path_of_samples(table, trial_id)
        return 0 if path is None else _number_of_rows(path)

    def _path_of_samples(self, table: str, trial_id: str) -> Path | None:
        """Return the path of the file that `samples` reads, or None if there is no such file."""
        if self.folder is None:
            return None
        path = self.folder.tables / table / f"{trial_id}.parquet"
        return path if path.is_file() else None

    def of_script(self, table: str) -> pd.DataFrame:
        """Return the named table about a user's script, for example `endpoints`.

        Return no rows if the run has no such table. Raise LabError if the file cannot be read or
        lacks a column.
        """
        path = None if self.folder is None else self.folder.table(table)
        if path is None or not path.is_file():
            return pd.DataFrame(columns=[column.name for column in columns(table)])
        rows = _read(path, table, "")
        texts = [each.name for each in columns(table) if each.type == "string"]
        return rows.assign(
            **{name: rows[name].astype(object).where(rows[name].notna(), None) for name in texts}
        )

    def slices(self) -> pd.DataFrame:
        """Return the table of slices. The table is empty if no load of the run has slices."""
        path = None if self.folder is None else self.folder.table("slices")
        if path is None or not path.is_file():
            return pd.DataFrame(columns=[column.name for column in columns("slices")])
        return _read(path, "slices", "")

    @property
    def _offered(self) -> pd.Series[bool]:
        return self.trials["load_model"].eq("open")

    def _compared(self, chosen: pd.Series[bool]) -> pd.DataFrame:
        ranked = self.trials["tier"] != CALIBRATION
        return self.trials[chosen & ranked].sort_values(["load_order", "trial_order"])


def is_sealed(trials: pd.DataFrame) -> pd.Series[bool]:
    """Return a mask of the sealed trials, which are complete and broke no invariant."""
    return trials["status"].eq("sealed")


def sealed_trials(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the sealed trials among `trials`."""
    return trials[is_sealed(trials)]


def has_no_quota(trials: pd.DataFrame) -> pd.Series[bool]:
    """Return a mask of the trials in which no CPU quota limited the server.

    A quota may be set by the lab (`share`) or elsewhere (`quota_cores`).
    """
    return trials["share"].eq(1) & trials["quota_cores"].eq(math.inf)


def limits_of(trials: pd.DataFrame) -> pd.Series[Any]:
    """Return the limit of each trial, as a series of `Limit`."""
    verdicts = zip(trials["verdict"], trials["verdict_cause"], strict=True)
    limits = [Limit.of(verdict, cause) for verdict, cause in verdicts]
    return pd.Series(limits, index=trials.index, dtype=object)


def has_cause(trials: pd.DataFrame, cause: Cause) -> pd.Series[bool]:
    """Return a mask of the trials whose verdict was decided by the rule `cause`."""
    return trials["verdict_cause"].eq(cause.value)


@dataclass(frozen=True)
class LimitCount:
    """A limit, and the number of trials that had this limit."""

    limit: Limit
    count: int


def commonest_limits(trials: pd.DataFrame) -> list[LimitCount]:
    """Return each limit of the trials with its count, the most frequent limit first.

    Limits with the same count are sorted by name.
    """
    counts = Counter(sorted(limits_of(trials))).most_common()
    return [LimitCount(limit, count) for limit, count in counts]


def limit_words(trials: pd.DataFrame) -> str:
    """Return the limit of the trials, such as `server`.

    If the trials had different limits, return each with its count: `database 3, pool 2`.
    """
    limits = commonest_limits(trials)
    if len(limits) == 1:
        return str(limits[0].limit)
    return ", ".join(f"{each.limit} {each.count}" for each in limits)


def server_bound(trials: pd.DataFrame) -> bool:
    """Return True if the server limited every trial. Throughput is ranked only in this case.

    A trial with one request at a time counts too, but only if idle CPUs polled instead of sleeping.
    If they slept, its response times would include the time that it takes to wake a CPU.
    """
    limits = limits_of(trials)
    bound = (limits == Limit.SERVER) | ((limits == Limit.SERIAL) & (trials["idle"] == "polling"))
    return bool(len(trials)) and bool(bound.all())


def did_at_least(trials: pd.DataFrame) -> bool:
    """Return True if the rate of each trial is a useful lower bound of the server's capacity.

    If a trial sustained an offered rate, or had only one request under way at a time, the trial's
    rate is no useful bound, because the capacity may be far higher. A rate is no bound either if
    too many requests failed.
    """
    return did_the_work(trials) and not set(limits_of(trials)) & {Limit.NONE, Limit.SERIAL}


def did_the_work(trials: pd.DataFrame) -> bool:
    """Return True if the rates and the costs of all trials are valid.

    Rates and costs are valid if in every trial at most the share `MOST_FAILED` of the requests
    failed, and if no trial has the cause `CHECKS_FAILED`.
    """
    failed = trials["failed"].to_numpy() > MOST_FAILED * trials["requests"].to_numpy()
    refused = has_cause(trials, Cause.CHECKS_FAILED)
    return not failed.any() and not refused.any()


def read_tables(run: RunFolder) -> Tables:
    """Read the manifest and tables of `run`; raise LabError if a table or a column is missing.

    The last run that was read is cached until its files change. The returned frames are copies, so
    the caller may change them.
    """
    files = [path for path in (run.path / "run.json", *map(run.table, FRAMES)) if path.is_file()]
    kept = _kept(
        run,
        tuple((facts.st_ino, facts.st_size, facts.st_mtime_ns) for facts in map(Path.stat, files)),
    )
    return replace(kept, **{name: getattr(kept, name).copy() for name in FRAMES})


@functools.lru_cache(maxsize=1)
def _kept(run: RunFolder, _stamps: tuple[tuple[int, int, int], ...]) -> Tables:
    manifest = run.manifest()
    frames = {name: _read(run.table(name), name, _remedy(run)) for name in FRAMES}
    return Tables(manifest, **frames | {"trials": _with_loads(frames["trials"])}, folder=run)


def read_table(run: RunFolder, name: str) -> pd.DataFrame:
    """Read the table `name` of a run. This function is for tables that `Tables` does not contain.

    Return a table without rows if the run has no such table. Raise LabError if the table is damaged
    or lacks a column.
    """
    path = run.table(name)
    if not path.is_file():
        return pd.DataFrame(columns=[column.name for column in columns(name)])
    return _read(path, name, _remedy(run))


def _remedy(run: RunFolder) -> str:
    """Return the end of an error message about a table: how the user gets an intact table."""
    if run.is_exported:
        return ": export the original run once more"
    return f": remove {run.tables}, then `bench report {short_name(run)}` rebuilds the tables"


def tables_of(manifest: Manifest, rows: Iterable[Mapping[str, Any]]) -> Tables:
    """Return the tables of an unfinished run, whose trials so far are given as `rows`.

    All tables other than `trials` are empty.
    """
    frames = {name: pd.DataFrame(columns=[each.name for each in columns(name)]) for name in FRAMES}
    trials = pd.DataFrame([dict(row) for row in rows], columns=frames["trials"].columns)
    return Tables(
        manifest, **frames | {"trials": _with_loads(_typed(trials, "trials"))}, folder=None
    )


def _number_of_rows(path: Path) -> int:
    """Return the number of rows of a table; raise LabError if its file is damaged."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(path, error, "") from None


def _unreadable(path: Path, error: Exception, remedy: str) -> LabError:
    """Return the error that says why a table's file cannot be read."""
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    return LabError(f"{path} cannot be read ({first}){remedy}.", exit_code=1)


def _read(path: Path, table: str, remedy: str) -> pd.DataFrame:
    """Read a table; raise LabError if the file is damaged or lacks a required column."""
    try:
        if (rows := pq.read_metadata(path).num_rows) > MOST_ROWS:
            raise ValueError(f"it has {rows:,} rows, which is more than a run of the lab can have")
        # Tables that earlier versions of the lab wrote have no checksums to verify.
        found = pq.read_table(path, page_checksum_verification=True)
        # Check the texts, because damaged texts would raise an error only when they are used.
        found.validate(full=True)
        frame = found.to_pandas()
    except FileNotFoundError:
        raise LabError(f"{path} is missing{remedy}.", exit_code=1) from None
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        raise _unreadable(path, error, remedy) from None
    required = [
        each.name for each in columns(table) if not each.optional and each.name not in frame.columns
    ]
    if required:
        raise LabError(f"{path} lacks the column {', '.join(required)}{remedy}.", exit_code=1)
    try:
        return _typed(frame, table)
    except (ValueError, TypeError) as error:
        raise LabError(
            f"{path} has a value of the wrong type ({error}){remedy}.", exit_code=1
        ) from None


def _typed(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """Return a table with all of its columns, including optional columns that the file lacks.

    Unknown numbers are NaN, and unknown texts are null. In the table of trials, all columns of
    numbers and flags are converted to floats. In other tables, only the optional columns of numbers
    and flags are converted. The conversion is needed because a column that contains only nulls has
    no type in Parquet. A flag becomes 0 or 1.
    """

    def as_floats(column: pd.Series[Any]) -> pd.Series[float]:
        if pd.api.types.is_numeric_dtype(column):  # numbers, or flags without nulls
            return column.astype(float)
        are_flags = pd.api.types.is_bool_dtype(column.dropna().infer_objects())
        return (column.map({True: 1.0, False: 0.0}) if are_flags else pd.to_numeric(column)).astype(
            float
        )

    whole = frame.reindex(
        columns=list(dict.fromkeys([*frame.columns, *(each.name for each in columns(table))]))
    )
    numbers = [
        each.name
        for each in columns(table)
        if each.type != "string" and (each.optional or table == "trials")
    ]
    typed = whole.assign(**{name: as_floats(whole[name]) for name in numbers})
    return typed.copy()  # the copy has few large blocks of memory, so adding columns is cheap


def _with_loads(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials with the columns that `Tables` describes, such as the names of the loads.

    Null texts become empty, and values that older runs lack are filled in.
    """
    texts = [each.name for each in columns("trials") if each.type == "string"]
    typed = trials.assign(
        **{name: trials[name].astype(object).where(trials[name].notna(), "") for name in texts}
    )
    typed["language"] = typed["language"].replace("", "unknown")
    typed["framework"] = typed["framework"].mask(typed["framework"] == "", typed["server"])
    typed["verdict"] = typed["verdict"].replace("", Limit.UNKNOWN.verdict)
    # Copy the frame into a few large blocks of memory, so that adding columns below is cheap.
    typed = with_causes(typed).copy()
    typed = typed.fillna({"share": 1.0, "database_share": 1.0})
    typed["served_rps"] = typed["served_rps"].fillna(_served_rps(typed))
    is_open = typed["load_model"].eq("open")
    of_generator = success_rps(typed["requests"], typed["failed"], typed["duration_s"])
    typed["throughput_rps"] = typed["served_rps"].mask(is_open, of_generator)
    switches = (f"server_{kind}_switches_per_request" for kind in ("voluntary", "involuntary"))
    typed["server_switches_per_request"] = sum(typed[name] for name in switches)
    typed["quota_cores"] = typed["server_quota_cores"].fillna(math.inf)
    # Look only at sealed trials, because they record the observed state of idle CPUs. Other trials
    # record the requested state.
    is_mixed = sealed_trials(typed)["idle"].nunique() > 1
    rows = typed[list(NAMED_BY)].to_dict("records")
    named = [LoadName.of(row, says_idle=is_mixed) for row in rows]
    typed["terms"] = [name.terms for name in named]
    typed["terms_without_slices"] = [name.terms_without_slices for name in named]
    typed["load"] = [name.full for name in named]
    typed["load_brief"] = [name.brief for name in named]
    typed["load_without_terms"] = [name.without_terms for name in named]
    typed["load_without_pool"] = [name.without_pool for name in named]
    typed["load_shape"] = [name.shape for name in named]
    keys = [
        "tool",
        "workload",
        "load_model",
        "vus",
        "rate_rps",
        "first_rate_rps",
        "mode",
        "connections",
        "pool_size",
    ]
    keys += ["share", "quota_cores", "database_share", "idle", "slices"]
    modes = typed["mode"].map({mode: place for place, mode in enumerate(MODES)}).astype(float)
    loads = typed.assign(mode=modes).sort_values(keys, kind="stable")["load"].unique()
    typed["load_order"] = typed["load"].map({load: number for number, load in enumerate(loads)})
    # Copy the frame into a few large blocks of memory, because each later selection of rows handles
    # every block separately. Texts become objects, because pandas keeps each column of type `str`
    # in a block of its own.
    words = dict.fromkeys(typed.columns[typed.dtypes == "str"], object)
    return typed.astype(words).copy()


def with_causes(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials with the columns `verdict_cause`, `verdict_rule` and `verdict_reason`.

    The rule and the reason are worded anew from the stored evidence. Older versions of the lab did
    not store the cause but only the reason. For runs of these versions, the cause and the rule are
    read from the stored reason.
    """
    verdicts = [_verdict_in_words(row) for row in trials.to_dict("records")]
    causes = ["" if each.cause is None else each.cause.value for each in verdicts]
    return trials.assign(
        verdict_cause=causes,
        verdict_rule=[each.rule for each in verdicts],
        verdict_reason=[each.reason for each in verdicts],
    )


@dataclass(frozen=True)
class _VerdictInWords:
    """The cause of a trial's verdict, the rule of this cause in words, and the full reason."""

    cause: Cause | None
    rule: str
    reason: str


def _verdict_in_words(row: Mapping[Any, Any]) -> _VerdictInWords:
    cause = Cause.of(str(row.get("verdict_cause") or ""))
    evidence = evidence_of(row)
    stored = str(row["verdict_reason"])
    if evidence is None or cause is None:
        older = older_verdict(str(row["verdict"]), stored)
        return _VerdictInWords(older.cause, older.rule, stored)
    return _VerdictInWords(cause, rule_words(cause, evidence), reason(Verdict(cause, evidence)))


def _served_rps(trials: pd.DataFrame) -> pd.Series[float]:
    """Compute `served_rps` for runs of older versions, which did not store this column."""
    probe_requests = trials["probe_requests"].fillna(0.0)
    probe_failed = trials["probe_failed"].fillna(0.0)
    served: pd.Series[float] = served_rps(
        trials["requests"], trials["failed"], probe_requests, probe_failed, trials["duration_s"]
    )
    return served


NAMED_BY = (
    *("workload", "tool", "load_model", "mode", "connections", "vus", "objective"),
    *("first_rate_rps", "rate_rps", "pool_size", "share", "quota_cores", "database_share"),
    *("idle", "slices"),
)
"""Columns from which the name of a load is made."""


@dataclass(frozen=True)
class LoadName:
    """Name of a load: `experiments, N = 3000`, `wrk-matrix, keep-alive, 100 connections`.

    The name mentions the state of idle CPUs only if the trials of a run differ in this state.
    Otherwise the page mentions the state once.
    """

    full: str
    brief: str
    """The load's name for small labels: `wrk-matrix, kept 100, 0.5 core`."""
    shape: str
    """Words for the connections, the demand and the pool size, without the workload's name.

    The demand is the objective of a search, the rate of an open load, or the number of users of a
    closed load. If there are no words for any of these, the text is the workload's name.
    """
    terms: str
    """Words for the CPU quotas, for idle CPUs that slept, and for the number of slices.

    The text is empty if none of these applies.
    """
    terms_without_slices: str
    without_terms: str
    without_pool: str

    @classmethod
    def of(cls, row: Mapping[Any, Any], *, says_idle: bool) -> LoadName:
        """Return the name of a trial's load; with `says_idle`, the name says if idle CPUs slept."""
        workload = str(row["workload"])
        pool = f"pool of {row['pool_size']:.0f}" if row["pool_size"] >= 0 else ""
        shape = _shape_words(row)
        quotas = _quota_words(row)
        asleep = "idle CPUs asleep" if says_idle and row["idle"] == "system" else ""
        slices = f"{row['slices']:.0f} slices" if row["slices"] >= 0 else ""
        terms = [*quotas, asleep, slices]
        brief = _brief_shape_words(row)
        brief_quotas = [words.replace(" of a core", " core") for words in quotas]
        return cls(
            full=_joined(workload, *shape, pool, *terms),
            brief=_joined(workload, *brief, pool, *brief_quotas, asleep),
            shape=_joined(*shape, pool) or workload,
            terms=_joined(*terms),
            terms_without_slices=_joined(*quotas, asleep),
            without_terms=_joined(workload, *shape, pool),
            without_pool=_joined(workload, *shape, *terms),
        )


def _shape_words(row: Mapping[Any, Any]) -> list[str]:
    """Return words for the connections, followed by the objective, the offered rate or the users.

    The objective is named for a search, the rate for an open load, and the users for a closed load.
    """
    connections = row["connections"]
    words = [_mode_words(row)]
    if connections >= 0:
        words.append(f"{connections:.0f} connection{'s' * (connections != 1)}")
    return [*words, _demand_words(row)]


def _brief_shape_words(row: Mapping[Any, Any]) -> list[str]:
    """Return the words of `_shape_words` in a shorter form: `kept 100` for 100 kept connections."""
    kept_or_closed = {"keepalive": "kept", "close": "closed"}.get(row["mode"])
    if row["connections"] >= 0 and kept_or_closed:
        return [f"{kept_or_closed} {row['connections']:.0f}", _demand_words(row, brief=True)]
    return [*_shape_words(row)[:-1], _demand_words(row, brief=True)]


def _mode_words(row: Mapping[Any, Any]) -> str:
    """Return words for the observed connection mode, such as `keep-alive`.

    Some generators keep their connections by default. For these generators, return an empty text if
    the observed mode is `keepalive` or unknown, because a name need not mention the default.
    """
    says_nothing_else = row["mode"] in ("keepalive", "")
    if traits_of(row["tool"]).keeps_connections_by_itself and says_nothing_else:
        return ""
    return str(MODES.get(row["mode"], row["mode"]))


def _demand_words(row: Mapping[Any, Any], *, brief: bool = False) -> str:
    if row["objective"]:
        return f"search for {row['objective']}"
    if row["load_model"] == "open":
        return offered_words(row, brief=brief)
    return f"N = {row['vus']:.0f}" if row["vus"] >= 0 else ""


def _quota_words(row: Mapping[Any, Any]) -> list[str]:
    """Return the CPU quotas of server and database, in words.

    The lab's own quotas (`share`, `database_share`) read `0.5 of a core` and `database on 0.5 of
    a core`. A server's quota that was set outside the lab (`quota_cores`) reads `a quota of 1.5
    cores`. The words `a quota of` are omitted if this quota is below one core and the lab set no
    quota for the server.
    """
    words = []
    if row["share"] < 1:
        words.append(f"{row['share']:g} of a core")
    if math.isfinite(row["quota_cores"]):
        cores = core_words(row["quota_cores"])
        is_the_only_part = row["quota_cores"] < 1 and row["share"] == 1
        words.append(cores if is_the_only_part else f"a quota of {cores}")
    if row["database_share"] < 1:
        words.append(f"database on {row['database_share']:g} of a core")
    return words


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def repeated(trials: pd.DataFrame) -> pd.Series[bool]:
    """Return a mask of the attempts that were repeated by a later attempt at the same trial."""
    names = trials["trial_id"].str.replace(r"\.a\d+$", "", regex=True)
    return trials["attempt"].lt(trials["attempt"].groupby(names).transform("max"))


def offered_words(row: Mapping[Any, Any], *, brief: bool = False) -> str:
    """Return the rate of an open load: `500 requests/s offered`, `500 to 5,000 requests/s offered`.

    With `brief`, a rate of requests is written as `500/s`.
    """
    first_rps = row["first_rate_rps"]
    last_rps = row["rate_rps"]
    is_steady = np.isnan(first_rps) or first_rps == last_rps
    last = setting_text(last_rps)
    rate = last if is_steady else f"{setting_text(first_rps)} to {last}"
    unit = rate_unit([row["workload"]])
    return f"{rate}/s" if brief and unit == "requests/s" else f"{rate} {unit} offered"


def rate_unit(workloads: Iterable[Any]) -> str:
    """Return the unit of an offered rate: `requests/s`, or `iterations/s` for a user's script."""
    return "iterations/s" if OWN_SCRIPT in set(workloads) else "requests/s"


# --- choose the trial that a page explains in detail ----------------------------------------------


@dataclass(frozen=True, eq=False)
class Case:
    """One sealed trial, with the samples that the probe took during the load.

    The samples are None if the trial had no probe.
    """

    tables: Tables
    row: Values
    probe: pd.DataFrame | None

    @property
    def trial_id(self) -> str:
        """The trial's name."""
        return str(self.row["trial_id"])

    @property
    def tool(self) -> str:
        """The load generator's name."""
        return str(self.row["tool"])

    @property
    def frame(self) -> pd.DataFrame:
        """The trial as a table of one row."""
        return self.tables.trials.loc[self.tables.trials["trial_id"] == self.trial_id]

    @property
    def peers(self) -> pd.DataFrame:
        """All sealed trials under the same load and at the same rate, including this trial.

        If this trial is of a calibration server, only trials of calibration servers are returned.
        Otherwise trials of calibration servers are left out.
        """
        trials = sealed_trials(self.tables.trials)
        kind = trials["tier"].eq(CALIBRATION) == (self.row["tier"] == CALIBRATION)
        rate = trials["rate_rps"].fillna(0) == self.frame["rate_rps"].fillna(0).iloc[0]
        alike: pd.DataFrame = trials[trials["load"].eq(self.row["load"]) & kind & rate]
        return alike

    def given(self, subject: str) -> float:
        """Return the CPU that a process of this trial could use, in % of a core.

        `subject` names the process: `server`, `generator` or `database` (see `given_pct`).
        """
        return float(given_pct(self.tables, self.frame, subject).iloc[0])


def given_pct(tables: Tables, trials: pd.DataFrame, subject: str) -> pd.Series[float]:
    """Return the CPU that a process could use in each trial, in % of a core.

    `subject` is `server`, `generator` or `database`. The value is NaN if the manifest does not say
    on which CPUs this process ran. A quota of the lab reduces the CPU of the server or the
    database to a share of a core. A quota that was set outside the lab limits the CPU of the server
    further. A generator with threads (wrk) can use at most as many cores as it has threads.
    """
    cpus = len(tables.manifest.placement.cpus_of(subject))
    given = pd.Series(100.0 * cpus if cpus else math.nan, trials.index)
    if subject == "server":
        return (given * trials["share"]).clip(upper=100 * trials["quota_cores"])
    if subject == "database":
        return given * trials["database_share"]
    if subject == "generator":
        return given.clip(upper=100 * trials["threads"].fillna(math.inf))
    return given


def candidates(tables: Tables) -> pd.DataFrame:
    """Return the sealed trials of k6's closed loads that have response times, and add `times`.

    Trials of a user's script are left out, because the probe sent other requests than the script.

    The column `times` is k6's median response time divided by the probe's. It is NaN if k6 did not
    keep its connections, because a request on a new connection takes longer than a request of the
    probe, which keeps its connections.
    """
    trials = tables.timed("k6")
    trials = trials[trials["workload"] != OWN_SCRIPT]
    times = trials["latency_p50_ms"] / trials["probe_p50_ms"]
    return trials.assign(times=times.where(trials["mode"].isin(["keepalive", ""])))


def queued(trials: pd.DataFrame) -> pd.Series[bool]:
    """Return a mask of the trials in which the generator was the limit and timed its own queue.

    The generator timed its own queue if its median response time is more than twice as long as the
    probe's. The two medians are compared only if generator and probe sent the same requests, the
    generator kept its connections, and the lab set no CPU quota for the server. The mask is False
    for all other trials.
    """
    kept = (
        trials["mode"].isin(["keepalive", ""])
        & trials["workload"].ne(OWN_SCRIPT)
        & trials["share"].eq(1)
    )
    longer = trials["latency_p50_ms"] > TWICE * trials["probe_p50_ms"]
    return limits_of(trials).eq(Limit.GENERATOR) & kept & longer


def probed(tables: Tables) -> bool:
    """Return True if some closed load of k6 in this run can be compared with the probe."""
    return bool(candidates(tables)["times"].notna().any())


def median_trial(trials: pd.DataFrame) -> pd.DataFrame:
    """Return, as a one-row table, the median trial of the cell in which k6 exceeds the probe most.

    `trials` are trials that `candidates` returned. Their column `times` is k6's median response
    time divided by the probe's.

    - The cell is the one with the largest median of `times`. If `times` is unknown for all trials,
      it is the one with the largest median of `latency_p50_ms`.
    - Of this cell, only trials with known `times` are considered, or all trials if it is unknown
      for all of them.
    - The median trial is the middle one in the order of `latency_p50_ms`. Of two middle trials, it
      is the one with the smaller `latency_p50_ms`, so that pages do not exaggerate.

    Return a table without rows if there are no trials.
    """
    if trials.empty:
        return trials
    by = ["times", "latency_p50_ms"]
    medians = trials.groupby(["load", "server"], sort=False)[by].median()
    load, server = medians.sort_values(by, ascending=False, kind="stable").index[0]
    cell = trials[trials["load"].eq(load) & trials["server"].eq(server)]
    witnessed = cell[cell["times"].notna()]
    ordered = (witnessed if len(witnessed) else cell).sort_values("latency_p50_ms")
    middle = (len(ordered) - 1) // 2
    return ordered.iloc[[middle]]


def choose(tables: Tables, trial: str = "") -> Case | None:
    """Return the trial named `trial`, with the probe's samples.

    If `trial` is empty, choose a trial of k6's closed loads: return the median trial of the cell in
    which k6's response times exceed the probe's by the largest factor. Return None if the run has
    no closed load of k6. Raise LabError if the run does not have the named trial, or if the named
    trial was not sealed.
    """
    if trial:
        chosen = tables.trials[tables.trials["trial_id"] == trial]
        if chosen.empty:
            raise LabError(f"This run has no trial {trial!r}.")
        if not is_sealed(chosen).iloc[0]:
            raise LabError(f"The trial {trial!r} was not sealed: {chosen['error'].iloc[0]}")
    else:
        chosen = median_trial(candidates(tables))
        if chosen.empty:
            return None
    row = {str(name): value for name, value in chosen.iloc[0].items()}
    probe = tables.samples("probe", row["trial_id"])
    within = probe[(probe["t_s"] >= 0) & (probe["t_s"] < row["duration_s"])].reset_index(drop=True)
    return Case(tables, row, within if len(probe) else None)
