"""Read server.toml, workload and campaign TOML into typed values, with errors that name
the line.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

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
from runner.planning.toml_tables import KINDS, TABLES, Table, read_table
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
)  # the contract's variables
USER_API = "own-api"  # name of a user's server that is not of the lab's kind, and of its campaign
WRAPPER = "own.js"
"""What runs a user's script: in workloads/, and in a run beside the script's copy, with its name.
"""


def _known(kind: str, name: str, known: list[str]) -> str:
    if name not in known:
        raise LabError(f"There is no {kind} {name!r}; there are {', '.join(known) or 'none'}.")
    return name


def server_names() -> list[str]:
    """Return the names of all folders under servers/ that have a server.toml."""
    return sorted(path.parent.name for path in (lab_root() / "servers").glob("*/server.toml"))


def load_server(name: str) -> Server:
    """Return the server described by servers/<name>/server.toml."""
    return read_server(lab_root() / "servers" / _known("server", name, server_names()))


def read_server(folder: Path) -> Server:
    """Return the server described by the server.toml of a folder, whose name is the server's."""
    top = read_table(folder / "server.toml")
    top.read(tables="server build run image")
    given = top.table("server").read("language framework tier implements", "deviations notes")
    build = top.table("build").read(optional="needs command env artifact")
    run = top.table("run").read(optional="needs command secrets")
    image = top.table("image").read(optional="base context")
    return Server(
        name=folder.name,
        folder=folder,
        **given,
        build_needs=build.get("needs", ()),
        build_command=build.get("command", ()),
        build_env=build.get("env", ()),
        artifact=Path(build["artifact"]) if "artifact" in build else None,
        run_needs=run.get("needs", ()),
        run_command=run.get("command", ("{artifact}",)),
        secrets_by_file=run.get("secrets") == "file",
        base="debian" if image.get("base") == "debian" else None,
        shared=image.get("context") == "..",
    )


def workload_names() -> list[str]:
    """Return the names of all workloads: runner/workloads/*.toml."""
    return sorted(path.stem for path in (PACKAGE / "workloads").glob("*.toml"))


def load_workload(name: str) -> Workload:
    """Return the workload described by runner/workloads/<name>.toml."""
    path = PACKAGE / "workloads" / f"{_known('workload', name, workload_names())}.toml"
    top = read_table(path)
    given = top.read("title tool load_model method path needs", "script body database")
    script = path.with_name(given.pop("script", path.name))  # vegeta takes none
    if not script.is_file():
        raise top.error("script", f"{script} does not exist")
    if (given["tool"], given["load_model"]) not in _SIZES:
        raise top.error("load_model", f"{given['tool']} cannot drive an {given['load_model']} load")
    return Workload(name=name, script=script, **given)


def user_server(api: UserApi) -> Server:
    """Return the server that a user gave: by its server.toml where its folder has one, else as one
    without contract.
    """
    folder = lab_root() if api.folder is None else (lab_root() / api.folder).resolve()
    if api.folder is not None and (folder / "server.toml").is_file():
        server = read_server(folder)
        return server if api.name == USER_API else replace(server, name=api.name)
    return Server(api.name, folder, "unknown", api.name, "realistic", implements=(), contract=False)


_K6_OPEN = (
    ("vus", "objective", "from_rps", "to_rps", "bisections", "duration_s"),
    ("vus", "rates_rps", "duration_s"),
    ("vus", "rates_pct", "duration_s"),
    ("vus", "from_rps", "to_rps", "steps", "step_s"),
)
_SIZES = {
    ("k6", "closed"): (("vus", "iterations"),),
    ("k6", "open"): _K6_OPEN,
    ("wrk", "closed"): (("connections", "duration_s"),),
    ("vegeta", "open"): (_K6_OPEN[2], _K6_OPEN[1]),
}
"""Which sizes a `[[load]]` must give, by tool and load model, and no others.

Of several the first is meant whose second size is given, else the last: an open load of k6 is a
search, a sweep of rates or of percentages, or a ramp.
"""
_ALL_SIZES = tuple(
    dict.fromkeys(size for each in _SIZES.values() for sizes in each for size in sizes)
)
_SHARED = (
    "repeats",
    "server_share",
    "database_share",
    "idle",
)  # a campaign's for all loads, or a load's for itself
_SESSIONS = ("slices", "slice_s")


def campaign_names() -> list[str]:
    """Return the names of the campaigns that come with the lab: runner/campaigns/*.toml."""
    return sorted(path.stem for path in (PACKAGE / "campaigns").glob("*.toml"))


def load_campaign(name: str) -> Campaign:
    """Return a campaign by its name, or by the path of a TOML file (a name that ends in
    `.toml`).
    """
    if name.endswith(".toml"):
        path = Path(name)
    else:
        path = PACKAGE / "campaigns" / f"{_known('campaign', name, campaign_names())}.toml"
    top = read_table(path)
    given = top.read(  # a mistake is the campaign's, not that of its first load
        "title servers load",
        f"copies seed server_cpus database_cpus attempts sample_hz {' '.join(_SHARED)}",
        "environment sessions",
        load=TABLES,
    )
    shared = {key: top.values[key] for key in _SHARED if given.pop(key, None) is not None}
    sessions = top.table("sessions")
    sessions.read(optional=" ".join(_SESSIONS))
    if "sessions" in top.values:
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
            raise table.error("", f"{table.header} must be a table of a server listed here")
        for variable, value in environments.get(server, KINDS["env"]):
            if variable in RESERVED:
                raise table.error(variable, f"{variable} is set by the lab itself")
            environment.append((server, variable, value))
    for label, server in given.get("copies", ()):
        check_name("Copy", label)
        if label not in given["servers"] or label == server:
            message = (
                f"{label!r} must be one of the campaign's servers, and another name than {server!r}"
            )
            raise top.table("copies").error(label, message)
    given = {
        "seed": 1,
        "server_cpus": 1,
        "sample_hz": 20.0,
        "environment": tuple(environment),
        **given,
    }
    return Campaign(
        name=check_name("Campaign", path.stem), loads=tuple(loads), text=top.text, **given
    )


