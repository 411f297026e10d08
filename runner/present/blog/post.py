"""What a post about a run says, each sentence computed: answer first, then figures, tables, method, machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from runner.limits import Limit
from runner.model import LabError
from runner.present.answers import headline, inserts, summary
from runner.present.answers.caveats import warnings_of
from runner.present.blog.plots import Plot
from runner.present.blog.provenance import allowed
from runner.present.figures import objectives, rates
from runner.present.frames import Tables, sealed_trials
from runner.present.look import captions
from runner.present.look.markup import DAGGER, NOT_RANKED
from runner.present.look.palette import CALIBRATION, identities
from runner.present.published import short as published_short
from runner.present.published.numbers import read_published

MOST_NAMED = 4
"""Servers that a title names; of more it says how many."""
TRIAL = (
    "A trial is one load on a freshly started server. It is sealed only if the counts of everything involved agree; no "
    "figure and no table here has a value of any other. Values are the median of the trials."
)
CLOSED = (
    "In a closed loop without think time each user sends the next request as soon as the last is answered, so that "
    "the mean response time is the number of users divided by the throughput (Little's law). Throughput is ranked only "
    "where the server was the limit in every trial."
)
OPEN = (
    "In an open loop requests are sent on a schedule, whether or not earlier ones have been answered. Response times "
    "are compared only where the rate was kept and nobody was at a limit."
)
PROBE = (
    "Beside each load a probe, a client of its own, sends the same request at a low rate: where a busy generator "
    "measures its own queue, the two differ."
)
ELSEWHERE = "Published numbers were taken on other machines: compare ratios, not rates."


@dataclass(frozen=True, eq=False)
class Sheet:
    """One table of a post: texts as they are printed."""

    name: str
    """As in its files, NAME.md and NAME.csv."""
    title: str
    frame: pd.DataFrame


@dataclass(frozen=True, eq=False)
class Post:
    """The content of a post, before Markdown or HTML."""

    title: str
    started_at: str
    description: str
    tags: tuple[str, ...]
    headlines: pd.DataFrame
    reading: str
    """How to read the headlines; empty where nothing needs it."""
    untold: tuple[str, ...]
    warnings: tuple[str, ...]
    plots: tuple[Plot, ...]
    findings: tuple[str, ...]
    sheets: tuple[Sheet, ...]
    notes: tuple[str, ...]
    """Sentences below the tables."""
    method: tuple[str, ...]
    verdicts: pd.DataFrame
    machine: pd.DataFrame


def compose(tables: Tables, plots: Sequence[Plot]) -> Post:
    """Return the post about a run with these figures; LabError where no trial was sealed."""
    sealed = sealed_trials(tables.trials)
    if sealed.empty:
        raise LabError("No trial of this run was sealed: there is nothing to publish.", exit_code=1)
    answer, sheets = headline.headlines(tables), tuple(_sheets(tables))
    return Post(
        title=_title(tables, sealed),
        started_at=str(tables.manifest.get("started_at") or ""),
        description=_description(tables),
        tags=_tags(tables, sealed),
        headlines=headline.printable(answer),
        reading=headline.READING if any("×" in of.margin for of in answer) else "",
        untold=(*headline.untold(answer), *headline.doubled(tables)),
        warnings=tuple(warnings_of(tables, summary.summarize(tables))),
        plots=tuple(plots),
        findings=_findings(tables),
        sheets=sheets,
        notes=tuple(_notes(sheets)),
        method=tuple(_method(tables, sealed)),
        verdicts=_verdicts(sealed),
        machine=pd.DataFrame(captions.manifest_rows(allowed(tables.manifest))),
    )


# --- front matter -----------------------------------------------------------------------------------------


def _title(tables: Tables, sealed: pd.DataFrame) -> str:
    ranked = set(sealed.loc[sealed["tier"] != CALIBRATION, "server"]) or set(sealed["server"])
    ranked -= headline.second_labels(tables).keys()
    servers = [server for server in identities(tables.trials) if server in ranked]
    who = joined(servers) if len(servers) <= MOST_NAMED else f"{len(servers)} web API servers"
    behind = ", with PostgreSQL behind them" if sealed["pool_size"].notna().all() else ""
    return f"{who} under {joined(sorted(set(sealed['tool'])))}{behind}"


def _description(tables: Tables) -> str:
    manifest = tables.manifest
    campaign = manifest.get("campaign") or {}
    day = str(manifest.get("started_at") or "")[:10]
    about = str(campaign.get("title") or campaign.get("name") or "A run").rstrip(".")
    when = f"Measured on {day}" if day else "Measured"
    return f"{about}. {captions.trial_counts(tables.trials)}. {when} on {captions.machine(manifest)}."


def _tags(tables: Tables, sealed: pd.DataFrame) -> tuple[str, ...]:
    """Return tools, languages and servers of the sealed trials, in small letters, each once."""
    database = ["postgresql"] if tables.has_database else []
    names = [*sorted(set(sealed["tool"])), *database, *sorted(set(sealed["language"])), *sorted(set(sealed["server"]))]
    return tuple(dict.fromkeys(name.lower() for name in names))


def joined(names: Sequence[str]) -> str:
    """Return `a`, `a and b` or `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# --- tables -----------------------------------------------------------------------------------------------


def _findings(tables: Tables) -> tuple[str, ...]:
    """Return what each load says, in sentences, each once."""
    stored = inserts.answer(tables).findings if tables.has_database else ()
    return tuple(dict.fromkeys([*summary.answer(tables).findings, *stored, *objectives.findings(tables)]))


def _sheets(tables: Tables) -> Iterator[Sheet]:
    """Yield the tables that the run has something for."""
    table, known = summary.summarize(tables), read_published()
    found = [sheet for tool, rows in table.groupby("tool", sort=False) for sheet in _of_tool(str(tool), rows)]
    if tables.has_database:
        found.append(Sheet("inserts", "Loads with a database", inserts.printable(tables)))
    if not tables.searches().empty:
        kept = objectives.printable(objectives.answers(tables))
        found.append(Sheet("objectives", "The highest rate that keeps the objective", kept))
    if not tables.sweeps().empty:
        found.append(Sheet("rates", "Response times by offered rate", rates.knee_table(tables)))
    beside = "Beside the published numbers"
    counts, experiments = published_short.matrix_table(tables, known), published_short.experiments_table(tables, known)
    found.append(Sheet("published-count", f"{beside}: GET /count with wrk, requests/s [minimum–maximum]", counts))
    found.append(Sheet("published-experiments", f"{beside}: POST /experiments with k6", experiments))
    yield from (sheet for sheet in found if not sheet.frame.empty)


def _of_tool(tool: str, rows: pd.DataFrame) -> list[Sheet]:
    if tool == "k6":
        return [Sheet("k6-loads", "Loads with k6", summary.printable(rows))]
    return [
        Sheet(f"{tool}-requests", f"Requests/s with {tool}", summary.pivot(rows, "rps")),
        Sheet(f"{tool}-cpu-per-request", f"CPU ms per request with {tool}", summary.pivot(rows, "cpu_ms_per_request")),
    ]


def _notes(sheets: Sequence[Sheet]) -> Iterator[str]:
    """Yield what a reader of the tables must know."""
    if any(NOT_RANKED in str(cell) for sheet in sheets for row in sheet.frame.to_numpy() for cell in row):
        yield DAGGER
    if any(sheet.name.startswith("published") for sheet in sheets):
        yield ELSEWHERE


# --- method -----------------------------------------------------------------------------------------------


def _method(tables: Tables, sealed: pd.DataFrame) -> list[str]:
    """Return how the run's loads were measured and what therefore may be compared; nothing about loads it has not."""
    models = set(sealed["load_model"])
    parts = [TRIAL, CLOSED if "closed" in models else "", OPEN if "open" in models else ""]
    parts.append(PROBE if sealed["probe_requests"].notna().any() else "")
    parts.append(captions.database_place(tables.manifest) if tables.has_database else "")
    return [part for part in parts if part]


def _verdicts(sealed: pd.DataFrame) -> pd.DataFrame:
    """Return a row a verdict and tool: how many trials have it, what it means, and the reason of the first."""
    return pd.DataFrame(
        {
            "verdict": verdict,
            "tool": tool,
            "trials": str(len(of)),
            "which means": Limit.of(str(verdict)).meaning,
            "for example": of["verdict_reason"].iloc[0],
        }
        for (verdict, tool), of in sealed.groupby(["verdict", "tool"], sort=True)
    )
