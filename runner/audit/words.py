"""What an audit says: three sentences that can be pasted, and a table of its findings."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from runner.audit.finding import Audit, Severity
from runner.present.look.captions import plural


def summary(found: Audit) -> tuple[str, str, str]:
    """Return three sentences that a maintainer can paste: what was read and found, the gravest, what was not done."""
    rows, counts = found.rows, found.counts
    files, tests = rows["source"].nunique(), rows.groupby("source")["test"].nunique().sum()
    said = _counted(counts)
    first = f"{plural(len(rows), 'row')} of {plural(int(tests), 'test')} in {plural(files, 'file')}: {said}."
    kinds = Counter(finding.check for finding in found.findings if finding.severity is Severity.IMPOSSIBLE)
    kinds = kinds or Counter(finding.check for finding in found.findings if finding.severity is Severity.SUSPICIOUS)
    if found.findings:
        gravest = found.findings[0]
        most = ", ".join(f"{name} {count}" for name, count in kinds.most_common(3))
        second = (
            f"Most of the gravest are about {most}; such as {gravest.where}: {gravest.says}" if kinds else gravest.says
        )
    else:
        second = "All numbers that are there go together."
    missed = (
        f"Not done for want of columns: {'; '.join(found.not_done)}." if found.not_done else "All checks were done."
    )
    return first, second, f"{missed} A finding is about numbers, not about who wrote them."


def _counted(counts: dict[Severity, int]) -> str:
    """Return `2 impossible, 5 suspicious, 9 worth knowing`."""
    return ", ".join(f"{count:,} {severity}" for severity, count in counts.items())


def table(found: Audit, most: int = 200) -> pd.DataFrame:
    """Return the findings as texts, the gravest first, at most `most` of each severity."""
    rows = []
    for severity in Severity:
        own = [finding for finding in found.findings if finding.severity is severity]
        rows += [
            {"severity": str(severity), "check": each.check, "where": each.where or each.source, "numbers": each.says}
            for each in own[:most]
        ]
        if len(own) > most:
            rows.append(
                {"severity": str(severity), "check": "", "where": "", "numbers": f"and {len(own) - most:,} more"}
            )
    return pd.DataFrame(rows)
