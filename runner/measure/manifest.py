"""Write run.json: what was run, with what, on what. An allow-list, never the environment."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from runner.calibration import Calibration
from runner.measure import machine
from runner.measure.database import DatabaseFacts
from runner.measure.engine import Engine
from runner.measure.session import Ready
from runner.measure.tools import Tool, find_tool
from runner.measurement import Placement
from runner.model import SCHEMA, Campaign
from runner.store import RunFolder, lab_root, write_json

_PACKAGES = ("docker", "duckdb", "matplotlib", "numpy", "pandas", "papermill", "psutil", "pyarrow", "seaborn")


def write_manifest(
    run: RunFolder,
    *,
    campaign: Campaign,
    scale: float,
    tools: Mapping[str, Tool],
    engine: Engine,
    idle: str,
    placement: Placement,
    prepared: Collection[Ready],
    database: DatabaseFacts | None,
    calibration: Calibration | None,
    warnings: Sequence[str],
    inputs: Mapping[str, str],
) -> None:
    """Write the manifest of a run that is about to begin."""
    nginx = find_tool("nginx")
    versions = {name: tool.version for name, tool in tools.items()} | ({"nginx": nginx.version} if nginx else {})
    write_json(
        run.path / "run.json",
        {
            "schema": SCHEMA,
            "run_id": run.path.name,
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "campaign": {
                "name": campaign.name,
                "title": campaign.title,
                "servers": campaign.servers,
                "loads": [asdict(load) for load in campaign.loads],
                "server_cpus": campaign.server_cpus,
                "database_cpus": campaign.database_cpus,
                "environment": campaign.environment,
                "copies": campaign.copies,
                "own": _owns(campaign),
                "sample_hz": campaign.sample_hz,
                "toml": campaign.text,
                "scale": scale,
            },
            "seed": campaign.seed,
            "git": _git(),
            "machine": machine.facts(),
            "tools": versions | {"python": platform.python_version()},
            "packages": {name: version(name) for name in _PACKAGES},
            "engine": engine.name,
            "engine_reason": engine.reason,
            "idle": idle,
            "placement": {
                **asdict(placement),
                "disjoint": placement.disjoint,
                "database_shared": placement.database_shared,
            },
            "images": {each.server.name: each.image for each in prepared if each.image},
            "artifacts": {each.server.name: each.binary for each in prepared if each.binary},
            "inputs": dict(inputs),
            "database": asdict(database) if database else None,
            "calibration": asdict(calibration) if calibration else None,
            "host_warnings": list(warnings),
        },
    )


def _owns(campaign: Campaign) -> Any:
    """Return the user's own API, or a list where several are compared; None where there is none."""
    owns = [asdict(own) for own in campaign.owns]
    return owns[0] if len(owns) == 1 else owns or None


def _git() -> dict[str, object] | None:
    """Return commit and whether tracked files differ from it; None outside a git checkout."""

    def git(*arguments: str) -> str | None:
        done = subprocess.run(
            ["git", "-C", str(lab_root()), *arguments],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        return done.stdout.strip() if done.returncode == 0 else None

    try:
        commit = git("rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(git("status", "--porcelain"))} if commit else None
    except FileNotFoundError:
        return None
