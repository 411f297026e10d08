"""Put profiles into words and tables."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pandas as pd

from runner.present.comparison.ratios import YARDSTICKS
from runner.present.frames import Tables
from runner.present.look import captions
from runner.present.look.numbers import number
from runner.present.why.profiles import (
    MOST_UNKNOWN,
    Difference,
    Microseconds,
    Profiles,
    ServerProfile,
)

_WHERE = {
    "kernel network": "in the kernel's network code",
    "kernel other": "elsewhere in the kernel",
    "scheduler": "in scheduling",
    "runtime and garbage collector": "in the runtime and its garbage collector",
    "allocator": "in the allocator",
    "HTTP": "in HTTP",
    "routing and framework": "in routing and framework",
    "JSON": "in JSON",
    "hash": "in the hash",
    "database client": "in the database client",
    "application": "in the application",
    "client protocol": "in the client protocol",
    "parser and planner": "in parser and planner",
    "executor": "in the executor",
    "storage and locks": "in storage and locks",
    "WAL": "in the WAL",
    "unknown": "in functions without a name",
}
TOTAL = "all"
MOST_MISSED = 0.05
"""If the samples' CPU time differs from the kernel's by more than this share, a remark says so."""
NO_PART = "no single kind of work differs significantly"
LEAST_US = 0.05
"""A sentence names a kind of work only if its difference is at least this many µs per request."""


def load_words(tables: Tables, load: str) -> str:
    """Return a profiled load in words, or the load's name if the run has no trials of this load."""
    trials = trials_of_load(tables, load)
    return str(trials["load_brief"].iloc[0]) if len(trials) else load


def trials_of_load(tables: Tables, load: str) -> pd.DataFrame:
    """Return the run's trials of a profiled load. The frame may be empty."""
    return tables.trials[_first_attempts(tables).str.endswith(f"-{load}")]


def _first_attempts(tables: Tables) -> pd.Series[str]:
    """Return the id of each trial's first attempt, which ends with the name of the load."""
    names: pd.Series[str] = tables.trials["trial_id"].str.replace(r"\.a\d+$", "", regex=True)
    return names


def load_of_trial(profiles: Profiles, tables: Tables, trial_id: str) -> str:
    """Return the name that a trial's load has in the profiles.

    Return an empty text if the trial's server was not profiled under the trial's load.
    """
    chosen = tables.trials["trial_id"].eq(trial_id)
    server = str(tables.trials.loc[chosen, "server"].iloc[0])
    name = _first_attempts(tables)[chosen].iloc[0]
    mine = profiles.slices.loc[profiles.slices["server"].eq(server), "load"].unique()
    return next((str(load) for load in mine if name.endswith(f"-{server}-{load}")), "")


def us(value: Microseconds) -> str:
    """Return a value in µs with its interval as text: `8.41 ± 1.20`."""
    if math.isnan(value.low):
        return number(value.mean)
    digits = 2 if value.mean < 100 else 1
    return f"{value.mean:.{digits}f} ± {(value.high - value.low) / 2:.{digits}f}"


def categories_table(profiles: Sequence[ServerProfile]) -> pd.DataFrame:
    """Return a table of µs per request, with a row per category and a column per server."""
    shown = {
        profile.server: {
            **{name: us(value) for name, value in profile.categories.items() if value.mean > 0},
            TOTAL: us(profile.total),
        }
        for profile in profiles
    }
    names = list(dict.fromkeys(name for each in profiles for name in each.categories))
    table = pd.DataFrame(shown).reindex([*names, TOTAL]).dropna(how="all").fillna("–")
    return table.rename_axis("µs per request").reset_index()


def events_table(profiles: Profiles, load: str) -> pd.DataFrame:
    """Return a table of events per request under a load, with a column per server.

    The events are those that perf counted, such as system calls. An event is left out if every
    server has less than 0.0005 of it per request.
    """
    rows = profiles.counters[profiles.counters["load"].eq(load)].copy()
    rows["shown"] = [
        _per_request(value) if supported else "not supported"
        for value, supported in zip(rows["per_request"], rows["supported"], strict=True)
    ]
    table = rows.pivot_table(
        index="event", columns="server", values="shown", aggfunc="first", sort=False
    )
    some = (table != "0").any(axis=1)
    names = {name: _event_words(str(name)) for name in table.index}
    return table[some].rename(index=names).rename_axis("per request", axis=0).reset_index()


def _per_request(value: float) -> str:
    if value < 0.0005:
        return "0"
    return f"{value:.3f}" if value < 10 else f"{value:.2f}"


def _event_words(event: str) -> str:
    if event == "raw_syscalls:sys_enter":
        return "system calls"
    return event.replace("syscalls:sys_enter_", "system call ").replace("-", " ")


