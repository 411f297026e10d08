"""Draw the card of a post, which is the picture that other sites show beside a link to the post.

The card has 1200 x 630 pixels, as Open Graph recommends. It shows the post's title and what was
measured. It shows no figure, because cards are displayed too small for a figure to be read.
"""

from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from runner.present.look import style

WIDTH_PX = 1200
HEIGHT_PX = 630
DPI = 100
TITLE_PT = 44
WORDS_PT = 19
MOST_TITLE_LINES = 4
MOST_WORDS_LINES = 3
EDGE_IN = 0.7
GROUND = "#15171c"
INK = "#ffffff"
QUIET = "#b8b8b8"


def draw_card(file: Path, title: str, words: str) -> None:
    """Write a card as a PNG file, with the title at the top and `words` at the bottom.

    A text that is too long for the card is cut off.
    """
    width_in = WIDTH_PX / DPI
    height_in = HEIGHT_PX / DPI
    edge_x = EDGE_IN / width_in
    edge_y = EDGE_IN / height_in
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(width_in, height_in), dpi=DPI, facecolor=GROUND)
        FigureCanvasAgg(figure)
        head = _lines(title, TITLE_PT, MOST_TITLE_LINES, "bold")
        foot = _lines(words, WORDS_PT, MOST_WORDS_LINES)
        figure.text(edge_x, 1 - edge_y, head, size=TITLE_PT, color=INK, va="top", weight="bold")
        figure.text(edge_x, edge_y, foot, size=WORDS_PT, color=QUIET, va="bottom")
        figure.savefig(file, dpi=DPI, facecolor=GROUND, metadata={"Software": None})


def _lines(text: str, size_pt: float, most: int, weight: str = "normal") -> str:
    """Return a text wrapped to the card's width, cut off with an ellipsis after `most` lines."""
    lines = style.wrap(text, size_pt, WIDTH_PX / DPI - 2 * EDGE_IN, weight)
    kept = lines[:most]
    if len(lines) > most:
        kept[-1] = f"{kept[-1].rsplit(' ', 1)[0]} …"
    return "\n".join(kept)
