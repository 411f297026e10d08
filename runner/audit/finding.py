"""What an audit finds: findings with their severity, the laws that were held, and what could not be held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd


class Severity(StrEnum):
    """How sure a finding is, the gravest first."""

    IMPOSSIBLE = "impossible"
    SUSPICIOUS = "suspicious"
    KNOWING = "worth knowing"


@dataclass(frozen=True)
class Finding:
    """Where numbers do not go together, and which; `row` is empty where a finding is about a whole test."""

    check: str
    severity: Severity
    source: str
    test: str
    subject: str
    row: str
    says: str

    @property
    def where(self) -> str:
        """Subject, test and row, as far as it has them."""
        return ", ".join(part for part in (self.subject, self.test, self.row) if part)


@dataclass(frozen=True)
class Law:
    """A law, the columns that it takes, and what a finding does not prove."""

    name: str
    law: str
    needs: tuple[tuple[str, ...], ...]
    """Columns that a row must have together; any of these does."""
    proves_not: str
    find: Callable[[pd.DataFrame], Iterator[Finding]]


@dataclass(frozen=True, eq=False)
class Audit:
    """What was read, what was found, the gravest first, and which checks lacked their columns."""

    rows: pd.DataFrame
    findings: tuple[Finding, ...]
    not_done: tuple[str, ...]

    @property
    def counts(self) -> dict[Severity, int]:
        """How many findings there are of each severity."""
        found = Counter(finding.severity for finding in self.findings)
        return {severity: found[severity] for severity in Severity}


def finding(check: str, severity: Severity, row: Mapping[Hashable, Any], says: str) -> Finding:
    """Return a finding about one row."""
    return Finding(check, severity, row["source"], row["test"], row["subject"], row["row"], says)


def of_test(check: str, severity: Severity, rows: pd.DataFrame, says: str) -> Finding:
    """Return a finding about all rows of a test."""
    first = rows.iloc[0]
    size = f", {first['connections']:,.0f} connections" if rows["connections"].nunique() == 1 else ""
    return Finding(check, severity, first["source"], f"{first['test']}{size}", "", "", says)


def where(
    rows: pd.DataFrame,
    mask: pd.Series[bool],
    check: str,
    severity: Severity,
    says: Callable[[Mapping[Hashable, Any]], str],
) -> Iterator[Finding]:
    """Yield a finding for each row of a mask; `says` makes its words of the row."""
    for row in rows[mask].to_dict("records"):
        yield finding(check, severity, row, says(row))
