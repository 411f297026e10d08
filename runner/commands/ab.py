"""The command that compares two commits of one server."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runner import console
from runner.commands.options import EngineOption, JsonFlag, Profile, emit, grouped
from runner.console import TrialProgress
from runner.model import LabError

if TYPE_CHECKING:
    from runner.present.two_commits.words import Compared
    from runner.running.two_commits import Asked
    from runner.store import RunFolder

EXIT_CODES = {"worse": 3, "not decided": 4}
"""Exit codes, by outcome. The exit code of any other outcome is 0."""
FAIL_ABOVE_PCT = 2.5
"""Default of --fail-above, in percent.

A slowdown of twice this size is found reliably (docs/two-commits.md).
"""


@dataclass(frozen=True)
class CommitOptions:
    """The options that say what is compared."""

    folder: Annotated[
        str,
        typer.Option(
            metavar="FOLDER", help=("Folder of the server's source, inside a git repository.")
        ),
    ] = "."
    base: Annotated[
        str, typer.Option(metavar="COMMIT", help=("The commit that is the baseline."))
    ] = "main"
    head: Annotated[
        str,
        typer.Option(metavar="COMMIT", help=("The commit that is judged against the baseline.")),
    ] = "HEAD"
    build: Annotated[
        str | None,
        typer.Option(
            metavar="CMD",
            help=("Shell command that builds the server in a checkout of either commit."),
        ),
    ] = None
    start: Annotated[
        str | None,
        typer.Option(
            metavar="CMD",
            help=(
                "Shell command that starts the server, which must listen on port $PORT. "
                "Without this option the folder's Dockerfile or server.toml says how to start "
                "it."
            ),
        ),
    ] = None
    server_cpus: Annotated[
        int,
        typer.Option(min=1, max=1024, help=("Number of CPUs that each server may use.")),
    ] = 1
    engine: EngineOption = "auto"


@dataclass(frozen=True)
class LoadOptions:
    """The options that say how both commits are loaded."""

    script: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=(
                "A k6 script, whose default function is one iteration of the load. Without a "
                "script, an iteration is a GET of --path."
            ),
        ),
    ] = None
    path: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help=(
                "Path that the load requests. With --script, the script sets what the load "
                "requests, and this path is only the default of --probe-path."
            ),
        ),
    ] = "/"
    probe_path: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help=(
                "Path that the probe (the lab's own client beside the load) requests; default: "
                "--path."
            ),
        ),
    ] = None
    vus: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            help="Number of users of the closed load; default: chosen from a warm-up.",
        ),
    ] = None
    rate: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000,
            help="Iterations/s of the open load; default: chosen from a warm-up.",
        ),
    ] = None
    share: Annotated[
        float,
        typer.Option(
            min=0.05,
            max=1.0,
            help=("Share of a core that each server may use under the closed load."),
        ),
    ] = 0.5
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="'p99<=20ms'",
            help=("Also decide whether head keeps this limit on response times, if base keeps it."),
        ),
    ] = None
    seed: Annotated[
        int, typer.Option(min=0, help=("Seed of the random order in which the servers are loaded."))
    ] = 1
    profile: Profile = False


@dataclass(frozen=True)
class DecisionOptions:
    """The options that say when the comparison ends, and where its result is written."""

    fail_above: Annotated[
        float,
        typer.Option(
            metavar="PCT",
            min=0.1,
            max=100,
            help=("Smallest difference between the commits that counts as worse or better."),
        ),
    ] = FAIL_ABOVE_PCT
    budget: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help=(
                "End the comparison after this time, such as 10m, even if nothing is decided by "
                "then."
            ),
        ),
    ] = "15m"
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help=("Also write the result as a sentence and a table in Markdown.")
        ),
    ] = None
    flame: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "Profile both commits, and write a flame graph (SVG) that shows in which "
                "functions head uses more or less CPU time than base."
            ),
        ),
    ] = None
    flame_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help=(
                "Address by which the Markdown refers to the flame graph; default: the name of "
                "the file."
            ),
        ),
    ] = None
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the result as JUnit XML.")
    ] = None


@grouped(CommitOptions, LoadOptions, DecisionOptions)
def ab(
    commits: CommitOptions, load: LoadOptions, decision: DecisionOptions, json_: JsonFlag = False
) -> None:
    """Compare two commits of one server, side by side, until it is decided which is better.

    Exit codes: 0 a tie, or head is better; 1 nothing was decided, and a trial failed; 2 wrong
    usage; 3 head is worse; 4 not decided.
    """
    from runner.planning.search import Objective
    from runner.present.frames import read_tables
    from runner.present.two_commits.comparing import kept_of, plain, rows_of
    from runner.present.two_commits.decision import Rule
    from runner.present.two_commits.words import Compared, sentence, table
    from runner.running.two_commits import run_two_commits

    rule = Rule(decision.fail_above / 100)
    with TrialProgress() as progress:
        made = run_two_commits(_asked(commits, load, decision, rule), progress)
    tables = read_tables(made.result.run)
    rows = rows_of(tables, rule, ended=True)
    objective = None if load.objective is None else Objective.parse(load.objective)
    found = Compared(
        made.base.words,
        made.head.words,
        rows,
        decision.fail_above,
        decision.budget,
        made.result.run.run_id,
        None if objective is None else kept_of(tables, objective),
    )
    link = _write_flame(made.result.run, decision)
    _write(decision, found, made.remarks, link)
    if json_:
        emit(
            {
                "run_id": found.run_id,
                "path": str(made.result.run.path),
                "base": made.base.sha,
                "head": made.head.sha,
                "outcome": found.outcome.value,
                "sentence": sentence(found),
                "fail_above_pct": decision.fail_above,
                "rows": [plain(row) for row in rows],
                "objective": None if found.kept is None else asdict(found.kept),
                "failed": made.result.failed,
                "notes": made.remarks,
            }
        )
    else:
        console.frame(sentence(found), table(found))
        console.note(
            *([] if found.kept is None else [f"Objective {found.kept.words}."]),
            *made.result.failed[:5],
            f"Raw samples and tables: {made.result.run.path}",
        )
    _end(found, made.result.failed)


def _asked(
    commits: CommitOptions, load: LoadOptions, decision: DecisionOptions, rule: Any
) -> Asked:
    """Return the options of the command line as an `Asked`, which describes the comparison.

    Raise LabError if two options contradict each other, if a file cannot be written because its
    folder does not exist, or if a path does not begin with a slash.
    """
    from runner.planning.search import Objective
    from runner.running.two_commits import Asked

    if commits.build is not None and commits.start is None:
        raise LabError(
            "--build is for servers that --start starts: a Dockerfile or a server.toml already "
            "says how to build. Add --start, or omit --build."
        )
    if commits.start is not None and commits.engine == "docker":
        raise LabError(
            "--start starts the server as a plain process, not in a container: omit --engine "
            "docker."
        )
    for file in filter(None, (decision.markdown, decision.junit, decision.flame)):
        if file.is_dir():
            raise LabError(f"{file} cannot be written, because it is a folder: name a file.")
        if not file.absolute().parent.is_dir():
            raise LabError(
                f"{file} cannot be written, because its folder does not exist: name a file in a "
                "folder that exists."
            )
    for name, path in (("--path", load.path), ("--probe-path", load.probe_path)):
        if path is not None and not path.startswith("/"):
            raise LabError(f"{name} {path!r} must begin with a slash.")
    return Asked(
        folder=commits.folder,
        base=commits.base,
        head=commits.head,
        build=commits.build,
        start=commits.start,
        script=load.script,
        path=load.path,
        probe_path=load.probe_path,
        users=load.vus,
        rate_rps=load.rate,
        share=load.share,
        server_cpus=commits.server_cpus,
        engine="process" if commits.start is not None else commits.engine,
        budget=decision.budget,
        objective=None if load.objective is None else Objective.parse(load.objective),
        rule=rule,
        seed=load.seed,
        profile=load.profile or decision.flame is not None,
    )


def _write_flame(run: RunFolder, decision: DecisionOptions) -> str | None:
    """Write a flame graph of the difference between base and head, if the user asked for it.

    Return the address by which the Markdown refers to the file, or None if no file was written.
    """
    from runner.present.two_commits.comparing import BASE, HEAD
    from runner.present.why import flame_pictures, flames
    from runner.present.why.profiles import read_profiles

    profiles = read_profiles(run) if decision.flame is not None else None
    if decision.flame is None or profiles is None:
        return None
    names = {each.server for load in profiles.loads[:1] for each in profiles.of(load)}
    if not {BASE, HEAD} <= names:
        return None
    root = flames.of_difference(profiles, BASE, HEAD, profiles.loads[0])
    decision.flame.write_text(flame_pictures.svg(root, of_two=True), encoding="utf-8")
    return decision.flame_url or decision.flame.name


def _write(
    decision: DecisionOptions, found: Compared, remarks: tuple[str, ...], link: str | None
) -> None:
    """Write the Markdown and JUnit files that the user asked for.

    `link` is the address by which the Markdown refers to the flame graph, or None if no flame graph
    was written.
    """
    from runner.present.two_commits.words import junit, markdown

    if decision.markdown is not None:
        decision.markdown.write_text(markdown(found, remarks, link), encoding="utf-8")
    if decision.junit is not None:
        decision.junit.write_text(junit(found), encoding="utf-8")


def _end(found: Compared, failed: tuple[str, ...]) -> None:
    """End the program with the exit code of the outcome.

    If the outcome is `not decided` and trials failed, the exit code is 1.
    """
    code = EXIT_CODES.get(found.outcome.value, 0)
    if code == EXIT_CODES["not decided"] and failed:
        code = 1
    if code:
        raise typer.Exit(code)
