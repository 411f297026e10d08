"""Read server.toml, workload and campaign TOML into typed values, with errors that name the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from runner.model import Campaign, LabError, Load, Server, Workload, check_name
from runner.store import lab_root

T = TypeVar("T")
PACKAGE = Path(__file__).parent
RESERVED = ("ADDR", "LAB_NONCE", "DATABASE_URL", "DB_POOL_SIZE")
"""The contract's environment variables."""


@dataclass(frozen=True)
class _Table:
    """One TOML table together with where it came from, so that errors can name file and line."""

    path: Path
    text: str
    header: str
    """The table's header as written, such as `[build]` or `[[load]]`; empty for the top level."""
    nth: int
    values: dict[str, Any]

    def error(self, key: str, message: str) -> LabError:
        return LabError(f"{self.path}, line {self._line(key)}: {message}.")

    def _line(self, key: str) -> int:
        lines = self.text.splitlines()
        headers = [i for i, line in enumerate(lines) if line.strip().startswith(self.header)] if self.header else []
        start = headers[self.nth] + 1 if self.nth < len(headers) else 0
        for number in range(start, len(lines)):
            if re.match(rf"\s*{re.escape(key)}\s*=", lines[number]):
                return number + 1
            if number > start and lines[number].lstrip().startswith("["):
                break
        return max(start, 1)

    def allow(self, *keys: str) -> None:
        """Refuse keys that nothing reads: a misspelt key must not be ignored silently."""
        for key in self.values:
            if key not in keys:
                raise self.error(key, f"unknown key {key!r}; known here are {', '.join(keys)}")

    def get(self, key: str, kind: Callable[[Any], T | None], default: T | None = None) -> T:
        """Return `key` converted by `kind`, which returns None for a value that it does not accept."""
        if key not in self.values:
            if default is None:
                raise self.error(key, f"{self.header or 'the file'} lacks {key!r}")
            return default
        value = kind(self.values[key])
        if value is None:
            raise self.error(key, f"{key} = {self.values[key]!r} is not {(kind.__doc__ or 'valid').strip()}")
        return value

    def table(self, name: str) -> _Table:
        values = self.values.get(name, {})
        if not isinstance(values, dict):
            raise self.error(name, f"{name} must be a table: [{name}]")
        return _Table(self.path, self.text, f"[{name}]", 0, values)


def _text(value: Any) -> str | None:
    """a non-empty string"""
    return value if isinstance(value, str) and value.strip() else None


def _texts(value: Any) -> tuple[str, ...] | None:
    """a list of strings"""
    return tuple(value) if isinstance(value, list) and all(isinstance(v, str) for v in value) else None


def _environment(value: Any) -> tuple[tuple[str, str], ...] | None:
    """a table of strings"""
    good = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
    return tuple(sorted(value.items())) if good else None


def _count(value: Any) -> int | None:
    """a whole number from 1 to 100,000,000"""
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10**8 else None


def _counts(value: Any) -> tuple[int, ...] | None:
    """a whole number of at least 1, or a list of such"""
    found = [_count(v) for v in (value if isinstance(value, list) else [value])]
    return tuple(v for v in found if v is not None) if found and None not in found else None


def _seconds(value: Any) -> float | None:
    """a number greater than 0 and at most 86,400"""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 < value <= 86_400 else None


def _rate(value: Any) -> float | None:
    """a number of requests a second, greater than 0 and at most 10,000,000"""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 < value <= 10**7 else None


def _flag(value: Any) -> bool | None:
    """true or false"""
    return value if isinstance(value, bool) else None


def _one_of(*choices: str) -> Callable[[Any], Any]:
    def accept(value: Any) -> Any:
        return value if value in choices else None

    accept.__doc__ = "one of " + ", ".join(choices)
    return accept


def _modes(value: Any) -> Any:
    """a list of 'keepalive' and 'close'"""
    return tuple(value) if isinstance(value, list) and value and set(value) <= {"keepalive", "close"} else None


