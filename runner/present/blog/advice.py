"""Advise which server to choose for which need, according to the rankings of a run."""

from collections import Counter

import pandas as pd

from runner.model import CALIBRATION
from runner.present.answers.ranking_text import standing
from runner.present.answers.summary import summarize
from runner.present.blog.chapters import rows_at_a_sustained_rate
from runner.present.blog.story import Story
from runner.present.comparison.quantity import CPU_PER_REQUEST, P99, THROUGHPUT, Quantity
from runner.present.comparison.ratios import YARDSTICKS
from runner.present.frames import Tables
from runner.present.look import captions
from runner.present.look.markup import Block, Bullets
from runner.present.look.numbers import number
from runner.verdict.limits import Limit

MOST_OTHERS = 2
"""The advice names at most this many servers besides those that it recommends.

Each of these further servers came first under at least one load.
"""


def advice(story: Story) -> list[Block]:
    """Return a bullet list that recommends a server for each need, such as low CPU time.

    A need is left out if the run cannot rank servers for it. Return an empty list if the run
    measured fewer than two servers.
    """
    table = summarize(story.tables)
    is_choice = table["tier"].ne(CALIBRATION) & table["trials"].gt(0)
    is_choice &= ~table["server"].isin([*story.tables.copies, *YARDSTICKS])
    table = table[is_choice]
    if table["server"].nunique() < 2:
        return []
    ranked = table[table["server_bound"].astype(bool)]
    costed = table[table["cost_counts"].astype(bool)]
    timed = table[table["limit"].eq(Limit.NONE) & table["p99_ms"].notna()]
    sentences = (
        _best(story.tables, THROUGHPUT, ranked, "requests per second count"),
        _best(story.tables, CPU_PER_REQUEST, costed, "CPU time is what you pay for"),
        _best(story.tables, P99, timed, "the slowest requests count"),
        _far_from_limits(story, table),
    )
    return [Bullets(tuple(sentence for sentence in sentences if sentence))]


def _best(tables: Tables, quantity: Quantity, rows: pd.DataFrame, need: str) -> str:
    """Return a sentence that recommends the servers that come first most often.

    Only loads under which servers differ are considered. A server comes first under a load if no
    other server is ahead of it. The servers that come first under the largest share of their loads
    are recommended. A server is not recommended if another server ran under more than twice as many
    of these loads, because the share of a server with so few loads is unreliable. Return an empty
    text if servers differ under no load.

    The sentence also says under how many loads other servers came first, so that readers see what
    the recommendation depends on. Several servers can come first under one load.
    """
    load_count = Counter[str]()
    first_count = Counter[str]()
    for _, alike in rows.groupby("load", sort=False):
        ranking = standing(tables, alike, quantity).ranking if len(alike) > 1 else None
        if ranking is None or not any(pair.differ for pair in ranking.pairs.values()):
            continue
        load_count.update(place.name for place in ranking.places)
        first_count.update(place.name for place in ranking.places if place.rank == 1)
    most_loads = max(load_count.values(), default=0)
    first_share = {
        name: first_count[name] / loads
        for name, loads in load_count.items()
        if 2 * loads >= most_loads
    }
    if not first_share:
        return ""
    highest = max(first_share.values())
    best = sorted(name for name, share in first_share.items() if share == highest)
    hedge = "" if highest == 1 else ", but measure your own load"
    others = [name for name, firsts in first_count.most_common() if firsts and name not in best]
    first, *following = [*best, *others[:MOST_OTHERS]]
    count = (
        f"no server beats {first} under {first_count[first]} of its "
        f"{captions.plural(load_count[first], 'load')}"
    )
    if following:
        rest = [f"{name}: {first_count[name]} of {load_count[name]}" for name in following]
        count += f" ({', '.join(rest)})"
    return f"Take {' or '.join(best)} if {need}{hedge}: {count}."


def _far_from_limits(story: Story, table: pd.DataFrame) -> str:
    """Return the advice for a load that is far below every server's limit.

    The sentence gives the lowest and the highest median response time at a rate that several
    servers sustained. Return an empty text if no two servers sustained the same rate.
    """
    timed = rows_at_a_sustained_rate(table)
    if len(timed) < 2:
        return ""
    ordered = sorted(timed.values(), key=lambda row: float(row["p50_ms"]))
    fastest = ordered[0]
    slowest = ordered[-1]
    return (
        "Take what your team knows if you are far from any limit: "
        f"{story.phrase_of(str(fastest['load']))}, the median response time is "
        f"{number(float(fastest['p50_ms']))} ms ({fastest['server']}) to "
        f"{number(float(slowest['p50_ms']))} ms ({slowest['server']})."
    )
