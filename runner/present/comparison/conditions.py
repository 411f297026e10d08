"""What differs between two runs' manifests: what changes numbers by itself, and what one wants to compare."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.calibration import FACTS
from runner.model import LabError


@dataclass(frozen=True)
class Difference:
    """Something in which the two runs differ."""

    what: str
    a: Any
    b: Any

    def __str__(self) -> str:
        return f"{self.what} ({word(self.a)} and {word(self.b)})"


def conditions(
    a: Mapping[str, Any], b: Mapping[str, Any], trials: pd.DataFrame, *, force: bool
) -> tuple[Difference, ...]:
    """Return what differs between two runs' manifests and changes the numbers of `trials`.

    The machine (as `fingerprint` has it), the engine, the CPUs of server, generator and database, how
    often is sampled, and the versions of the tools and of the database that these trials used. LabError where something
    differs, unless `force`.
    """
    tools = sorted(set(trials["tool"]) | (set(trials["server"]) & {"nginx"}))
    stored = bool(trials["pool_size"].notna().any())

    def facts(manifest: Mapping[str, Any]) -> dict[str, Any]:
        machine, campaign, place, versions, database = (
            manifest.get(part) or {} for part in ("machine", "campaign", "placement", "tools", "database")
        )
        size = machine.get("memory_bytes")
        # Under one name, two runs of a user's API may have sent different things.
        api = campaign.get("own")
        sent = (api[0] if isinstance(api, list) else api) or {"path": None, "files": ()}
        placed = ("server", "generator", *["database"] * stored)
        return {
            **{key: machine.get(key) for key in FACTS},
            "memory": f"{size / 2**30:.0f} GiB" if isinstance(size, int | float) else None,
            "engine": manifest.get("engine"),
            "idle CPUs": manifest.get("idle") or "system",
            **{f"CPUs of the {who}": list(place.get(who) or ()) for who in placed},
            "samples per second": campaign.get("sample_hz"),
            "path": sent["path"],
            "script": [f"{name} {digest[:12]}" for name, digest in sent["files"]],
            **{tool: versions.get(tool) for tool in tools},
            **({"PostgreSQL": database.get("version"), "its settings": database.get("settings")} if stored else {}),
        }

    found = _differences(facts(a), facts(b))
    if found and not force:
        named = "; ".join(map(str, found))
        raise LabError(f"{a['run_id']} and {b['run_id']} differ in {named}: --force compares them all the same.")
    return found


def changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return what was changed on purpose, or may have been: the lab's commit and the servers' variables."""

    def facts(manifest: Mapping[str, Any]) -> dict[str, Any]:
        git = manifest.get("git") or {}
        dirty = " with uncommitted changes" * bool(git.get("dirty"))
        commit = f"{str(git.get('commit') or 'unknown')[:12]}{dirty}"
        return {"commit": commit, "variables of the servers": _variables(manifest)}

    return _differences(facts(a), facts(b))


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Difference, ...]:
    return tuple(Difference(what, a[what], b[what]) for what in a if a[what] != b[what])


def _variables(manifest: Mapping[str, Any], server: str | None = None) -> list[str]:
    given = (manifest.get("campaign") or {}).get("environment") or ()
    return [f"{name}={value} of {owner}" for owner, name, value in given if server in (None, owner)]


def same_binary(a: Mapping[str, Any], b: Mapping[str, Any], servers: Sequence[str]) -> tuple[str, ...]:
    """Return the servers that ran with one binary (image, where none is known) and the same variables in both."""

    def facts(manifest: Mapping[str, Any], server: str) -> tuple[Any, ...]:
        binary = (manifest.get("artifacts") or {}).get(server) or (manifest.get("images") or {}).get(server)
        return binary, _variables(manifest, server)

    return tuple(server for server in servers if facts(a, server) == facts(b, server) and facts(a, server)[0])


def word(value: Any) -> str:
    """Return a fact of a manifest as a text."""
    if value is None:
        return "unknown"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
