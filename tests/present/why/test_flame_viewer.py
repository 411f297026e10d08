"""Tests of the viewer of flame graphs in a real browser.

The tests zoom, search and print, use a narrow screen, and give functions hostile names.
"""

import browser as b
import pytest
from made_profiles import LOAD, profiles_of

from runner.present.look import markup
from runner.present.look.palette import KNOWN
from runner.present.why import flame_pictures as pictures

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not b.CHROMIUM, reason="chromium is not installed (apt-get install chromium)"
    ),
]
US = {
    "axum": {
        "main;serve": ("HTTP", 4.0),
        "main;serve;parse_head": ("HTTP", 2.0),
        "main;<img src=x onerror=document.title='hit'>": ("HTTP", 4.0),
    },
    "gin": {"goexit;ServeHTTP": ("HTTP", 6.0), "goexit;mallocgc": ("allocator", 14.0)},
}
LOOKS = {"axum": KNOWN["rust", "axum"], "gin": KNOWN["go", "gin"]}
WIDTHS = """graph => Object.fromEntries([...graph.querySelectorAll("g.frame")].map(frame => [
  frame.getAttribute("name"), frame.querySelector("rect").getBoundingClientRect().width
]))"""


@pytest.fixture(scope="module")
def chromium():
    with b.chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    blocks = pictures.blocks(profiles_of(US), LOOKS, LOAD, "a load", "Data: run one.")
    body = markup.html([markup.Heading("Flame graphs", rank=1), *blocks])
    made = tmp_path_factory.mktemp("viewer") / "page.html"
    made.write_text(markup.page("Flame graphs", body))
    return made


@pytest.fixture(params=[1280, 390])
def page(chromium, path, request):
    with b.opened(chromium, path, request.param) as (opened, _):
        opened.emulate_media(reduced_motion="reduce")
        opened.reload()
        opened.wait_for_selector("figure.flame.live g.frame")
        yield opened


def figure(page, name):
    return page.locator("details", has=page.get_by_text(f"{name}, a load", exact=True))


def widths(page, name):
    page.wait_for_timeout(700)  # boxes that reappear grow for 0.25 s, or longer on a busy machine
    return figure(page, name).locator(".flame-graph").evaluate(WIDTHS)


def test_widths_are_proportional_to_the_times(page):
    found = widths(page, "axum")
    whole = found["axum"]
    assert found["serve"] / whole == pytest.approx(0.6, abs=0.01)
    assert found["parse_head"] / whole == pytest.approx(0.2, abs=0.01)


def test_a_press_zooms_in_and_the_button_out(page):
    graph = figure(page, "axum")
    before = widths(page, "axum")
    graph.locator("g.frame[name=parse_head]").click()
    zoomed = widths(page, "axum")
    assert zoomed["parse_head"] == pytest.approx(before["axum"], abs=1)
    said = graph.locator("output").inner_text()
    assert said == "parse_head: 2.00 µs per request, 20.0 %"
    graph.get_by_role("button", name="Zoom out").click()
    assert widths(page, "axum") == pytest.approx(before, abs=1)


def test_a_search_marks_and_sums_what_it_finds(page):
    graph = figure(page, "axum")
    graph.get_by_role("searchbox").fill("PARSE")
    assert graph.locator("output").inner_text() == "1 found: 2.00 µs, 20.0 %"
    fills = graph.locator("g.frame rect").evaluate_all(
        "all => all.map(e => e.getAttribute('fill'))"
    )
    assert fills.count("#f2e24b") == 1
    graph.get_by_role("searchbox").press("Enter")
    assert widths(page, "axum")["parse_head"] == pytest.approx(widths(page, "axum")["axum"], abs=1)
    graph.get_by_role("searchbox").fill("")
    fills = graph.locator("g.frame rect").evaluate_all(
        "all => all.map(e => e.getAttribute('fill'))"
    )
    assert "#f2e24b" not in fills


def test_a_search_takes_letters_that_are_no_pattern(page):
    graph = figure(page, "axum")
    graph.get_by_role("searchbox").fill("(*[")
    assert graph.locator("output").inner_text().startswith("0 found")


def test_a_difference_has_signs_and_hatching(page):
    graph = figure(page, "gin minus axum")
    names = graph.locator("g.frame").evaluate_all("all => all.map(e => e.getAttribute('name'))")
    assert names[:1] == ["+10.00 gin minus axum"]
    assert {"−4.00 HTTP", "+14.00 allocator"} <= set(names)
    fills = dict(
        graph.locator("g.frame").evaluate_all(
            "all => all.map(e => [e.getAttribute('name'), "
            "e.querySelector('rect').getAttribute('fill')])"
        )
    )
    assert fills["−4.00 HTTP"] == "url(#flame-less)"
    assert fills["+14.00 allocator"] == "#f6a48c"


def test_the_page_fits_loads_nothing_and_is_accessible(chromium, path):
    for width, theme in ((1280, "light"), (390, "dark")):
        with b.opened(chromium, path, width, theme) as (page, asked):
            page.wait_for_selector("figure.flame.live g.frame")
            faults = [each for each in b.layout_faults(page) if "d3-flame-graph-label" not in each]
            assert (faults, b.axe_faults(page), b.foreign(asked)) == ([], [], [])


def test_a_hostile_name_does_nothing(page):
    page.wait_for_timeout(300)
    assert page.title() == "Flame graphs"
    assert page.locator("img[src=x]").count() == 0


def test_paper_has_the_pictures(chromium, path):
    with b.opened(chromium, path) as (page, _):
        page.wait_for_selector("figure.flame.live g.frame")
        assert b.print_faults(page) == []
        assert page.locator("figure.flame > img").first.is_visible()
        assert not page.locator(".flame-view").first.is_visible()


def test_without_scripts_the_pictures_are_shown(chromium, path):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator("figure.flame > img").first.is_visible()
    context.close()
