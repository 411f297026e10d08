"""Claims about axum and gnet: a static list, and inserts into PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from runner.limits import Limit
from runner.present.answers.standings import times
from runner.present.figures import seconds
from runner.present.frames import Tables, is_sealed, limit_words, limits_of
from runner.present.look import captions, style
from runner.present.published.claims import FAILS, HOLDS, UNTOLD, Claim, Outcome, all_of
from runner.present.published.claims_evidence import (
    Allowed,
    Bar,
    Question,
    anywhere,
    at_its_limit,
    carries,
    compare,
    limit_numbers,
    unlimited,
    weigh,
)
from runner.present.published.counterparts import Cell, by_load, cell, closed, offered
from runner.present.statistics.inference import FEWEST, Sample, ratio
from runner.present.statistics.stats import spread

GNET, AXUM = "gnet", "axum"
STATIC, INSERTS = "static", "postgres-insert"
SOUGHT = {
    STATIC: ("the static list in a closed loop", "the static list at offered rates"),
    INSERTS: ("inserts in a closed loop", "inserts at offered rates"),
}
BUSY = 90.0
"""% of its CPUs from which on the database counts as full, as in its verdict."""
MOSTLY = 0.5
"""Share of a cell's trials beyond which what limited them is said of the cell."""


def _questions(trials: pd.DataFrame, sought: str, quantity: str, column: str, allowed: Allowed) -> list[Question]:
    """Ask for gnet / axum of a column under each load that both ran; under any one, which then says why not."""
    loads = by_load(trials)
    both = {load: own for load, own in loads.items() if {GNET, AXUM} <= set(own["server"])}
    chosen = both or dict(list(loads.items())[:1]) or {sought: trials}
    return [
        compare(f"{GNET}/{AXUM} {quantity}, {load}", cell(own, GNET, sought), cell(own, AXUM, sought), column, allowed)
        for load, own in chosen.items()
    ]


def _tier(tables: Tables) -> list[str]:
    """Say what gnet is here: published below HTTP, it may parse requests in this lab."""
    own = tables.trials[tables.trials["server"] == GNET]
    if own.empty:
        return []
    return [f"{GNET} is of the tier {own['tier'].iloc[0]}; here it answers what the contract of all servers asks."]


# --- the static list --------------------------------------------------------------------------------------


