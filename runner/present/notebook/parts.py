"""The parts of a run's report and post: each is a list of blocks, computed from the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

import pandas as pd

from runner.limits import Limit
from runner.present.answers import evidence, findings, inserts, summary
from runner.present.case import Case
from runner.present.chart import charts
from runner.present.figures import objectives, ratios
from runner.present.figures import rates as rates_figure
from runner.present.frames import Tables, is_sealed, sealed_trials
from runner.present.look import captions
from runner.present.look.content import DAGGER, NOT_RANKED, Block, Bullets, Paragraph, TextTable
from runner.present.published import claims, outcomes
from runner.present.published.counterparts import read_published, repeats
from runner.present.published.judging import judge_all
from runner.present.published.published_table import experiments_table, matrix_table
from runner.present.statistics.inference import FEWEST

T = TypeVar("T")
Say: TypeAlias = Callable[[T], str | tuple[str, ...] | pd.DataFrame]
"""Says something of a subject, in words or as a table."""
ELSEWHERE = "Published numbers were taken on other machines: compare ratios between servers, not rates."


def answer(tables: Tables) -> Iterator[Block]:
    """Yield what the run found, in at most five sentences, and what a reader must know before any number."""
    yield Bullets(findings.sentences(tables))
    yield Bullets(summary.warnings_of(tables), warn=True)


def unknown(tables: Tables) -> Iterator[Block]:
    """Yield what could not be compared and why, and what is noise."""
    yield Bullets((*findings.unknown(tables), *findings.same_twice(tables)))


def loads(tables: Tables) -> Iterator[Block]:
    """Yield the medians of every load and server, and what they say in sentences."""
    by_tool = summary.summarize(tables).groupby("tool", sort=False)
    sheets = [sheet for tool, rows in by_tool for sheet in _of_tool(str(tool), rows)]
    yield from sheets
    yield from _dagger(sheets)
    yield Bullets(summary.findings(tables))


def _of_tool(tool: str, rows: pd.DataFrame) -> list[TextTable]:
    if tool != "wrk":
        return [TextTable(summary.printable(rows), f"Loads with {tool}, median of the trials", name=f"{tool}-loads")]
    rates, cpu = (summary.pivot(rows, column) for column in ("rps", "cpu_ms_per_request"))
    return [
        TextTable(rates, f"Requests/s with {tool}, median of the trials", name=f"{tool}-requests"),
        TextTable(cpu, f"CPU ms per request with {tool}, median of the trials", name=f"{tool}-cpu-per-request"),
    ]


def _dagger(sheets: list[TextTable]) -> Iterator[Block]:
    """Yield what a dagger means, where a table has one."""
    if any(NOT_RANKED in str(cell) for sheet in sheets for row in sheet.frame.to_numpy() for cell in row):
        yield Paragraph(DAGGER, "note")


def ratios_of_servers(tables: Tables) -> Iterator[Block]:
    """Yield every load's servers against each other, and whether shares of a core are linear, where known."""
    found, linear = ratios.table(tables), ratios.linearity(tables)
    if found.empty:
        yield Paragraph("No load has two servers with five trials each, which a ratio with an interval takes.")
        return
    yield TextTable(found)
    yield Paragraph(ratios.READING)
    if not linear.empty:
        yield TextTable(linear, "Requests/s per core on a share, beside the whole core")
        yield Paragraph(ratios.LINEAR)


def inserts_answer(tables: Tables) -> Iterator[Block]:
    """Yield the answer about inserts into a database, or that the run has none."""
    if not tables.has_database:
        yield Paragraph(inserts.NO_DATABASE)
        return
    sheet = TextTable(inserts.printable(tables), "Loads with a database, median of the trials", name="inserts")
    yield from (Bullets(summary.warnings_of(tables), warn=True), Bullets(inserts.findings(tables)), sheet)
    yield from _dagger([sheet])


def rates(tables: Tables) -> Iterator[Block]:
    """Yield what open loads at constant rates say: the knees, and the highest rates that keep an objective."""
    if not any(found.needs(tables) for found in charts("rates").values()):
        yield Paragraph("This run has no load at a constant arrival rate, and no search for an objective.")
        return
    yield Bullets(summary.warnings_of(tables), warn=True)
    yield Bullets(tuple(objectives.findings(tables)))
    kept = objectives.printable(objectives.answers(tables))
    yield TextTable(kept, "The highest rate that keeps the objective", name="objectives")
    yield TextTable(
        rates_figure.knee_table(tables), "Response times by offered rate, medians of the trials", name="rates"
    )


