"""Read the TOML files of servers, workloads and campaigns; errors name the file and the line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.flat import LoadColumns
from runner.generator_traits import TRAITS, users_column
from runner.model import (
    OWN,
    OWN_SCRIPT,
    POSTGRES,
    Campaign,
    LabError,
    Load,
    Server,
    UserApi,
    Workload,
    check_name,
)
from runner.places import places
from runner.planning.toml_files import (
    BuildTable,
    CampaignFile,
    ImageTable,
    LoadTable,
    Pairs,
    RunTable,
    ServerFile,
    ServerTable,
    SessionsTable,
    SharedSettings,
    WorkloadFile,
)
from runner.planning.toml_tables import Table, read_table
from runner.shapes import Bisections, Duration, Form, Iterations, Ramp, Sweep, SweepOfCapacity
from runner.store import decode, lab_root, sha256

if TYPE_CHECKING:
    from runner.manifest import Manifest

PACKAGE = Path(__file__).parents[1]
RESERVED = (
    "ADDR",
    "LAB_NONCE",
    "DATABASE_URL",
    "DATABASE_URL_FILE",
    "DB_POOL_SIZE",
)  # environment variables that the lab itself sets, as the contract says
USER_API = "own-api"
"""Name of each campaign for a user's API, and of a user's server that has no server.toml."""
WRAPPER = "own.js"
"""Name of the module that runs a user's script.

The module is in workloads/. The folder of a run contains a copy of the module, beside the copy of
the user's script.
"""
AS_WRITTEN = "as-written.js"
"""Name of the module that runs a user's script if the script's own options define the load."""


def wrapper_name(*, as_written: bool) -> str:
    """Return the name of the module that runs a user's script.

    `as_written` is True if the script's own options define the load.
    """
    return AS_WRITTEN if as_written else WRAPPER


def _known(kind: str, name: str, known: list[str]) -> str:
    if name not in known:
        raise LabError(f"There is no {kind} {name!r}: choose from {', '.join(known) or 'none'}.")
    return name


def server_names() -> list[str]:
    """Return the names of all folders in servers/ that contain a server.toml.

    If the lab does not run from a checkout, return an empty list.
    """
    checkout = places().checkout
    found = () if checkout is None else (checkout / "servers").glob("*/server.toml")
    return sorted(path.parent.name for path in found)


def load_server(name: str) -> Server:
    """Return the server that servers/<name>/server.toml describes.

    Raise LabError if there is no such server, or if the lab does not run from a checkout.
    """
    checkout = places().need_checkout(f"The server {name!r}")
    return read_server(checkout / "servers" / _known("server", name, server_names()))


def read_server(folder: Path) -> Server:
    """Return the server that a folder's server.toml describes; name it after the folder."""
    top = read_table(folder / "server.toml")
    top.read(ServerFile)
    server = top.table("server").read(ServerTable)
    build = top.table("build").read(BuildTable)
    run = top.table("run").read(RunTable)
    image = top.table("image").read(ImageTable)
    return Server(
        name=folder.name,
        folder=folder,
        language=server.language,
        framework=server.framework,
        tier=server.tier,
        implements=server.implements,
        deviations=server.deviations,
        notes=server.notes,
        build_needs=build.needs,
        build_command=build.command,
        build_env=build.env,
        artifact=None if build.artifact is None else Path(build.artifact),
        run_needs=run.needs,
        run_command=run.command,
        secrets_by_file=run.secrets == "file",
        base="debian" if image.base == "debian" else None,
        shared=image.context == "..",
    )


def workload_names() -> list[str]:
    """Return the names of the TOML files in runner/workloads/, each of which is a workload."""
    return sorted(path.stem for path in (PACKAGE / "workloads").glob("*.toml"))


def load_workload(name: str) -> Workload:
    """Return the workload that runner/workloads/<name>.toml describes."""
    path = PACKAGE / "workloads" / f"{_known('workload', name, workload_names())}.toml"
    top = read_table(path)
    given = top.read(WorkloadFile)
    # Some tools need no script. For such a tool, the field `script` of the returned Workload is the
    # path of the workload's TOML file.
    script = path.with_name(given.script or path.name)
    if not script.is_file():
        raise top.error("script", f"the script {script} does not exist")
    if (given.tool, given.load_model) not in _FORMS:
        raise top.error(
            "load_model", f"{given.tool} cannot send a load of the {given.load_model} model"
        )
    return Workload(name=name, **{**given.given(), "script": script})


