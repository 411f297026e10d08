"""Create a run: its folder, its manifest, and its plan in the journal."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from runner.manifest import CampaignOfRun, Git, Manifest, PlacementOfRun
from runner.measure.generators.script import Script, store_script
from runner.measure.tools import find_tool
from runner.model import CLAIMS, SCHEMA, Campaign, Trial, record_of
from runner.places import places
from runner.planning.catalog import PACKAGE, wrapper_name
from runner.running.preparing import Prepared, Setting
from runner.store import RunFolder, new_run, remember, sha256

PACKAGES = (
    "docker",
    "duckdb",
    "matplotlib",
    "numpy",
    "pandas",
    "papermill",
    "psutil",
    "pyarrow",
    "seaborn",
    "web-bench-lab",
)
"""Python packages whose versions the manifest records."""


@dataclass(frozen=True)
class RunOptions:
    """Options of a run that are not part of its campaign, and the warnings that the user saw."""

    scale: float
    until: str | None
    warnings: tuple[str, ...]
    script: Script | None = None


def create(
    setting: Setting,
    prepared: Prepared,
    trials: Sequence[Trial],
    inputs: Mapping[str, str],
    options: RunOptions,
) -> RunFolder:
    """Create the folder of a new run, and write its manifest and its plan.

    The plan is the list of trials in the run's journal. A new run then looks like an interrupted
    run of which all trials remain, so `measure_remaining` can measure both kinds of run.
    """
    campaign = prepared.bench.campaign
    run = new_run(campaign.name)
    if options.script is not None:
        name = wrapper_name(as_written=options.script.written is not None)
        store_script(run, options.script, PACKAGE / "workloads" / name)
    run.write_manifest(_manifest(run.path.name, setting, prepared, inputs, options))
    remember(run)
    for trial in trials:
        run.append("planned", trial.trial_id)
    return run


def _manifest(
    run_id: str,
    setting: Setting,
    prepared: Prepared,
    inputs: Mapping[str, str],
    options: RunOptions,
) -> Manifest:
    """Return the manifest of a run.

    The manifest contains only the facts that are listed here. So it never contains the environment
    variables of the runner, which may be secret.
    """
    engine = setting.opened.engine
    calibration = prepared.bench.calibration
    servers = prepared.servers.values()
    nginx = find_tool("nginx")
    versions = setting.versions
    if nginx is not None:
        versions["nginx"] = nginx.version
    versions["python"] = platform.python_version()
    manifest = Manifest(
        schema=SCHEMA,
        run_id=run_id,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        campaign=_campaign(prepared.bench.campaign, options.scale),
        seed=prepared.bench.campaign.seed,
        git=_git(),
        machine=setting.machine,
        tools=versions,
        packages={name: version(name) for name in PACKAGES},
        engine=engine.name,
        engine_reason=engine.reason,
        placement=PlacementOfRun.of_placement(setting.placement),
        images={ready.server.name: ready.image for ready in servers if ready.image},
        artifacts={ready.server.name: ready.binary for ready in servers if ready.binary},
        compilers={ready.server.name: ready.compiler for ready in servers if ready.compiler},
        inputs=dict(inputs),
        claims_sha256=sha256(CLAIMS),
        database=prepared.database,
        calibration=calibration.as_json() if calibration else None,
        idle=setting.idle,
        until=options.until,
        host_warnings=options.warnings,
    )
    return manifest.model_copy(update={"hosts": setting.hosts}) if setting.hosts else manifest


def _campaign(campaign: Campaign, scale: float) -> CampaignOfRun:
    """Return the manifest's entry for a campaign; `campaign_from_manifest` can read this entry."""
    facts = record_of(campaign)
    del facts["seed"]
    apis = facts.pop("owns")
    text = facts.pop("text")
    own = apis[0] if len(apis) == 1 else apis or None
    return CampaignOfRun.of(facts | {"own": own, "toml": text, "scale": scale})


def _git() -> Git | None:
    """Return the lab's commit, and whether files of the checkout differ from the commit.

    Return None if the lab does not run from a checkout, or if git is not installed or fails.
    """
    checkout = places().checkout
    if checkout is None:
        return None
    said = []
    for arguments in (("rev-parse", "HEAD"), ("status", "--porcelain")):
        command = ["git", "-C", str(checkout), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        except (FileNotFoundError, subprocess.CalledProcessError):
            return None
        said.append(done.stdout.strip())
    return Git(commit=said[0], dirty=bool(said[1]))
