"""The words of alt texts, and that they reach the page."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
import synthetic_rates
from IPython.display import Image

from runner.present.case import Case, choose
from runner.present.chart import Axis, Extreme, charts, describe, made
from runner.present.chart.sentences import Form, clauses, fit, hollow, said
from runner.present.frames import read_tables
from runner.present.notebook import notebooks, page, pages
from runner.store import RunFolder, find_run

RATES_FIGURES = charts("rates")
ROOT = Path(__file__).parents[1]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = synthetic_rates.build(tmp_path_factory.mktemp("case"), blocks=2, sweep=False, search=False)
    found = choose(read_tables(RunFolder(folder)))
    assert found is not None
    return found


def test_the_richest_form_that_fits_is_taken() -> None:
    forms = [Form(["a" * 400, "b" * 400]), Form(["a" * 200, "b" * 200]), Form(["a", "b"])]
    assert fit("Head.", forms) == f"Head. {'a' * 200} {'b' * 200}"
    assert fit("Head.", [Form(["c" * 290] * 3, "panel")], "Tail.") == (
        f"Head. {'c' * 290} 2 more panels are not described here. Tail."
    )
    assert "1 more panel is not described" in fit("Head.", [Form(["c" * 250] * 3, "panel")])


def test_clauses_of_few_and_many() -> None:
    texts = {"a": "1 ms", "b": "2 ms", "c": "3 ms", "d": "4 ms"}
    assert said("median", "shortest first", {"a": "1 ms"}) == "the median of a is 1 ms"
    assert (
        said("median", "shortest first", texts) == "the medians are, shortest first, a 1 ms, b 2 ms, c 3 ms and d 4 ms"
    )
    assert said("median", "shortest first", texts, short=True) == (
        "the medians run, shortest first, from a 1 ms to d 4 ms (2 more lie between)"
    )
    assert said("median", "shortest first", {}) == "no median is known"
    assert said("peak", "highest first", dict.fromkeys("abcde", "9 %")) == "the peaks of 5 servers are all 9 %"


def curve(*points: tuple[float, float, bool]) -> pd.DataFrame:
    return pd.DataFrame(points, columns=["x", "y", "solid"])


def test_lines_turn_where_they_do_and_unknown_ones_are_named() -> None:
    wording = Extreme("highest rate"), Axis(""), Axis("", unit="/s")
    curves = {
        "up": curve((1, 5, True), (2, 9, True)),
        "over": curve((1, 2, False), (2, 8, True), (3, 7, True)),
        "none": curve((1, np.nan, True)),
    }
    long, extremes, short = clauses(curves, *wording)
    assert long == (
        "the lines run, highest first, up from 5.00/s at 1 to 9.00/s at 2; over from 2.00/s at 1 over 8.00/s at 2 to "
        "7.00/s at 3; "
        "nothing is known of none"
    )
    assert extremes.startswith("the highest rates are, highest first, up 9.00/s at 2 and over 8.00/s at 2;")
    assert hollow(curves) == ("hollow are over at 1", "1 of 5 points are hollow")
    assert hollow({"up": curves["up"]}) == ("no point is hollow", "no point is hollow")
    assert short == extremes  # two are told in full
    assert clauses({"dot": curve((64, 7, True))}, *wording)[0] == "the highest rate of dot is 7.00/s at 64"


def on_page(name: str, subject: object) -> str:
    return describe(made(name, subject)) + charts()[name].place


# --- pages ------------------------------------------------------------------------------------------------


class Images(HTMLParser):
    """Collects the alt texts of a page's images, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.alts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.alts.append(dict(attrs)["alt"] or "")


def alts(page: Path) -> list[str]:
    found = Images()
    found.feed(page.read_text())
    return found.alts


def test_a_text_with_special_characters_reaches_the_page_as_it_is(tmp_path: Path) -> None:
    text = 'Dot plot of “p99 <= 10 ms”, a "quoted" name & an <img src=x onerror=alert(1)>.'
    output = nbformat.v4.new_output("display_data", {"image/png": PNG}, metadata={"image/png": {"alt": text}})
    cell = nbformat.v4.new_code_cell("report.show_figure()", outputs=[output])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "executed.ipynb")
    notebooks.export_html(tmp_path / "executed.ipynb", tmp_path / "page.html")
    assert alts(tmp_path / "page.html") == [text]


def test_every_table_that_a_text_points_to_is_on_the_page() -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        texts = ["".join(cell["source"]) for cell in cells]
        heads = {line.lstrip("# ") for text in texts for line in text.splitlines() if line.startswith("#")}
        shown = {name for text in texts for name in re.findall(r'report\.show_figure\("([a-z0-9-]+)"\)', text)}
        assert {charts()[name].table for name in shown} - {""} <= heads, path.name


@pytest.mark.long
def test_the_page_of_a_run_carries_the_texts(bare_lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic_rates.build(bare_lab / "data" / "sample", blocks=2, closed=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    executed, page = tmp_path / "executed.ipynb", tmp_path / "rates.html"
    notebooks.execute(ROOT / "notebooks" / "rates.ipynb", {"run": "sample"}, executed)
    notebooks.export_html(executed, page)
    tables = read_tables(find_run("sample"))
    assert alts(page) == [on_page(name, tables) for name in notebooks.figures_shown(executed) or []]
    assert len(alts(page)) == len(RATES_FIGURES)
    assert all("For a table see “The answer”." in text for text in alts(page))
    assert "p99 <= 10 ms" in " ".join(alts(page)) and "p99 <= 10 ms" not in page.read_text()


def test_a_figure_of_one_trial_is_described_by_that_trial(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Image] = []
    monkeypatch.setattr(page, "display", shown.append)
    assert case.tables.folder is not None
    report = pages.open_report(str(case.tables.folder.path), case.trial_id)
    report.figures = tmp_path
    for name in ("verdict-cpu", "cpu-peaks"):
        report.show_figure(name)
    assert [image._repr_png_()[1]["alt"] for image in shown] == [
        on_page("verdict-cpu", case),
        on_page("cpu-peaks", case.tables),
    ]
