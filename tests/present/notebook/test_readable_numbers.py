"""Every number on the pages of the committed runs is written as a person writes it."""

import re
from collections.abc import Iterator

import pytest
from figure_checks import chart_of, tables_of

from runner.audit.page import of_published
from runner.present.chart.sentences import describe
from runner.present.chart.value import Chart, charts
from runner.present.frames import Case, Tables, choose
from runner.present.look import markup
from runner.present.notebook import parts
from runner.present.spikes.view import View, most_pronounced, survey, view

MOST_DIGITS = 4
"""Significant digits of a number that is no count; a count has no decimal point."""
DECIMAL = re.compile(r"(?<![\w.,:])(\d[\d,]*\.\d+)(?![\w.]*[\w:])")
AS_A_COMPUTER = (
    re.compile(r"\de[+-]\d"),
    re.compile(r"(?<![\w`])(?:nan|inf)(?!\w)", re.IGNORECASE),
    re.compile(r"(?<![\w.,–-])[-−]0(?:\.0+)?(?![\d.,\w-])"),
)


def unreadable(text: str) -> list[str]:
    """The numbers of a text that a person would not write so."""
    found = [number[0] for pattern in AS_A_COMPUTER for number in pattern.finditer(text)]
    for number in DECIMAL.findall(text):
        digits = number.replace(",", "").replace(".", "").lstrip("0")
        found += [number] if len(digits) > MOST_DIGITS else []
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("657.1428571/s", ["657.1428571"]),
        ("1e+02 % of a core", ["1e+0"]),
        ("a mean of nan ms", ["nan"]),
        ("a change of -0 %", ["-0"]),
        ("12,345.6 requests", ["12,345.6"]),
        ("0.0412 ms, 1.097 [1.010–1.191], 29,416 requests/s, -0.5 %", []),
        ("PostgreSQL 15.20, k6 v1.7.1, nginx, information", []),
    ],
)
def test_what_a_person_would_not_write_is_found(text: str, found: list[str]) -> None:
    assert unreadable(text) == found


def of_chart(chart: Chart) -> Iterator[str]:
    """Every text of a figure but its ticks."""
    yield from (chart.title, chart.caption, chart.key, describe(chart))
    yield from (words for heading in chart.headings.values() for words in heading)
    for facet in chart.facets:
        yield from (facet.panel, *facet.notes, *facet.ticks.values())


def of_run(tables: Tables) -> Iterator[tuple[str, str]]:
    """Every text of a run's pages, with the name of its part or figure."""
    case = choose(tables)
    spike = most_pronounced(survey(tables))
    subjects = {
        Tables: tables,
        Case: case,
        View: view(tables, spike, "") if spike else None,
    }
    for name, found in charts().items():
        subject = subjects.get(found.subject)
        if subject is not None and found.needs(tables):
            yield from ((name, text) for text in of_chart(chart_of(name, subject)))
    every = parts.about(tables, parts.OF_A_RUN) | parts.about(case, parts.OF_A_TRIAL)
    for name, part in every.items():
        yield from ((name, markup.markdown([block])) for block in part())


@pytest.mark.long
@pytest.mark.parametrize("run", ["seeds", "sample"])
def test_numbers_of_a_run_are_those_of_a_person(run: str) -> None:
    bad = {(name, *found) for name, text in of_run(tables_of(run)) if (found := unreadable(text))}
    assert not bad


def test_numbers_of_the_published_audit_are_those_of_a_person() -> None:
    assert not unreadable(markup.markdown(of_published()))
