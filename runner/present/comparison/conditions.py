"""What differs between two runs' manifests: what changes numbers by itself, and what one wants to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.fingerprint import KEYS, fingerprint


@dataclass(frozen=True)
class Difference:
    """Something in which the two runs differ."""

    what: str
    a: Any
    b: Any

    def __str__(self) -> str:
        return f"{self.what} ({word(self.a)} and {word(self.b)})"


def conditions(a: Mapping[str, Any], b: Mapping[str, Any], trials: pd.DataFrame) -> tuple[Difference, ...]:
    """Return what differs between two runs' manifests and changes the numbers of `trials`.

    The machine (as `runner.fingerprint` has it), the engine, the CPUs of server, generator and database, how
    often is sampled, and the versions of the tools and of the database that these trials used.
    """
    tools, stored = set(trials["tool"]) | (set(trials["server"]) & {"nginx"}), trials["pool_size"].notna().any()
    facts = [_conditions(manifest, sorted(tools), bool(stored)) for manifest in (a, b)]
    machines = [manifest.get("machine") or {} for manifest in (a, b)]
    if fingerprint(machines[0]) == fingerprint(machines[1]):
        return _differences(*facts)
    return _differences(*map(_machine, machines)) + _differences(*facts)


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Difference, ...]:
    return tuple(Difference(what, a[what], b[what]) for what in a if a[what] != b[what])


def _machine(facts: Mapping[str, Any]) -> dict[str, Any]:
    size = facts.get("memory_bytes")
    memory = f"{size / 2**30:.0f} GiB" if isinstance(size, int | float) else None
    return {key: facts.get(key) for key in KEYS} | {"memory": memory}


def _conditions(manifest: Mapping[str, Any], tools: Sequence[str], stored: bool) -> dict[str, Any]:
    place, versions = manifest.get("placement") or {}, manifest.get("tools") or {}
    who = ("server", "generator", *(("database",) if stored else ()))
    database = manifest.get("database") or {}
    return {
        "engine": manifest.get("engine"),
        "idle CPUs": manifest.get("idle") or "system",
        **{f"CPUs of the {each}": list(place.get(each) or ()) for each in who},
        "samples per second": (manifest.get("campaign") or {}).get("sample_hz"),
        **_asked((manifest.get("campaign") or {}).get("own")),
        **{tool: versions.get(tool) for tool in tools},
        **({"PostgreSQL": database.get("version"), "its settings": database.get("settings")} if stored else {}),
    }


def _asked(api: Any) -> dict[str, Any]:
    """Return what a user's API was asked for: under one name, two runs may have sent different things."""
    given = (api[0] if isinstance(api, list) else api) or {"path": None, "files": ()}
    return {"path": given["path"], "script": [f"{name} {digest[:12]}" for name, digest in given["files"]]}


def changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return what was changed on purpose, or may have been: the lab's commit and the servers' variables."""
    found = [{"commit": _commit(each), "variables of the servers": _variables(each)} for each in (a, b)]
    return _differences(*found)


def _commit(manifest: Mapping[str, Any]) -> str:
    git = manifest.get("git") or {}
    return f"{str(git.get('commit') or 'unknown')[:12]}{' with uncommitted changes' if git.get('dirty') else ''}"


def _variables(manifest: Mapping[str, Any], server: str | None = None) -> list[str]:
    given = (manifest.get("campaign") or {}).get("environment") or ()
    return [f"{name}={value} of {owner}" for owner, name, value in given if server in (None, owner)]


def same_binary(a: Mapping[str, Any], b: Mapping[str, Any], servers: Sequence[str]) -> tuple[str, ...]:
    """Return the servers that ran with one binary (image, where none is known) and the same variables in both."""

    def identity(manifest: Mapping[str, Any], server: str) -> tuple[Any, list[str]]:
        binary = (manifest.get("artifacts") or {}).get(server)
        return binary or (manifest.get("images") or {}).get(server), _variables(manifest, server)

    known = {server: (identity(a, server), identity(b, server)) for server in servers}
    return tuple(server for server, (one, other) in known.items() if one[0] is not None and one == other)


def word(value: Any) -> str:
    """Return a fact of a manifest as a text."""
    if value is None:
        return "unknown"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