def difference_words(found: Difference) -> str:
    """Return a sentence about the difference in CPU time per request between two servers.

    The sentence names the kinds of work in which the servers differ significantly. First come the
    kinds for which the more expensive server needs more CPU time, and then the kinds for which it
    needs less. If the total CPU times do not differ significantly, the sentence says so instead.
    """
    apart = _Apart.of(found)
    if apart is None:
        return _too_close(found)
    added = [f"{number(part.more_us)} {part.where}" for part in apart.added]
    saved = [f"{number(-part.more_us)} less {part.where}" for part in apart.saved]
    parts = ", ".join([*added, *saved]) or NO_PART
    return (
        f"{apart.more} takes {number(apart.total_us)} µs more CPU time per request than "
        f"{apart.less}: {parts}."
    )


def shares_words(found: Difference) -> str:
    """Return sentences like that of `difference_words`, with percentages in place of µs.

    perf itself takes CPU time in the profiled slices, so µs from profiles would contradict the CPU
    time per request that the trials show on the same page.
    """
    apart = _Apart.of(found)
    if apart is None:
        return _too_close(found)
    said = f"{apart.more} takes more CPU time per request than {apart.less}"
    if not apart.added:
        return f"{said}; by profiles, {NO_PART}."
    return f"{said}. {_parts_words(apart)}"


def _parts_words(apart: _Apart) -> str:
    """Return a sentence that says on which kinds of work the additional CPU time is spent.

    100 % is the additional CPU time of all kinds of work for which the more expensive server needs
    significantly more CPU time. There must be at least one such kind of work.
    """
    sum_us = sum(part.more_us for part in apart.added)
    first = apart.added[0]
    others = apart.added[1:]
    parts = [
        f"{100 * first.more_us / sum_us:.0f} % is spent {first.where}",
        *(f"{100 * part.more_us / sum_us:.0f} % {part.where}" for part in others),
    ]
    less = f"; it takes less {captions.joined([part.where for part in apart.saved])}"
    return (
        f"Of the additional time, by profiles, {captions.joined(parts)}"
        f"{less if apart.saved else ''}."
    )


@dataclass(frozen=True)
class Reason:
    """Why one server needs more CPU time per request than another."""

    more: str
    """The server that needs more CPU time."""
    less: str
    """The server with which `more` is compared."""
    parts: str
    """A sentence that says on which kinds of work the additional CPU time is spent."""

    @property
    def words(self) -> str:
        """Sentences that name the two servers, and then the kinds of work."""
        return f"{self.more} takes more CPU time per request than {self.less}. {self.parts}"


@dataclass(frozen=True)
class _Part:
    """A kind of work in which two servers differ significantly."""

    more_us: float
    """Additional CPU time of the more expensive server for this kind of work, in µs per request.

    The value is negative if the more expensive server needs less CPU time for this kind of work.
    """
    where: str
    """The kind of work in words, such as `in HTTP`."""


@dataclass(frozen=True)
class _Apart:
    """A significant difference in CPU time per request between two servers."""

    more: str
    """The server that needs more CPU time."""
    less: str
    total_us: float
    added: tuple[_Part, ...]
    """The kinds of work for which `more` needs more CPU time, the largest part first."""
    saved: tuple[_Part, ...]
    """The kinds of work for which `more` needs less CPU time, the largest part first."""

    @classmethod
    def of(cls, found: Difference) -> _Apart | None:
        """Return the difference and its parts, or None if the total is not significant."""
        total = found.total
        if not total.is_sure:
            return None
        more = found.more
        less = found.less
        sign = 1
        if total.mean < 0:
            more = found.less
            less = found.more
            sign = -1
        parts = [
            _Part(sign * value.mean, _WHERE.get(name, f"in {name}"))
            for name, value in found.categories.items()
            if value.is_sure and abs(value.mean) >= LEAST_US
        ]
        parts.sort(key=lambda part: -abs(part.more_us))
        added = tuple(part for part in parts if part.more_us > 0)
        saved = tuple(part for part in parts if part.more_us < 0)
        return cls(more, less, abs(total.mean), added, saved)


def _too_close(found: Difference) -> str:
    both = f"{found.more} and {found.less}"
    return f"{both} are too close to tell apart by CPU time per request ({us(found.total)} µs)."


def _compared(profiles: Profiles, load: str) -> list[ServerProfile]:
    """Return the profiles of a load that sentences compare, with the cheapest server first.

    Yardsticks, which only answer with fixed bodies, are left out, unless fewer than two servers
    would remain. The cheapest server is the one that needs least CPU time per request.
    """
    found = profiles.of(load)
    others = [each for each in found if each.server not in YARDSTICKS]
    return others if len(others) > 1 else found


