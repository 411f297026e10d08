"""Tests that every number on the pages of the committed runs is written as a person writes it."""

import re
from collections.abc import Iterator

import pytest
from built import ROOT
from committed import charts_of, subjects_of
from figure_checks import tables_of
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.text import Text
from shown import cells

from runner.audit.page import of_published
from runner.present.chart.drawing import draw
from runner.present.chart.sentences import describe
from runner.present.chart.value import Chart
from runner.present.frames import Case, Tables
from runner.present.look import markup
from runner.present.notebook import explore_page, parts

MOST_DIGITS = 4
"""A number with a decimal point may have at most this many significant digits.

A number without a decimal point is a count and may have more.
"""
DECIMAL = re.compile(r"(?<![\w.,:])(\d[\d,]*\.\d+)(?![\w.]*[\w:])")
AS_A_COMPUTER = (
    re.compile(r"\de[+-]\d"),
    re.compile(r"(?<![\w`])(?:nan|inf)(?!\w)", re.IGNORECASE),
    re.compile(r"(?<![\w.,–-])[-−]0(?:\.0+)?(?![\d.,\w-])"),
    re.compile(r"\\math|\d\^\{?"),
)
WITHOUT_COMMA = re.compile(r"(?<![\w.,-])\d{5,}(?![\w.])")
"""A number of five or more digits without a comma.

The tests look for such numbers only in figures. Elsewhere the digits may be parts of names.
"""


def unreadable(text: str) -> list[str]:
    """Return the numbers of a text that a person would write in another way."""
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
        (r"$\mathdefault{10^{2}}$", [r"\math", "0^{"]),
        ("12,345.6 requests", ["12,345.6"]),
        ("0.0412 ms, 1.097 [1.010–1.191], 29,416 requests/s, -0.5 %", []),
        ("PostgreSQL 15.20, k6 v1.7.1, nginx, information", []),
    ],
)
def test_what_a_person_would_not_write_is_found(text: str, found: list[str]) -> None:
    assert unreadable(text) == found


def of_chart(chart: Chart) -> Iterator[str]:
    """Yield all texts of a figure except the numbers on its axes."""
    yield from (chart.title, chart.caption, chart.key, describe(chart))
    yield from (words for heading in chart.headings.values() for words in heading)
    for facet in chart.facets:
        yield from (facet.panel, *facet.notes, *facet.ticks.values())


def of_run(tables: Tables) -> Iterator[tuple[str, str]]:
    """Yield (name of a part or figure, text) for all texts on the pages of a run."""
    for name, chart in charts_of(tables).items():
        yield from ((name, text) for text in of_chart(chart))
    case = subjects_of(tables)[Case]
    every = parts.about(tables, parts.OF_A_RUN) | parts.about(case, parts.OF_A_TRIAL)
    for name, part in every.items():
        yield from ((name, markup.markdown([block])) for block in part())


def texts_of(figure: Figure) -> set[str]:
    """Return all texts of a drawn figure, with the numbers on its axes and at its marks."""
    figure.draw_without_rendering()
    texts = (each for each in figure.findobj(Text) if isinstance(each, Text) and each.get_visible())
    return {text.get_text() for text in texts}


def bad_in(figure: Figure) -> set[str]:
    """Return the numbers in a figure that a person would write in another way."""
    return {
        found
        for text in texts_of(figure)
        for found in (*unreadable(text), *WITHOUT_COMMA.findall(text))
    }


def test_ticks_that_a_person_would_not_write_are_found() -> None:
    figure, ax = plt.subplots()
    ax.set_xticks([0.1 + 0.2], [str(0.1 + 0.2)])
    ax.set_yticks([1.0], ["125000"])
    assert bad_in(figure) == {str(0.1 + 0.2), "125000"}
    plt.close(figure)


@pytest.mark.long
@pytest.mark.parametrize("run", ["seeds", "engines", "sample", "all"])
def test_numbers_of_a_run_are_those_of_a_person(run: str) -> None:
    bad = {(name, *found) for name, text in of_run(tables_of(run)) if (found := unreadable(text))}
    assert not bad


@pytest.mark.long
@pytest.mark.parametrize("run", ["seeds", "engines", "sample", "all"])
def test_numbers_in_drawn_figures_are_those_of_a_person(run: str) -> None:
    every = charts_of(tables_of(run))
    bad = {name: found for name, chart in every.items() if (found := bad_in(draw(chart)))}
    assert not bad


def explored(run: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[set[str], str]]:
    """Execute the cells of explore.ipynb for a run.

    Return the unreadable numbers and the alt text of each figure, by the name of the figure.
    """
    found: dict[str, tuple[set[str], str]] = {}

    def keep(_: object, name: str, figure: Figure, alt: str) -> None:
        found[name] = (bad_in(figure), alt)

    monkeypatch.setattr(explore_page.ExplorePage, "show_picture", keep)
    monkeypatch.setattr(explore_page, "show", lambda _: None)
    names = {"run": str(ROOT / "data" / run), "trial": ""}
    for source in cells("explore")[1:]:  # the first cell has the parameters
        if "show_part" not in source and "finish" not in source:
            exec(source, names)
    return found


@pytest.mark.long
@pytest.mark.parametrize("run", ["seeds", "engines", "sample", "all"])
def test_numbers_of_the_explore_page_are_those_of_a_person(run, monkeypatch) -> None:
    found = explored(run, monkeypatch)
    assert len(found) >= 4
    assert not {name for name, (bad, alt) in found.items() if bad or unreadable(alt)}


def test_numbers_of_the_published_audit_are_those_of_a_person() -> None:
    assert not unreadable(markup.markdown(of_published()))
