"""What a claim is weighed with: two cells of a run, where they may be compared, and the ratio that they give."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from runner.limits import Limit
from runner.present.answers import noise
from runner.present.case import given_pct
from runner.present.frames import Tables, limits_of, server_bound
from runner.present.look import captions, style
from runner.present.published.claims import FAILS, HOLDS, UNTOLD, Claim, Part, claimed
from runner.present.published.counterparts import Cell, sizes
from runner.present.statistics.inference import ALPHA, FEWEST, Ratio, Sample, ratio
from runner.present.statistics.stats import carried_quantile, spread

WHY = {
    HOLDS: "the interval lies within what is claimed",
    FAILS: "the interval lies beyond what is claimed",
    UNTOLD: "the interval reaches across the border of what is claimed: more trials would tell",
}
UNITS = {"server_rss_peak_bytes": 2.0**20}
"""Column of the trials -> what its values are divided by where they are printed."""
TOO_FEW = f"not enough trials: a ratio takes {FEWEST} a side"


@dataclass(frozen=True)
class Bar:
    """Why two cells may not be compared, and the numbers that say so."""

    why: str
    numbers: str


Allowed = Callable[[Tables, Cell], Bar | None]


@dataclass(frozen=True, eq=False)
class Question:
    """One ratio that a claim asks for: a / b of the medians of two samples, named in `names`.

    `column` is the one that both come from, if it is one: what noise alone makes of it is added to the interval.
    """

    words: str
    names: tuple[str, str]
    cells: tuple[Cell, ...]
    samples: tuple[Sample, Sample]
    allowed: Allowed
    column: str = ""


# --- where numbers may be compared ------------------------------------------------------------------------


def anywhere(_tables: Tables, _cell: Cell) -> Bar | None:
    """Allow every cell: for quantities that are the server's own, whatever was the limit."""
    return None


def at_its_limit(tables: Tables, cell: Cell) -> Bar | None:
    """Allow cells whose server was the limit in every trial: only then a rate is the server's."""
    if server_bound(cell.sealed):
        return None
    return _barred(tables, cell, Limit.SERVER)


def unlimited(tables: Tables, cell: Cell) -> Bar | None:
    """Allow cells whose rate was kept with nobody at the limit: only then a response time is the server's."""
    if limits_of(cell.sealed).eq(Limit.NONE).all():
        return None
    return _barred(tables, cell, Limit.NONE)


def carries(quantile: float, allowed: Allowed) -> Allowed:
    """Allow what `allowed` does, where each trial also has enough requests beyond a quantile."""

    def both(tables: Tables, cell: Cell) -> Bar | None:
        fewest = float(cell.sealed["requests"].min())
        if carried_quantile(fewest) < quantile:
            return Bar("too few requests for the percentile", f"{fewest:,.0f} in the shortest trial")
        return allowed(tables, cell)

    return both


def _barred(tables: Tables, cell: Cell, wanted: Limit) -> Bar:
    others = set(limits_of(cell.sealed)) - {wanted}
    limit = next(limit for limit in Limit if limit in others)
    more = {Limit.SERVER: ", so that its response time is that of a queue", Limit.UNKNOWN: _untold(cell.sealed)}
    return Bar(limit.why_not + more.get(limit, ""), limit_numbers(tables, cell))


def _untold(sealed: pd.DataFrame) -> str:
    """Return why the limit is not told, as most of the verdicts say it before their numbers."""
    reasons = sealed.loc[limits_of(sealed) == Limit.UNKNOWN, "verdict_reason"]
    heads = reasons[reasons.str.contains(": ")].str.split(r"[:,;(] ?", regex=True).str[0].str.strip()
    return f": {heads.mode().iloc[0]}" if len(heads) else ""


def limit_numbers(tables: Tables, cell: Cell) -> str:
    """Say what limited a cell, in numbers: verdicts, CPU of both sides, the probe, and Little's law; medians."""
    sealed, tool = cell.sealed, str(cell.sealed["tool"].iloc[0])
    shares = {name: _share(tables, sealed, name) for name in ("server", "generator")}
    used = [
        f"{'the server' if name == 'server' else tool} used {share:.0%} of its CPU".replace("%", " %")
        for name, share in shares.items()
        if math.isfinite(share)
    ]
    parts = [captions.verdict_counts(sealed), *used, _beside_probe(sealed, tool), _little(sealed)]
    if sealed["pool_exhausted_pct"].notna().any():
        parts.append(
            f"the pool was exhausted {style.number(spread(sealed['pool_exhausted_pct']).median)} % of the time"
        )
    return ", ".join(part for part in parts if part)


