"""Tests of themes: every figure can be read on a white page and on a dark page.

The dark files of a figure are its light files with other colours. On both pages, the nine servers
can be told apart, also by people who are colour-blind.
"""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from figure_checks import contrast, linear, luminance, picture, readable, rgb, tables_of
from marking import long_but
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure

from runner.model import LabError
from runner.present.chart.value import charts
from runner.present.frames import Case, Tables, choose
from runner.present.look import palette, style, themes
from runner.present.look.palette import (
    KNOWN,
    NIGHT,
    PROBE,
    REFERENCE,
    WHITE,
    identities,
    legible,
    pale,
)
from runner.present.spikes import view as spike_view

RUNS = {
    "report": ("sample", "nine"),
    "postgres": ("database",),
    "rates": ("rates",),
    "verdict": ("probed",),
    "endpoints": ("script",),
}
"""For each notebook, the runs from which the notebook's figures are drawn.

The figures of notebooks that are not listed here are drawn from the sample.
"""
RUNS_OF = {
    "ratios": ("sample", "five"),
    "cpu-peaks": ("sample", "rates"),
    "cpu-side-by-side": ("long rates",),
    "why-categories": ("profiled",),
    "cpu-spikes-ran": ("profiled",),
}
"""For each figure, the runs from which the figure is drawn instead of the runs of its notebook.

Only figures for which the runs in `RUNS` lack data are listed here.
"""
CASES = [
    (run, name)
    for name, found in charts().items()
    for run in RUNS_OF.get(name, RUNS.get(found.notebook, ("sample",)))
]
"""(Run, figure) for each registered figure and each run from which it is drawn."""


def draw(tables: Tables, name: str) -> Figure:
    found = charts()[name]
    assert found.needs(tables)
    if found.subject is spike_view.View:
        return picture(
            name, spike_view.view(tables, str(tables.sealed("k6")["trial_id"].iloc[0]), "")
        )
    return picture(name, choose(tables) if found.subject is Case else tables)


def pixels(canvas: FigureCanvasAgg) -> np.ndarray:
    """Return the drawn picture as an array (rows, columns, 3): red, green and blue from 0 to 1."""
    return np.asarray(canvas.buffer_rgba(), float)[..., :3] / 255


def check_words(figure: Figure) -> np.ndarray:
    """Check the contrast of each text, and return the figure's pixels.

    A text must have a contrast of at least 4.5 (WCAG 2.2) to 95 % of the pixels behind it. The
    other 5 % may belong to grid lines that cross the text.
    """
    found = readable(figure)
    whole = pixels(figure.canvas)
    for text, _ in found:
        # Hide only the text. A box behind the text is still drawn, because it is part of what is
        # behind the text.
        text.set_alpha(0)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    behind = pixels(canvas)
    for text, (left, bottom, right, top) in found:
        text.set_alpha(None)
        rows = slice(len(behind) - int(top), len(behind) - int(bottom))
        found_contrast = contrast(behind[rows, int(left) : int(right)], text.get_color())
        assert np.mean(found_contrast >= 4.5) >= 0.95, (
            f"{text.get_text()!r}: {np.median(found_contrast):.1f}"
        )
    return whole


def check_lines(figure: Figure, paper: str, full: set[str], faint: set[str]) -> int:
    """Check the contrast of lines, marks and outlines to the page, and return their number.

    Only those in a colour of a server are checked. Their contrast to the page's colour `paper` must
    be at least 3 for the colours in `full`, and at least 2 for the pale colours in `faint`.
    """
    seen = 0
    for ax in figure.axes:
        colors = [(line.get_color(), line.get_alpha()) for line in ax.lines]
        colors += [
            (color, None)
            for marks in ax.collections
            for color in marks.get_edgecolor()
            if marks.get_linewidth()[0]
        ]
        colors += [(patch.get_edgecolor(), None) for patch in ax.patches]
        for color, alpha in colors:
            red, green, blue, opacity = to_rgba(color)
            if red == green == blue or to_hex(color) not in full | faint:
                continue
            share = opacity if alpha is None else alpha
            mixed = share * rgb(color) + (1 - share) * rgb(paper)
            least = 3.0 if to_hex(color) in full else 2.0
            assert contrast(mixed, paper) >= least, to_hex(color)
            seen += 1
    return seen


