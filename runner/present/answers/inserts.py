"""Put a run's results on database inserts into words: ranking, CPU use, limits and pool sizes."""

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import pandas as pd

from runner.model import CALIBRATION
from runner.present.answers import summary
from runner.present.answers.ranking_text import SMALLEST_SHOWN_RATIO, percent
from runner.present.chart.value import ServerLoad, cells
from runner.present.figures.pools import pool_sweeps
from runner.present.figures.seconds import sustained_rps
from runner.present.frames import Tables, limit_words, limits_of, sealed_trials
from runner.present.look import captions
from runner.present.look.numbers import number
from runner.present.statistics.inference import FEWEST_TRIALS, sample_of
from runner.present.statistics.ranking import rank
from runner.present.statistics.stats import spread
from runner.verdict.limits import Limit

NO_DATABASE = (
    "This run has no workload with a database behind its servers: there is nothing to show here."
)
COLUMN_OF_HEADING = {
    "server CPU, %": "cpu_pct",
    "database CPU, %": "database_cpu_pct",
    "most in use": "pool_in_use",
    "rows": "rows",
}
"""Headings of the columns that are printed only for loads with a database.

Each heading is mapped to its column of the summary.
"""


def findings(tables: Tables) -> tuple[str, ...]:
    """Return the findings on a run's inserts as sentences."""
    table = _stored(summary.summarize(tables))
    table = table[table["tier"] != CALIBRATION]
    trials = _stored(tables.trials)
    trials = trials[trials["tier"] != CALIBRATION]
    sealed = sealed_trials(trials)
    if sealed.empty:
        return (
            f"No number: {captions.plural(int(table['left_out'].sum()), 'trial')} failed or "
            "stopped early.",
        )
    limits = limits_of(sealed).value_counts()
    counts = ", ".join(f"{limit.noun} in {limits[limit]}" for limit in Limit if limit in limits)
    ramps = groupby(cells(tables, tables.ramps(database=True)), attrgetter("panel"))
    sizes = groupby(cells(tables, pool_sweeps(tables), "loop"), attrgetter("panel"))
    is_open = table["load_model"] == "open"
    by_load = table[is_open if is_open.any() else ~is_open].groupby("load", sort=False)
    exhausted = (
        table["pool_exhausted_pct"].ge(50).groupby(table["load"], sort=False).agg(["sum", "size"])
    )
    full = [
        f"{load} ({count} of {size} servers)"
        for load, count, size in exhausted.itertuples()
        if count
    ]
    return summary.with_reading(
        [
            *_most(tables, table[~is_open], sealed),
            f"What was the limit, of {captions.plural(len(sealed), 'trial')} with a database: "
            f"{counts}.",
            *(_ramp(load, list(servers), tables) for load, servers in ramps),
            *(summary.cpu_order(tables, rows) for _, rows in by_load),
            f"Every connection of the pool was in use most of the time on: {'; '.join(full)}."
            if full
            else "",
            *(_enough(loop, list(servers)) for loop, servers in sizes),
            _database(table),
            captions.rows_equal_answers(sealed),
            " ".join(
                [captions.durability(tables.manifest), captions.database_place(tables.manifest)]
            ).strip(),
        ]
    )


def printable(tables: Tables) -> pd.DataFrame:
    """Return a table of texts with a row for each server under each load with a database."""
    return summary.printable(_stored(summary.summarize(tables)), COLUMN_OF_HEADING)


def _stored(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["pool_size"].notna()]


def _most(tables: Tables, closed: pd.DataFrame, sealed: pd.DataFrame) -> list[str]:
    """Return sentences that say under which loads servers can be ranked by inserts per second.

    Servers can be ranked under a load only if at least two of them were the limit in all their
    trials. If there are such loads, the first sentence ranks the servers under the load with the
    highest rate, and a second sentence names the other such loads. If there is no such load, the
    first sentence says that inserts per second are not ranked. A last sentence names each load
    under which servers cannot be ranked, with the limits of this load's trials.
    """
    loads = {
        str(load): rows for load, rows in closed[closed["trials"] > 0].groupby("load", sort=False)
    }
    highest = {load: rows.loc[rows["server_bound"], "rps"].max() for load, rows in loads.items()}
    compared = [load for load, rows in loads.items() if rows["server_bound"].sum() > 1]
    compared.sort(key=lambda load: -highest[load])
    rest = [
        f"{load} (limit: {limit_words(sealed[sealed['load'] == load])})"
        for load in loads
        if load not in compared
    ]
    said = [
        f"Most inserts per second: {summary.throughput(tables, loads[load])}"
        for load in compared[:1]
    ]
    if compared[1:]:
        said.append(
            f"Servers can be compared on these loads too, see the table: {'; '.join(compared[1:])}."
        )
    if loads and not compared:
        why = "no closed loop has two servers that were the limit in each of their trials"
        said.append(f"Inserts per second are not ranked: {why}.")
    return [*said, f"Rates that are not ranked: {'; '.join(rest)}."] if rest else said