def user_server(api: UserApi) -> Server:
    """Return a user's server.

    If the server's folder contains a server.toml, return the server that it describes. But if there
    is no server.toml, or if the user gave a command that starts the server, return a server that
    implements no part of the contract.
    """
    folder = lab_root() if api.folder is None else (lab_root() / api.folder).resolve()
    if api.folder is not None and api.start is None and (folder / "server.toml").is_file():
        server = read_server(folder)
        return server if api.name == USER_API else replace(server, name=api.name)
    return Server(
        api.name,
        folder,
        "unknown",
        api.name,
        "realistic",
        implements=(),
        run_command=() if api.start is None else ("sh", "-c", api.start),
        contract=False,
    )


_SIZES_OF_FORM: dict[type[Form], tuple[str, ...]] = {
    Iterations: ("iterations",),
    Bisections: ("objective", "from_rps", "to_rps", "bisections", "duration_s"),
    Sweep: ("rates_rps", "duration_s"),
    SweepOfCapacity: ("rates_pct", "duration_s"),
    Ramp: ("from_rps", "to_rps", "steps", "step_s"),
    Duration: ("duration_s",),
}
"""Sizes that a `[[load]]` of each form must contain in addition to the number of users.

The first size identifies the form.
"""
_FORMS: dict[tuple[str, str], tuple[type[Form], ...]] = {
    ("k6", "closed"): (Iterations,),
    ("k6", "open"): (Bisections, Sweep, SweepOfCapacity, Ramp),
    ("wrk", "closed"): (Duration,),
    ("vegeta", "open"): (SweepOfCapacity, Sweep),
    ("oha", "closed"): (Duration,),
    ("oha", "open"): (Sweep,),
}
"""Possible forms of a `[[load]]`, by tool and load model.

The forms are tried in this order. A load has the first form whose identifying size the `[[load]]`
contains. If the `[[load]]` contains no identifying size, the load has the last form. For example,
an open load of k6 is a ramp if it is neither a search nor a sweep of rates or percentages.
"""
_ALL_SIZES = (
    "vus",
    *dict.fromkeys(size for sizes in _SIZES_OF_FORM.values() for size in sizes),
    "connections",
)
_SHARED = tuple(SharedSettings.model_fields)
"""Keys that a campaign can set for all of its loads. A load can override them."""
_SESSIONS = tuple(SessionsTable.model_fields)


def campaign_names() -> list[str]:
    """Return the names of the TOML files in runner/campaigns/, each of which is a campaign."""
    return sorted(path.stem for path in (PACKAGE / "campaigns").glob("*.toml"))


def load_campaign(name: str) -> Campaign:
    """Return a campaign by its name, or by a path that ends in `.toml`."""
    if name.endswith(".toml"):
        path = Path(name)
    else:
        path = PACKAGE / "campaigns" / f"{_known('campaign', name, campaign_names())}.toml"
    top = read_table(path)
    # Check the shared settings here, so that an error names the line of the campaign's setting, and
    # not a line of a load.
    given = top.read(CampaignFile).given()
    shared = {key: top.values[key] for key in _SHARED if given.pop(key, None) is not None}
    sessions = top.table("sessions")
    sessions.read(SessionsTable)
    if given.pop("sessions", None) is not None:
        shared |= {"sessions": True, **sessions.values}
    loads = [
        _load(
            replace(top, header="[[load]]", nth=n, values={**shared, **values}),
            values,
            given["servers"],
        )
        for n, values in enumerate(given.pop("load"))
    ]
    environment = []
    environments = top.table("environment")
    for server in environments.values:
        table = replace(top, header=f"[environment.{server}]")
        if server not in given["servers"]:
            raise table.error(
                "", f"{table.header} must be named after one of the campaign's `servers`"
            )
        for variable, value in environments.value(server, Pairs):
            if variable in RESERVED:
                raise table.error(variable, f"the lab sets {variable} itself: remove it")
            environment.append((server, variable, value))
    for label, server in given.get("copies", ()):
        check_name("Copy", label)
        if label not in given["servers"] or label == server:
            message = (
                f"the copy {label!r} must be listed in the campaign's `servers`, and must have "
                f"another name than the copied server {server!r}"
            )
            raise top.table("copies").error(label, message)
    if strangers := [name for name in given.get("processes", ()) if name not in given["servers"]]:
        raise top.error(
            "processes", f"{strangers[0]!r} must be listed in the campaign's `servers`, too"
        )
    given = {
        "seed": 1,
        "server_cpus": 1,
        "sample_hz": 20.0,
        **given,
        "environment": tuple(environment),
    }
    return Campaign(
        name=check_name("Campaign", path.stem), loads=tuple(loads), text=top.text, **given
    )


