"""Read server.toml, workload and campaign TOML into typed values, with errors that name the line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.model import OWN, OWN_SCRIPT, POSTGRES, Campaign, LabError, Load, Server, UserApi, Workload, check_name
from runner.planning import toml_tables as kinds
from runner.planning.toml_tables import Table, read_table
from runner.store import decode, lab_root, sha256

PACKAGE = Path(__file__).parents[1]
RESERVED = ("ADDR", "LAB_NONCE", "DATABASE_URL", "DATABASE_URL_FILE", "DB_POOL_SIZE")
"""The contract's environment variables."""
OWN_NAME = "own-api"
"""Name of a server that is none of the lab's kind."""
WRAPPER = "own.js"
"""What runs a user's script: in workloads/, and, with the script's name in it, beside the script's copy in a run."""


def _known(kind: str, name: str, known: list[str]) -> str:
    if name not in known:
        raise LabError(f"There is no {kind} {name!r}; there are {', '.join(known) or 'none'}.")
    return name


# --- servers ----------------------------------------------------------------------------------------------


def server_names() -> list[str]:
    """Return the names of all folders under servers/ that have a server.toml."""
    return sorted(path.parent.name for path in (lab_root() / "servers").glob("*/server.toml"))


def load_server(name: str) -> Server:
    """Return the server described by servers/<name>/server.toml."""
    _known("server", name, server_names())
    return read_server(lab_root() / "servers" / name)


def read_server(folder: Path) -> Server:
    """Return the server described by the server.toml of a folder, whose name is the server's."""
    top = read_table(folder / "server.toml")
    top.allow("server", "build", "run", "image")
    server, build, run, image = (top.table(key) for key in ("server", "build", "run", "image"))
    server.allow("language", "framework", "tier", "implements", "deviations", "notes")
    build.allow("needs", "command", "env", "artifact")
    run.allow("needs", "command", "secrets")
    image.allow("base", "context")
    artifact = build.get("artifact", kinds.text, "")
    base = image.get("base", kinds.one_of("scratch", "debian"), "scratch")
    return Server(
        name=folder.name,
        folder=folder,
        language=server.get("language", kinds.text),
        framework=server.get("framework", kinds.text),
        tier=server.get("tier", kinds.one_of("realistic", "raw", "calibration")),
        implements=server.get("implements", kinds.texts),
        deviations=server.get("deviations", kinds.texts, ()),
        build_needs=build.get("needs", kinds.texts, ()),
        build_command=build.get("command", kinds.texts, ()),
        build_env=build.get("env", kinds.environment, ()),
        artifact=Path(artifact) if artifact else None,
        run_needs=run.get("needs", kinds.texts, ()),
        run_command=run.get("command", kinds.texts, ("{artifact}",)),
        secrets_by_file=run.get("secrets", kinds.one_of("environment", "file"), "environment") == "file",
        base=None if base == "scratch" else base,
        shared=image.get("context", kinds.one_of(".", ".."), ".") == "..",
        notes=server.get("notes", kinds.text, ""),
    )


# --- workloads --------------------------------------------------------------------------------------------


def workload_names() -> list[str]:
    """Return the names of all workloads: runner/workloads/*.toml."""
    return sorted(path.stem for path in (PACKAGE / "workloads").glob("*.toml"))


def load_workload(name: str) -> Workload:
    """Return the workload described by runner/workloads/<name>.toml."""
    _known("workload", name, workload_names())
    top = read_table(PACKAGE / "workloads" / f"{name}.toml")
    top.allow("title", "tool", "script", "load_model", "method", "path", "body", "needs", "database")
    script = PACKAGE / "workloads" / top.get("script", kinds.text, f"{name}.toml")  # vegeta takes none
    if not script.is_file():
        raise top.error("script", f"{script} does not exist")
    tool = top.get("tool", kinds.one_of("k6", "wrk", "vegeta"))
    load_model = top.get("load_model", kinds.one_of("closed", "open"))
    if (tool, load_model) not in _SIZES:
        raise top.error("load_model", f"{tool} cannot drive an {load_model} load")
    return Workload(
        name=name,
        title=top.get("title", kinds.text),
        tool=tool,
        script=script,
        load_model=load_model,
        method=top.get("method", kinds.one_of("GET", "POST")),
        path=top.get("path", kinds.text),
        body=top.get("body", kinds.text, ""),
        needs=top.get("needs", kinds.texts),
        database=top.get("database", kinds.flag, False),
    )


