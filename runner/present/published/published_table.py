"""Make the tables that show every published number beside the number of this run."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import pandas as pd

from runner.model import core_words
from runner.present.comparison.obstacle import ranks_by_throughput
from runner.present.frames import MODES, Tables, limits_of, queued
from runner.present.look.captions import plural, verdict_counts
from runner.present.look.markup import NOT_RANKED, Block, Paragraph, TextTable
from runner.present.look.numbers import number as printed
from runner.present.published import counterparts
from runner.present.published.counterparts import (
    METRICS,
    Counterpart,
    Number,
    OurMetric,
    closed,
    read_published,
    sizes,
)
from runner.present.statistics.inference import FEWEST_TRIALS, Mean, Sample, mean_of, sample_of
from runner.present.statistics.stats import carried_quantile
from runner.verdict.limits import Limit

IN_QUEUE = f"{Limit.GENERATOR.why_not}: most of this time is its queue"
QUANTILE_OF_METRIC = {"latency_p50": 0.5, "latency_p90": 0.9, "latency_p95": 0.95}
REMARKS = {
    "rps": {
        Limit.GENERATOR: f"{Limit.GENERATOR.why_not}: this rate is the generator's",
        Limit.DATABASE: f"{Limit.DATABASE.why_not}: this rate is the database's",
        Limit.POOL: f"{Limit.POOL.why_not}: the pool's connections limited this rate",
        Limit.UNKNOWN: Limit.UNKNOWN.why_not,
    },
    "latency": {
        Limit.GENERATOR: f"{Limit.GENERATOR.why_not}: this time is the generator's",
        Limit.SERVER: "at saturation: users / rate, by Little's law",
        Limit.UNKNOWN: Limit.UNKNOWN.why_not,
    },
    "cpu_peak": {Limit.GENERATOR: "at the rate that the generator could send"},
}
"""Remarks on a number, by the kind of its metric and by the limit of its trials.

A remark says what the limit means for the number.
"""
ABSENT = {
    "rps": "this run did not record it",
    **dict.fromkeys(QUANTILE_OF_METRIC, "too few requests in a trial for this percentile"),
    "cpu_peak": "the load was shorter than the window",
}
"""The reason why a cell with sealed trials has no number for a published metric, by metric."""
INTERVALS = (
    f"[ ]: 95 % interval of the mean, if there are at least {FEWEST_TRIALS} trials. ( ): minimum "
    "and maximum, if there are fewer; they are no confidence interval."
)


@dataclass(frozen=True, eq=False)
class Row:
    """A published number with the cell of a run that repeats it.

    `sample` contains our values of the `quantity`, and `ours` is the mean of these values.
    `remarks` are phrases that say how the two measurements differ. If the run has no number to
    compare, the remarks give the reason.
    """

    number: Number
    quantity: OurMetric
    cell: Counterpart
    sample: Sample
    ours: Mean
    remarks: tuple[str, ...]

    @property
    def metric(self) -> str:
        """The published metric, as tables name it."""
        return self.quantity.heading

    @property
    def ratio(self) -> tuple[float, ...]:
        """Our mean and the two ends of its interval, each divided by the published number."""
        return tuple(
            value / self.number.value for value in (self.ours.value, self.ours.low, self.ours.high)
        )

    @property
    def load(self) -> str:
        """The published load in words."""
        mode = self.number.mode
        size = self.number.connections
        return MODES.get(mode, mode) + ("" if math.isnan(size) else f", {size:,.0f}")


def rows(tables: Tables) -> list[Row]:
    """Return at least one row for every published number, in the order of data/published.csv.

    If a number was published for a language, there is a row for each of our frameworks of that
    language. If the number is a CPU peak, there are two rows, because the lab averages CPU use over
    1 s and over 100 ms.
    """
    found = []
    for number in read_published():
        servers = counterparts.standing_in(number.server, closed(tables, number.scenario))
        for server, ours in product(servers, METRICS[number.metric]):
            cell = counterparts.counterpart(tables, number, server)
            carried = cell.sealed["requests"].map(carried_quantile) >= QUANTILE_OF_METRIC.get(
                number.metric, 0.0
            )
            trials = cell.sealed[carried]
            sample = sample_of(trials[ours.column], trials["block"])
            remarks = (
                _remarks(tables, number, cell)
                if len(sample)
                else [cell.absence or ABSENT[number.metric]]
            )
            found.append(Row(number, ours, cell, sample, mean_of(sample), tuple(remarks)))
    return found


def _remarks(tables: Tables, number: Number, cell: Counterpart) -> list[str]:
    """Return phrases that say how our measurement differs from the published measurement.

    Further phrases say what limited our trials.
    """
    size = number.connections
    here = float(sizes(cell.sealed).iloc[0])
    share = float(cell.sealed["share"].iloc[0])
    threads = counterparts.threads_of(number.load)
    found = [f"on {share:g} of a core"] if share < 1 else []
    quota_cores = float(cell.sealed["quota_cores"].iloc[0])
    found += [f"under a quota of {core_words(quota_cores)}"] if math.isfinite(quota_cores) else []
    if math.isnan(size):
        found.append("of this run's loads of this kind, the load with the highest rate")
    elif threads and (count := counterparts.opened(int(size), threads)) != size:
        did = f"opens {count} connections" if count else "does not start"
        found.append(f"published with -t{threads} -c{size:.0f}, with which wrk {did}")
    elif here != size:
        found.append(f"N = {here:,.0f} instead of {size:,.0f}")
    cpus = tables.manifest.placement.server
    if number.metric == "cpu_peak" and cpus:
        found.append(f"the server has {plural(len(cpus), 'CPU')} here")
    every = limits_of(cell.sealed)
    limits = every.value_counts()
    said = dict(REMARKS["latency" if number.metric in QUANTILE_OF_METRIC else number.metric])
    if number.metric in QUANTILE_OF_METRIC and queued(cell.sealed)[every == Limit.GENERATOR].all():
        said[Limit.GENERATOR] = IN_QUEUE
    return found + [
        words
        if limits[limit] == limits.sum()
        else f"{words} ({limits[limit]} of {limits.sum()} trials)"
        for limit, words in said.items()
        if limit in limits
    ]


def sheets(tables: Tables) -> Iterator[Block]:
    """Yield a table for each source, scenario and published load.

    Remarks that apply to all numbers of a table follow the table as a paragraph.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows(tables):
        groups.setdefault((row.number.source, row.number.scenario, row.number.load), []).append(row)
    for (source, scenario, command), alike in groups.items():
        loads = {row.load for row in alike}
        load = f", {loads.pop()}" if len(loads) == 1 else ""
        ours = [row.remarks for row in alike if row.ours.trials]
        shared = (
            [remark for remark in ours[0] if all(remark in each for each in ours)]
            if len(ours) > 1
            else []
        )
        yield TextTable(printable(alike, shared), f"{scenario}{load}: {source}; {command}")
        if shared:
            yield Paragraph(f"All of these: {'; '.join(shared)}.")