def _share(tables: Tables, trials: pd.DataFrame, subject: str) -> float:
    """Return the median share of its CPUs that a subject used; NaN where unknown."""
    given = [given_pct(tables, subject, float(threads)) for threads in trials["threads"]]
    return spread(trials[f"{subject}_cpu_mean_pct"].to_numpy(dtype=float) / np.array(given)).median


def _beside_probe(sealed: pd.DataFrame, tool: str) -> str:
    ours, probes = spread(sealed["latency_p50_ms"]).median, spread(sealed["probe_p50_ms"]).median
    # The probe keeps its connections: what new ones wait to be accepted it does not see.
    if not math.isfinite(probes) or sealed["mode"].iloc[0] != "keepalive":
        return ""
    return f"p50 {style.number(ours)} ms to {tool} and {style.number(probes)} ms to the probe"


def _little(sealed: pd.DataFrame) -> str:
    if sealed["load_model"].iloc[0] != "closed":
        return ""
    users, rate = float(sizes(sealed).iloc[0]), spread(sealed["rps"]).median
    expected = style.number(1000 * users / rate)
    return f"{users:,.0f} under way / {rate:,.0f} a second = {expected} ms by Little's law"


# --- weighing ---------------------------------------------------------------------------------------------


def compare(words: str, a: Cell, b: Cell, column: str, allowed: Allowed) -> Question:
    """Ask for the ratio a / b of one column of two cells; they are named by server, or by load for one server."""
    names = (a.server, b.server) if a.server != b.server else (a.load, b.load)
    return Question(words, names, (a, b), (sample(a, column), sample(b, column)), allowed, column)


def sample(cell: Cell, column: str) -> Sample:
    """Return a column of a cell's sealed trials; empty where the run's tables do not have it."""
    if column not in cell.sealed.columns:
        return Sample.of([], [])
    values = pd.to_numeric(cell.sealed[column]).astype(float) / UNITS.get(column, 1.0)
    return Sample.of(values, cell.sealed["block"])


def weigh(tables: Tables, claim: Claim, questions: Sequence[Question]) -> tuple[Part, ...]:
    """Return what each question of a claim comes to.

    Intervals hold together with 95 %: each has the confidence 1 - 0.05 / m (Bonferroni), so that a claim of many parts
    is refuted by chance no more often than one of a single part.
    """
    return tuple(_weighed(tables, claim, question, len(questions)) for question in questions)


def _weighed(tables: Tables, claim: Claim, question: Question, together: int) -> Part:
    def untold(why: str, numbers: str = "", values: str = "", of: Ratio | None = None) -> Part:
        return Part(question.words, values, of, UNTOLD, why, numbers)

    for cell in question.cells:
        if cell.absence:
            return untold(cell.absence)
    values, of = _values(question), ratio(*question.samples)
    if not min(each.n for each in question.samples):
        return untold("this run did not record it")
    of = None if of is None else joint(of, together, _floor(tables, question))
    bars = {_name(question, cell): bar for cell in question.cells if (bar := question.allowed(tables, cell))}
    if bars:
        first = min(bars.values(), key=lambda bar: _gravity(bar.why))
        return untold(first.why, "; ".join(f"{name}: {bar.numbers}" for name, bar in bars.items()), values, of)
    if of is None:
        return untold(TOO_FEW, values=values)
    outcome = claimed(of, claim)
    return Part(question.words, values, of, outcome, WHY[outcome])


def _name(question: Question, cell: Cell) -> str:
    """Return what tells the cells of a question apart: the server, or of one server the load."""
    return cell.server if len({each.server for each in question.cells}) > 1 else cell.load


def _gravity(why: str) -> int:
    """Return the place of a reason: of two cells that may not be compared, the one whose limit is known says why."""
    return next((place for place, limit in enumerate(Limit) if why.startswith(limit.why_not)), len(Limit))


def _values(question: Question) -> str:
    medians = [f"{name}: {style.number(of.median)}" for name, of in zip(question.names, question.samples, strict=True)]
    counts = [of.n for of in question.samples]
    trials = captions.plural(counts[0], "trial") if counts[0] == counts[1] else f"{counts[0]} and {counts[1]} trials"
    return f"{'; '.join(medians)} (medians of {trials})"


def _floor(tables: Tables, question: Question) -> float:
    return max(
        (noise.floor(tables, cell.load, question.column) for cell in question.cells if question.column), default=1
    )


def joint(of: Ratio, together: int, floor: float = 1.0) -> Ratio:
    """Return a ratio whose interval holds together with those of `together` - 1 others with 95 %.

    What noise makes of one program under two labels (`floor`) is added at both ends.
    """
    half = -float(stdtrit(of.degrees, ALPHA / together / 2)) * of.standard_error + math.log(floor)
    return replace(of, low=of.ratio * math.exp(-half), high=of.ratio * math.exp(half))
