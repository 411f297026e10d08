"""What the notebook about the published results opens: every number beside ours, every claim with its outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import groupby

import pandas as pd

from runner.model import LabError
from runner.present.frames import Tables, read_tables
from runner.present.look.content import DAGGER, Block, Bullets, Heading, Paragraph, Sheet
from runner.present.notebook import page
from runner.present.notebook.page import TEXT, check_parameters
from runner.present.notebook.parts import ELSEWHERE
from runner.present.notebook.run_page import RunPage, run_page
from runner.present.published import beside, claims
from runner.present.published.claims import Part
from runner.present.published.claims_registry import Judged, judge_all
from runner.present.published.counterparts import WHY_STAND_INS
from runner.present.published.numbers import read_published
from runner.store import find_run


def open_published(run: str) -> RunPage:
    """Open a run (an id, a path, `latest` or `sample`) for the notebook about the published results.

    LabError as of `run_page.open_report`.
    """
    check_parameters(run=(run, TEXT))
    folder = find_run(run)
    tables = read_tables(folder)
    return run_page(folder, tables, special={name: partial(part, tables) for name, part in PARTS.items()})


@lru_cache(maxsize=1)
def _rows(tables: Tables) -> list[beside.Beside]:
    return beside.rows(tables, read_published())


def answer(tables: Tables) -> Iterator[Block]:
    """Yield how many claims hold, do not hold, and are not decided, which, and why."""
    judged, rows = judge_all(tables), _rows(tables)
    found, every = {row.line for row in rows if row.n}, {row.line for row in rows}
    yield Paragraph(claims.count_words([each.outcome for each in judged]))
    yield Paragraph(f"Of {len(every)} published numbers {len(found)} have one of ours beside them. {ELSEWHERE}")
    for outcome in claims.OUTCOMES:
        alike = [each for each in judged if each.outcome.outcome == outcome]
        reasons = [{"claim": each.claim.says, "why": f"{each.outcome.why}."} for each in alike]
        yield Sheet(pd.DataFrame(reasons), f"{outcome[0].upper()}{outcome[1:]}: {len(alike)}")


def numbers(tables: Tables) -> Iterator[Block]:
    """Yield every published number beside ours, one table per source and scenario."""
    yield Paragraph(f"{beside.INTERVALS} {DAGGER}")
    yield Paragraph(WHY_STAND_INS)
    rows = _rows(tables)
    for kind in dict.fromkeys((row.source, row.scenario, row.published_load) for row in rows):
        alike = [row for row in rows if (row.source, row.scenario, row.published_load) == kind]
        yield Sheet(beside.printable(alike), beside.heading(alike))
        if remark := beside.remark_of_all(alike):
            yield Paragraph(remark)


def claims_of(tables: Tables, source: str) -> Iterator[Block]:
    """Yield every claim of the sources whose name has `source` in it: what was looked at, seen, and found.

    LabError where no source has such a name.
    """
    found = [each for each in judge_all(tables) if source.lower() in each.claim.source.lower()]
    if not found:
        raise LabError(f"No claim has a source with {source!r} in its name.")
    for each in found:
        yield Heading(f"{each.claim.short} ({each.outcome.outcome})", rank=3)
        yield Paragraph(each.claim.says)
        yield Bullets(tuple(evidence_words(each)))


PARTS: dict[str, page.Part] = {"answer": answer, "numbers": numbers, "claims": claims_of}
"""Name of a part -> what it shows."""


def evidence_words(judged: Judged) -> list[str]:
    """Return what there is to say of a claim: what was looked at, the ratio that agrees, what was seen, and why."""
    claim, outcome = judged.claim, judged.outcome
    agrees = (
        f" A ratio {'of ' * claim.range_words[0].isdigit()}{claim.range_words} agrees." if claim.range_words else ""
    )
    return [f"Looked at: {claim.looks_at}.{agrees}", *_seen(outcome.parts), *outcome.seen, f"Why: {outcome.why}."]


def _seen(parts: Sequence[Part]) -> Iterator[str]:
    """Yield what was seen in each comparison; those of which nothing was, for one reason, in one sentence."""
    for (why, nothing), alike in groupby(parts, key=lambda part: (part.why, not part.values)):
        found = list(alike)
        if nothing:
            yield f"{'; '.join(part.words for part in found)}: {why}."
        else:
            yield from (part.told for part in found)