def more_static(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether gnet answers more requests/s than axum."""
    asked = _questions(closed(tables, STATIC), SOUGHT[STATIC][0], "requests/s", "rps", at_its_limit)
    return all_of(weigh(tables, claim, asked), _tier(tables))


def lower_p90(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether gnet's p90 is lower at rates that both keep."""
    allowed = carries(0.9, unlimited)
    asked = _questions(offered(tables, STATIC), SOUGHT[STATIC][1], "p90", "latency_p90_ms", allowed)
    return all_of(weigh(tables, claim, asked), _tier(tables))


def less_memory(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether gnet needs less memory, under each load of the static list."""
    trials = pd.concat([closed(tables, STATIC), offered(tables, STATIC)])
    asked = _questions(trials, SOUGHT[STATIC][0], "memory in MiB", "server_rss_peak_bytes", anywhere)
    return all_of(weigh(tables, claim, asked), _tier(tables))


def equal_cpu(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether both use about the same CPU at rates that both keep."""
    trials = offered(tables, STATIC)
    asked = _questions(trials, SOUGHT[STATIC][1], "CPU", "server_cpu_mean_pct", unlimited)
    return all_of(weigh(tables, claim, asked), _tier(tables))


# --- inserts ----------------------------------------------------------------------------------------------


def more_inserts(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether gnet inserts more rows a second than axum."""
    asked = _questions(closed(tables, INSERTS), SOUGHT[INSERTS][0], "inserts/s", "rps", at_its_limit)
    return all_of(weigh(tables, claim, asked))


def latency_starts_high(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether gnet's p90 is higher in the first second of a ramp than later."""
    asked, seen = [], []
    for load, own in _ramps(tables).items():
        cells = [cell(own, server, SOUGHT[INSERTS][1]) for server in (GNET, AXUM)]
        first, later = zip(*[_starts(tables, each) for each in cells], strict=True)
        names = (f"{GNET}'s p90 of the first second in ms", "of the later ones")
        words = f"{GNET} p90, first second / later, {load}"
        asked.append(Question(words, names, (cells[0],), (first[0], later[0]), unlimited))
        other = ratio(first[1], later[1])
        seen += [f"The same of {AXUM}: {times(other)} ({load})."] if other else []
    return all_of(weigh(tables, claim, asked), seen)


def steadier(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether p90 and CPU change more from second to second with gnet than with axum."""
    quantities = {"p90": seconds.latency(0.9), "CPU": seconds.cpu("server")}
    asked = [
        _unsteadiness(tables, own, load, name, points)
        for load, own in _ramps(tables).items()
        for name, points in quantities.items()
    ]
    return all_of(weigh(tables, claim, asked))


def _unsteadiness(
    tables: Tables,
    trials: pd.DataFrame,
    load: str,
    name: str,
    points: Callable[[pd.DataFrame, Tables], pd.DataFrame],
) -> Question:
    cells = (cell(trials, GNET, SOUGHT[INSERTS][1]), cell(trials, AXUM, SOUGHT[INSERTS][1]))
    samples = [_sample(each, points(each.sealed, tables), _steps) for each in cells]
    words = f"{GNET}/{AXUM} unsteadiness of {name}, {load}"
    return Question(words, (GNET, AXUM), cells, (samples[0], samples[1]), unlimited)


def _ramps(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return the trials of each ramp of inserts; an empty one, which then says so, where there is none."""
    trials = offered(tables, INSERTS)
    return by_load(trials) or {SOUGHT[INSERTS][1]: trials}


def _starts(tables: Tables, own: Cell) -> tuple[Sample, Sample]:
    """Return the p90 of each trial's first second, and the median of its later seconds."""
    points = seconds.latency(0.9)(own.sealed, tables)
    first = _sample(own, points[points["t_s"] < 1], lambda values: float(values[0]))
    return first, _sample(own, points[points["t_s"] >= 1], lambda values: float(np.median(values)))


def _sample(own: Cell, points: pd.DataFrame, one: Callable[[np.ndarray], float]) -> Sample:
    """Return one number of each trial, made of its points in the order of time, with the trial's block."""
    blocks = dict(zip(own.sealed["trial_id"], own.sealed["block"], strict=True))
    ordered = points.sort_values("t_s")
    values = {trial: one(rows["value"].to_numpy(dtype=float)) for trial, rows in ordered.groupby("trial_id")}
    return Sample.of(values.values(), [blocks[str(trial)] for trial in values])


def _steps(values: np.ndarray) -> float:
    """Return the standard deviation of the steps of the logarithm, which a slow rise hardly changes."""
    logs = np.log(values[values > 0])
    return float(np.diff(logs).std(ddof=1)) if logs.size > 2 else float("nan")


def more_rows(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether gnet leaves more rows than axum after a ramp that goes beyond what a server can do."""
    trials = offered(tables, INSERTS)
    asked = _questions(trials, SOUGHT[INSERTS][1], "rows", "rows_inserted", _beyond_a_server)
    servers = trials[trials["server"].isin((GNET, AXUM)) & is_sealed(trials)]
    words = captions.rows_equal_answers(servers)
    return all_of(weigh(tables, claim, asked), [words] if words else [])


def _beyond_a_server(tables: Tables, own: Cell) -> Bar | None:
    """Allow ramps that ended at the server's limit: below it the rows are those that were asked for."""
    limits = set(limits_of(own.sealed))
    if limits == {Limit.NONE}:
        return Bar(
            "the ramp was kept to its end, so that the rows are those that were asked for", limit_numbers(tables, own)
        )
    return at_its_limit(tables, own)


def postgres_not_the_limit(tables: Tables, _claim: Claim) -> Outcome:
    """Judge whether PostgreSQL limited any trial of axum and gnet that inserts, and whether its CPU was full."""
    trials = pd.concat([closed(tables, INSERTS), offered(tables, INSERTS)])
    sealed = trials[is_sealed(trials) & trials["server"].isin((GNET, AXUM))]
    if sealed.empty:
        return Outcome(UNTOLD, "this run has no sealed trial of them that inserts")
    cpus = len((tables.manifest.get("placement") or {}).get("database") or ())
    share = spread(sealed["database_cpu_mean_pct"] / (cpus or np.nan))
    place = captions.database_place(tables.manifest)
    seen = (
        f"What limited {captions.plural(len(sealed), 'trial')}: {limit_words(sealed)}.",
        f"CPU of PostgreSQL, median: {style.number(share.median)} % of what it was given, at most "
        f"{style.number(share.high)} %.",
        *([place] if place else []),
    )
    return replace(_database_limit(sealed, share.high), seen=seen)


def _database_limit(sealed: pd.DataFrame, highest_pct: float) -> Outcome:
    limits = limits_of(sealed)
    cells = limits.eq(Limit.DATABASE).groupby([sealed["load"], sealed["server"]], sort=False)
    often = cells.mean()[cells.size() >= FEWEST]
    if often.empty:
        return Outcome(UNTOLD, f"not enough trials: no cell has {FEWEST}")
    if often.max() > MOSTLY:
        load, server = often.index[int(often.to_numpy().argmax())]
        share = f"{100 * often.max():.0f} %"
        return Outcome(FAILS, f"the database was the limit in {share} of the trials of {server} under {load}")
    missing = [server for server in (GNET, AXUM) if server not in set(sealed["server"])]
    if missing:
        return Outcome(UNTOLD, f"this run has no inserts of {' and '.join(missing)}")
    count = int(limits.isin([Limit.DATABASE, Limit.UNKNOWN]).sum())
    if count or not highest_pct < BUSY:
        return Outcome(
            UNTOLD,
            f"in {count} of {captions.plural(len(sealed), 'trial')} the limit was the database or is not told, and its "
            f"CPU use reached {style.number(highest_pct)} %",
        )
    return Outcome(HOLDS, "the database was the limit in no trial, and its CPU was never full")