def published(tables: Tables) -> Iterator[Block]:
    """Yield our numbers beside the published ones, where the run has any of those workloads."""
    known, beside = read_published(), "Beside the published numbers"
    count = f"{beside}: GET /count with wrk, requests/s, median [minimum–maximum]"
    experiments = f"{beside}: POST /experiments with k6, median of the trials"
    sheets = [
        TextTable(matrix_table(tables, known), count, name="published-count"),
        TextTable(experiments_table(tables, known), experiments, name="published-experiments"),
    ]
    if not any(sheets):
        yield Paragraph("This run has no workload that was published.")
        return
    yield from sheets
    yield from _dagger(sheets)
    yield Paragraph(ELSEWHERE, "note")


def claims_of(tables: Tables) -> Iterator[Block]:
    """Yield how the published claims came out, and each that this run could judge; nothing without such loads."""
    if not repeats(tables, FEWEST):
        return
    judged = judge_all(tables)
    yield Paragraph(outcomes.count_words([each.found.outcome for each in judged]))
    known = [each for each in judged if each.found.outcome != outcomes.ABSENT]
    rows = [
        {
            "claim": each.claim.short,
            "claimed ratio": each.claim.range_words or "–",
            "measured": each.measured,
            "here": each.found.outcome,
        }
        for each in sorted(known, key=lambda each: outcomes.OUTCOMES.index(each.found.outcome))
    ]
    yield TextTable(pd.DataFrame(rows), "Claim by claim", name="claims")
    sources = "; ".join(dict.fromkeys(each.claim.source for each in known))
    yield Paragraph(f"Claimed by: {sources}. {claims.rules_words(tables.manifest)} {ELSEWHERE}", "note")


def failures(tables: Tables) -> Iterator[Block]:
    """Yield the trials that no figure has, with the reason of each."""
    trials = tables.trials
    out = trials[~is_sealed(trials)].sort_values("trial_order")
    if out.empty:
        yield Paragraph(f"None: all {captions.plural(len(trials), 'trial')} were sealed.")
    columns = {"trial_id": "trial", "status": "status", "error": "reason"}
    yield TextTable(out[list(columns)].rename(columns=columns))


def verdicts(tables: Tables) -> Iterator[Block]:
    """Yield how often each verdict was given, what it means, and an example of its reason."""
    sealed = sealed_trials(tables.trials)
    if sealed.empty:
        yield Paragraph("No trial was sealed, so there is no verdict.")
    rows = [
        {
            "verdict": verdict,
            "tool": tool,
            "trials": str(len(given)),
            "which means": Limit.of(str(verdict)).meaning,
            "for example": given["verdict_reason"].iloc[0],
        }
        for (verdict, tool), given in sealed.groupby(["verdict", "tool"], sort=True)
    ]
    yield TextTable(pd.DataFrame(rows), about="Verdicts")


def machine(tables: Tables) -> Iterator[Block]:
    """Yield where and how the run was made, from its manifest."""
    facts = captions.manifest_facts(tables.manifest)
    yield TextTable(pd.DataFrame(facts.items(), columns=["what", "value"]), about="Machine and run")


OF_A_RUN = {
    "answer": answer,
    "unknown": unknown,
    "loads": loads,
    "ratios": ratios_of_servers,
    "inserts": inserts_answer,
    "rates": rates,
    "published": published,
    "failures": failures,
    "verdicts": verdicts,
    "machine": machine,
}
"""Name of a part of a run's pages -> what it shows."""
OF_A_TRIAL: dict[str, tuple[Say[Case], ...]] = {
    "trial": (evidence.trial_words,),
    "generator": (evidence.generator_said,),
    "probe": (evidence.probe_saw, evidence.percentile_table),
    "law": (evidence.law_words,),
    "cpu": (evidence.cpu_words,),
    "servers": (evidence.servers_table, evidence.price_words),
    "verdict": (evidence.verdict_words, evidence.evidence_table),
}
"""Name of a part about one trial -> what says it, in words and tables."""


def of_a_trial(name: str, case: Case | None) -> Iterator[Block]:
    """Yield a part about a trial, as `part_about` does."""
    return part_about(case, OF_A_TRIAL, name, evidence.NOTHING)


def part_about(subject: T | None, parts: Mapping[str, Sequence[Say[T]]], name: str, nothing: str) -> Iterator[Block]:
    """Yield a part: words as a paragraph, sentences as a list, a frame as a table.

    Without a subject only the first part has words: `nothing`.
    """
    if subject is None:
        yield from [Paragraph(nothing)] if name == next(iter(parts)) else []
        return
    for say in parts[name]:
        said = say(subject)
        yield (
            Paragraph(said) if isinstance(said, str) else Bullets(said) if isinstance(said, tuple) else TextTable(said)
        )
