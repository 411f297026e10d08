"""Measure the CPU time per iteration of each series of k6, with the lab's flags and observers.

Run: python benchmarks/k6_series.py [--server NAME] [--vus N] [--iterations N] [--blocks N]
[--minutes N]. A series is a major version of k6, and `make k6-both` builds both series. Each block
loads the server once with each series. Each series comes first in half of the blocks, which are
chosen at random with a seed. The program prints k6's CPU time per iteration in µs. This time
includes k6's start and the writing of its samples. The program also prints the ratio of the two
series' CPU times within blocks, with the 95 % interval of this ratio (Student's t on logarithms).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import replace
from statistics import median

from overhead import WORKLOAD, observed, overhead_campaign, staged

from runner.digest.resources import read_counters
from runner.measure.leftovers import scratch
from runner.measure.loading import Bench
from runner.measure.session import Ready
from runner.measure.tools import Tool, find_tool
from runner.model import Cell, LabError
from runner.present.statistics.inference import FEWEST_TRIALS, ratio, sample_of

SERIES = ("v1", "v2")


def main() -> None:
    """Parse the command line, measure, and print the CPU time of each series and their ratio.

    The two series of k6 load the same server in turn.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="gnet", help="a cheap one: k6 is to be the limit")
    parser.add_argument("--vus", type=int, default=3000)
    parser.add_argument("--iterations", type=int, default=40_000, help="of each load")
    parser.add_argument("--blocks", type=int, default=12, help="loads by each series")
    parser.add_argument("--minutes", type=float, default=30.0, help="no block begins later")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if asked.blocks % 2 or not 2 <= asked.blocks <= 40:
        parser.error("--blocks must be even, so that each series goes first as often, and 2 to 40")
    if not (1 <= asked.vus <= 10_000 and 1 <= asked.iterations <= 200_000):
        parser.error("--vus must be 1 to 10,000, and --iterations 1 to 200,000")
    try:
        tools = {series: _built(series) for series in SERIES}
        taken = _measure(asked, tools)
    except LabError as error:
        sys.exit(f"Error: {error}")
    _report(tools, taken)


def _built(series: str) -> Tool:
    tool = find_tool(f"k6-{series}")
    if tool is None:
        raise LabError(f"k6 {series} is not built: run `make k6-both`.")
    return tool


def orders(blocks: int, seed: int) -> list[tuple[str, ...]]:
    """Return the order of the two series in each block. Each is first in half of the blocks."""
    halves: list[tuple[str, ...]] = [SERIES, SERIES[::-1]] * (blocks // 2)
    random.Random(seed).shuffle(halves)  # noqa: S311 - the order must be reproducible
    return halves


def _measure(asked: argparse.Namespace, tools: dict[str, Tool]) -> dict[str, dict[int, float]]:
    """Return k6's CPU time per iteration in µs, by series and block.

    No block begins later than `asked.minutes` after the start.
    """
    taken: dict[str, dict[int, float]] = {series: {} for series in SERIES}
    deadline = time.monotonic() + 60 * asked.minutes
    sizes = {
        "vus": asked.vus,
        "iterations": asked.iterations,
        "repeats": asked.blocks,
        "seed": asked.seed,
    }
    with staged(overhead_campaign(asked.server, **sizes), engine="process", say=_show) as (
        bench,
        ready,
        trials,
    ):
        places = bench.placement
        if set(places.server) & set(places.generator):
            raise LabError("The server and k6 need a CPU each, and this machine has one.")
        _show(
            f"{asked.server}, {WORKLOAD}, {asked.vus} users, {asked.iterations:,} iterations; "
            f"CPUs: server {_list(places.server)}, k6 {_list(places.generator)}"
        )
        for trial, order in zip(trials, orders(asked.blocks, asked.seed), strict=True):
            if time.monotonic() > deadline:
                _show(
                    f"{asked.minutes:g} minutes are over: {trial.block - 1} of {asked.blocks} "
                    "blocks are measured."
                )
                break
            for series in order:
                taken[series][trial.block] = _load(bench, ready, trial.cell, tools[series])
                _show(
                    f"[{trial.block}/{asked.blocks}] {series}: {taken[series][trial.block]:.1f} µs"
                )
    return taken


def _load(bench: Bench, ready: Ready, cell: Cell, tool: Tool) -> float:
    """Run the load once with the k6 `tool`, and return k6's CPU time per iteration in µs."""
    with scratch(bench.lab.ledger) as folder:
        bench = replace(bench, tools={"k6": tool.path})
        measurement, summary = observed(bench, ready, cell, folder, tool.name)
        length_s = (measurement.load_ended_mono_ns - measurement.load_started_mono_ns) / 1e9
        counters = read_counters(folder / "resources.parquet", measurement.load_started_mono_ns)
        return 1e6 * counters["generator"].between(0.0, length_s) / summary.iterations


def _report(tools: dict[str, Tool], taken: dict[str, dict[int, float]]) -> None:
    _show(f"{'series':<8}{'version':<10}{'loads':>6}{'µs an iteration':>18}{'least':>9}{'most':>9}")
    for series, tool in tools.items():
        values = list(taken[series].values())
        if values:
            spread = f"{median(values):>18.1f}{min(values):>9.1f}{max(values):>9.1f}"
            _show(f"{series:<8}{tool.version:<10}{len(values):>6}{spread}")
    first, second = (sample_of(taken[series].values(), taken[series].keys()) for series in SERIES)
    found = ratio(second, first)
    if found is None:
        _show(f"No ratio: fewer than {FEWEST_TRIALS} blocks.")
        return
    _show(
        f"{SERIES[1]} / {SERIES[0]}: {found.ratio:.3f} ({found.low:.3f} to {found.high:.3f}), "
        "95 % interval within "
        f"{found.blocks} blocks, which find a ratio of {found.detectable():.3f} with 80 % power"
    )


def _list(cpus: tuple[int, ...]) -> str:
    return ", ".join(map(str, cpus))


def _show(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