def campaign_servers(campaign: Campaign) -> list[Server]:
    """Return a campaign's servers in its order; a copy is the same server under another name."""
    if campaign.owns:
        return [user_server(api) for api in campaign.owns]
    copies = dict(campaign.copies)
    return [replace(load_server(copies.get(name, name)), name=name) for name in campaign.servers]


def campaign_workload(campaign: Campaign, name: str, scripts: Path = Path()) -> Workload:
    """Return a campaign's workload by its name.

    `scripts` is if a run has its copy of the user's script.
    """
    if not campaign.owns:
        return load_workload(name)
    api = campaign.owns[0]
    scripted = name == OWN_SCRIPT
    return Workload(
        name=name,
        title=f"{api.script} against {api.path}" if scripted else f"GET {api.path}",
        tool="k6",
        script=scripts / WRAPPER if scripted else PACKAGE / "workloads" / "load.js",
        load_model="open" if campaign.loads[0].rates_rps else "closed",
        method="GET",
        path=api.path,
        probe_path=api.probe_path,
        also=api.also if scripted else (),
    )


def _load(table: Table, written: Collection[str], servers: Collection[str]) -> Load:
    """Return a load of a table, whose values may be the campaign's.

    Those of the load itself are `written`.
    """
    given = table.read(
        "workload",
        " ".join(
            (
                "servers",
                "warmup_s",
                "modes",
                "sessions",
                "pool_sizes",
                *_SHARED,
                *_SESSIONS,
                *_ALL_SIZES,
            )
        ),
    )
    name = given["workload"]
    if name not in workload_names():
        raise table.error(
            "workload", f"there is no workload {name!r}; there are {', '.join(workload_names())}"
        )
    workload = load_workload(name)
    rising = workload.load_model == "open" and not {"rates_rps", "rates_pct"} & given.keys()
    sliced = given.pop("sessions", False) and not rising
    for key in _SESSIONS:
        if key in written and not sliced:
            why = (
                "ramps and searches have no slices" if rising else "the campaign has no [sessions]"
            )
            raise table.error(key, f"{key!r} is for loads in sessions: {why}")
        given[key] = table.get(key, KINDS[key]) if sliced else None
    sizes = _SIZES[workload.tool, workload.load_model]
    needed = set(next((each for each in sizes if each[1] in given), sizes[-1]))
    if sliced:  # `slice_s` says how long a load is, or its iterations, which k6's users share, do
        needed -= {"duration_s"} if "iterations" in given else {"duration_s", "iterations"}
    needed |= {"pool_sizes"} if workload.database else set()
    for key in (*_ALL_SIZES, "pool_sizes"):
        if (key in given) != (key in needed):
            raise table.error(
                key, f"workload {name!r} {'needs' if key in needed else 'takes no'} {key!r}"
            )
    share = given.pop("database_share", 1.0)
    given |= {
        "shares": given.pop("server_share", (1.0,)),
        "database_share": share if workload.database else 1.0,
    }
    load = Load(**{"repeats": 1, "warmup_s": 1.0, **given})
    _check_load(table, load, servers)
    return load


def _check_load(table: Table, load: Load, servers: Collection[str]) -> None:
    """Raise LabError if sizes of a load contradict each other."""
    for server in load.servers:
        if server not in servers:
            raise table.error("servers", f"{server!r} is none of the campaign's servers")
    if (
        load.from_rps is not None
        and load.to_rps is not None
        and load.objective
        and load.from_rps >= load.to_rps
    ):
        raise table.error(
            "to_rps",
            f"to_rps = {load.to_rps:.10g} must be greater than from_rps = {load.from_rps:.10g}",
        )
    least = max(load.vus, default=0) * (load.slices or 1)
    if load.iterations is not None and load.iterations < least:
        each = "" if load.slices is None else f" in each of {load.slices} slices"
        raise table.error(
            "iterations",
            f"{load.iterations} iterations are fewer than {max(load.vus)} virtual users{each}",
        )


def campaign_from_manifest(manifest: Manifest) -> Campaign:
    """Return the campaign of a run as it was run (scaled, chosen servers and seed included)."""
    known = manifest.campaign.as_json()
    # Runs of an earlier version have at most one user's API, which has no name.
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


_BUILT = ("target", "build", "__pycache__")


def inputs_of(campaign: Campaign, servers: Sequence[Server]) -> dict[str, str]:
    """Return the SHA-256 of requests, scripts, the database's settings, and servers that are not
    built, by name.
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
            files["schema.sql"] = lab_root() / "servers" / "schema.sql"
            files |= {f"postgres/{path.name}": path for path in POSTGRES.iterdir()}
    return {name: sha256(path) for name, path in sorted(files.items())}
