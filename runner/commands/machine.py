"""Commands about the machine and the servers: list, build, check, and clean up."""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from runner import console
from runner.commands.options import EngineOption, HostsFile, JsonFlag, Servers, emit
from runner.commands.reference import campaigns_table, commands_page
from runner.model import Campaign, LabError, Server, record_of
from runner.planning import catalog
from runner.store import find_run


def doctor(hosts: HostsFile = None, json_: JsonFlag = False) -> None:
    """Check whether this machine, or each host of --hosts, can measure; name missing programs."""
    from runner.measure.doctor import examine, examine_hosts

    findings = examine() if hosts is None else examine_hosts(hosts, console.note)
    if json_:
        emit([asdict(finding) for finding in findings])
    else:
        console.table(
            "doctor",
            ("", "what", "found"),
            [(each.level, each.subject, each.text) for each in findings],
        )
    if any(finding.level == "missing" for finding in findings):
        raise typer.Exit(2)


def list_(
    context: typer.Context,
    json_: JsonFlag = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table of servers for docs/servers.md.")
    ] = False,
    columns: Annotated[
        bool,
        typer.Option(
            "--columns", help=("Print the lists of the tables' columns for docs/data.md.")
        ),
    ] = False,
    causes: Annotated[
        bool,
        typer.Option(
            "--causes", help=("Print the table of the verdicts' rules for docs/method.md.")
        ),
    ] = False,
    invariants: Annotated[
        bool, typer.Option("--invariants", help="Print the table of invariants for docs/method.md.")
    ] = False,
    outcomes: Annotated[
        bool,
        typer.Option(
            "--outcomes", help=("Print the table of the claims' outcomes for docs/method.md.")
        ),
    ] = False,
    claims: Annotated[
        bool,
        typer.Option(
            "--claims", help=("Print the sentence for README.md that counts the claims by outcome.")
        ),
    ] = False,
    commands: Annotated[
        bool, typer.Option("--commands", help="Print the list of commands for docs/commands.md.")
    ] = False,
    campaigns: Annotated[
        bool, typer.Option("--campaigns", help="Print the table of campaigns for docs/commands.md.")
    ] = False,
) -> None:
    """List servers, workloads and campaigns."""
    generated: list[tuple[bool, Callable[[], str]]] = [
        (markdown, lambda: servers_table(_servers())),
        (columns, _columns),
        (causes, _causes),
        (invariants, _invariants),
        (outcomes, _outcomes),
        (claims, _claims),
        (commands, lambda: commands_page(context.find_root().command)),
        (campaigns, lambda: campaigns_table(_campaigns())),
    ]
    for is_asked, text in generated:
        if is_asked:
            typer.echo(text())
            return
    _print_catalog(as_json=json_)


def _servers() -> list[Server]:
    return [catalog.load_server(name) for name in catalog.server_names()]


def _campaigns() -> list[Campaign]:
    return [catalog.load_campaign(name) for name in catalog.campaign_names()]


def _print_catalog(*, as_json: bool) -> None:
    """Print servers, workloads and campaigns."""
    servers = _servers()
    workloads = [catalog.load_workload(name) for name in catalog.workload_names()]
    campaigns = _campaigns()
    if as_json:
        emit(
            {
                "servers": [
                    {**asdict(server), "folder": f"servers/{server.name}"} for server in servers
                ],
                "workloads": [
                    {**asdict(workload), "script": workload.script.name} for workload in workloads
                ],
                "campaigns": [record_of(campaign) for campaign in campaigns],
            }
        )
        return
    rows = [(s.name, s.language, s.framework, s.tier, " ".join(s.implements)) for s in servers]
    console.table("servers", ("name", "language", "framework", "tier", "implements"), rows)
    loads = [(w.name, w.tool, w.load_model, w.title) for w in workloads]
    console.table("workloads", ("name", "tool", "load", "what"), loads)
    console.table(
        "campaigns",
        ("name", "servers", "what"),
        [(c.name, " ".join(c.servers), c.title) for c in campaigns],
    )


def _columns() -> str:
    from runner.columns import markdown

    return markdown()


def _causes() -> str:
    from runner.verdict import rules_table

    return _document_table(rules_table.HEADS, rules_table.rows())


