"""Read the laws of an audit, and show its findings as a table and in three sentences."""

import functools
import math
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from runner.model import short_number
from runner.present.look.captions import plural


class Severity(StrEnum):
    """The severities of findings, the most severe first.

    A finding is `void` if a number does not measure the quantity that the table ranks. A finding is
    `impossible` if two numbers contradict each other. Neither another meaning of the columns nor
    errors of rounding and measuring can explain such a contradiction.
    """

    VOID = "void"
    IMPOSSIBLE = "impossible"
    SUSPICIOUS = "suspicious"
    KNOWING = "worth knowing"


@dataclass(frozen=True)
class Finding:
    """A contradiction between numbers, and the names of the rows with these numbers.

    A finding about a whole test has no subject and no row. A finding about a whole file has no
    subject, no row and no test.
    """

    severity: Severity
    says: str
    source: str
    test: str = ""
    subject: str = ""
    row: str = ""
    check: str = ""  # name of the law; filled in by `audit`
    effect: float = 0.0
    """Size of the contradiction. Findings of the same severity are ordered by this size."""
    fix: str = ""
    """What the maintainer of the table can do.

    This is the advice of the broken rule. If the rule gives no advice, it is the advice of the law.
    """
    is_shared: bool = False
    """True if the finding is about rows of several subjects.

    `subject` is then the first of these subjects.
    """

    @property
    def where(self) -> str:
        """Subject, test and row, as far as the finding names them."""
        return ", ".join(part for part in (self.subject, self.test, self.row) if part)


@dataclass(frozen=True)
class Rule:
    """A rule of laws.toml, with its severity.

    `breaks` is an expression that is true for rows that break the rule. `says` is the message about
    a row that breaks the rule. laws.toml explains the expressions.
    """

    breaks: str
    severity: Severity
    says: str
    effect: str = ""
    """Name of the column with the size of the contradiction, by which findings are ordered."""
    fix: str = ""


@dataclass(frozen=True)
class Law:
    """A law of laws.toml. The comment at the top of laws.toml explains the fields."""

    name: str
    says: str
    needs: tuple[str, ...]
    proves_not: str
    fix: str
    rules: tuple[Rule, ...] = ()


@functools.cache
def laws() -> dict[str, Law]:
    """Return the laws by their keys, in the order of laws.toml."""
    text = Path(__file__).with_name("laws.toml").read_text(encoding="utf-8")
    return TypeAdapter(dict[str, Law]).validate_python(tomllib.loads(text))


@dataclass(frozen=True, eq=False)
class Audit:
    """The rows that were read, and the findings about these rows, the most severe first.

    `not_done` names the checks that could not be done, because the tables lack the columns for
    them.
    """

    rows: pd.DataFrame
    findings: tuple[Finding, ...]
    not_done: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[Severity, int]:
        """Number of findings of each severity."""
        found = Counter(finding.severity for finding in self.findings)
        return {severity: found[severity] for severity in Severity}


class _Shown(float):
    """A number that is written with three digits, unless a format is given."""

    def __format__(self, spec: str) -> str:
        return super().__format__(spec) if spec else short_number(self)


def of_row(severity: Severity, row: Mapping[Any, Any], says: str) -> Finding:
    """Return a finding about one row.

    `says` is the message. In the message, the row's values replace the names of columns in braces.
    """
    shown = {
        str(name): _Shown(value) if isinstance(value, float) else value
        for name, value in row.items()
    }
    return Finding(
        severity,
        says.format_map(shown),
        *(row[name] for name in ("source", "test", "subject", "row")),
    )


def of_test(severity: Severity, rows: pd.DataFrame, says: str) -> Finding:
    """Return one finding about all rows of a test together."""
    first = rows.iloc[0]
    alike = rows["connections"].nunique() == 1
    test = sized(first["test"], first["connections"] if alike else math.nan)
    return Finding(severity, says, first["source"], test)


def sized(test: str, connections: float) -> str:
    """Return a test's name, with its number of connections if known: `json, 1,000 connections`."""
    noun = "connection" if connections == 1 else "connections"
    return f"{test}, {connections:,.0f} {noun}" if connections > 0 else test


@dataclass(frozen=True)
class Summary:
    """Three sentences about an audit, for quoting."""

    counted: str
    """Sentence with the number of rows, and the number of findings of each severity."""
    gravest: str
    """Sentence about the most severe finding."""
    not_checked: str
    """Sentence about the checks that could not be done, because the tables lack the columns."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """The three sentences in their order."""
        return (self.counted, self.gravest, self.not_checked)


CHECKED = ("rate", "requests", "mean_ms", "p50_ms", "p99_ms", "max_ms", "bytes_per_s")
"""If these columns are empty in all rows, the summary says that nothing was checked."""


def summary(found: Audit) -> Summary:
    """Return three sentences about an audit."""
    rows = found.rows
    files = rows["source"].nunique()
    tests = rows.groupby("source")["test"].nunique().sum()
    said = ", ".join(f"{count:,} {severity}" for severity, count in found.counts.items())
    counted = (
        f"{plural(len(rows), 'row')} of {plural(int(tests), 'test')} in {plural(files, 'file')}: "
        f"{said}."
    )
    gravest = "All numbers that were checked are consistent."
    if rows[list(CHECKED)].isna().all(axis=None):
        gravest = "Nothing was checked, because no row has a rate, a count or a response time."
    if found.findings:
        first = found.findings[0]
        gravest = f"The most severe finding ({first.where or first.source}): {first.says}"
        if first.severity is Severity.KNOWING:
            gravest = first.says
    missed = (
        f"Not checked, because the columns are missing: {'; '.join(found.not_done)}"
        if found.not_done
        else "All checks were done"
    )
    not_checked = (
        f"{missed}. A finding says something about numbers, not about the people who published "
        "them."
    )
    return Summary(counted, gravest, not_checked)


def table(found: Audit, most: int = 200) -> pd.DataFrame:
    """Return the findings as a table of texts, the most severe first.

    The table has at most `most` findings of each severity.
    """
    rows = []
    for severity, count in found.counts.items():
        listed = [finding for finding in found.findings if finding.severity is severity][:most]
        rows += [
            (str(severity), each.check, each.where or each.source, each.says) for each in listed
        ]
        if count > most:
            rows.append((str(severity), "", "", f"and {count - most:,} more"))
    return pd.DataFrame(rows, columns=["severity", "check", "where", "numbers"])