def _read(path: Path) -> _Table:
    try:
        text = path.read_text(encoding="utf-8")
        return _Table(path, text, "", 0, tomllib.loads(text))
    except FileNotFoundError:
        raise LabError(f"{path} does not exist.") from None
    except UnicodeDecodeError:
        raise LabError(f"{path} is not UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        raise LabError(f"{path}: {error}.") from None


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
    folder = lab_root() / "servers" / name
    top = _read(folder / "server.toml")
    top.allow("server", "build", "run", "image")
    server, build, run, image = (top.table(key) for key in ("server", "build", "run", "image"))
    server.allow("language", "framework", "tier", "implements", "deviations", "notes")
    build.allow("needs", "command", "env", "artifact")
    run.allow("needs", "command")
    image.allow("base", "context")
    artifact = build.get("artifact", _text, "")
    base = image.get("base", _one_of("scratch", "debian"), "scratch")
    return Server(
        name=name,
        folder=folder,
        language=server.get("language", _text),
        framework=server.get("framework", _text),
        tier=server.get("tier", _one_of("realistic", "raw", "calibration")),
        implements=server.get("implements", _texts),
        deviations=server.get("deviations", _texts, ()),
        build_needs=build.get("needs", _texts, ()),
        build_command=build.get("command", _texts, ()),
        build_env=build.get("env", _environment, ()),
        artifact=Path(artifact) if artifact else None,
        run_needs=run.get("needs", _texts, ()),
        run_command=run.get("command", _texts, ("{artifact}",)),
        base=None if base == "scratch" else base,
        shared=image.get("context", _one_of(".", ".."), ".") == "..",
        notes=server.get("notes", _text, ""),
    )


# --- workloads --------------------------------------------------------------------------------------------


def workload_names() -> list[str]:
    """Return the names of all workloads: runner/workloads/*.toml."""
    return sorted(path.stem for path in (PACKAGE / "workloads").glob("*.toml"))


def load_workload(name: str) -> Workload:
    """Return the workload described by runner/workloads/<name>.toml."""
    _known("workload", name, workload_names())
    top = _read(PACKAGE / "workloads" / f"{name}.toml")
    top.allow("title", "tool", "script", "load_model", "method", "path", "body", "needs", "database")
    script = PACKAGE / "workloads" / top.get("script", _text)
    if not script.is_file():
        raise top.error("script", f"{script} does not exist")
    tool = top.get("tool", _one_of("k6", "wrk"))
    load_model = top.get("load_model", _one_of("closed", "open"))
    if (tool, load_model) not in _SIZES:
        raise top.error("load_model", f"{tool} cannot drive an {load_model} load")
    return Workload(
        name=name,
        title=top.get("title", _text),
        tool=tool,
        script=script,
        load_model=load_model,
        method=top.get("method", _one_of("GET", "POST")),
        path=top.get("path", _text),
        body=top.get("body", _text, ""),
        needs=top.get("needs", _texts),
        database=top.get("database", _flag, False),
    )


# --- campaigns --------------------------------------------------------------------------------------------


def campaign_names() -> list[str]:
    """Return the names of the campaigns that come with the lab: runner/campaigns/*.toml."""
    return sorted(path.stem for path in (PACKAGE / "campaigns").glob("*.toml"))


def load_campaign(name: str) -> Campaign:
    """Return a campaign by its name, or by the path of a TOML file (a name that ends in `.toml`)."""
    if name.endswith(".toml"):
        path = Path(name)
    else:
        path = PACKAGE / "campaigns" / f"{_known('campaign', name, campaign_names())}.toml"
    top = _read(path)
    top.allow("title", "servers", "seed", "repeats", "server_cpus", "database_cpus", "sample_hz", "environment", "load")
    loads = top.values.get("load", [])
    if not isinstance(loads, list) or not loads:
        raise top.error("load", "a campaign needs at least one [[load]]")
    repeats = top.get("repeats", _count, 1)
    servers = top.get("servers", _texts)
    return Campaign(
        name=check_name("Campaign", path.stem),
        title=top.get("title", _text),
        servers=servers,
        loads=tuple(
            _load(_Table(path, top.text, "[[load]]", n, values), repeats, servers) for n, values in enumerate(loads)
        ),
        seed=top.get("seed", _count, 1),
        server_cpus=top.get("server_cpus", _count, 1),
        sample_hz=top.get("sample_hz", _seconds, 20.0),
        database_cpus=top.get("database_cpus", _count, 1),
        environment=_server_environment(top),
        text=top.text,
    )


_SIZES = {
    ("k6", "closed"): ("vus", "iterations"),
    ("k6", "open"): ("vus", "from_rps", "to_rps", "steps", "step_s"),
    ("wrk", "closed"): ("connections", "duration_s"),
}
"""Which sizes a `[[load]]` must give, by tool and load model; it may give no others."""


def _load(table: _Table, repeats: int, servers: tuple[str, ...]) -> Load:
    sizes = dict.fromkeys(size for needed in _SIZES.values() for size in needed)
    table.allow("workload", "servers", "repeats", "warmup_s", "modes", "pool_sizes", *sizes)
    name = table.get("workload", _text)
    if name not in workload_names():
        raise table.error("workload", f"there is no workload {name!r}; there are {', '.join(workload_names())}")
    workload = load_workload(name)
    needed = _SIZES[workload.tool, workload.load_model]
    for key in (*sizes, "pool_sizes"):
        wanted = key in needed or (key == "pool_sizes" and workload.database)
        if (key in table.values) != wanted:
            raise table.error(key, f"workload {name!r} {'needs' if wanted else 'takes no'} {key!r}")
    load = Load(
        workload=name,
        repeats=table.get("repeats", _count, repeats),
        warmup_s=table.get("warmup_s", _seconds, 1.0),
        modes=table.get("modes", _modes, ("keepalive",)),
        vus=table.get("vus", _counts, ()),
        iterations=table.get("iterations", _count, 0) or None,
        connections=table.get("connections", _counts, ()),
        duration_s=table.get("duration_s", _seconds, 0.0) or None,
        from_rps=table.get("from_rps", _rate, 0.0) or None,
        to_rps=table.get("to_rps", _rate, 0.0) or None,
        steps=table.get("steps", _count, 0) or None,
        step_s=table.get("step_s", _seconds, 0.0) or None,
        pool_sizes=table.get("pool_sizes", _counts, ()),
        servers=table.get("servers", _texts, ()),
    )
    for server in load.servers:
        if server not in servers:
            raise table.error("servers", f"{server!r} is none of the campaign's servers")
    if load.iterations is not None and load.iterations < max(load.vus):
        raise table.error("iterations", f"{load.iterations} iterations are fewer than {max(load.vus)} virtual users")
    return load


def _server_environment(top: _Table) -> tuple[tuple[str, str, str], ...]:
    """Read `[environment.SERVER]` tables; the contract's own variables are the lab's to set."""
    found = []
    for server, values in top.table("environment").values.items():
        given = _environment(values)
        if given is None or server not in top.values.get("servers", ()):
            raise top.error("environment", f"[environment.{server}] must be a table of strings of a server listed here")
        for name, value in given:
            if name in RESERVED:
                raise top.error(name, f"{name} is set by the lab itself")
            found.append((server, name, value))
    return tuple(found)


def _with_tuples(load: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in load.items()}


def campaign_from_manifest(manifest: dict[str, Any]) -> Campaign:
    """Return the campaign of a run as it was run (scaled, chosen servers and seed included)."""
    try:
        given = manifest["campaign"]
        loads = tuple(Load(**_with_tuples(load)) for load in given["loads"])
        return Campaign(
            name=check_name("Campaign", given["name"]),
            title=given["title"],
            servers=tuple(given["servers"]),
            loads=loads,
            seed=manifest["seed"],
            server_cpus=given["server_cpus"],
            sample_hz=given["sample_hz"],
            database_cpus=given.get("database_cpus", 1),
            environment=tuple((server, name, value) for server, name, value in given.get("environment", ())),
            text=given["toml"],
        )
    except (KeyError, TypeError) as error:
        raise LabError(f"The manifest of run {manifest.get('run_id')} describes no campaign ({error!r}).") from None
