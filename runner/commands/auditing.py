"""The command that reads tables of others."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from runner.commands.options import JsonFlag, emit, records
from runner.console import Console
from runner.model import LabError

SHOWN = 15
"""Findings of each severity that a terminal shows."""


Files = Annotated[list[str], typer.Argument(help="Tables of results, or what k6, wrk, oha, hey print; `-` is stdin.")]
FormatName = Annotated[str, typer.Option("--format", help="Read the files as this format, whatever they look like.")]
Columns = Annotated[
    str, typer.Option("--map", metavar="OURS=THEIRS,...", help="Columns of a CSV, such as rps=req/s,connections=c.")
]
Connections = Annotated[float | None, typer.Option(min=1, help="Of a load whose output does not say it.")]
Depth = Annotated[float | None, typer.Option(min=1, help="Requests that a connection has under way (pipelining).")]
FailOn = Annotated[
    str, typer.Option(help="Exit with 1 from this severity on: impossible, suspicious, worth knowing, never.")
]
Html = Annotated[str | None, typer.Option("--html", metavar="PATH", help="Write a page too, and its notebook.")]


def audit(
    files: Files,
    format_: FormatName = "",
    columns: Columns = "",
    connections: Connections = None,
    depth: Depth = None,
    fail_on: FailOn = "impossible",
    html: Html = None,
    json_: JsonFlag = False,
) -> None:
    """Hold a published table against laws that need no new measurement."""
    from runner.audit.checks import Severity
    from runner.audit.checks import audit as audit_rows
    from runner.audit.formats import read_all
    from runner.audit.values import Options
    from runner.audit.words import summary, table

    grave = [str(severity) for severity in Severity]
    if fail_on not in (*grave, "never"):
        raise LabError(f"--fail-on is one of {', '.join(grave)}, never, not {fail_on!r}.")
    if html is not None and "-" in files:
        raise LabError("--html takes files: save what comes through stdin first.")
    console = Console()
    paths = [Path(name) for name in files]
    found = audit_rows(read_all(paths, Options(_mapped(columns), connections or math.nan, depth or math.nan), format_))
    if json_:
        emit(
            {
                "rows": len(found.rows), "summary": summary(found), "not_done": found.not_done,
                "counts": {str(name): count for name, count in found.counts.items()},
                "findings": [asdict(finding) for finding in found.findings],
            }
        )  # fmt: skip
    else:
        if len(found.findings):
            console.rows("findings", records(table(found, most=SHOWN)))
        for sentence in summary(found):
            console.note(sentence)
    if html is not None:
        from runner.present.notebook.notebooks import build_audit

        console.note(f"Page:    {build_audit(paths, Path(html), format_)}")
    if any(
        str(finding.severity) in grave[: grave.index(fail_on) + 1] for finding in found.findings if fail_on in grave
    ):
        raise typer.Exit(1)


def _mapped(text: str) -> dict[str, str]:
    """Return `rps=a,connections=b` as names; LabError for anything else."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(separator and ours.strip() and theirs.strip() for ours, separator, theirs in pairs):
        raise LabError(f"--map is such as rps=requests_per_second,connections=clients, not {text!r}.")
    return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}
