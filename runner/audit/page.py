"""Make the page about audited tables, and the part of a report that shows an audit of the run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd

from runner.audit import figures
from runner.audit.checks import audit
from runner.audit.finding import Audit, Finding, Severity, laws, summary, table
from runner.audit.formats.values import NUMBERS, TEXTS
from runner.audit.reading import read_all
from runner.audit.stored import SUFFIX, load
from runner.model import QUOTA_PERIOD_S
from runner.places import places
from runner.present.frames import Tables, given_pct, sealed_trials
from runner.present.look import captions
from runner.present.look.markup import Block, Bullets, Paragraph, TextTable
from runner.present.notebook.pages import Page, opener

LINUX_QUOTA_PERIOD_S = 0.1
"""Assumed period of a CPU quota that the lab did not set: the kernel's default period."""
SHARED = "Several subjects"
"""Title of the table of fixes for findings that are not about a single subject."""
MOST_SUBJECTS = 20
MOST_FIXES = 10
"""Highest number of rows in the table of fixes for one subject.

A page shows such tables for at most MOST_SUBJECTS subjects.
"""
HARD = ("Little's law", "percentiles", "counts")  # laws that every trial of the lab must keep


@opener
def open_audit(
    files: str | list[str],
    format_name: str = "",
    columns: str = "",
    connections: float = 0,
    depth: float = 0,
) -> Page:
    """Audit files, and return the page about them for a notebook.

    `files` is a list of paths, or a text with paths separated by commas. A path that contains a
    comma must be given in a list. If a relative path does not exist, it is looked up in the lab's
    own folder. The other parameters are the options of `bench audit`. An empty text or 0 means that
    the option is not given.

    If there is only one file, and its name ends in `.audit.parquet`, it is an audit that
    `bench audit --html` has stored. Then its findings are shown without auditing again.
    """
    names = files.split(",") if isinstance(files, str) else files
    paths = [Path(name.strip()).expanduser() for name in names if name.strip()]
    given = [path if path.exists() else places().project / path for path in paths]
    if len(given) == 1 and given[0].name.endswith(SUFFIX):
        found = load(given[0])
        file_count = found.rows["source"].nunique()
    else:
        found = audit(read_all(given, format_name, columns, connections, depth))
        file_count = len(given)
    held = [
        {"check": law.name, "law": law.says, "does not prove": law.proves_not}
        for law in laws().values()
    ]
    charts = {
        "audit-little": figures.little,
        "audit-rates": figures.rates,
        "audit-cpu": figures.cpu,
    }
    return Page(
        about=captions.plural(file_count, "file"),
        figures=places().figures / f"audit-{paths[0].stem}",
        parts={
            "answer": lambda: [Bullets(summary(found).sentences)],
            "fixes": lambda: fixes(found),
            "remarks": lambda: remarks(found),
            "checks": lambda: [TextTable(pd.DataFrame(held), about="Checks")],
        },
        charts={name: partial(make, found) for name, make in charts.items()},
    )


def fixes(found: Audit) -> Iterator[Block]:
    """Yield a table for each subject, which says what to fix.

    The tables, and the rows of each table, are in order of severity. A finding about several
    subjects, a whole test or a whole file is not in the table of a subject, but in a common table
    with the title SHARED. Findings of the severity "worth knowing" are left out, because `remarks`
    shows them.
    """
    by_subject: dict[str, list[Finding]] = {}
    for finding in found.findings:
        if finding.severity is not Severity.KNOWING:
            subject = "" if finding.is_shared else finding.subject
            by_subject.setdefault(subject or SHARED, []).append(finding)
    if not by_subject:
        yield Paragraph("Nothing has to be fixed.")
    for subject, findings in list(by_subject.items())[:MOST_SUBJECTS]:
        rows = [
            {
                "what to do": finding.fix,
                "why": finding.says,
                "where": _where(finding, subject),
                "severity": str(finding.severity),
            }
            for finding in findings[:MOST_FIXES]
        ]
        more = len(findings) - len(rows)
        yield TextTable(pd.DataFrame(rows), subject, f"What to fix: {subject}")
        if more > 0:
            yield Paragraph(
                f"{captions.plural(more, 'finding')} more, which `bench audit --json` lists.",
                "note",
            )
    left = len(by_subject) - MOST_SUBJECTS
    if left > 0:
        yield Paragraph(
            f"{left} more {'subjects have' if left > 1 else 'subject has'} less severe findings: "
            "`bench audit --json` lists these findings.",
            "note",
        )


