"""Store an audit in a file, from which its page is made.

The file is a table of the audited rows. The metadata of this table contain the findings.
"""

import json
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from runner.audit.finding import Audit, Finding, Severity
from runner.model import LabError
from runner.store import replacing

KEY = b"audit"
"""Key of the table's metadata under which the findings are stored."""
SUFFIX = ".audit.parquet"
"""Suffix of a stored audit. No other table has this suffix, so an audit overwrites no table."""


def store(audit: Audit, path: Path) -> None:
    """Write an audit to a Parquet file, so that its page can be made without auditing again.

    An audit cannot always be repeated: a pipe cannot be read a second time, and a file may have
    changed.
    """
    findings = [asdict(finding) for finding in audit.findings]
    facts = json.dumps({"findings": findings, "not_done": audit.not_done})
    table = pa.Table.from_pandas(audit.rows, preserve_index=False)
    metadata = {**(table.schema.metadata or {}), KEY: facts.encode()}
    with replacing(path) as temporary:
        pq.write_table(table.replace_schema_metadata(metadata), temporary, compression="zstd")


def store_beside(audit: Audit, page: Path) -> dict[str, object]:
    """Write an audit beside its page, and return the parameters of the page's notebook."""
    path = page.with_suffix(SUFFIX)
    store(audit, path)
    return {"files": [str(path.resolve())]}


def load(path: Path) -> Audit:
    """Return a stored audit.

    Raise LabError if the file cannot be read, or is a table that `store` did not write.
    """
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        why = str(error).rstrip(".")
        raise LabError(f"{path} cannot be read as a stored audit: {why}.") from error
    stored = (table.schema.metadata or {}).get(KEY)
    if stored is None:
        raise LabError(f"{path} is not a stored audit: give the table as CSV or JSON.")
    facts = json.loads(stored)
    findings = [
        Finding(**{**finding, "severity": Severity(finding["severity"])})
        for finding in facts["findings"]
    ]
    rows: pd.DataFrame = table.to_pandas()
    return Audit(rows, tuple(findings), tuple(facts["not_done"]))