def campaign_servers(campaign: Campaign) -> list[Server]:
    """Return a campaign's servers in the campaign's order.

    A copy of a server is the same server under another name.
    """
    if campaign.owns:
        return [user_server(api) for api in campaign.owns]
    copies = dict(campaign.copies)
    return [replace(load_server(copies.get(name, name)), name=name) for name in campaign.servers]


def campaign_workload(campaign: Campaign, name: str, scripts: Path = Path()) -> Workload:
    """Return a campaign's workload by its name.

    `scripts` is the folder of the run that contains the copy of the user's script.
    """
    if not campaign.owns:
        return load_workload(name)
    api = campaign.owns[0]
    scripted = name == OWN_SCRIPT
    wrapper = wrapper_name(as_written=api.written_s is not None)
    return Workload(
        name=name,
        title=f"{api.script} against {api.path}" if scripted else f"GET {api.path}",
        tool="k6",
        script=scripts / wrapper if scripted else PACKAGE / "workloads" / "load.js",
        load_model="open" if isinstance(campaign.loads[0].form, Sweep | Bisections) else "closed",
        method="GET",
        path=api.path,
        probe_path=api.probe_path,
        also=api.also if scripted else (),
        written_s=api.written_s if scripted else None,
    )


def _load(table: Table, written: Collection[str], servers: Collection[str]) -> Load:
    """Return the load that a table describes.

    The table contains the load's own settings, and the settings that the campaign makes for all of
    its loads. `written` contains the keys of the load's own settings. `servers` are the names of
    the campaign's servers.
    """
    given = table.read(LoadTable).given()
    name = given["workload"]
    if name not in workload_names():
        raise table.error(
            "workload", f"there is no workload {name!r}: choose from {', '.join(workload_names())}"
        )
    workload = load_workload(name)
    form = _form_meant(workload, given)
    rising = workload.load_model == "open" and not {"rates_rps", "rates_pct"} & given.keys()
    sliced = given.pop("sessions", False) and not rising
    for key in _SESSIONS:
        if key in written and not sliced:
            why = (
                "the load of a ramp or a search cannot be cut into slices"
                if rising
                else "the campaign has no [sessions]"
            )
            raise table.error(
                key, f"{key!r} is only for loads that run in sessions, but {why}: remove {key!r}"
            )
        if sliced and key not in given:
            raise table.lacks(key)
        given[key] = given[key] if sliced else None
    if sliced and form is Iterations and "iterations" not in given:
        form = Duration  # `slice_s` and `slices` define the load's duration
    needed = {users_column(workload.tool, workload.load_model), *_SIZES_OF_FORM[form]}
    if sliced:
        needed -= {"duration_s"}
    if workload.database:
        needed |= {"pool_sizes"}
    _check_sizes(table, workload, given, needed)
    share = given.pop("database_share", 1.0)
    given |= {
        "shares": given.pop("server_share", (1.0,)),
        "database_share": share if workload.database else 1.0,
    }
    load = Load.from_columns(LoadColumns(**{"repeats": 1, "warmup_s": 1.0, **given}))
    _check_load(table, load, servers)
    return load


