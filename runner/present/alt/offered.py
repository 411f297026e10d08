"""Alt texts of open loads at constant rates: response times by rate with the knee, and rates that keep an objective."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.present.chart.sentences import Form, by_value, degrees, fit, in_loads, listing, nothing, said, scope, within
from runner.present.figures import multiples, objectives, rates
from runner.present.figures.knee import Knee
from runner.present.figures.multiples import Panel
from runner.present.frames import Tables, rate_unit
from runner.present.look import captions
from runner.present.look.style import number
from runner.present.statistics.stats import BEYOND


@dataclass(frozen=True, eq=False)
class Swept:
    """What the panel of a server shows."""

    server: str
    ms: pd.Series[float]
    """Its p90 by rate."""
    knee: Knee
    whose: str
    """Whose knee it is: `k6's` where the generator was the first limit beyond it, else `its`."""
    sustained_rps: float
    beyond: str
    """What limited the rate after the last that was sustained."""


# --- response times by offered rate -----------------------------------------------------------------------


def latency(tables: Tables) -> str:
    """Return the alt text of `rates.latency`: p90 at the outermost rates and the knee, and what was sustained."""
    trials = rates.swept(tables)
    shown = multiples.panels(tables, trials, by="sweep")
    what = "response times by offered rate"
    if not shown:
        return nothing(what, captions.unsealed(trials, "trial at a constant arrival rate"))
    if all(rates.points(panel.trials).empty for panel in shown):
        return nothing(what, f"No rate of this run has {BEYOND} requests beyond a percentile.")
    table = rates.knee_table(tables).set_index(["sweep", "server"]).to_dict("index")
    forms: tuple[list[str], list[str], list[str]] = ([], [], [])
    for sweep in dict.fromkeys(panel.load for panel in shown):
        own = [_swept(panel, table[sweep, panel.server]) for panel in shown if panel.load == sweep]
        forms[0].append(within(sweep, "; ".join(f"{_course(of)}, {_sustained(of)}" for of in own)))
        forms[1].append(within(sweep, "; ".join(f"{of.server} has {_knee(of)}, {_sustained(of)}" for of in own)))
        forms[2].append(within(sweep, _ends(own)))
    head = (
        f"Line chart of response time in ms (up) by {rate_unit(trials['workload'])} offered (across), both "
        f"logarithmic, {scope([panel.server for panel in shown], len(forms[0]), 'sweep')}: the generator's p50, p90 "
        "and p99, the probe's p50 and p95, medians of trials; upright line: the knee."
    )
    return fit(head, [Form(parts, "sweep") for parts in forms])


def _swept(panel: Panel, words: Mapping[Any, str]) -> Swept:
    """Return what a panel shows; `words` is its row of `rates.knee_table`."""
    curve = rates.points(panel.trials)
    ms = curve[curve["series"] == rates.KNEE_OF].set_index("rate_rps")["median"]
    generators = words["limit beyond the knee"].startswith(captions.LIMITS["generator-bound"])
    return Swept(
        server=panel.server,
        ms=ms,
        knee=rates.knee_of(panel.trials),
        whose=f"{panel.trials['tool'].iloc[0]}'s" if generators else "its",
        sustained_rps=rates.highest_sustained(rates.outcomes(panel.trials)),
        beyond=words["limit beyond"],
    )


def _course(of: Swept) -> str:
    """Return `axum's p90 is 0.318 ms at 250/s, 0.658 ms at its knee of 4,000/s and 1,500 ms at 8,000/s`."""
    if of.ms.empty:
        return f"{of.server}'s {rates.KNEE_OF} is not known, with {_knee(of)}"
    knee = of.knee.rate_rps
    places = sorted({float(of.ms.index[0]), float(of.ms.index[-1]), *({knee} if knee in of.ms.index else ())})
    texts = [
        f"{number(float(of.ms[at]))} ms at {f'{of.whose} knee of ' if at == knee else ''}{at:,.10g}/s" for at in places
    ]
    missing = "" if math.isfinite(knee) else f", with {_knee(of)}"
    return f"{of.server}'s {rates.KNEE_OF} is {listing(texts)}{missing}"


def _knee(of: Swept) -> str:
    if math.isnan(of.knee.rate_rps):
        return f"no knee ({of.knee.why})"
    return f"its knee at {of.knee.rate_rps:,.10g}/s{'' if of.whose == 'its' else f' ({of.whose})'}"


def _sustained(of: Swept) -> str:
    if math.isnan(of.sustained_rps):
        return "not sustained at any rate"
    then = "" if of.beyond == "–" else f" (then: {of.beyond})"
    return f"sustained to {of.sustained_rps:,.10g}/s{then}"


def _ends(own: Sequence[Swept]) -> str:
    """Return the outermost knees and sustained rates, and how many servers have none."""
    facts = {
        "knee": {of.server: of.knee.rate_rps for of in own},
        "highest sustained rate": {of.server: of.sustained_rps for of in own},
    }
    foreign = [of.whose for of in own if of.whose != "its" and math.isfinite(of.knee.rate_rps)]
    words = []
    for noun, values in facts.items():
        known = by_value(values, rising=False)
        texts = {name: f"{rate:,.10g}/s" for name, rate in known.items()}
        without = len(values) - len(known)
        none = f", and {captions.plural(without, 'server')} without one" if without and known else ""
        whose = f", {len(foreign)} of them {foreign[0]}" if foreign and noun == "knee" else ""
        words.append(said(noun, "highest first", texts, short=True) + whose + none)
    return "; ".join(words)


# --- objectives -------------------------------------------------------------------------------------------


def objective(tables: Tables) -> str:
    """Return the alt text of `objectives.kept`: what each server kept, with its interval, the highest first."""
    table = objectives.answers(tables)
    if table.empty:
        reason = captions.unsealed(tables.searches(), "step of a search")
        return nothing("the highest rates that keep an objective", reason)
    clauses: dict[str, tuple[str, str, str]] = {}
    for search, found in table.groupby("search", sort=False):
        ordered = found.sort_values(["kept_rps", "server"], ascending=[False, True])
        texts, wide = {}, {}
        for row in ordered.to_dict("records"):
            text = objectives.words(row)
            texts[str(row["server"])] = text
            plain = row["kept_rps"] > 0 and math.isfinite(row["broken_rps"])
            wide[str(row["server"])] = f"{text} ({objectives.interval(row)})" if plain else text
        clauses[str(search)] = degrees("highest rate", "fastest first", texts, wide, texts)
    bars = "the 95 % interval of the median" if table["confidence"].notna().all() else "minimum to maximum"
    head = (
        "Dot plot of the highest requests/s that keep an objective (across, logarithmic), "
        f"{scope(table['server'], len(clauses), 'objective')}: the median of the searches with a bar, and pale each "
        "search from the highest rate that kept the objective to the lowest that broke it."
    )
    return fit(head, in_loads(clauses, f"In brackets: the bar, {bars}."))
