"""Options shared by several commands, options of a user's API, and JSON output."""

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from runner import console
from runner.model import LabError
from runner.places import DATA_VARIABLE, keep_libraries_in_cache
from runner.planning.hosts import Hosts, read_hosts
from runner.store import RunFolder, find_run


def engine_of(name: str) -> str:
    """Return the name of an engine; raise LabError if there is no engine of this name."""
    if name not in ("auto", "docker", "process"):
        raise LabError(f"There is no engine {name!r}: choose auto, docker or process.")
    return name


def page_of(name: str) -> Path:
    """Return the path of the page to write; raise LabError if `name` does not end in .html.

    This function is called when the command line is parsed, so a wrong name is reported before any
    work begins.
    """
    if Path(name).suffix != ".html" or Path(name).is_dir():
        raise LabError(f"--html must name a file that ends in .html, not {name}.")
    return Path(name)


JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]
DataFolder = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help=(
            "Keep runs in this folder, and figures in its subfolder figures/. "
            "docs/installing.md names the default."
        ),
    ),
]
EngineOption = Annotated[
    Any,
    typer.Option(
        "--engine",
        metavar="auto|docker|process",
        parser=engine_of,
        help=(
            "Start servers in Docker containers or as plain processes. auto uses Docker if an "
            "engine answers."
        ),
    ),
]
Servers = Annotated[
    list[str] | None, typer.Argument(help=("Names of servers; default: all servers."))
]
Run = Annotated[
    str,
    typer.Argument(
        help=(
            "A run's id or path, `latest`, or a committed run (`sample`, `all`, `seeds`, "
            "`engines`). A file that k6 wrote by --out is imported first."
        )
    ),
]
Scale = Annotated[
    float, typer.Option(help=("Multiply the iterations and durations of all loads by this factor."))
]
Repeats = Annotated[
    int | None,
    typer.Option(min=1, max=1000, help=("Number of trials of each server under each load.")),
]
Idle = Annotated[
    str | None,
    typer.Option(
        metavar="polling|system",
        help=(
            "Keep idle CPUs awake (polling), or leave their sleep states to the system (system)."
        ),
    ),
]
RatesOf = Annotated[
    str | None,
    typer.Option(
        metavar="RUN",
        help=(
            "If a load's rates are given in percent, 100 % is the capacity that the run RUN "
            "measured."
        ),
    ),
]
HostsFile = Annotated[
    Hosts | None,
    typer.Option(
        metavar="FILE",
        parser=read_hosts,
        help=("Measure on the hosts that this file names (docs/fleet.md)."),
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help=("End the run after this time, such as 60m or 2h. --resume continues the run."),
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="decided|5%",
        help=(
            "Stop repeating a load when all its ratios between servers are decided, or when "
            "the intervals of the ratios are as narrow as this percentage."
        ),
    ),
]
Profile = Annotated[
    bool,
    typer.Option(
        "--profile",
        help=("After the trials, load the servers once more, and profile them by perf."),
    ),
]
ProfileOrNot = Annotated[
    bool | None,
    typer.Option(
        "--profile/--no-profile",
        help="Profile the servers by perf after their trials; by default the campaign decides.",
    ),
]
FailAbove = Annotated[
    float | None,
    typer.Option(
        metavar="PCT", min=0, help="Exit with 1 if a result is worse by more than this percentage."
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help=("Compare the runs even if they are from different machines, tools or CPUs."),
    ),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="PATH",
        parser=page_of,
        help=("Also write the result as an HTML page, and as the notebook that made the page."),
    ),
]


def choose_data(folder: str | None) -> None:
    """Use `folder` for the runs and figures of this process and of the programs that it starts."""
    if folder is not None:
        os.environ[DATA_VARIABLE] = str(Path(folder).expanduser().resolve())


def with_data(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the additional option `--data`.

    The returned command also makes libraries keep their files in the lab's cache.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    option = inspect.Parameter(
        "data", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=DataFolder
    )

    @functools.wraps(command)
    def with_option(*given: Any, data: str | None = None, **named: Any) -> None:
        choose_data(data)
        keep_libraries_in_cache()
        command(*given, **named)

    return _with_parameters(with_option, [*parameters.values(), option])


def _with_parameters(
    command: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Return the command with `parameters` as its signature, from which typer makes options."""
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def emit(value: Any) -> None:
    """Print a result as JSON; escape non-ASCII characters if the output's encoding is not UTF."""
    ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
    sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=ascii_only, default=str) + "\n")


def opened(run: str) -> RunFolder:
    """Return a run whose tables and profiles exist. Build those that are missing.

    Raise LabError if there is no such run.
    """
    from runner.digest.profiles import ensure_profiles
    from runner.digest.tables import ensure_tables

    folder = run_of(run)
    ensure_tables(folder, console.note)
    ensure_profiles(folder)
    return folder


def run_of(run: str) -> RunFolder:
    """Return a run by its id, path or name.

    If `run` is the path of a file that k6 wrote, return the run that was imported from this file.
    Import the file first if it has not been imported yet.
    """
    if not Path(run).is_file():
        return find_run(run)
    from runner.importing.run import found_or_imported

    with console.FileProgress() as progress:
        return found_or_imported(Path(run), progress.read)


def write_page(notebook: str, given: Mapping[str, object], page: Path | None, title: str) -> None:
    """Execute a notebook with the parameters `given` and write its page, unless `page` is None."""
    if page is not None:
        from runner.present.notebook.notebooks import build_page

        build_page(notebook, given, page, title)
        console.note(f"Page:    {page}")


def _option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel="An API of your own (docs/your-api.md)", **more)


