"""Measure how often `bench ab` is wrong, by simulating runs with the noise of real sessions.

The noise comes from a committed run. It consists of residuals: for each load, server and quantity,
the logarithm of the quantity in each session, minus the mean of these logarithms. A simulated run
draws three servers of one load, which play the roles of "base", "base again" and "head". Then it
draws sessions, always three neighbouring sessions at once, so that drifts over several sessions
remain (a moving-block bootstrap). The CPU time per request of head is multiplied by 1 + effect, and
its throughput is divided by 1 + effect. At last the rule of `bench ab` decides as in a real run.

Run: python benchmarks/false_alarms.py [--runs N]. The program prints the table of
docs/two-commits.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import typer

from runner.commands.ab import FAIL_ABOVE_PCT
from runner.present.comparison.quantity import CPU_PER_REQUEST, MEMORY, THROUGHPUT, Quantity
from runner.present.comparison.ratios import compared
from runner.present.frames import Tables, read_tables
from runner.present.statistics.stats import Floats
from runner.present.two_commits.decision import (
    Effects,
    Judged,
    Outcome,
    Rule,
    judge,
)
from runner.store import RunFolder

ROOT = Path(__file__).parents[1]
STRETCH = 3
"""Number of neighbouring sessions that a simulated run draws together."""
LEAST_SESSIONS = 6
SERVERS = 3
QUANTITIES = (CPU_PER_REQUEST, THROUGHPUT, MEMORY)
"""The quantities of a closed load.

The first DECIDING quantities must be decided before a run may end early. The last quantity is
judged at a stricter significance level. For a real run, `two_commits.comparing.rows_of` does the
same.
"""
DECIDING = 2
OTHERS = 5
"""Number of quantities of a real run that need not be decided before the run may end early.

The significance level of each of these quantities is the level of the rule, divided by this number.
"""
EFFECTS_PCT = (0.0, 1.0, 2.5, 3.0, 5.0, 10.0, 20.0)
SESSIONS = (10, 16, 20, 28, 36)
"""Numbers of sessions to simulate. The time budget of a real run limits its number of sessions."""
SEED = 20_261_127


@dataclass(frozen=True, eq=False)
class Noise:
    """The noise of one load.

    `residuals` contains, for each session, server and quantity, the logarithm of the quantity minus
    the mean over the sessions. The array has an axis for each of the three, in this order.
    """

    load: str
    residuals: Floats

    @property
    def spread_pct(self) -> float:
        """Standard deviation of the first quantity over sessions and servers, in percent."""
        return float(100 * self.residuals[:, :, 0].std())


def noises(tables: Tables, quantities: Sequence[Quantity] = QUANTITIES) -> Iterator[Noise]:
    """Yield the noise of each closed load that has enough sessions and at least three servers."""
    trials = compared(tables, tables.trials)
    trials = trials[trials["session"].ne("") & trials["load_model"].eq("closed")]
    for load, of_load in trials.groupby("load", sort=False):
        names = [quantity.column for quantity in quantities]
        wide = of_load.pivot_table(index="block", columns="server", values=names)
        whole = wide.where(wide > 0).dropna().map(math.log)
        servers = of_load["server"].nunique()
        if len(whole) < LEAST_SESSIONS or servers < SERVERS:
            continue
        cube = np.stack([whole[name].to_numpy() for name in names], axis=2)
        # After the mean of n values is subtracted, the residuals have only n - 1 degrees of
        # freedom, so the residuals are too small. The factor sqrt(n / (n - 1)) corrects this.
        grown = np.sqrt(len(whole) / (len(whole) - 1))
        yield Noise(str(load), (cube - cube.mean(axis=0)) * grown)


@dataclass(frozen=True)
class Simulated:
    """One simulated run: its outcome, and the number of sessions after which it may end."""

    outcome: Outcome
    sessions: int


def simulate(
    noise: Noise, effect: float, rule: Rule, sessions: int, generator: np.random.Generator
) -> Simulated:
    """Return one simulated run of at most `sessions` sessions.

    `effect` is the CPU time per request that is added to head, as a share of the CPU time without
    the effect. The throughput of head is divided by 1 + `effect`.
    """
    count, servers, _ = noise.residuals.shape
    chosen = generator.choice(servers, SERVERS, replace=False)
    starts = generator.integers(0, count, -(-sessions // STRETCH))
    drawn = (starts[:, None] + np.arange(STRETCH)).ravel()[:sessions] % count
    values = np.exp(noise.residuals[drawn][:, chosen])
    values[:, 2, 0] *= 1 + effect
    values[:, 2, 1] /= 1 + effect
    strict = Rule(rule.fail_above, OTHERS)
    judged = [
        judge(
            Effects.of(*values[:, :, place].T, more_is_better=quantity.more_is_better),
            rule if place < DECIDING else strict,
            ended=True,
        )
        for place, quantity in enumerate(QUANTITIES)
    ]
    return Simulated(_outcome(judged), max(each.sessions for each in judged[:DECIDING]))


def _outcome(judged: Sequence[Judged]) -> Outcome:
    outcomes = [each.outcome for each in judged]
    if Outcome.WORSE in outcomes:
        return Outcome.WORSE
    if Outcome.UNDECIDED in outcomes[:DECIDING]:
        return Outcome.UNDECIDED
    return Outcome.BETTER if Outcome.BETTER in outcomes else Outcome.TIE


def rates(
    found: Sequence[Noise], effect_pct: float, rule: Rule, sessions: int, runs: int
) -> dict[str, float]:
    """Simulate runs; return the share of runs with each outcome, by the outcome's name.

    The result also contains, under the key `sessions`, the median number of sessions of a run.
    """
    generator = np.random.default_rng([SEED, sessions, round(10 * effect_pct)])
    made = [
        simulate(found[run % len(found)], effect_pct / 100, rule, sessions, generator)
        for run in range(runs)
    ]
    outcomes = [each.outcome for each in made]
    shares = {str(outcome): outcomes.count(outcome) / runs for outcome in Outcome}
    return shares | {"sessions": float(np.median([each.sessions for each in made]))}


def main(runs: int = 2000, fail_above: float = FAIL_ABOVE_PCT, run: str = "data/sample") -> None:
    """Print the table of outcomes by effect and number of sessions, as Markdown."""
    found = list(noises(read_tables(RunFolder(ROOT / run))))
    for each in found:
        typer.echo(f"<!-- {each.load}: {each.residuals.shape}, {each.spread_pct:.1f} % -->")
    names = [str(outcome) for outcome in Outcome]
    typer.echo(f"| slowdown | sessions | {' | '.join(names)} | median sessions |")
    typer.echo(f"|{'---:|' * (len(names) + 3)}")
    for effect_pct in EFFECTS_PCT:
        for sessions in SESSIONS:
            shares = rates(found, effect_pct, Rule(fail_above / 100), sessions, runs)
            cells = " | ".join(f"{100 * shares[name]:.1f} %" for name in names)
            typer.echo(f"| {effect_pct:g} % | {sessions} | {cells} | {shares['sessions']:.0f} |")


if __name__ == "__main__":
    typer.run(main)
