"""What the notebook about the published results opens: every number beside ours, every claim with its outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby

import pandas as pd

from runner.model import LabError
from runner.present.look.content import DAGGER, Block, Bullets, Heading, Paragraph, TextTable
from runner.present.notebook.page import TEXT, check_parameters
from runner.present.notebook.parts import ELSEWHERE
from runner.present.notebook.run_page import RunPage
from runner.present.published import outcomes, published_table
from runner.present.published.counterparts import WHY_STAND_INS, read_published
from runner.present.published.judging import SUCH_A_LOAD, Judged, judge_all
from runner.present.published.outcomes import Part


def open_published(run: str) -> PublishedPage:
    """Open a run for the notebook about the published results; LabError as of `run_page.open_report`."""
    check_parameters(run=(run, TEXT))
    return PublishedPage(run)


class PublishedPage(RunPage):
    """A page about the published numbers and claims, beside a run."""

    def __init__(self, run: str) -> None:
        super().__init__(run)
        self.parts = {**self.parts, "answer": self._answer, "numbers": self._numbers, "claims": self._claims}

    @cached_property
    def _rows(self) -> list[published_table.Row]:
        return published_table.rows(self.tables, read_published())

    def _answer(self) -> Iterator[Block]:
        """Yield how many claims hold, do not hold, and are not decided, which, and why."""
        judged, rows = judge_all(self.tables), self._rows
        found, every = {row.number for row in rows if row.n}, {row.number for row in rows}
        yield Paragraph(outcomes.count_words([each.found.outcome for each in judged]))
        yield Paragraph(f"Of {len(every)} published numbers {len(found)} have one of ours beside them. {ELSEWHERE}")
        for outcome in outcomes.OUTCOMES:
            alike = [each for each in judged if each.found.outcome == outcome]
            reasons = [{"claim": each.claim.says, "why": f"{_reason(each)}."} for each in alike]
            yield TextTable(pd.DataFrame(reasons), f"{outcome[0].upper()}{outcome[1:]}: {len(alike)}")
        if any(each.remedy == SUCH_A_LOAD for each in judged):
            yield Paragraph(f"Where nothing else is said, what decides such a claim is {SUCH_A_LOAD}.")

    def _numbers(self) -> Iterator[Block]:
        """Yield every published number beside ours, one table per source and scenario."""
        yield Paragraph(f"{published_table.INTERVALS} {DAGGER}")
        yield Paragraph(WHY_STAND_INS)
        groups: dict[tuple[str, ...], list[published_table.Row]] = {}
        for row in self._rows:
            groups.setdefault((row.number.source, row.number.scenario, row.number.load), []).append(row)
        for alike in groups.values():
            yield TextTable(published_table.printable(alike), published_table.heading(alike))
            if remark := published_table.remark_of_all(alike):
                yield Paragraph(remark)

    def _claims(self, source: str = "") -> Iterator[Block]:
        """Yield every claim of the sources whose name has `source` in it: what was looked at, seen, and found.

        Without `source` the claims whose source has no published number, under a heading. LabError where no source has
        such a name.
        """
        judged = judge_all(self.tables)
        if source:
            found = [each for each in judged if source.lower() in each.claim.source.lower()]
            if not found:
                raise LabError(f"No claim has a source with {source!r} in its name.")
        else:
            published = set(read_published()["source"])
            found = [each for each in judged if each.claim.source not in published]
            if found:
                yield Heading("Claim by claim: others")
        for each in found:
            yield Heading(f"{each.claim.short} ({each.found.outcome})", rank=3)
            yield Paragraph(each.claim.says)
            yield Bullets(tuple(evidence_words(each)))


def _reason(judged: Judged) -> str:
    """Return what was measured and claimed, and why a claim comes out so; the usual remedy stands below the table."""
    if judged.claim.range_words and judged.measured != "–" and judged.found.outcome != outcomes.ABSENT:
        return f"{judged.measured}, claimed {judged.claim.range_words}: {judged.why}"
    return judged.found.why if judged.remedy == SUCH_A_LOAD else judged.why


def evidence_words(judged: Judged) -> list[str]:
    """Return what there is to say of a claim: what was looked at, the ratio that agrees, what was seen, and why."""
    claim, found = judged.claim, judged.found
    agrees = (
        f" A ratio {'of ' * claim.range_words[0].isdigit()}{claim.range_words} agrees." if claim.range_words else ""
    )
    return [f"Looked at: {claim.looks_at}.{agrees}", *_seen(found.parts), *found.seen, f"Why: {judged.why}."]


def _seen(parts: Sequence[Part]) -> Iterator[str]:
    """Yield what was seen in each comparison; those of which nothing was, for one reason, in one sentence."""
    for (why, nothing), alike in groupby(parts, key=lambda part: (part.why, not part.values)):
        found = list(alike)
        if nothing:
            yield f"{'; '.join(part.words for part in found)}: {why}."
        else:
            yield from (part.sentence for part in found)