def sentences(profiles: Profiles, load: str) -> list[str]:
    """Return sentences that compare each server of a load with the cheapest server."""
    found = _compared(profiles, load)
    return [difference_words(each.less(found[0])) for each in found[1:]]


def comparison_title(profiles: Profiles, load: str) -> str:
    """Return a title that compares the most expensive server of a load with the cheapest.

    The title has no µs: perf takes CPU time, too, so µs from profiles would contradict the CPU time
    per request that the trials show on the same page.
    """
    found = _compared(profiles, load)
    cheapest = found[0]
    dearest = found[-1]
    if cheapest is dearest:
        return f"Where {cheapest.server}'s CPU time goes"
    apart = _Apart.of(dearest.less(cheapest))
    if apart is None:
        return f"{dearest.server} and {cheapest.server} take about the same CPU time per request"
    return f"{apart.more} takes more CPU time per request than {apart.less}"


def first_sentence(profiles: Profiles, load: str, servers: Collection[str]) -> str:
    """Return a sentence that compares the CPU time per request of two servers under a load.

    If `servers` names two servers that were profiled under the load, these two are compared.
    Otherwise the most expensive server is compared with the cheapest server. Return an empty text
    if fewer than two servers were profiled under the load.
    """
    found = _pair_or_all(_compared(profiles, load), servers)
    return shares_words(found[-1].less(found[0])) if len(found) > 1 else ""


def reason(profiles: Profiles, load: str, servers: Collection[str] = ()) -> Reason | None:
    """Return why one server needs more CPU time per request than another under a load.

    The servers are those that `first_sentence` compares. Return None if there are no two servers,
    if their total CPU times do not differ significantly, or if there is no single kind of work for
    which the more expensive server needs significantly more CPU time.
    """
    found = _pair_or_all(_compared(profiles, load), servers)
    apart = _Apart.of(found[-1].less(found[0])) if len(found) > 1 else None
    if apart is None or not apart.added:
        return None
    return Reason(apart.more, apart.less, _parts_words(apart))


def _pair_or_all(found: list[ServerProfile], servers: Collection[str]) -> list[ServerProfile]:
    """Return the profiles of the servers in `servers`.

    Return all profiles in `found` if `found` does not contain exactly two of these servers.
    """
    named = [each for each in found if each.server in servers]
    return named if len(named) == 2 else found


def work_words(profile: ServerProfile, most: int = 4) -> str:
    """Return words for the CPU time per request in a profile, and for its largest parts.

    The parts are the `most` kinds of work that take the most CPU time.
    """
    kinds = sorted(profile.categories.items(), key=lambda each: -each[1].mean)[:most]
    spent = ", ".join(f"{number(value.mean)} {_WHERE.get(name, name)}" for name, value in kinds)
    return f"{number(profile.total.mean)} µs of CPU time per request, of which {spent}"


def remarks(profiles: Profiles, load: str) -> list[str]:
    """Return remarks on how far the profiles of a load can be trusted.

    The remarks say how much CPU time the recording itself takes, how much CPU time the samples
    miss, and how much CPU time is in unknown functions.
    """
    said = []
    if (cost := profiles.cost(load)) is not None:
        interval = ""
        if not math.isnan(cost.low):
            interval = f" ({100 * cost.low:+.1f} to {100 * cost.high:+.1f} %)"
        said.append(
            f"Recording call stacks changed the CPU time per request by {100 * cost.mean:+.1f} "
            f"%{interval}, so profiled slices are in no comparison."
        )
    for each in profiles.of(load):
        share = each.total.mean / each.cpu_us_per_request
        if abs(share - 1) > MOST_MISSED:
            said.append(
                f"The samples are {100 * share:.0f} % of the CPU time that the kernel counted for "
                f"{each.server}: perf does not sample the switch from one thread to another."
            )
    said += [
        f"{100 * each.unknown_share:.0f} % of {each.server}'s CPU time is in functions without a "
        "known name: build it with its symbol table and with frame pointers."
        for each in profiles.of(load)
        if each.unknown_share > MOST_UNKNOWN
    ]
    return said


def database_words(databases: Profiles, load: str) -> tuple[str, ...]:
    """Return sentences that say on which kinds of work PostgreSQL spends CPU time under a load.

    There is a sentence for each server that sends requests to PostgreSQL. The sentence also says
    how much of the CPU time is in functions without a known name. A last sentence explains how the
    time of such functions is counted.
    """
    found = databases.of(load)
    said = [
        f"Under {each.server}, PostgreSQL takes {work_words(each)}; "
        f"{100 * each.unknown_share:.0f} % of it is in functions without a known name."
        for each in found
    ]
    return (
        *said,
        "Debian's PostgreSQL has only the names of its global functions, so the time of a static "
        "function counts for its nearest caller with a name.",
    )