def printable(found: Sequence[Row], shared: Sequence[str] = ()) -> pd.DataFrame:
    """Return the rows of one source and scenario as a table of texts.

    The column of the load is left out if all rows have the same load. The remarks in `shared` are
    left out, because they stand below the table. A dagger marks a rate that was limited by
    something other than the server, so that it is not the server's throughput.
    """
    lines = []
    for row in found:
        server = row.cell.server
        published = row.number.server
        known = row.ours.trials > 0
        dagger = f" {NOT_RANKED}" * (
            row.number.metric == "rps" and not ranks_by_throughput(row.cell.sealed)
        )
        here = [printed(value) for value in (row.ours.value, row.ours.low, row.ours.high)]
        ratios = [f"{value:.3f}" if value < 10 else printed(value) for value in row.ratio]
        line = {
            "server": server if server == published else f"{published} → {server}",
            "load": row.load,
            "metric": row.metric,
            "published": printed(row.number.value),
            "here": _with_ends(row.ours, *here) + dagger if known else "–",
            "trials": str(row.ours.trials),
            "here / published": _with_ends(row.ours, *ratios) if known else "–",
            "verdicts": verdict_counts(row.cell.sealed) if known else "–",
            "remark": "; ".join(remark for remark in row.remarks if remark not in shared) or "–",
        }
        lines.append(line)
    table = pd.DataFrame(lines)
    said = {"load": table["load"].nunique() > 1, "remark": table["remark"].ne("–").any()}
    return table.drop(columns=[name for name, needed in said.items() if not needed])


def _with_ends(ours: Mean, middle: str, low: str, high: str) -> str:
    """Return a value followed by the two ends of its range in brackets.

    Square brackets contain a 95 % interval, and round brackets contain minimum and maximum. For a
    single trial, return only the value.
    """
    ends = f"({low}–{high})" if ours.confidence is None else f"[{low}–{high}]"
    return f"{middle} {ends}" if ours.trials > 1 else middle