def _check_sizes(
    table: Table, workload: Workload, given: Mapping[str, Any], needed: Collection[str]
) -> None:
    """Raise LabError if a size of a load is missing or unexpected.

    `given` contains the load's settings, and `needed` the names of the sizes that it needs.
    Also raise LabError if a rate is so high that the generator would send requests in bursts.
    """
    for key in (*_ALL_SIZES, "pool_sizes"):
        if (key in given) != (key in needed):
            verb = "needs" if key in needed else "takes no"
            raise table.error(key, f"workload {workload.name!r} {verb} {key!r}")
    most_rps = TRAITS[workload.tool].most_rps
    if max(given.get("rates_rps", ()), default=0.0) > most_rps:
        raise table.error(
            "rates_rps",
            f"{workload.tool} sends evenly spaced requests only up to {most_rps:,.0f} "
            "requests/s, and bursts of requests above this rate: use a workload of vegeta "
            "for higher rates",
        )


def _form_meant(workload: Workload, given: Collection[str]) -> type[Form]:
    """Return the form of a load, from the keys `given` of its table [[load]].

    `_FORMS` lists the possible forms. Return the first of them whose identifying size is one of the
    keys. If the keys contain no identifying size, return the last possible form.
    """
    forms = _FORMS[workload.tool, workload.load_model]
    return next((form for form in forms if _SIZES_OF_FORM[form][0] in given), forms[-1])


def _check_load(table: Table, load: Load, servers: Collection[str]) -> None:
    """Raise LabError if a load names an unknown server, or if its sizes contradict each other."""
    for key, named in (("servers", load.servers), ("not_profiled", load.not_profiled)):
        for server in named:
            if server not in servers:
                raise table.error(key, f"{server!r} is not one of the campaign's servers")
    match load.form:
        case Bisections(from_rps=low, to_rps=high) if low >= high:
            raise table.error(
                "to_rps", f"to_rps = {high:.10g} must be greater than from_rps = {low:.10g}"
            )
        case Iterations(iterations=iterations):
            users = max(load.users, default=0)
            if iterations < users * (load.slices or 1):
                each = "" if load.slices is None else f" in each of {load.slices} slices"
                raise table.error(
                    "iterations",
                    f"there are fewer iterations ({iterations}) than virtual users ({users}){each}",
                )


def campaign_from_manifest(manifest: Manifest) -> Campaign:
    """Return the campaign of a run, with the scale, servers and seed that the user chose."""
    known = manifest.campaign.as_json()
    # In manifests of earlier versions, `own` is a single API of a user, and has no name.
    apis = known.pop("own", None) or []
    text = known.pop("toml", None)
    known.pop("scale", None)
    known |= {
        "owns": [{"name": USER_API, **apis}] if isinstance(apis, dict) else apis,
        "text": text,
    }
    said = f"The manifest of run {manifest.run_id} describes no campaign"
    found = decode(Campaign, {**known, "seed": manifest.seed}, said, exit_code=2)
    check_name("Campaign", found.name)
    return found


def schema_file() -> Path:
    """Return the path of the database's schema; raise LabError if there is no checkout."""
    return places().need_checkout("A load with a database") / "servers" / "schema.sql"


_BUILT = ("target", "build", "__pycache__")


def inputs_of(campaign: Campaign, servers: Sequence[Server]) -> dict[str, str]:
    """Return the SHA-256 of each of a campaign's source files, by the file's name.

    The source files are the workloads with their scripts, the schema and settings of the database,
    each server's server.toml, and all files of those servers that need no build.
    """
    files: dict[str, Path] = {}
    for folder, is_built in {
        each.folder: each.artifact is not None for each in servers if each.contract
    }.items():
        files[f"{folder.name}/server.toml"] = folder / "server.toml"
        for path in () if is_built else folder.rglob("*"):
            inside = path.relative_to(folder)
            if path.is_file() and inside.parts[0] not in _BUILT and not inside.name.startswith("."):
                files[f"{folder.name}/{inside}"] = path
    for name in {load.workload for load in campaign.loads} - set(OWN):
        workload = load_workload(name)
        files[f"workloads/{name}.toml"] = PACKAGE / "workloads" / f"{name}.toml"
        files[f"workloads/{workload.script.name}"] = workload.script
        if workload.database:
            files["schema.sql"] = schema_file()
            files |= {f"postgres/{path.name}": path for path in POSTGRES.iterdir()}
    return {name: sha256(path) for name, path in sorted(files.items())}