def _invariants() -> str:
    from runner.digest import invariants

    return _document_table(invariants.HEADS, invariants.rows())


def _outcomes() -> str:
    from runner.present.published import outcomes

    return _document_table(outcomes.HEADS, outcomes.rows())


def _document_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows of texts as a Markdown table for the documentation."""
    import pandas as pd

    from runner.present.look.markup import to_markdown

    return to_markdown(pd.DataFrame(rows, columns=list(heads)))


def _claims() -> str:
    """Return a sentence that says how many published claims hold in the committed run."""
    from runner.present.frames import read_tables
    from runner.present.published.judging import judge_all
    from runner.present.published.outcomes import count_words

    judged = judge_all(read_tables(find_run("sample")))
    return count_words([each.direction for each in judged])


def servers_table(servers: Sequence[Server]) -> str:
    """Return the table of docs/servers.md, which has a row for each server.

    The column `implements` names the parts of the contract that the server implements. The last
    column contains the first sentence of the server's notes, which says what the author chose.
    """
    import pandas as pd

    from runner.present.look.markup import to_markdown

    every = dict.fromkeys(name for server in servers for name in server.implements)
    rows = []
    for server in servers:
        missing = [name for name in every if name not in server.implements]
        but = f" but {', '.join(missing)}" if missing else ""
        implements = (
            f"all{but}" if len(missing) < len(server.implements) else ", ".join(server.implements)
        )
        # Show only the first sentence of the server's notes. The rest can be read in server.toml.
        chosen = re.split(r"(?<=[.;])\s", server.notes.strip(), maxsplit=1)[0].rstrip(".;")
        rows.append(
            (f"`{server.name}`", server.language, server.framework, server.tier, implements, chosen)
        )
    heads = ["server", "language", "framework", "tier", "implements", "what was chosen"]
    return to_markdown(pd.DataFrame(rows, columns=heads))


def build(servers: Servers = None, json_: JsonFlag = False) -> None:
    """Build the servers' binaries and, if a Docker engine answers, their images."""
    from runner.measure.inspection import build_all

    outcomes = build_all(
        [catalog.load_server(name) for name in servers or catalog.server_names()], console.note
    )
    if json_:
        emit(outcomes)
    else:
        shown = [
            (each["server"], each["error"], f"{each['binary']}; {each['image']}")
            for each in outcomes
        ]
        rows = [(name, "failed" if error else "ok", error or built) for name, error, built in shown]
        console.table("build", ("server", "state", "result"), rows)
    if any(outcome["error"] for outcome in outcomes):
        raise typer.Exit(1)


def check(
    servers: Servers = None,
    engine: EngineOption = "auto",
    hosts: HostsFile = None,
    json_: JsonFlag = False,
) -> None:
    """Start each server, and check without load that it keeps the HTTP contract of the lab."""
    from runner.measure.inspection import inspect_all

    chosen = [catalog.load_server(name) for name in servers or catalog.server_names()]
    inspections = inspect_all(chosen, engine, console.note, hosts)
    if json_:
        emit([asdict(inspection) for inspection in inspections])
    else:
        for inspection in inspections:
            if inspection.error:
                console.error(inspection.error)
            console.note(inspection.summary)
            for known, word in ((False, "broken"), (True, "known deviation")):
                if checks := inspection.failed(known=known):
                    console.table(
                        inspection.server, (word, "detail"), [(c.name, c.detail) for c in checks]
                    )
    if not all(inspection.ok for inspection in inspections):
        raise typer.Exit(1)


def clean(hosts: HostsFile = None, json_: JsonFlag = False) -> None:
    """Remove what dead runs have left behind, on this machine and on the hosts of --hosts.

    Dead runs, which ended without cleaning up, may leave processes, containers, control groups and
    files.
    """
    from runner.measure.lab import clean_up_all
    from runner.measure.leftovers import left_over

    removed = clean_up_all(hosts)
    left = left_over()
    if json_:
        emit(removed)
    elif removed or not left:
        console.note("\n".join(f"Removed {what}" for what in removed) or "Nothing was left over.")
    if left:
        raise LabError(
            f"These leftovers could not be removed: {', '.join(left)}. Start the Docker "
            "engine, then run `bench clean` again.",
            exit_code=1,
        )
