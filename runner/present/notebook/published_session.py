"""What the notebook about the published results calls: every number beside ours, every claim with its outcome."""

# mypy: allow-untyped-calls
# IPython ships without type annotations of its own.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import pandas as pd
from IPython.display import display

from runner.model import LabError
from runner.present.frames import read_tables
from runner.present.look.markup import DAGGER, prose
from runner.present.notebook.session import Report, guard_notebook
from runner.present.notebook.showing import show_table, show_text
from runner.present.published import beside, claims
from runner.present.published.claims import Part
from runner.present.published.claims_registry import Judged, judge_all
from runner.present.published.counterparts import WHY_STAND_INS
from runner.present.published.numbers import read_published
from runner.store import figures_folder, find_run

OTHER_MACHINES = "The published numbers were taken on other machines: compare ratios between servers, not rates."


def open_published(run: str) -> PublishedPage:
    """Open a run (an id, a path, `latest` or `sample`) for the notebook about the published results.

    LabError as of `session.open_report`.
    """
    guard_notebook(("run",), PublishedPage)
    if not isinstance(run, str):
        raise LabError(f"The parameter run must be text, not {run!r}.")
    folder = find_run(run)
    return PublishedPage(Report(folder, read_tables(folder), figures_folder(folder)))


@dataclass(eq=False)
class PublishedPage:
    """An open run in the notebook; each method shows one cell's output."""

    report: Report

    @cached_property
    def judged(self) -> tuple[Judged, ...]:
        """Every claim with its outcome."""
        return judge_all(self.report.tables)

    @cached_property
    def rows(self) -> list[beside.Beside]:
        """Every published number with ours."""
        return beside.rows(self.report.tables, read_published())

    # --- cells ------------------------------------------------------------------------------------------------

    def answer(self) -> None:
        """Show how many claims hold, do not hold, and cannot be told, which, and why."""
        outcomes = [each.outcome for each in self.judged]
        found, every = {row.line for row in self.rows if row.n}, {row.line for row in self.rows}
        show_text(claims.count_words(outcomes))
        show_text(f"Of {len(every)} published numbers {len(found)} have one of ours beside them. {OTHER_MACHINES}")
        for outcome in claims.OUTCOMES:
            of_it = [each for each in self.judged if each.outcome.outcome == outcome]
            rows = [{"claim": each.claim.says, "why": f"{each.outcome.why}."} for each in of_it]
            show_table(pd.DataFrame(rows), f"{outcome[0].upper()}{outcome[1:]}: {len(of_it)}")

    def numbers(self) -> None:
        """Show every published number beside ours, a table a source and scenario."""
        show_text(f"{beside.INTERVALS} {DAGGER}")
        show_text(WHY_STAND_INS)
        for kind in dict.fromkeys((row.source, row.scenario, row.published_load) for row in self.rows):
            own = [row for row in self.rows if (row.source, row.scenario, row.published_load) == kind]
            show_table(beside.printable(own), beside.heading(own))
            if remark := beside.remark_of_all(own):
                show_text(remark)

    def claims(self, source: str) -> None:
        """Show every claim of the sources whose name has `source` in it: what was looked at, seen, and found."""
        own = [each for each in self.judged if source.lower() in each.claim.source.lower()]
        if not own:
            raise LabError(f"No claim has a source with {source!r} in its name.")
        for each in own:
            _show_claim(each)

    def show(self, name: str) -> None:
        """Draw a figure by its name, save it as PNG and SVG in the run's figures folder, and show it.

        Nothing happens where the run has no load, or too few trials, for it.
        """
        self.report.show(name)

    def machine(self) -> None:
        """Show where and how the run was made."""
        self.report.machine()

    def finish(self) -> None:
        """Say that the notebook reached its end."""
        self.report.finish()


def _show_claim(judged: Judged) -> None:
    """Show a claim under a heading of its own: outcome, words, and as a list what is told of it."""
    heading, says, sentences = f"{judged.claim.short} ({judged.outcome.outcome})", judged.claim.says, told(judged)
    items = "".join(f"<li>{prose(sentence)}</li>\n" for sentence in sentences)
    html = f"<h3>{prose(heading)}</h3>\n<p>{prose(says)}</p>\n<ul>\n{items}</ul>"
    plain = "\n".join([f"### {heading}", "", says, "", *(f"- {sentence}" for sentence in sentences)])
    display({"text/html": html, "text/plain": plain}, raw=True)


def told(judged: Judged) -> list[str]:
    """Return what is told of a claim: what was looked at, the ratio that agrees, what was seen, and why."""
    claim, outcome = judged.claim, judged.outcome
    agrees = (
        f" A ratio {'of ' * claim.range_words[0].isdigit()}{claim.range_words} agrees." if claim.range_words else ""
    )
    looked = f"Looked at: {claim.looks_at}.{agrees}"
    return [looked, *_seen(outcome.parts), *outcome.seen, f"Why: {outcome.why}."]


def _seen(parts: Sequence[Part]) -> Iterator[str]:
    """Yield what was seen in each comparison; those of which nothing was, for one reason, in one sentence."""
    for (why, nothing), own in groupby(parts, key=lambda part: (part.why, not part.values)):
        found = list(own)
        if nothing:
            yield f"{'; '.join(part.words for part in found)}: {why}."
        else:
            yield from (part.told for part in found)
