"""Compute the generators' ceilings from the tables of a calibration run."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

import pandas as pd
import pyarrow.parquet as pq

from runner.calibration import Calibration, Ceiling
from runner.generator_traits import TRAITS
from runner.model import LabError, Workload
from runner.served import served_rps_of
from runner.store import RunFolder
from runner.verdict.limits import Limit


def calibrate(run: RunFolder) -> Calibration:
    """Return the generators' ceilings, computed from the sealed trials of a calibration run.

    A generator has one ceiling for each combination of load model, mode and number of connections.
    If several servers ran under such a load, the ceiling is the highest of the servers' median
    rates. Raise LabError if no trial is sealed.
    """
    manifest = run.manifest()
    trials = pq.read_table(run.table("trials")).to_pandas()
    trials = trials[trials["status"] == "sealed"]
    if trials.empty:
        raise LabError(
            f"No trial of run {run.run_id} was sealed, so there are no ceilings: the run's "
            "trial.json files name the errors.",
            exit_code=1,
        )
    bins = pq.read_table(
        run.table("throughput"), columns=["trial_id", "t_s", "requests"]
    ).to_pandas()
    trials["rate"] = [_rate(row, bins) for _, row in trials.iterrows()]
    trials["sockets"] = trials["connections"].fillna(trials["vus"]).astype(int)
    ceilings = []
    for (tool, load_model, mode, sockets), load in trials.groupby(
        ["tool", "load_model", "mode", "sockets"]
    ):
        server = load.groupby("server", sort=False)["rate"].median().idxmax()
        fastest = load[load["server"] == server]
        rps = float(fastest["rate"].median())
        least = float(fastest["rate"].min())
        most = float(fastest["rate"].max())
        trial_count = len(fastest)
        verdict = fastest["verdict"].mode()[0]
        ceilings.append(
            Ceiling(tool, load_model, mode, sockets, rps, least, most, trial_count, server, verdict)
        )
    cpus = [host.cpus_used for host in manifest.hosts or () if "generator" in host.roles]
    return Calibration(
        run_id=run.run_id,
        made_at=manifest.started_at or "",
        fingerprint=manifest.machine.fingerprint,
        tools={name: version for name, version in manifest.tools.items() if name in TRAITS},
        # If the manifest names no host of a generator, the generator ran on the lab's machine, on
        # the CPUs that `placement` lists.
        generator_cpus=sum(map(len, cpus)) or len(manifest.placement.generator),
        ceilings=tuple(ceilings),
    )


def _rate(row: pd.Series, bins: pd.DataFrame) -> float:
    """Return the rate of a trial in requests/s.

    For a closed load, this is the mean rate of the load. For a ramp, it is the mean rate of the
    step with the most requests.
    """
    if row["load_model"] == "closed":
        return float(row["rps"])
    of_trial = bins[bins["trial_id"] == row["trial_id"]]
    step = (of_trial["t_s"] + 1e-6) // row["step_s"]
    return float(
        of_trial["requests"].groupby(step).sum()[lambda sums: sums.index < row["steps"]].max()
        / row["step_s"]
    )


def capacity(run: RunFolder, servers: Sequence[str], workload: Workload) -> float:
    """Return the rate, in requests/s, that the slowest of the servers reaches on one core.

    Only some trials show a server's capacity: sealed trials with a closed keep-alive load on the
    workload's path, in which the server was the limit. The rate of each such trial is divided by
    the share of a core that the lab gave the server. The capacity of a server is the median of
    these quotients. Raise LabError if one of the servers has no such trial.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for record in run.records():
        cell = record["cell"]
        closed = (
            cell["path"] == workload.path
            and cell["load_model"] == "closed"
            and cell["mode"] == "keepalive"
        )
        if closed and record["status"] == "sealed" and record["verdict"] == Limit.SERVER.verdict:
            served_rps = served_rps_of(record["metrics"]) or 0.0
            found[cell["server"]].append(served_rps / cell.get("share", 1.0))
    missing = [name for name in servers if name not in found]
    if missing:
        raise LabError(
            f"Run {run.run_id} has no server-bound trial of {missing[0]} under a closed "
            f"load of {workload.path}, so the server's capacity is not known: name a run "
            "that has such a trial."
        )
    return min(median(found[name]) for name in servers)