@pytest.mark.parametrize(("name", "figure"), long_but(CASES[:3], CASES))
def test_figures_can_be_read_in_light_and_in_dark(name: str, figure: str) -> None:
    tables = tables_of(name)
    looks = list(identities(tables.trials).values())
    shown = draw(tables, figure)
    light = check_words(shown)
    seen = check_lines(
        shown, WHITE, {to_hex(look.color) for look in looks}, {pale(look.color) for look in looks}
    )
    assert seen or charts()[figure].notebook == "published", "no line in a look's colour"
    white = (light == 1.0).all(axis=-1)
    assert white.mean() > 0.3
    themes.darken(shown, looks)
    dark = check_words(shown)
    faint = {pale(look.dark, NIGHT) for look in looks}
    assert check_lines(shown, NIGHT, {to_hex(look.dark) for look in looks}, faint) == seen
    assert dark.shape == light.shape
    # Only colours change: each white pixel gets the colour of the dark page, and nothing is lighter
    # than the text.
    assert (np.abs(dark[white] - rgb(NIGHT)) < 1 / 255).all()
    assert luminance(dark).max() <= luminance(themes.MOON) + 0.01


def test_greys_keep_their_order_and_their_contrast() -> None:
    greys = [to_hex((value / 255,) * 3) for value in range(255, 0x21, -1)]
    steps = [float(luminance(themes.night(grey))) for grey in greys]
    assert (
        steps == sorted(steps)
        and steps[0] == luminance(NIGHT)
        and steps[-1] == luminance(themes.MOON)
    )
    for grey, least in (
        (style.INK, 12),
        (style.SOFT, 7),
        (style.GREY, 4.5),
        (style.BEHIND, 1.4),
        (style.GRID, 1.15),
    ):
        assert contrast(grey, WHITE) >= least
        assert contrast(themes.night(grey), NIGHT) >= least
    for look in KNOWN.values():
        behind = (contrast(style.BEHIND, WHITE), contrast(themes.night(style.BEHIND), NIGHT))
        assert contrast(pale(look.color), WHITE) > 1.2 * behind[0]
        assert contrast(pale(look.dark, NIGHT), NIGHT) > 1.2 * behind[1]
    assert themes.night("black") == themes.night(style.INK) == themes.MOON.lower()
    assert (themes.night(PROBE.color), themes.night(REFERENCE.color)) == (
        PROBE.dark.lower(),
        REFERENCE.dark.lower(),
    )


def test_no_colour_on_white_has_two_partners() -> None:
    every = themes.partners(KNOWN.values())
    marks = every.of_marks
    words = every.of_texts
    shades = {palette.SHADE[0].lower(), palette.SHADE_EDGE[0].lower()}
    assert (
        shades < marks.keys()
        and len(marks) == 2 * len(KNOWN) + 2
        and len(set(marks.values())) == len(marks)
    )
    for look in KNOWN.values():
        one = themes.partners([look])
        assert {color: marks[color] for color in one.of_marks} == one.of_marks
        assert {color: words[color] for color in one.of_texts} == one.of_texts


def test_a_colour_that_no_look_has_is_an_error() -> None:
    figure, ((ax,),) = style.page("Title", "Caption", [style.PanelRow()])
    ax.plot([0, 1], [0, 1], color="#12AB9F")
    with pytest.raises(LabError, match="#12ab9f, which has no partner"):
        themes.darken(figure, KNOWN.values())


def test_hollow_marks_and_text_boxes_are_filled_with_the_paper() -> None:
    look = KNOWN["go", "gin"]
    figure, ((ax,),) = style.page("Title", "Caption", [style.PanelRow()])
    (line,) = ax.plot([0, 1], [0, 1], color=look.color, marker="o", markerfacecolor="white")
    text = ax.text(
        0.5,
        0.5,
        "words",
        color=look.ink,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8},
    )
    bars = ax.bar([0.5], [0.5], color=to_rgba(look.color, 0.4))
    themes.darken(figure, [look])
    assert (
        to_hex(line.get_markerfacecolor()) == NIGHT.lower()
        and to_hex(line.get_color()) == look.dark.lower()
    )
    assert to_rgba(bars[0].get_facecolor()) == pytest.approx(to_rgba(look.dark, 0.4))
    box = text.get_bbox_patch()
    assert box.get_facecolor() == pytest.approx(to_rgba(NIGHT, 0.8))
    assert contrast(text.get_color(), NIGHT) >= 4.5


VISION = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
"""For each kind of vision, the matrix that converts linear RGB to what people with this vision see.

The result is linear RGB, too. The matrices are those of Machado, Oliveira and Fernandes (2009) for
severity 1.0.
"""
# smallest distance in CIELAB that two colours of servers must have
LEAST_APART = {"normal": 18, "protanopia": 18, "deuteranopia": 18, "tritanopia": 16}
TO_XYZ = [
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.0721750],
    [0.0193339, 0.1191920, 0.9503041],
]
WHITE_POINT = np.array([0.95047, 1.0, 1.08883])


