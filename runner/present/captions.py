"""The words around figures: what was loaded, how many trials, what limited them, on which machine."""

from __future__ import annotations

from typing import Any

import pandas as pd

from runner.present.frames import Tables


def load_heading(trials: pd.DataFrame, quantity: str) -> str:
    """Say how the trials of one k6 load were driven and what `quantity` therefore means.

    A closed loop without think time is always at saturation: its mean response time is N / X (Little's law).
    """
    first = trials.iloc[0]
    if first["load_model"] == "open":
        return f"open loop, {first['rate_rps']:g} requests/s offered: {quantity}"
    return f"closed loop, N = {first['vus']:.0f}, zero think time: {quantity} at saturation"


def verdict_counts(trials: pd.DataFrame) -> str:
    """Count the verdicts: `generator-bound 3 of 3`, the most frequent first."""
    counts = trials["verdict"].value_counts()
    ordered = sorted(counts.items(), key=lambda item: (-int(item[1]), str(item[0])))
    return ", ".join(f"{verdict} {count} of {len(trials)}" for verdict, count in ordered)


def server_bound(trials: pd.DataFrame) -> bool:
    """Whether every one of the trials was limited by its server: only then may throughput be ranked."""
    return bool(len(trials)) and bool((trials["verdict"] == "server-bound").all())


def trial_counts(trials: pd.DataFrame) -> str:
    """Count sealed trials, trials per server and load, and what was left out."""
    sealed = trials[trials["status"] == "sealed"]
    cells = sealed.groupby(["server", "load"]).size()
    low, high = int(cells.min()), int(cells.max())
    each = f"{low}" if low == high else f"{low} to {high}"
    text = f"{plural(len(sealed), 'trial')}, {each} per server and load"
    out = trials[trials["status"] != "sealed"]["status"].value_counts()
    return text + "".join(f"; {plural(int(n), f'{status} trial')} left out" for status, n in out.items())


def plural(count: int, noun: str) -> str:
    """Return `1 trial` or `3 trials`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def machine(manifest: dict[str, Any]) -> str:
    """Name the machine: CPU model and number of CPUs."""
    facts = manifest.get("machine") or {}
    return f"{facts.get('cpu_model') or 'unknown CPU'}, {plural(int(facts.get('cpus') or 0), 'CPU')}"


def caption(tables: Tables, trials: pd.DataFrame, words: str = "") -> str:
    """Return a figure's caption: `words`, trials, verdicts, engine and machine.

    `trials` are all trials that the figure is about, failed ones too, so that they are counted as left out.
    """
    sealed = trials[trials["status"] == "sealed"]
    parts = [
        words,
        f"{trial_counts(trials)}.",
        f"Verdicts: {verdict_counts(sealed)}.",
        f"Engine: {tables.manifest.get('engine', 'unknown')}. Machine: {machine(tables.manifest)}.",
    ]
    return " ".join(part for part in parts if part)


def nothing(tables: Tables, tool: str) -> str:
    """Say why there is no figure of `tool`'s trials."""
    trials = tables.of(tool)
    if trials.empty:
        return f"This run has no {tool} trials."
    return f"No {tool} trial of this run was sealed: {plural(len(trials), 'trial')} failed or stopped early."