def _where(finding: Finding, subject: str) -> str:
    """Return the text of the column `where` for a finding in the table of fixes for `subject`.

    The text names the finding's test and row. In the table SHARED, it also names the finding's
    subject. A test or row that has the name `subject` is left out, because the table's title
    already says it. If no name is left, the text is the name of the file.
    """
    known = (finding.test, finding.row) if subject == finding.subject else (finding.where,)
    return ", ".join(part for part in known if part and part != subject) or finding.source


def remarks(found: Audit) -> Iterator[Block]:
    """Yield the table of the findings of the severity "worth knowing"."""
    known = tuple(each for each in found.findings if each.severity is Severity.KNOWING)
    if not known:
        yield Paragraph("There is nothing else to know.")
    yield TextTable(table(Audit(found.rows, known)), about="Worth knowing")


def rows_of(tables: Tables) -> pd.DataFrame:
    """Return a run's sealed trials as rows of an audited table."""
    trials = sealed_trials(tables.trials)
    slice_s = trials["duration_s"] / trials["slices"].fillna(1).clip(lower=1)
    named = {
        "source": tables.manifest.run_id,
        "row": trials["trial_id"],
        "test": trials["load"],
        "missing": "",
        "subject": trials["server"],
        "language": trials["language"],
        "load_model": trials["load_model"],
        "day": "",
        # In all modes other than `keepalive`, a connection is also in use while it is being opened.
        # The audit knows only one such mode, `close`, so it treats all of them as `close`.
        "mode": trials["mode"].where(trials["mode"].eq("keepalive"), "close"),
        "connections": trials["vus"].fillna(trials["connections"]),
        "depth": 1.0,
        "rate": trials["rps"],
        "target_rate": trials["rate_rps"].where(trials["steps"] <= 1),
        "mean_ms": trials["latency_mean_ms"],
        "p50_ms": trials["latency_p50_ms"],
        "p90_ms": trials["latency_p90_ms"],
        "p95_ms": trials["latency_p95_ms"],
        "p99_ms": trials["latency_p99_ms"],
        "max_ms": trials["latency_max_ms"],
        "cpu_pct": trials["server_cpu_mean_pct"],
        "cpu_given_pct": given_pct(tables, trials, "server"),
        # A server may use the quota of two more periods than fit into the slice. One of these
        # periods has begun before the slice, and its quota may still be unused. The other one
        # begins before the end of the slice, but ends after it.
        "cpu_tolerance": 2 * _quota_period_s(trials) / slice_s,
        "requests": trials["requests"],
        "duration_s": trials["duration_s"],
        "errors": trials["failed"],
    }
    frame = pd.DataFrame(
        {name: named.get(name, math.nan) for name in (*TEXTS, *NUMBERS)}, index=trials.index
    )
    return frame.astype(dict.fromkeys(NUMBERS, float)).reset_index(drop=True)


def _quota_period_s(trials: pd.DataFrame) -> pd.Series[float]:
    """Return the period of the server's CPU quota in each trial, in s, or 0 without a quota."""
    period_s = pd.Series(0.0, trials.index).mask(trials["share"] < 1, QUOTA_PERIOD_S)
    return period_s.mask(trials["quota_cores"] < math.inf, LINUX_QUOTA_PERIOD_S)


def of_run(tables: Tables) -> Iterator[Block]:
    """Yield a sentence about the audit of a run's sealed trials, and a table of the findings.

    Both contain only those findings about the laws in HARD that are more severe than "worth
    knowing". If there is no such finding, there is no table.
    """
    found = audit(rows_of(tables))
    broken = tuple(
        each for each in found.findings if each.check in HARD and each.severity != Severity.KNOWING
    )
    trials = captions.plural(len(found.rows), "sealed trial")
    result = (
        f"{captions.plural(len(broken), 'finding')} in {trials}"
        if broken
        else f"no finding in {trials}"
    )
    yield Paragraph(
        "This run was audited by laws that `bench audit` applies to published tables "
        f"({captions.joined(HARD)}): {result}."
    )
    if broken:
        yield TextTable(table(Audit(found.rows, broken), most=20), about="Findings in this run")


def of_published() -> Iterator[Block]:
    """Yield the result of auditing the published numbers of the original benchmark."""
    found = audit(read_all([places().published]))
    yield Bullets(summary(found).sentences)
    closed = found.rows.query(
        "load_model == 'closed' and rate > 0 and p50_ms.notna()", engine="python"
    )
    said = (
        f"{row['subject']}, {row['test']}: by Little's law, with {row['connections']:,.0f} users "
        f"and {row['rate']:,.0f} requests/s the mean response time is "
        f"{1000 * row['connections'] / row['rate']:,.0f} ms, whatever the server."
        for row in closed.to_dict("records")
    )
    yield Bullets(tuple(said))
    yield TextTable(table(found), about="Findings in the published numbers")
