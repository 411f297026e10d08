"""The command that audits published tables."""

from dataclasses import asdict
from typing import Annotated

import typer

from runner import console
from runner.commands.options import Html, JsonFlag, emit, write_page
from runner.model import LabError

SHOWN = 15  # a terminal shows at most this many findings of each severity
Files = Annotated[
    list[str],
    typer.Argument(
        help=(
            "Files with tables of results, or with the output of k6, wrk, oha or hey; `-` is stdin."
        )
    ),
]
FormatName = Annotated[
    str, typer.Option("--format", metavar="FORMAT", help="Read the files as this format.")
]
Columns = Annotated[
    str,
    typer.Option(
        "--map",
        metavar="OURS=THEIRS,...",
        help="The column of a CSV for each quantity, such as rps=req/s,connections=c.",
    ),
]
Connections = Annotated[
    float | None,
    typer.Option(
        min=1, help="Number of connections, for loads whose file does not state the number."
    ),
]
Depth = Annotated[
    float | None,
    typer.Option(
        min=1,
        help=(
            "Number of requests that a client sends on a connection before it waits for an answer "
            "(pipelining)."
        ),
    ),
]
FailOn = Annotated[
    str,
    typer.Option(
        metavar="SEVERITY",
        help=(
            "Exit with 1 if a finding is of this severity or a higher one: void (the highest), "
            "impossible, suspicious, worth knowing, or never."
        ),
    ),
]
Fetch = Annotated[
    bool,
    typer.Option(
        "--fetch", help=("Allow https:// addresses in place of files, and download them.")
    ),
]


def audit(
    files: Files,
    format_: FormatName = "",
    columns: Columns = "",
    connections: Connections = None,
    depth: Depth = None,
    fail_on: FailOn = "impossible",
    html: Html = None,
    fetch: Fetch = False,
    json_: JsonFlag = False,
) -> None:
    """Check without a new measurement whether the numbers of published tables can be true."""
    from runner.audit.checks import audit as audit_rows
    from runner.audit.finding import Severity, laws, summary, table
    from runner.audit.reading import SECURE, read_all
    from runner.audit.stored import store_beside

    grave = [str(severity) for severity in Severity]
    if fail_on not in (*grave, "never"):
        raise LabError(f"--fail-on must be one of {', '.join(grave)}, never, not {fail_on!r}.")
    distant = [name for name in files if "://" in name]
    if any(not name.startswith(SECURE) for name in distant) or (distant and not fetch):
        raise LabError(
            f"{distant[0]} is an address and not a file: the audit downloads only https:// "
            "addresses, and only with --fetch."
        )
    found = audit_rows(read_all(files, format_, columns, connections, depth))
    if json_:
        counts = {str(name): count for name, count in found.counts.items()}
        known = {
            law.name: {"law": law.says, "proves_not": law.proves_not} for law in laws().values()
        }
        shown = {
            "rows": len(found.rows),
            "summary": summary(found).sentences,
            "not_done": found.not_done,
            "counts": counts,
        }
        emit({**shown, "findings": [asdict(finding) for finding in found.findings], "laws": known})
    else:
        if found.findings:
            console.frame("findings", table(found, most=SHOWN))
        console.note(*summary(found).sentences)
        if found.findings:
            console.note(f"What to do first: {found.findings[0].fix}")
        for law in laws().values():
            if any(finding.check == law.name for finding in found.findings):
                console.note(f"What {law.name} does not prove: {law.proves_not}")
    if html is not None:
        title = f"{len(files)} audited table{'s' * (len(files) != 1)}"
        write_page("audit", store_beside(found, html), html, title)
    too_grave = () if fail_on == "never" else grave[: grave.index(fail_on) + 1]
    if any(str(finding.severity) in too_grave for finding in found.findings):
        raise typer.Exit(1)
