"""A headless Chromium that opens pages from disk, and functions that look for faults of a page.

Each of the functions whose names end in `_faults` returns a list with a sentence for each fault.
"""

import contextlib
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figure_checks import contrast

CHROMIUM = next(
    (found for name in ("chromium", "google-chrome") if (found := shutil.which(name))), None
)
A4_WIDTH, A4_HEIGHT = 680, 1009
"""Size in CSS pixels of a sheet of A4 without its margins of 15 mm."""

OVERFLOW = """() => {
  const faults = [], name = e => e.tagName.toLowerCase() + (e.className ? "." + e.className : "");
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth)
    faults.push(`the page is ${root.scrollWidth} wide in a window of ${innerWidth}`);
  for (const e of document.body.querySelectorAll("*")) {
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    if (!box.width || !box.height || style.visibility === "hidden") continue;
    // A narrow frame of a flame graph cuts its name; a tap on the frame shows the name in full.
    if (e.classList.contains("d3-flame-graph-label")) continue;
    if (["hidden", "clip"].includes(style.overflowX) && e.scrollWidth > e.clientWidth + 1)
      faults.push(`${name(e)} cuts what it holds: ${e.scrollWidth} in ${e.clientWidth}`);
    if (box.left >= -0.5 && box.right <= innerWidth + 0.5) continue;
    let scrolls = false;
    for (let up = e.parentElement; up && up !== document.body; up = up.parentElement)
      scrolls ||= ["auto", "scroll"].includes(getComputedStyle(up).overflowX);
    if (scrolls) continue;
    const reach = `from ${box.left} to ${box.right}`;
    faults.push(`${name(e)} reaches ${reach} in a window of ${innerWidth}`);
  }
  return faults;
}"""
IMAGES = """() => [...document.images].flatMap(image => {
  const faults = [], name = image.currentSrc.slice(0, 60);
  if (!(image.getAttribute("alt") || "").trim()) faults.push(`${name} has no alternative text`);
  if (!image.complete || !image.naturalWidth || !image.naturalHeight)
    faults.push(`${name} shows nothing`);
  return faults;
})"""
SMALL_TEXT = """() => [
  document.body, ...document.body.querySelectorAll(":not(script, style)")
].flatMap(e => {
  const size = parseFloat(getComputedStyle(e).fontSize);
  const least = e.closest("table") ? 12 : e.closest("code") ? 14 : 16;
  const written = [...e.childNodes].some(
    node => node.nodeType === Node.TEXT_NODE && node.data.trim()
  );
  if (!written || size >= least || !e.getBoundingClientRect().width) return [];
  return [`${e.tagName.toLowerCase()} has letters of ${size} px: ${e.textContent.slice(0, 40)}`];
})"""
PRINTED = """([width, height]) => [
  ...document.querySelectorAll("figure, img, table")
].flatMap(e => {
  const faults = [], box = e.getBoundingClientRect(), name = e.tagName.toLowerCase();
  if (box.right > width + 1) faults.push(`${name} reaches to ${box.right} on paper ${width} wide`);
  if (name !== "table" && box.height > height)
    faults.push(`${name} is ${box.height} high on paper of ${height}`);
  return faults;
})"""
COLORS = """selector => [...document.querySelectorAll(selector)].map(e => {
  const none = "rgba(0, 0, 0, 0)";
  let up = e, under = none;
  for (; up && under === none; up = up.parentElement) under = getComputedStyle(up).backgroundColor;
  return [getComputedStyle(e).color, under === none ? "rgb(255, 255, 255)" : under];
})"""


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Start the system's Chromium, and yield it as playwright's Browser.

    If the user is root, Chromium runs without its sandbox, because it refuses to start with one.
    """
    playwright_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (make setup)"
    )
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened(
    browser: Any, path: Path, width: int = 1280, theme: str = "light"
) -> Iterator[tuple[Any, list[str]]]:
    """Open a file in a window of `width` CSS pixels.

    Yield the page, and a list of the addresses that the page has requested so far.
    """
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    page = context.new_page()
    asked: list[str] = []
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    network.on("Network.requestWillBeSent", lambda event: asked.append(event["request"]["url"]))
    try:
        page.goto(path.as_uri(), wait_until="load")
        yield page, asked
    finally:
        context.close()


def layout_faults(page: Any) -> list[str]:
    """Return faults of the layout.

    These are elements that reach beyond the window, images that show nothing or have no alternative
    text, and letters that are too small.
    """
    return [*page.evaluate(OVERFLOW), *page.evaluate(IMAGES), *page.evaluate(SMALL_TEXT)]


def foreign(asked: list[str]) -> list[str]:
    """Return the requested addresses that are neither files nor data inside the page."""
    return [address for address in asked if not address.startswith(("file:", "data:"))]


def axe_faults(page: Any) -> list[str]:
    """Return a sentence for each element that breaks a rule of axe-core.

    axe-core checks the accessibility of a page. All of its rules are checked.
    """
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed (make setup)"
    )
    found = axe.Axe().run(page).response["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {rule['help']}: {node['html'][:120]}"
        for rule in found
        for node in rule["nodes"]
    ]


def print_faults(page: Any) -> list[str]:
    """Return a sentence for each figure, image or table that does not fit on a sheet of A4."""
    page.emulate_media(media="print")
    page.set_viewport_size({"width": A4_WIDTH, "height": A4_HEIGHT})
    return list(page.evaluate(PRINTED, [A4_WIDTH, A4_HEIGHT]))


def printed(page: Any) -> bytes:
    return bytes(page.pdf(format="A4"))


def sheets(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


def inks(pdf: bytes) -> set[str]:
    """Return the colours (such as `#00FF00`) with which a PDF fills shapes and letters."""
    found: set[str] = set()
    for stream in re.finditer(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL):
        with contextlib.suppress(zlib.error):
            colors = re.findall(rb"([\d.]+) ([\d.]+) ([\d.]+) rg\b", zlib.decompress(stream[1]))
            found |= {
                "#" + "".join(f"{round(255 * float(part)):02X}" for part in color)
                for color in colors
            }
    return found


def contrasts(page: Any, selector: str) -> list[float]:
    """Return the contrast between text and background of each element that `selector` selects.

    The contrast is computed without axe-core.
    """
    pairs = [
        [np.array(re.findall(r"[\d.]+", color), float) / 255 for color in pair]
        for pair in page.evaluate(COLORS, selector)
    ]
    return [float(contrast(*pair)) for pair in pairs]
