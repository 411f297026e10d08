"""Make the parts of pages and posts: lists of blocks about a run or about one trial.

A block of a page is, for example, a heading, a paragraph, a list or a table.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias

import pandas as pd

from runner.generator_traits import traits_of
from runner.model import LabError
from runner.present.answers import evidence, findings, inserts, script, summary
from runner.present.chart.value import charts
from runner.present.comparison import ratios, searches
from runner.present.comparison.quantity import OF_THE_COUNTERS
from runner.present.figures import sweeps
from runner.present.frames import Tables, is_sealed, sealed_trials
from runner.present.look import captions
from runner.present.look.markup import (
    DAGGER,
    NOT_RANKED,
    Block,
    Bullets,
    Heading,
    Paragraph,
    TextTable,
)
from runner.present.look.palette import identities
from runner.present.published import claims, outcomes, published_table
from runner.present.published.counterparts import WHY_STAND_INS, read_published, repeats
from runner.present.published.judging import Judged, judge_all
from runner.present.statistics.inference import FEWEST_TRIALS
from runner.present.why import figures as why_figures
from runner.present.why import flame_pictures
from runner.present.why import words as why_words
from runner.verdict.limits import Limit

Part: TypeAlias = Callable[..., Iterable[Block]]
ELSEWHERE = (
    "Published numbers were taken on other machines: compare ratios between servers, not rates."
)

# --- parts about one run --------------------------------------------------------------------------


def loads(tables: Tables) -> Iterator[Block]:
    """Yield tables of means by load and server, notes on missing values, and findings."""
    sheets = []
    notes = list[str]()
    more = summary.of_own_api(tables)
    for tool, rows in summary.summarize(tables).groupby("tool", sort=False):
        if not traits_of(tool).keeps_requests:
            rates, cpu = (summary.pivot(rows, column) for column in ("rps", "cpu_ms_per_request"))
            found = [
                ("Requests/s", rates, "requests"),
                ("CPU ms per request", cpu, "cpu-per-request"),
            ]
        else:
            found = [("Loads", summary.printable(rows, more), "loads")]
            notes += summary.notes(rows, more)
        title = f"with {tool}: mean of the trials, ± its 95 % interval"
        sheets += [
            TextTable(frame, f"{what} {title}", name=f"{tool}-{name}")
            for what, frame, name in found
        ]
    yield from _with_dagger(*sheets)
    for note in dict.fromkeys(notes):
        yield Paragraph(note, "note")
    yield Bullets(summary.findings(tables))


def _with_dagger(*sheets: TextTable) -> Iterator[Block]:
    """Yield tables, followed by a note on the dagger (†) if a table contains a dagger.

    A dagger marks a value that must not be ranked.
    """
    yield from sheets
    if any(
        NOT_RANKED in str(cell)
        for sheet in sheets
        for row in sheet.frame.to_numpy()
        for cell in row
    ):
        yield Paragraph(DAGGER, "note")


def unknown(tables: Tables) -> Iterator[Block]:
    """Yield sentences and a table on what the run does not show.

    The sentences say which comparisons are missing and why, and how large the noise is. The table
    says for each load with an unknown limit why the limit is unknown.
    """
    yield Bullets(findings.unknown(tables))
    table = summary.summarize(tables)
    rows = [
        {
            "load": load,
            "servers": ", ".join(map(summary.label, alike.to_dict("records"))),
            "why": why,
        }
        for (load, why), alike in table[table["why_unknown"] != ""].groupby(
            ["load", "why_unknown"], sort=False
        )
    ]
    yield TextTable(
        pd.DataFrame(rows, columns=["load", "servers", "why"]), "Why a limit is unknown"
    )


def ratios_of_servers(tables: Tables) -> Iterator[Block]:
    """Yield the ratios between servers for every load.

    For loads on a share of a core, also yield a table that shows whether the rate is proportional
    to the share.
    """
    yield Bullets(findings.further(tables))
    found = ratios.table(tables)
    linear = ratios.linearity(tables)
    if found.empty:
        yield Paragraph(
            "A ratio has an interval only if two servers have five trials each under one load. No "
            "load of this run has so many."
        )
        return
    yield TextTable(found)
    yield Paragraph(ratios.READING)
    counted = ratios.table(tables, OF_THE_COUNTERS)
    yield TextTable(counted, "By how much: counters, start-up and sizes")
    if not linear.empty:
        yield TextTable(linear, "Requests/s per core: on a share of a core, and on a whole core")
        yield Paragraph(ratios.LINEAR)


def _warnings(tables: Tables) -> Bullets:
    """Return the warnings of a run, folded behind a line that counts them.

    The list is empty if there are no warnings.
    """
    line = summary.warnings_line(tables)
    return Bullets(summary.warnings_of(tables), warn=True, folded=line)


def inserts_answer(tables: Tables) -> Iterator[Block]:
    """Yield the findings on inserts into a database.

    If the run has no load with a database, yield only a sentence that says so.
    """
    if not tables.has_database():
        yield Paragraph(inserts.NO_DATABASE)
        return
    yield _warnings(tables)
    yield Bullets(inserts.findings(tables))
    sheet = TextTable(
        inserts.printable(tables),
        "Loads with a database: mean of the trials, ± its 95 % interval",
        name="inserts",
    )
    yield from _with_dagger(sheet)


def answer(tables: Tables) -> Iterator[Block]:
    """Yield the report's answer: the main findings, the warnings, and a note on the machine.

    The findings are followed by sentences that say why the servers differ.
    """
    why = why_figures.first_sentences(tables, findings.quoted_servers(tables))
    yield Bullets((*findings.first_screen(tables), *why))
    yield _warnings(tables)
    if said := captions.measured(tables):
        yield Paragraph(said, "note")


def why(tables: Tables) -> Iterator[Block]:
    """Yield sentences and tables that say why servers differ in CPU time, for each profiled load.

    The sentences name the kinds of work on which a server spends more CPU time than another server.
    """
    profiles = why_figures.profiles_of(tables)
    if profiles is None:
        yield Paragraph(why_figures.NO_PROFILES)
        return
    for load in profiles.loads:
        yield Heading(why_words.load_words(tables, load))
        said = (*why_words.sentences(profiles, load), *why_words.remarks(profiles, load))
        yield Bullets(said)
        yield TextTable(
            why_words.categories_table(profiles.of(load)),
            "µs of CPU time per request, ± its 95 % interval",
        )
        yield TextTable(why_words.events_table(profiles, load), "Events per request")
        yield from _database_why(tables, load)


def _database_why(tables: Tables, load: str) -> Iterator[Block]:
    """Yield sentences and a table on the work for which PostgreSQL needs CPU time, by server.

    Yield nothing if no database was profiled under this load.
    """
    databases = why_figures.databases_of(tables)
    if databases is None or load not in databases.loads:
        return
    yield Heading("PostgreSQL under this load", rank=3)
    yield Bullets(why_words.database_words(databases, load))
    yield TextTable(
        why_words.categories_table(databases.of(load)),
        "µs of PostgreSQL's CPU time per request, by the server that sent it, ± its 95 % interval",
    )


def flame_graphs(tables: Tables) -> Iterator[Block]:
    """Yield flame graphs of each profiled load.

    The first flame graph of a load shows the difference between two servers. Then comes a flame
    graph for each server. The load that the figure of the kinds of work shows comes first, and its
    flame graphs are unfolded. The flame graphs of all other loads are folded.
    """
    profiles = why_figures.profiles_of(tables)
    if profiles is None:
        yield Paragraph(why_figures.NO_PROFILES)
        return
    looks = identities(tables.trials)
    first = why_figures.load_of_figure(profiles)
    for load in sorted(profiles.loads, key=lambda each: each != first):
        words = why_words.load_words(tables, load)
        yield Heading(words, rank=3)
        for block in flame_pictures.blocks(profiles, looks, load, words, captions.caption(tables)):
            yield replace(block, opened=load == first)


def rates(tables: Tables) -> Iterator[Block]:
    """Yield the results of sweeps and of searches.

    A sweep gives the knee of each server. A search gives the highest rate at which each server
    keeps an objective.
    """
    if not any(found.needs(tables) for found in charts("rates").values()):
        yield Paragraph(
            "This run has no load at a constant arrival rate, and no search for an objective."
        )
        return
    yield _warnings(tables)
    yield Bullets(tuple(searches.findings(tables)))
    kept = searches.printable(searches.answers(tables))
    knees = sweeps.knee_table(tables)
    yield TextTable(kept, "The highest rate that keeps the objective", name="objectives")
    yield TextTable(knees, "Response times by offered rate: the knees", name="rates")


def endpoints(tables: Tables) -> Iterator[Block]:
    """Yield the findings on the endpoints that a script requests.

    If the run has no script, yield only a sentence that says so.
    """
    if not script.has_script(tables):
        yield Paragraph(script.NO_SCRIPT)
        return
    yield _warnings(tables)
    yield Bullets((*script.findings(tables), *script.without_requests(tables)))
    found = script.endpoints_table(tables)
    if not found.empty:
        yield TextTable(found, "Endpoints", name="endpoints")
    if script.has_others(tables):
        yield Paragraph(script.OTHERS, "note")


def mixtures(tables: Tables) -> Iterator[Block]:
    """Yield a table of a script's requests by group, and a table by scenario.

    The first table is left out unless the script has several groups, and the second table is left
    out unless it has several scenarios.
    """
    sheets = [
        TextTable(found, f"By {by}", name=f"endpoints-by-{by}")
        for by in ("group", "scenario")
        if not (found := script.mixtures_table(tables, by)).empty
    ]
    yield from sheets
    if sheets:
        yield Paragraph(script.MIXTURE, "note")


def checks(tables: Tables) -> Iterator[Block]:
    """Yield the checks of a script, with the seconds in which they failed."""
    yield TextTable(script.checks_table(tables), "Checks", name="checks")


def thresholds(tables: Tables) -> Iterator[Block]:
    """Yield the thresholds of a script, or a sentence that says that no threshold is known."""
    found = script.thresholds_table(tables)
    if found.empty:
        yield Paragraph(
            "No threshold is known. k6's summary contains the thresholds: give it by --summary."
        )
        return
    yield Bullets(script.threshold_findings(tables))
    yield TextTable(found, "Thresholds", name="thresholds")


def metrics(tables: Tables) -> Iterator[Block]:
    """Yield a table of a script's metrics that are not about HTTP requests.

    If there are no such metrics, yield a sentence that says so.
    """
    found = script.metrics_table(tables)
    if found.empty:
        yield Paragraph("There is no metric of the script's own.")
        return
    yield TextTable(found, "Other metrics", name="metrics")


def failures(tables: Tables) -> Iterator[Block]:
    """Yield the trials that are left out of all figures, each with the reason."""
    trials = tables.trials
    out = trials[~is_sealed(trials)].sort_values("trial_order")
    if out.empty:
        yield Paragraph(f"None: all {captions.plural(len(trials), 'trial')} were sealed.")
    columns = {"trial_id": "trial", "status": "status", "error": "reason"}
    yield TextTable(out[list(columns)].rename(columns=columns))


def verdicts(tables: Tables) -> Iterator[Block]:
    """Yield a table with a row for each combination of verdict and tool.

    A row contains the number of trials that have this verdict, the meaning of the verdict, and the
    reason for the verdict in one of these trials.
    """
    sealed = sealed_trials(tables.trials)
    if sealed.empty:
        yield Paragraph("No trial was sealed, so there is no verdict.")
    rows = [
        (
            verdict,
            tool,
            str(len(given)),
            Limit.of(str(verdict)).meaning,
            given["verdict_reason"].iloc[0],
        )
        for (verdict, tool), given in sealed.groupby(["verdict", "tool"], sort=True)
    ]
    heads = ["verdict", "tool", "trials", "which means", "for example"]
    yield TextTable(pd.DataFrame(rows, columns=heads), about="Verdicts")


def machine(tables: Tables) -> list[Block]:
    """Return a table with the facts of the manifest, and with the counts of trials and verdicts."""
    known = captions.manifest_facts(tables.manifest) | captions.trials_and_verdicts(tables.trials)
    facts = pd.DataFrame(known.items(), columns=["what", "value"])
    return [TextTable(facts, about="Machine and run")]


# --- parts that compare a run with published numbers and claims -----------------------------------


def claims_of(tables: Tables) -> Iterator[Block]:
    """Yield a sentence that counts the claims by outcome, and a table of the judged claims.

    The table contains each published claim that this run can judge. Yield nothing if no cell that
    repeats a published scenario has enough trials.
    """
    if not repeats(tables, FEWEST_TRIALS):
        return
    judged = judge_all(tables)
    yield Paragraph(outcomes.count_words([each.direction for each in judged]))
    known = [each for each in judged if each.found.outcome != outcomes.ABSENT]
    known.sort(key=lambda each: outcomes.OUTCOMES.index(each.found.outcome))
    rows = [
        (each.claim.short, each.claim.range_words or "–", each.measured, each.outcome_words)
        for each in known
    ]
    heads = ["claim", "claimed ratio", "measured", "here"]
    yield TextTable(pd.DataFrame(rows, columns=heads), "Claim by claim", name="claims")
    sources = "; ".join(dict.fromkeys(each.claim.source for each in known))
    yield Paragraph(
        f"Claimed by: {sources}. {claims.rules_words(tables.manifest)} {ELSEWHERE}", "note"
    )


def claims_answer(tables: Tables) -> Iterator[Block]:
    """Yield sentences that count claims and published numbers, and a table for each outcome.

    A table contains each claim with this outcome, and the reason for the outcome.
    """
    judged = judge_all(tables)
    rows = published_table.rows(tables)
    found = {row.number for row in rows if row.ours.trials}
    every = {row.number for row in rows}
    yield Paragraph(outcomes.count_words([each.direction for each in judged]))
    yield Paragraph(
        f"This run has a number of its own for {len(found)} of the {len(every)} published numbers. "
        f"{ELSEWHERE}"
    )
    for outcome in outcomes.OUTCOMES:
        alike = [each for each in judged if each.found.outcome == outcome]
        reasons = [{"claim": each.claim.says, "why": f"{_reason(each)}."} for each in alike]
        yield TextTable(pd.DataFrame(reasons), f"{outcome[0].upper()}{outcome[1:]}: {len(alike)}")
    if any(each.remedy == outcomes.SUCH_A_LOAD for each in judged):
        yield Paragraph(
            f"If a reason names no remedy, the claim can be decided by {outcomes.SUCH_A_LOAD}."
        )


def _reason(judged: Judged) -> str:
    """Return the reason for the outcome of a claim.

    If a ratio was measured for the claim, the text begins with the measured and the claimed ratio.
    If the claim is undecided, the text ends with the remedy, which says what to measure in order to
    decide the claim. One remedy is left out, because a paragraph below the tables names it: another
    run with the claim's load (`SUCH_A_LOAD`).
    """
    if (
        judged.claim.range_words
        and judged.measured != "–"
        and judged.found.outcome != outcomes.ABSENT
    ):
        is_failed = judged.found.outcome == outcomes.FAILS
        direction = f"{judged.outcome_words}: " if is_failed else ""
        return f"{direction}{judged.measured}, claimed {judged.claim.range_words}: {judged.why}"
    return judged.found.why if judged.remedy == outcomes.SUCH_A_LOAD else judged.why


def numbers(tables: Tables) -> Iterator[Block]:
    """Yield tables with every published number beside the number of this run.

    There is a table for each combination of source, scenario and published load.
    """
    yield Paragraph(f"{published_table.INTERVALS} {DAGGER}")
    yield Paragraph(WHY_STAND_INS)
    yield from published_table.sheets(tables)


def claim_by_claim(tables: Tables, source: str = "") -> Iterator[Block]:
    """Yield published claims, each with the evidence in a run and the outcome.

    `judged_claims` explains which claims `source` selects.
    """
    yield from judged_claims(judge_all(tables), source)


def judged_claims(judged: Sequence[Judged], source: str = "") -> Iterator[Block]:
    """Yield each claim whose source contains `source`, with its evidence and outcome.

    Without `source`, yield the claims from sources without published numbers, under a separate
    heading. Raise LabError if no source matches.
    """
    if source:
        found = [each for each in judged if source.lower() in each.claim.source.lower()]
        if not found:
            raise LabError(f"No claim has a source whose name contains {source!r}.")
    else:
        numbered = {number.source for number in read_published()}
        found = [each for each in judged if each.claim.source not in numbered]
        if found:
            yield Heading("Claim by claim: others")
    for each in found:
        yield Heading(f"{each.claim.short} ({each.outcome_words})", rank=3)
        yield Paragraph(each.claim.says)
        yield Bullets(tuple(evidence_words(each)))


def evidence_words(judged: Judged) -> Iterator[str]:
    """Yield sentences with the evidence on a claim.

    The sentences say what was looked at, which ratios agree with the claim, what each comparison
    shows, what else was observed, and why the claim has its outcome. Comparisons that lack data for
    the same reason share a sentence.
    """
    words = judged.claim.range_words
    agrees = f" A ratio {'of ' * words[0].isdigit()}{words} agrees." if words else ""
    yield f"Looked at: {judged.claim.looks_at}.{agrees}"
    for (why, nothing), alike in groupby(
        judged.found.parts, key=lambda part: (part.why, not part.values)
    ):
        seen = list(alike)
        if nothing:
            yield f"{'; '.join(part.words for part in seen)}: {why}."
        else:
            yield from (part.sentence for part in seen)
    yield from judged.found.seen
    yield f"Why: {judged.why}."


# --- the functions that make parts, by the names of the parts -------------------------------------

OF_A_RUN: dict[str, Part] = {
    # The most important findings, and a line that the reader can unfold to see the warnings.
    "answer": answer,
    "unknown": unknown,
    "loads": loads,
    "ratios": ratios_of_servers,
    "inserts": inserts_answer,
    "rates": rates,
    "endpoints": endpoints,
    "mixtures": mixtures,
    "checks": checks,
    "thresholds": thresholds,
    "metrics": metrics,
    "why": why,
    "flame graphs": flame_graphs,
    "claims answer": claims_answer,
    "claims": claim_by_claim,
    "numbers": numbers,
    "failures": failures,
    "verdicts": verdicts,
    "machine": machine,
}
"""Functions that make the parts of a run's pages from the run's tables, by the part's name."""
OF_A_TRIAL: dict[str, Part] = {
    "trial": lambda case: [Paragraph(evidence.trial_words(case))],
    "generator": lambda case: [
        Paragraph(
            " ".join(filter(None, (evidence.generator_said(case), evidence.range_words(case))))
        )
    ],
    "probe": lambda case: [
        Paragraph(evidence.probe_saw(case)),
        TextTable(evidence.percentile_table(case)),
    ],
    "law": lambda case: [Paragraph(evidence.law_words(case))],
    "cpu": lambda case: [Paragraph(evidence.cpu_words(case))],
    "servers": lambda case: [
        TextTable(evidence.servers_table(case)),
        Paragraph(evidence.price_words(case)),
    ],
    "verdict": lambda case: [
        Paragraph(evidence.verdict_words(case)),
        TextTable(evidence.evidence_table(case)),
    ],
}
"""Functions that make the parts of a page about one trial, by the part's name.

Each function is called with this trial.
"""


def about(subject: Any, parts: Mapping[str, Part], nothing: str = "") -> dict[str, Part]:
    """Return the functions of `parts` with `subject` as their first argument.

    `subject` is what the parts are about: the tables of a run, or a trial. If `subject` is None,
    the first part shows the sentence `nothing`, and the other parts are empty.
    """
    if subject is None:
        return {
            name: partial(list, [] if place else [Paragraph(nothing)])
            for place, name in enumerate(parts)
        }
    return {name: partial(part, subject) for name, part in parts.items()}