# --- a user's API ------------------------------------------------------------------------------------------


def own_server(own: UserApi) -> Server:
    """Return the server that a user gave: by its server.toml where its folder has one, else as one without contract."""
    folder = lab_root() if own.folder is None else (lab_root() / own.folder).resolve()
    if own.folder is not None and (folder / "server.toml").is_file():
        return replace(read_server(folder), name=own.name) if own.name != OWN_NAME else read_server(folder)
    return Server(
        name=own.name,
        folder=folder,
        language="unknown",
        framework=own.name,
        tier="realistic",
        implements=(),
        contract=False,
    )


def own_workload(own: UserApi, name: str, load: Load, scripts: Path) -> Workload:
    """Return what a user's API is loaded with: the script, whose copy lies in `scripts`, or a plain GET."""
    scripted = name == OWN_SCRIPT
    return Workload(
        name=name,
        title=f"{own.script} against {own.path}" if scripted else f"GET {own.path}",
        tool="k6",
        script=scripts / WRAPPER if scripted else PACKAGE / "workloads" / "load.js",
        load_model="open" if load.rates_rps else "closed",
        method="GET",
        path=own.path,
        probe_path=own.probe_path,
    )


# --- campaigns --------------------------------------------------------------------------------------------


def campaign_names() -> list[str]:
    """Return the names of the campaigns that come with the lab: runner/campaigns/*.toml."""
    return sorted(path.stem for path in (PACKAGE / "campaigns").glob("*.toml"))


_CAMPAIGN = (
    *("title", "servers", "copies", "seed", "repeats", "server_cpus", "database_cpus", "sample_hz", "environment"),
    *("sessions", "server_share", "database_share", "idle", "attempts", "load"),
)
_DEFAULTS: dict[str, kinds.Kind[Any]] = {
    "repeats": kinds.count,
    "server_share": kinds.shares,
    "database_share": kinds.share,
    "idle": kinds.idle_states,
}
"""What a campaign says for all of its loads, and a load for itself."""
_SESSION = ("slices", "slice_s")


def load_campaign(name: str) -> Campaign:
    """Return a campaign by its name, or by the path of a TOML file (a name that ends in `.toml`)."""
    if name.endswith(".toml"):
        path = Path(name)
    else:
        path = PACKAGE / "campaigns" / f"{_known('campaign', name, campaign_names())}.toml"
    top = read_table(path)
    top.allow(*_CAMPAIGN)
    loads = top.values.get("load", [])
    if not isinstance(loads, list) or not loads or not all(isinstance(values, dict) for values in loads):
        raise top.error("load", "a campaign needs at least one [[load]]")
    servers = top.get("servers", kinds.texts)
    for key, kind in _DEFAULTS.items():
        top.get(key, kind, ())  # a mistake is the campaign's, not that of its first load
    general = {key: top.values[key] for key in _DEFAULTS if key in top.values} | _session(top)
    return Campaign(
        name=check_name("Campaign", path.stem),
        title=top.get("title", kinds.text),
        servers=servers,
        loads=tuple(
            _load(Table(path, top.text, "[[load]]", n, {**general, **values}, frozenset(values)), servers)
            for n, values in enumerate(loads)
        ),
        seed=top.get("seed", kinds.count, 1),
        server_cpus=top.get("server_cpus", kinds.count, 1),
        sample_hz=top.get("sample_hz", kinds.seconds, 20.0),
        database_cpus=top.get("database_cpus", kinds.count, 1),
        attempts=top.get("attempts", kinds.count, 3),
        environment=_server_environment(top),
        copies=_copies(top, servers),
        text=top.text,
    )


def _session(top: Table) -> dict[str, Any]:
    """Return what `[sessions]` says for all loads; nothing where a campaign has no sessions."""
    sessions = top.table("sessions")
    sessions.allow(*_SESSION)
    sessions.get("slices", kinds.even, 2)
    sessions.get("slice_s", kinds.slice_seconds, 1.0)
    return {"sessions": True, **sessions.values} if "sessions" in top.values else {}


def campaign_servers(campaign: Campaign) -> list[Server]:
    """Return a campaign's servers in its order; a copy is the same server under another name."""
    if campaign.owns:
        return [own_server(own) for own in campaign.owns]
    copies = dict(campaign.copies)
    return [replace(load_server(copies.get(name, name)), name=name) for name in campaign.servers]


