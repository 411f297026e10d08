"""What a reader of a run must know beside its numbers, as sentences."""

from __future__ import annotations

import pandas as pd

from runner.present.frames import Tables, is_sealed, repeated
from runner.present.look import captions
from runner.present.look.palette import CALIBRATION
from runner.present.statistics.inference import ALPHA, FEWEST
from runner.present.statistics.significance import drift
from runner.present.statistics.stats import carried_quantile, mlperf_requests, tail_error_pct


def _left_out(trials: pd.DataFrame) -> list[str]:
    """Say which trials no figure has, and how many attempts took another one to count."""
    again = repeated(trials)
    lost, total = int((~is_sealed(trials) & ~again).sum()), captions.plural(int((~again).sum()), "trial")
    said = [f"{lost} of {total} failed or stopped early and took no part in any figure."] if lost else []
    if again.any():
        said.append(f"{captions.plural(int(again.sum()), 'attempt')} disturbed by the machine took no part: repeated.")
    return said


def warnings_of(tables: Tables, table: pd.DataFrame) -> list[str]:
    """Return what a reader must know before any number, as sentences; `table` is the summary of the run."""
    manifest, warnings = tables.manifest, []
    if manifest.get("engine") == "process":
        reason = str(manifest.get("engine_reason") or "no reason is recorded").rstrip(".")
        warnings.append(f"Not in containers: the servers ran as local processes, because: {reason}.")
    if not (manifest.get("placement") or {}).get("disjoint", True):
        warnings.append("Server and load generator shared CPUs, so each slowed the other down.")
    warnings += _left_out(tables.trials)
    few = table[table["trials"] < FEWEST]
    if len(few):
        warnings.append(
            f"{len(few)} of {len(table)} combinations of load and server have fewer than {FEWEST} trials: not enough "
            "trials for an interval or a ranking; values stand with minimum to maximum in brackets."
        )
    warnings += [sentence for sentence in (_drift(tables.trials),) if sentence]
    warnings += [str(warning) for warning in manifest.get("host_warnings") or []]
    return warnings


def _drift(trials: pd.DataFrame) -> str:
    """Say whether the rates of closed loops rose or fell over the run; empty where chance explains it."""
    closed = trials[is_sealed(trials) & (trials["load_model"] == "closed")]
    cells = list(zip(closed["load"], closed["server"], strict=True))
    found = drift(closed["trial_order"].to_numpy(), closed["rps"].to_numpy(), cells)
    if found is None or found.p > ALPHA:
        return ""
    return (
        f"The run drifted: later trials were {'faster' if found.rho > 0 else 'slower'} (Spearman's rho of order "
        f"against requests/s beside the cell's median: {found.rho:.2f}, p = {found.p:.2g}). Compare servers within "
        "blocks only."
    )


def tail_error(tables: Tables) -> str:
    """Say how well the shortest trial knows its p99; empty where all have as many requests as MLPerf asks for."""
    trials = tables.trials[is_sealed(tables.trials) & (tables.trials["tier"] != CALIBRATION)]
    requests = trials.loc[
        trials["requests"].map(lambda count: carried_quantile(count) >= 0.99).astype(bool), "requests"
    ]
    if requests.empty or requests.min() >= mlperf_requests(0.99):
        return ""
    return (
        f"How sure p99 is: with {requests.min():,.0f} requests in the shortest trial that has one, the share beyond it "
        f"may be off by {tail_error_pct(requests.min(), 0.99):.0f} % of its 1 % (99 % confidence, requests taken as "
        f"independent); MLPerf's 5 % take {mlperf_requests(0.99):,} requests."
    )
