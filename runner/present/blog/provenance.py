"""Where a bundle comes from: which run, what it was measured with, and the SHA-256 of what went in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from runner.model import LabError
from runner.present.frames import Tables, sealed_trials
from runner.present.look.captions import DURABILITY
from runner.store import TABLES, RunFolder, published_csv, sha256

PROVENANCE = "provenance.json"
KIND = "bench publish"
"""By this a published folder is known as the lab's."""
SCHEMA = 1
PLAIN = ("schema", "run_id", "started_at", "seed", "engine", "engine_reason", "images", "artifacts")
NESTED = {
    "campaign": ("name", "title", "scale"),
    "git": ("commit", "dirty"),
    "machine": (
        *("cpu_model", "cpus", "smt_siblings", "memory_bytes", "kernel", "os", "hypervisor", "governor", "turbo"),
        *("cgroup_version", "clock_source"),
    ),
    "tools": ("k6", "wrk", "vegeta", "nginx", "python"),
    "placement": ("server", "generator", "database", "disjoint", "database_shared"),
    "database": ("version", "image"),
}
"""What may be published of a manifest: what a later one may say besides is not published unseen."""


def allowed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return of a manifest what may be published: no path, no name of a user or host, nothing of the environment."""
    facts = {name: manifest[name] for name in PLAIN if name in manifest}
    facts |= {name: _named(manifest[name], inner) for name, inner in NESTED.items() if manifest.get(name)}
    if manifest.get("database"):
        facts["database"]["settings"] = _named(manifest["database"].get("settings") or {}, DURABILITY)
    return facts


def provenance(run: RunFolder, tables: Tables, shown: Iterable[str], files: Mapping[str, Any]) -> dict[str, Any]:
    """Return what provenance.json says; `files` are those of the bundle, `shown` the trials that have figures.

    LabError where a sealed trial has no record, or one that says something else.
    """
    return {
        "made_by": KIND,
        "schema": SCHEMA,
        "run": allowed(tables.manifest),
        "inputs": _inputs(run, shown),
        "sealed_trials": _records(run, tables),
        "files": dict(files),
    }


def file_facts(path: Path) -> dict[str, Any]:
    """Return size and SHA-256 of a file."""
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def _named(facts: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: facts[name] for name in names if name in facts}


def _inputs(run: RunFolder, shown: Iterable[str]) -> dict[str, Any]:
    """Return size and SHA-256 of every file that figures and tables were computed from."""
    paths = {"run.json": run.path / "run.json"} | {f"tables/{name}.parquet": run.table(name) for name in TABLES}
    probes = {f"tables/probe/{trial_id}.parquet": run.tables / "probe" / f"{trial_id}.parquet" for trial_id in shown}
    paths |= {name: path for name, path in sorted(probes.items()) if path.is_file()}
    paths["published.csv"] = published_csv()
    return {name: file_facts(path) for name, path in paths.items()}


def _records(run: RunFolder, tables: Tables) -> dict[str, str]:
    """Return the SHA-256 of each sealed trial's record."""
    sealed = sealed_trials(tables.trials)["trial_id"]
    said = {record["trial_id"]: record["status"] for record in run.records()}
    for trial_id in sealed:
        if said.get(trial_id) != "sealed":
            raise LabError(
                f"The tables have {trial_id} as sealed, and its record {said.get(trial_id) or 'is not there'}: "
                f"`bench report` makes the tables anew.",
                exit_code=1,
            )
    hashes = run.record_hashes()
    return {trial_id: hashes[trial_id] for trial_id in sorted(sealed)}