Url = Annotated[
    list[str] | None,
    _option(
        metavar="URL",
        help="Load the server at this URL. Repeat the option to compare several servers.",
    ),
]
Folder = Annotated[
    str | None,
    _option(
        metavar="FOLDER", help="Start the server from this folder (Dockerfile or server.toml)."
    ),
]
ScriptFile = Annotated[
    str | None,
    _option(
        metavar="FILE",
        help=(
            "A k6 script, whose default function is one iteration of the load. Without a script, "
            "an iteration is a GET of the URL."
        ),
    ),
]
Vus = Annotated[
    int | None,
    _option(
        min=1,
        max=10_000,
        help=(
            "Number of virtual users of a closed load, or the upper limit of their number for "
            "an open load."
        ),
    ),
]
Iterations = Annotated[
    int | None,
    _option(
        min=1,
        max=1_000_000,
        help=("Number of iterations of a closed load, over all users together."),
    ),
]
Rates = Annotated[
    list[int] | None,
    _option(
        min=1,
        max=100_000,
        help=(
            "Iterations per second of an open load. Repeat the option to offer several rates, each "
            "in a trial of its own."
        ),
    ),
]
Duration = Annotated[
    float | None,
    _option(min=1.0, max=3600.0, help="Duration of an open load, in seconds; default: 15."),
]
ObjectiveText = Annotated[
    str | None,
    _option(
        metavar="TEXT",
        help=(
            "Search for the highest rate at which response times keep this limit, such as "
            "'p99<=50ms'. Give the lowest and the highest rate of the search by two --rate "
            "options."
        ),
    ),
]
AsWritten = Annotated[
    bool,
    _option(
        "--as-written",
        help=(
            "Take the load from the script's own `options`, instead of from --vus, --iterations "
            "or --rate."
        ),
    ),
]
Close = Annotated[bool, _option("--close", help="Open a new connection for each request.")]
ProbePath = Annotated[
    str | None,
    _option(
        metavar="PATH",
        help=(
            "Path that the probe (the lab's own client beside the load) requests while a script "
            "runs; default: the path of --url."
        ),
    ),
]
Also = Annotated[
    list[int] | None,
    _option(
        metavar="PORT",
        min=1,
        max=65535,
        help="Another port of the URL's host to which the script may send requests; repeatable.",
    ),
]
Ca = Annotated[
    str | None,
    _option(
        metavar="FILE",
        help=(
            "Verify the server of an https:// URL by the certificates in this file, and trust no "
            "others."
        ),
    ),
]
Insecure = Annotated[
    bool,
    _option(
        "--insecure", help=("Accept any certificate that the server of an https:// URL presents.")
    ),
]
Cert = Annotated[
    str | None,
    _option(metavar="FILE", help="The client's certificate, for an https:// URL; needs --key."),
]
Key = Annotated[str | None, _option(metavar="FILE", help="The private key of --cert.")]
ServerCpus = Annotated[
    int | None,
    _option(
        min=1, max=1024, help=("Number of CPUs that a server from a --folder may use; default: 1.")
    ),
]
OwnedHost = Annotated[
    str | None,
    _option(
        metavar="HOST",
        help=(
            "Name of the URL's host, which confirms that you may load a machine other than this "
            "one."
        ),
    ),
]


@dataclass(frozen=True)
class CampaignOptions:
    """The options of `bench run` that say which campaign is run, where, and for how long."""

    campaign: Annotated[
        str, typer.Argument(help="A campaign's name, or the path of a TOML file.")
    ] = ""
    engine: EngineOption = "auto"
    server: Annotated[
        list[str] | None,
        typer.Option("--server", metavar="NAME", help="Measure only this server; repeatable."),
    ] = None
    scale: Scale = 1.0
    repeats: Repeats = None
    seed: Annotated[
        int | None, typer.Option(min=0, help=("Seed of the random order of the trials."))
    ] = None
    hosts: HostsFile = None
    idle: Idle = None
    rates_of: RatesOf = None
    profile: ProfileOrNot = None
    budget: Budget = None
    until: Until = None
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help=(
                "Continue this run, which was interrupted or ran out of its budget. The run names "
                "its campaign."
            ),
        ),
    ] = None


@dataclass(frozen=True)
class ApiOptions:
    """The options of `bench run` for an API of the user's own."""

    url: Url = None
    folder: Folder = None
    script: ScriptFile = None
    vus: Vus = None
    iterations: Iterations = None
    rate: Rates = None
    duration: Duration = None
    close: Close = False
    probe_path: ProbePath = None
    server_cpus: ServerCpus = None
    i_own_this_host: OwnedHost = None
    also: Also = None
    ca: Ca = None
    insecure: Insecure = False
    cert: Cert = None
    key: Key = None
    objective: ObjectiveText = None
    as_written: AsWritten = False


def grouped(*groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator for a command whose first parameters are groups of options (dataclasses).

    Each field of a group becomes an option of the command line, in the order of the groups. The
    command's other parameters come after these options. Every field must have a default.
    """

    def decorator(command: Callable[..., None]) -> Callable[..., None]:
        hints = [get_type_hints(group, include_extras=True) for group in groups]
        names = [[each.name for each in fields(group)] for group in groups]
        own = list(inspect.signature(command, eval_str=True).parameters.values())[len(groups) :]
        parameters = [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=each.default,
                annotation=hints_of_group[each.name],
            )
            for group, hints_of_group in zip(groups, hints, strict=True)
            for each in fields(group)
        ]
        parameters += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]

        @functools.wraps(command)
        def flat(**given: Any) -> None:
            made = [
                group(**{name: given.pop(name) for name in of_group})
                for group, of_group in zip(groups, names, strict=True)
            ]
            command(*made, **given)

        return _with_parameters(flat, parameters)

    return decorator