def _ramp(load: str, servers: list[ServerLoad], tables: Tables) -> str:
    """Return a sentence with the highest rate that each server sustained on a ramp.

    The limit of the server's trials follows each rate. A server that sustained the whole ramp is
    named without a rate and a limit.
    """
    sustained = {
        cell.server: spread(sustained_rps(cell.trials, tables.throughput)) for cell in servers
    }
    part = {
        cell.server: cell.trials
        for cell in servers
        if sustained[cell.server].low < cell.trials["rate_rps"].iloc[0]
    }
    whole = ", ".join(server for server in sustained if server not in part)
    text = (
        f"{load}: sustained to its end in every trial by {whole}"
        if whole
        else f"{load}: no server sustained it to its end in every trial"
    )
    if part:
        limits = {server: limit_words(trials) for server, trials in part.items()}
        rates = [
            f"{server} {number(sustained[server].median)}/s (limit: {limit})"
            for server, limit in limits.items()
        ]
        text += f"; the last rate sustained, median of the trials: {', '.join(rates)}"
        text += ". A rate describes a server only if the server was the limit"
    return f"{text}."


def _database(table: pd.DataFrame) -> str:
    cost = spread(table["database_cpu_ms_per_request"])
    busy = spread(table["database_cpu_pct"])
    if not cost.n:
        return ""
    return (
        f"The cost of PostgreSQL: {number(cost.low)} to {number(cost.high)} CPU ms per insert, "
        f"{number(busy.low)} to {number(busy.high)} % of a core (means by server and load)."
    )


def _enough(loop: str, servers: list[ServerLoad]) -> str:
    """Return a sentence with the smallest pool size that suffices for each server.

    A pool size suffices if no other size is significantly faster.
    """
    found = {cell.server: smallest_pool(cell.trials) for cell in servers}
    known = {server: pool for server, pool in found.items() if pool}
    why = (
        f"fewer than {FEWEST_TRIALS} trials of a size, or the limit was the generator or is unknown"
    )
    if not known:
        return f"{loop}: no pool size can be advised ({why})."
    pools = pd.DataFrame(list(known.values()), index=list(known))
    parts = [f"{size:.0f} for {', '.join(rows.index)}" for size, rows in pools.groupby("size")]
    detectable = pools["detectable"].max()
    within = (
        f" (differences below {percent(detectable)} are undetectable)"
        if detectable > SMALLEST_SHOWN_RATIO
        else ""
    )
    unknown = ", ".join(server for server in found if server not in known)
    rest = f"; unknown: {unknown} ({why})" if unknown else ""
    smallest = f"the smallest pool that is not slower than the fastest: {'; '.join(parts)}"
    return f"{loop}: {smallest}{within}{rest}."


@dataclass(frozen=True)
class SmallestPool:
    """The smallest pool that is not significantly slower than the fastest pool."""

    size: float
    """Number of connections of the pool."""
    detectable: float
    """The smallest true ratio (> 1) that the trials would probably have shown.

    The ratio compares two rates: the rate with the fastest pool size, divided by the rate with the
    pool size `size`. If the true ratio is below this value, the trials may not show that the two
    rates differ. The value is 1 if `size` is itself the fastest pool size.
    """


def smallest_pool(trials: pd.DataFrame) -> SmallestPool | None:
    """Return the smallest pool size that is not significantly slower than the fastest size.

    `trials` are the sealed trials of one server under loads that differ only in the pool size.
    Return None if a size has too few trials. Also return None if the limit at the fastest size was
    the generator or is unknown, because another pool size could be faster with a faster generator.
    """
    sizes = {str(size): of_size for size, of_size in trials.groupby("pool_size")}
    ranking = rank(
        {
            size: sample_of(of_size["served_rps"], of_size["block"])
            for size, of_size in sizes.items()
        }
    )
    if ranking is None or ranking.few:
        return None
    best = ranking.places[0].name
    if limits_of(sizes[best]).isin([Limit.GENERATOR, Limit.UNKNOWN]).any():
        return None
    pairs = ranking.pairs.items()
    even = {
        float(other): pair.detectable
        for (one, other), pair in pairs
        if one == best and not pair.differ
    }
    size = min([float(best), *even])
    return SmallestPool(size, even.get(size, 1.0))
