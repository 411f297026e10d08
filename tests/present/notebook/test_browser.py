"""Tests of the lab's pages in a real browser.

The pages are opened at three widths and in a light and a dark theme. They are checked for
accessibility, used by keyboard, and printed.
"""

import shutil
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import browser as b
import pytest
from built import ROOT, bare_lab
from made_once import made_once

from runner.present.blog.publish import publish
from runner.present.look.palette import NIGHT
from runner.present.look.style import INK
from runner.present.look.themes import MOON
from runner.present.notebook.notebooks import build_report
from runner.store import find_run

WIDTHS = (1280, 700, 390)
THEMES = ("light", "dark")
LEAST = {"bundle": (1, 0), "bundle report": (5, 3), "report": (5, 3)}
"""The number of figures and the number of tables that each page must exceed."""
PAGES = tuple(LEAST)

needs_chromium = pytest.mark.skipif(
    not b.CHROMIUM, reason="chromium is not installed (apt-get install chromium)"
)
pytestmark = [pytest.mark.long, needs_chromium]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the paths of the bundle's pages and of the report's pages, by name.

    The pages are made from the sample in a separate lab.
    """
    lab = made_once(tmp_path_factory, "pages-of-the-sample", make_pages)
    report = sorted((lab / "figures" / "sample").glob("*.html"))
    bundle = {
        "bundle": lab / "bundle" / "index.html",
        "bundle report": lab / "bundle" / "report.html",
    }
    return bundle | {page.stem: page for page in report}


def make_pages(folder: Path) -> None:
    """Publish the sample and build its report at the same time, in a separate lab in `folder`."""
    lab = bare_lab(folder)
    shutil.copytree(ROOT / "data" / "sample", lab / "data" / "sample")
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as beside:
        patch.setenv("BENCH_ROOT", str(lab))
        # The report's notebooks are executed by kernels, which are processes of their own. So the
        # report and the bundle are really made at the same time.
        report = beside.submit(build_report, find_run("sample"))
        publish(find_run("sample"), lab / "bundle", print)
        report.result()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with b.chromium() as browser:
        yield browser


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_loads_nothing_and_is_accessible(chromium, pages, name, width, theme):
    with b.opened(chromium, pages[name], width, theme) as (page, asked):
        figures, tables = LEAST[name]
        assert page.locator("img").count() > figures and page.locator("table").count() > tables
        assert b.layout_faults(page) == []
        assert b.axe_faults(page) == []
        grey = b.contrasts(page, "td.grey")
        assert min(grey, default=4.5) >= 4.5 and (grey or name == "bundle")
        assert min(b.contrasts(page, "h1, h2, h3, p, li, th, td, figcaption, a")) >= 4.5
        assert asked and b.foreign(asked) == []


def test_every_page_of_a_report_is_sound_on_a_phone_at_night(chromium, pages):
    assert len(pages) > len(PAGES)
    for path in pages.values():
        with b.opened(chromium, path, 390, "dark") as (page, asked):
            assert (path.name, b.layout_faults(page), b.axe_faults(page)) == (path.name, [], [])
            assert b.foreign(asked) == []


@pytest.mark.parametrize("name", ["bundle report", "report"])
def test_a_wide_table_scrolls_by_keyboard(chromium, pages, name):
    """A wide table can be scrolled with the keyboard.

    The first column of row headings stays in sight, and the page itself does not scroll.
    """
    with b.opened(chromium, pages[name], 700) as (page, _):
        wide = "e => e.scrollWidth > e.clientWidth + 100"
        box = next(box for box in page.locator(".table:has(.second)").all() if box.evaluate(wide))
        box.focus()
        keys = box.locator("tbody tr").first.locator(".key").all()[:1]
        last = box.locator("tbody td:last-child").first
        before = [key.bounding_box()["x"] for key in keys]
        beyond = last.bounding_box()["x"]
        for _ in range(10):
            page.keyboard.press("ArrowRight")
        page.wait_for_function("e => e.scrollLeft > 100", arg=box.element_handle())
        assert [key.bounding_box()["x"] for key in keys] == pytest.approx(before, abs=1)
        assert last.bounding_box()["x"] < beyond - 100
        assert page.evaluate("document.documentElement.scrollLeft") == 0


@pytest.mark.parametrize("name", ["bundle", "bundle report", "report"])
def test_no_main_table_scrolls_sideways_on_a_phone(chromium, pages, name):
    """On a narrow screen, the post's table fits, and a report's wide tables show rows as cards."""
    too_wide = "e => e.scrollWidth > e.clientWidth"
    tables = ".table" if name == "bundle" else ".table:has(.cards)"
    with b.opened(chromium, pages[name], 390) as (page, _):
        boxes = page.locator(tables).all()
        assert boxes
        assert [box.evaluate(too_wide) for box in boxes] == [False] * len(boxes)
    if name != "bundle":
        with b.opened(chromium, pages[name], 390) as (page, _):
            cell = page.locator(".cards td:not(.key)").first
            said = "e => getComputedStyle(e, '::before').content"
            assert cell.evaluate(said) == f'"{cell.get_attribute("data-name")}"'


def test_figures_of_the_bundle_follow_the_theme(chromium, pages):
    visible = (
        "[...document.images].filter(image => image.getBoundingClientRect().width).map(image => "
        "image.className)"
    )
    for theme in THEMES:
        with b.opened(chromium, pages["bundle"], 700, theme) as (page, _):
            shown = page.evaluate(visible)
            assert 1 < len(shown) <= 4 and set(shown) == {theme}


def test_light_figures_stand_on_white_cards_in_the_dark(chromium, pages):
    with b.opened(chromium, pages["report"], 700, "dark") as (page, _):
        under = page.evaluate(
            "[...document.images].map(image => getComputedStyle(image).backgroundColor)"
        )
        assert set(under) == {"rgb(255, 255, 255)"}
        assert (
            page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        )


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_prints_on_a4_without_cutting_anything(chromium, pages, name, theme):
    with b.opened(chromium, pages[name], 1280, theme) as (page, _):
        pdf = b.printed(page)
        assert 3 < b.sheets(pdf) < 60
        # `inks` returns the colours of all shapes and letters in the PDF. The figures of the page
        # `report` are PNG pictures, whose colours `inks` does not find.
        if name != "report":
            assert INK in b.inks(pdf) and not b.inks(pdf) & {MOON, NIGHT}
        assert b.print_faults(page) == []
        assert (
            page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )


# --- the checks that tests/support/browser.py makes of pages --------------------------------------

SOUND = """<!DOCTYPE html><html lang="en"><head><title>t</title></head>
<body style="font-size: 16px">
<main><h1>Heading</h1><p>Words.</p>{}</main></body></html>"""
PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
MOON_SVG = (
    "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><path d='M0 0H9V9z' "
    f"fill='{MOON}'/></svg>"
)
DARK = f"data:image/svg+xml;base64,{b64encode(MOON_SVG.encode()).decode()}"
FAULTS = [
    (
        b.layout_faults,
        "the page is 9",
        "<table><tr><td><div style='width: 900px'>x</div></td></tr></table>",
    ),
    (b.layout_faults, "p reaches from 3", "<p style='position: relative; left: 300px'>x</p>"),
    (
        b.layout_faults,
        "div cuts what",
        "<div style='overflow: hidden; width: 50px'><p style='width: 90px'>x</p></div>",
    ),
    (b.layout_faults, "has no alternative text", f"<img src='{PIXEL}'>"),
    (b.layout_faults, "shows nothing", "<img alt='x' src='nothing.png'>"),
    (b.layout_faults, "p has letters of 15 px", "<p style='font-size: 15px'>x</p>"),
    (
        b.layout_faults,
        "td has letters of 11",
        "<table><tr><td style='font-size: 11px'>x</td></tr></table>",
    ),
    (b.axe_faults, "color-contrast", "<p style='color: #999'>Words.</p>"),
    (b.axe_faults, "image-alt", f"<img src='{PIXEL}' width='9' height='9'>"),
    (b.axe_faults, "heading-order", "<h4>Deep</h4>"),
    (b.axe_faults, "landmark-unique", "<div role='region' aria-label='a'>x</div>" * 2),
    (b.print_faults, "figure reaches to", "<figure style='width: 900px'>x</figure>"),
    (b.print_faults, "high on paper", "<figure style='height: 1200px'></figure>"),
    (lambda page: b.inks(b.printed(page)), MOON, f"<img alt='x' src='{DARK}'>"),
]


@pytest.fixture
def sound(chromium: Any, tmp_path: Path) -> Callable[[str], Any]:
    """Return a function that opens a page without faults, with the given HTML added to its body.

    The function returns a context manager, which yields playwright's page and the list of the
    addresses that the page requests.
    """

    def open_page(more: str) -> Any:
        path = tmp_path / "page.html"
        path.write_text(SOUND.format(more))
        return b.opened(chromium, path, 390)

    return open_page


@pytest.mark.parametrize(
    ("check", "sentence", "more"), FAULTS, ids=[sentence for _, sentence, _ in FAULTS]
)
def test_the_checks_see_a_fault(sound, check, sentence, more):
    with sound(more) as (page, _):
        assert any(sentence in found for found in check(page))


def test_the_checks_find_nothing_in_a_sound_page(sound):
    with sound(f"<img alt='a dot' src='{PIXEL}'>") as (page, asked):
        assert b.layout_faults(page) == [] and b.axe_faults(page) == [] and b.foreign(asked) == []
        assert b.print_faults(page) == [] and b.sheets(b.printed(page)) == 1


def test_the_checks_see_contrast_and_what_a_page_asks_for(sound):
    lines = "<p id='a' style='color: #777'>x</p><p id='b' style='color: #000'>x</p>"
    with sound(f"{lines}<img alt='x' src='http://127.0.0.1:9/x.png'>") as (page, asked):
        assert b.contrasts(page, "#a") == [
            pytest.approx(4.48, abs=0.01)
        ]  # the ratio that contrast checkers print for #777 on white
        assert b.contrasts(page, "#b") == [pytest.approx(21)]
        assert "http://127.0.0.1:9/x.png" in b.foreign(asked)