def campaign_workload(campaign: Campaign, name: str, scripts: Path = Path()) -> Workload:
    """Return a campaign's workload by its name; `scripts` is where a run has its copy of the user's script."""
    if not campaign.owns:
        return load_workload(name)
    return own_workload(campaign.owns[0], name, campaign.loads[0], scripts)


def _copies(top: Table, servers: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Read `[copies]`: a name among the campaign's servers, and the server that it stands for."""
    none: tuple[tuple[str, str], ...] = ()
    given = top.get("copies", kinds.environment, none)
    for label, server in given:
        check_name("Copy", label)
        if label not in servers or label == server:
            raise top.error(label, f"{label!r} must be one of the campaign's servers, and another name than {server!r}")
    return given


_RAMP = ("vus", "from_rps", "to_rps", "steps", "step_s")
_SWEEP = ("vus", "rates_rps", "duration_s")
_SHARES = ("vus", "rates_pct", "duration_s")
_SEARCH = ("vus", "objective", "from_rps", "to_rps", "bisections", "duration_s")
_SIZES = {
    ("k6", "closed"): (("vus", "iterations"),),
    ("k6", "open"): (_SEARCH, _SWEEP, _SHARES, _RAMP),
    ("wrk", "closed"): (("connections", "duration_s"),),
    ("vegeta", "open"): (_SHARES, _SWEEP),
}
"""Which sizes a `[[load]]` must give, by tool and load model, and no others.

Of an open load's kinds a search has an `objective`, a sweep `rates_rps` or `rates_pct`, and a ramp none of them."""


def _needed(workload: Workload, given: dict[str, Any], *, sliced: bool) -> tuple[str, ...]:
    kinds = _SIZES[workload.tool, workload.load_model]
    needed = next((kind for kind in kinds if kind[1] in given), kinds[-1])
    # In a session `slice_s` says how long a load is, or how many iterations it has, which k6's users share.
    optional = ("iterations",) if sliced and "iterations" not in given else ()
    return tuple(size for size in needed if not (sliced and size == "duration_s") and size not in optional)


def _is_sliced(table: Table, workload: Workload) -> bool:
    """Return whether a load runs in sessions: where the campaign has them, unless the load is a ramp or a search."""
    rising = workload.load_model == "open" and not {"rates_rps", "rates_pct"} & set(table.values)
    sliced = table.get("sessions", kinds.flag, False) and not rising
    for key in _SESSION:
        if key in table.own and not sliced:
            why = "ramps and searches have no slices" if rising else "the campaign has no [sessions]"
            raise table.error(key, f"{key!r} is for loads in sessions: {why}")
    return sliced


def _load(table: Table, servers: tuple[str, ...]) -> Load:
    sizes = dict.fromkeys(size for kinds in _SIZES.values() for needed in kinds for size in needed)
    table.allow(*("workload", "servers", "warmup_s", "modes", "pool_sizes", "sessions"), *_DEFAULTS, *_SESSION, *sizes)
    name = table.get("workload", kinds.text)
    if name not in workload_names():
        raise table.error("workload", f"there is no workload {name!r}; there are {', '.join(workload_names())}")
    workload = load_workload(name)
    sliced = _is_sliced(table, workload)
    needed = _needed(workload, table.values, sliced=sliced)
    for key in (*sizes, "pool_sizes"):
        wanted = key in needed or (key == "pool_sizes" and workload.database)
        if (key in table.values) != wanted:
            raise table.error(key, f"workload {name!r} {'needs' if wanted else 'takes no'} {key!r}")
    load = Load(
        workload=name,
        repeats=table.get("repeats", kinds.count, 1),
        warmup_s=table.get("warmup_s", kinds.seconds, 1.0),
        modes=table.get("modes", kinds.modes, ("keepalive",)),
        vus=table.get("vus", kinds.counts, ()),
        iterations=table.get("iterations", kinds.count, 0) or None,
        connections=table.get("connections", kinds.counts, ()),
        duration_s=table.get("duration_s", kinds.seconds, 0.0) or None,
        from_rps=table.get("from_rps", kinds.rate, 0.0) or None,
        to_rps=table.get("to_rps", kinds.rate, 0.0) or None,
        steps=table.get("steps", kinds.count, 0) or None,
        step_s=table.get("step_s", kinds.seconds, 0.0) or None,
        rates_rps=table.get("rates_rps", kinds.rates, ()),
        rates_pct=table.get("rates_pct", kinds.rates, ()),
        objective=table.get("objective", kinds.objective, "") or None,
        bisections=table.get("bisections", kinds.count, 0) or None,
        pool_sizes=table.get("pool_sizes", kinds.counts, ()),
        servers=table.get("servers", kinds.texts, ()),
        shares=table.get("server_share", kinds.shares, (1.0,)),
        database_share=table.get("database_share", kinds.share, 1.0) if workload.database else 1.0,
        idle=table.get("idle", kinds.idle_states, ("polling",)),
        slices=table.get("slices", kinds.even) if sliced else None,
        slice_s=table.get("slice_s", kinds.slice_seconds) if sliced else None,
    )
    _check_load(table, load, servers)
    return load


def _check_load(table: Table, load: Load, servers: tuple[str, ...]) -> None:
    """Raise LabError where sizes of a load contradict each other."""
    for server in load.servers:
        if server not in servers:
            raise table.error("servers", f"{server!r} is none of the campaign's servers")
    if load.from_rps is not None and load.to_rps is not None and load.objective and load.from_rps >= load.to_rps:
        raise table.error("to_rps", f"to_rps = {load.to_rps:.10g} must be greater than from_rps = {load.from_rps:.10g}")
    least = max(load.vus, default=0) * (load.slices or 1)
    if load.iterations is not None and load.iterations < least:
        each = "" if load.slices is None else f" in each of {load.slices} slices"
        raise table.error(
            "iterations", f"{load.iterations} iterations are fewer than {max(load.vus)} virtual users{each}"
        )


def _server_environment(top: Table) -> tuple[tuple[str, str, str], ...]:
    """Read `[environment.SERVER]` tables; the contract's variables are set by the lab."""
    found = []
    for server, values in top.table("environment").values.items():
        given = kinds.environment(values)
        if given is None or server not in top.values.get("servers", ()):
            raise top.error("environment", f"[environment.{server}] must be a table of strings of a server listed here")
        for name, value in given:
            if name in RESERVED:
                raise top.error(name, f"{name} is set by the lab itself")
            found.append((server, name, value))
    return tuple(found)


def campaign_from_manifest(manifest: dict[str, Any]) -> Campaign:
    """Return the campaign of a run as it was run (scaled, chosen servers and seed included)."""
    given = manifest.get("campaign")
    known = dict(given) if isinstance(given, dict) else {}
    # Runs of an earlier version have at most one user's API, which has no name.
    owns, text = known.pop("own", None) or [], known.pop("toml", None)
    known.pop("scale", None)
    known |= {"owns": [{"name": OWN_NAME, **owns}] if isinstance(owns, dict) else owns, "text": text}
    said = f"The manifest of run {manifest.get('run_id')} describes no campaign"
    found = decode(Campaign, {**known, "seed": manifest.get("seed")}, said, exit_code=2)
    check_name("Campaign", found.name)
    return found


def changed(begun_with: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Say which file of `begun_with` is not what it was, or not there; None where all are the same."""
    for name, digest in begun_with.items():
        if now.get(name) != digest:
            return f"The run cannot go on: {name} is not the file that it began with"
    return None


_BUILT = ("target", "build", "__pycache__")


def inputs_of(campaign: Campaign, servers: Sequence[Server]) -> dict[str, str]:
    """Return the SHA-256 of requests, scripts, the database's settings, and servers that are not built, by name."""
    found = [*_of_servers(servers), *_of_workloads(campaign)]
    return {name: sha256(path) for name, path in sorted(found)}


def _of_servers(servers: Sequence[Server]) -> Iterator[tuple[str, Path]]:
    for folder in dict.fromkeys(server.folder for server in servers if server.contract):
        yield f"{folder.name}/server.toml", folder / "server.toml"
    for folder in dict.fromkeys(server.folder for server in servers if server.contract and server.artifact is None):
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and inside.parts[0] not in _BUILT and not inside.name.startswith("."):
                yield f"{folder.name}/{inside}", path


def _of_workloads(campaign: Campaign) -> Iterator[tuple[str, Path]]:
    workloads = PACKAGE / "workloads"
    for name in dict.fromkeys(load.workload for load in campaign.loads if load.workload not in OWN):
        workload = campaign_workload(campaign, name)
        yield f"workloads/{name}.toml", workloads / f"{name}.toml"
        yield f"workloads/{workload.script.name}", workload.script
        if workload.database:
            yield "schema.sql", lab_root() / "servers" / "schema.sql"
            for path in sorted(POSTGRES.iterdir()):
                yield f"postgres/{path.name}", path
