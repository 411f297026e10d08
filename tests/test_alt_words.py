"""Alt texts reach the page as they are, and point to tables that it has."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
import synthetic_rates
from built import ROOT
from figure_checks import probed_case, text_of
from IPython.display import Image

from runner.present.chart import charts
from runner.present.frames import read_tables
from runner.present.notebook import notebooks, page, pages
from runner.store import find_run

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


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
        texts = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
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
    tables, shown = read_tables(find_run("sample")), notebooks.figures_shown(executed) or []
    assert sorted(shown) == sorted(charts("rates"))
    assert alts(page) == [text_of(name, tables) + " For a table see “The answer”." for name in shown]
    assert "p99 <= 10 ms" in " ".join(alts(page)) and "p99 <= 10 ms" not in page.read_text()


def test_a_figure_of_one_trial_is_described_by_that_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Image] = []
    case = probed_case()
    monkeypatch.setattr(page, "display", shown.append)
    assert case.tables.folder is not None
    report = pages.open_report(str(case.tables.folder.path), case.trial_id)
    report.figures = tmp_path
    subjects = {"verdict-cpu": case, "cpu-peaks": case.tables}
    for name in subjects:
        report.show_figure(name)
    assert [image._repr_png_()[1]["alt"] for image in shown] == [
        text_of(name, subject) + charts()[name].place for name, subject in subjects.items()
    ]
