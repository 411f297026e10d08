"""Findings of an audit, as a table and as three sentences to paste, and the laws not checked."""

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
    """What a finding does to a number, most severe first.

    A void number is none of what it is ranked as. An impossible one contradicts another by any
    reading of the columns, any rounding, and the usual error of the instrument.
    """

    VOID = "void"
    IMPOSSIBLE = "impossible"
    SUSPICIOUS = "suspicious"
    KNOWING = "worth knowing"


@dataclass(frozen=True)
class Finding:
    """Numbers that contradict each other, and where they stand.

    A finding about a whole test has no subject and no row; one about a file has no test either.
    """

    severity: Severity
    says: str
    source: str
    test: str = ""
    subject: str = ""
    row: str = ""
    check: str = ""  # name of the law; filled in by `audit`
    effect: float = 0.0
    """How far the numbers are apart, by which findings of one severity are ordered."""
    fix: str = ""
    """What the maintainer of the table can do; that of the law if the rule has none."""
    is_shared: bool = False
    """True if it is about rows of several subjects, of which `subject` is the first."""

    @property
    def where(self) -> str:
        """Subject, test and row, as far as the finding has them."""
        return ", ".join(part for part in (self.subject, self.test, self.row) if part)


@dataclass(frozen=True)
class Rule:
    """A rule of laws.toml: rows that break it, its severity, and its message for each row.

    laws.toml explains the expressions.
    """

    breaks: str
    severity: Severity
    says: str
    effect: str = ""
    """Column with the size of the contradiction, by which findings are ordered."""
    fix: str = ""


@dataclass(frozen=True)
class Law:
    """A law of laws.toml; the head of that file explains the fields."""

    name: str
    says: str
    needs: tuple[str, ...]
    proves_not: str
    fix: str
    rules: tuple[Rule, ...] = ()


@functools.cache
def laws() -> dict[str, Law]:
    """Return the laws by their keys, in the order of the file."""
    text = Path(__file__).with_name("laws.toml").read_text(encoding="utf-8")
    return TypeAdapter(dict[str, Law]).validate_python(tomllib.loads(text))


@dataclass(frozen=True, eq=False)
class Audit:
    """Rows read, findings (most severe first), and checks that lacked their columns."""

    rows: pd.DataFrame
    findings: tuple[Finding, ...]
    not_done: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[Severity, int]:
        """Number of findings of each severity."""
        found = Counter(finding.severity for finding in self.findings)
        return {severity: found[severity] for severity in Severity}


class _Shown(float):
    """A number written with three digits unless a format is given."""

    def __format__(self, spec: str) -> str:
        return super().__format__(spec) if spec else short_number(self)


def of_row(severity: Severity, row: Mapping[Any, Any], says: str) -> Finding:
    """Return a finding about one row; `says` contains column names in braces."""
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
    """Return a finding about all rows of a test."""
    first = rows.iloc[0]
    alike = rows["connections"].nunique() == 1
    test = sized(first["test"], first["connections"] if alike else math.nan)
    return Finding(severity, says, first["source"], test)


def sized(test: str, connections: float) -> str:
    """Return a test with its connections, if they are known: `json, 1,000 connections`."""
    noun = "connection" if connections == 1 else "connections"
    return f"{test}, {connections:,.0f} {noun}" if connections > 0 else test


@dataclass(frozen=True)
class Summary:
    """Sentences about an audit, to paste."""

    counted: str
    """Rows, and findings by severity."""
    gravest: str
    """The gravest finding."""
    not_checked: str
    """Checks that lacked columns."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """All of them, in their order."""
        return (self.counted, self.gravest, self.not_checked)


def summary(found: Audit) -> Summary:
    """Return an audit in three sentences."""
    rows = found.rows
    files = rows["source"].nunique()
    tests = rows.groupby("source")["test"].nunique().sum()
    said = ", ".join(f"{count:,} {severity}" for severity, count in found.counts.items())
    counted = (
        f"{plural(len(rows), 'row')} of {plural(int(tests), 'test')} in {plural(files, 'file')}: "
        f"{said}."
    )
    gravest = "All numbers that are there go together."
    if found.findings:
        first = found.findings[0]
        gravest = f"The gravest finding, {first.where or first.source}: {first.says}"
        if first.severity is Severity.KNOWING:
            gravest = first.says
    missed = (
        f"Not done for want of columns: {'; '.join(found.not_done)}"
        if found.not_done
        else "All checks were done"
    )
    not_checked = f"{missed}. A finding is about numbers, not about who wrote them."
    return Summary(counted, gravest, not_checked)


def table(found: Audit, most: int = 200) -> pd.DataFrame:
    """Return the findings as texts, most severe first, at most `most` of each severity."""
    rows = []
    for severity, count in found.counts.items():
        listed = [finding for finding in found.findings if finding.severity is severity][:most]
        rows += [
            (str(severity), each.check, each.where or each.source, each.says) for each in listed
        ]
        if count > most:
            rows.append((str(severity), "", "", f"and {count - most:,} more"))
    return pd.DataFrame(rows, columns=["severity", "check", "where", "numbers"])