def lab(color: str, vision: str = "normal") -> np.ndarray:
    """Return a colour in CIELAB as someone with this vision sees it."""
    xyz = np.array(TO_XYZ) @ np.clip(np.array(VISION[vision]) @ linear(color), 0, 1) / WHITE_POINT
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def hue(color: str) -> float:
    _, a, b = lab(color)
    return float(np.degrees(np.arctan2(b, a)) % 360)


PAPERS = {"light": (WHITE, "color"), "dark": (NIGHT, "dark")}


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("vision", VISION)
def test_the_nine_servers_differ_in_colour_and_marker(vision: str, paper: str) -> None:
    assert len(KNOWN) == 9
    _, side = PAPERS[paper]
    for one, other in combinations([*KNOWN.values(), REFERENCE], 2):
        apart = np.linalg.norm(lab(getattr(one, side), vision) - lab(getattr(other, side), vision))
        assert apart >= LEAST_APART[vision] - (6 if other is REFERENCE else 0), (one, other)
        assert one.marker != other.marker, (one, other)


@pytest.mark.parametrize("paper", PAPERS)
def test_lines_and_text_have_the_contrast_of_wcag(paper: str) -> None:
    sheet, side = PAPERS[paper]
    rows = [
        (f"s{n}", language, f"f{n}", "realistic")
        for n, language in enumerate(["Rust", "Go", "C", "Zig", "D"] * 4)
    ]
    spare = identities(frame(*rows)).values()  # every look that an unknown framework can get
    for look in [*KNOWN.values(), REFERENCE, PROBE, *spare]:
        color = getattr(look, side)
        assert contrast(color, sheet) >= 3.0, color
        assert contrast(legible(color, sheet), sheet) >= 4.5, color
        assert 2 <= contrast(pale(color, sheet), sheet) < contrast(color, sheet) * 0.75, color
        if look not in (REFERENCE, PROBE):
            assert abs((hue(pale(color, sheet)) - hue(color) + 180) % 360 - 180) <= 25, color


def test_the_hue_says_the_language_and_the_line_the_server() -> None:
    """The hue of a line shows the language, and the dash pattern of the line shows the server.

    This holds on white pages and on dark pages.
    """
    ranges = {"rust": (20, 90), "go": (205, 310), "c": (140, 185)}
    for language, (low, high) in ranges.items():
        looks = [look for (other, _), look in KNOWN.items() if other == language]
        pairs = [*((look.color, look.dark) for look in looks), *palette.FAMILIES[language]]
        assert all(low <= hue(color) <= high for pair in pairs for color in pair), language
        assert len({look.dash for look in looks}) == len(looks)


def frame(*rows: tuple[str, str, str, str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["server", "language", "framework", "tier"])


def test_a_known_framework_looks_the_same_in_every_run() -> None:
    alone = identities(frame(("gin", "Go", "gin", "realistic")))
    among = identities(
        frame(("a-gin", "Go", "gin", "realistic"), ("gin", "Go", "gin", "realistic"))
    )
    assert alone["gin"] == among["gin"] == KNOWN["go", "gin"]
    assert (
        among["a-gin"].color != among["gin"].color and among["a-gin"].marker != among["gin"].marker
    )


def test_calibration_servers_come_last_and_look_like_no_other() -> None:
    looks = identities(
        frame(("a", "Rust", "hyper", "calibration"), ("hyper", "Rust", "hyper", "realistic"))
    )
    assert list(looks) == ["hyper", "a"]
    assert looks["a"] == REFERENCE and looks["hyper"] == KNOWN["rust", "hyper"]


@pytest.mark.long
@pytest.mark.parametrize(("name", "figure"), [("sample", "wrk-requests"), ("nine", "cpu-peaks")])
def test_light_files_are_the_same_with_and_without_dark_ones(
    name: str, figure: str, tmp_path: Path
) -> None:
    tables = tables_of(name)
    looks = list(identities(tables.trials).values())
    alone = [
        path.read_bytes() for path in style.save(draw(tables, figure), tmp_path / "alone", figure)
    ]
    both = themes.save_both(draw(tables, figure), tmp_path / "both", figure, looks)
    assert [path.name for path in both] == [
        f"{figure}{end}" for end in (".png", ".svg", "-dark.png", "-dark.svg")
    ]
    assert [path.read_bytes() for path in both[:2]] == alone
    again = themes.save_both(draw(tables, figure), tmp_path / "again", figure, looks)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in both]
    svg = both[3].read_text()
    colors = set(re.findall(r"#[0-9a-f]{6}", svg))
    assert NIGHT.lower() in colors
    light = {
        WHITE,
        "#000000",
        style.INK,
        style.GRID,
        *(look.color for look in looks),
        *(look.ink for look in looks),
    }
    assert not colors & {color.lower() for color in light}
