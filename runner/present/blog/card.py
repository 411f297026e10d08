"""The picture that other sites show with a link to a post: 1200 x 630 pixels, as Open Graph asks.

Its text is the post's title and description, since a figure cannot be read at that size.
"""

import textwrap
from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from runner.present.look import style

WIDTH_PX, HEIGHT_PX, DPI = 1200, 630, 100
TITLE_PT, TITLE_LETTERS, MOST_TITLE_LINES = 46, 32, 4
WORDS_PT, WORDS_LETTERS, MOST_WORDS_LINES = 20, 78, 3
GROUND = "#15171c"
INK = "#ffffff"
QUIET = "#b8b8b8"
EDGE_X, TOP_Y, BOTTOM_Y = 0.06, 0.88, 0.08  # of the figure's width and height


def draw_card(file: Path, title: str, description: str) -> None:
    """Write a card with a title and the beginning of a description as PNG."""
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(WIDTH_PX / DPI, HEIGHT_PX / DPI), dpi=DPI, facecolor=GROUND)
        FigureCanvasAgg(figure)
        wrapped = textwrap.wrap(title, TITLE_LETTERS, max_lines=MOST_TITLE_LINES, placeholder=" …")
        figure.text(
            EDGE_X, TOP_Y, "\n".join(wrapped), size=TITLE_PT, color=INK, va="top", weight="bold"
        )
        words = textwrap.wrap(
            description, WORDS_LETTERS, max_lines=MOST_WORDS_LINES, placeholder=" …"
        )
        figure.text(EDGE_X, BOTTOM_Y, "\n".join(words), size=WORDS_PT, color=QUIET, va="bottom")
        figure.savefig(file, dpi=DPI, facecolor=GROUND, metadata={"Software": None})
