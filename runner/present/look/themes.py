"""Figures for dark pages: the same figure in the dark partners of its colours."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import Collection
from matplotlib.colors import to_hex, to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from runner.model import LabError
from runner.present.look import style
from runner.present.look.palette import NIGHT, SHADE, SHADE_EDGE, WHITE, Identity, legible, pale

MOON = "#E6E8EC"  # what ink is on a dark page
COLOURED: dict[type[Artist], tuple[str, ...]] = {
    Text: ("color",),
    Line2D: ("color", "markeredgecolor", "markerfacecolor"),
    Patch: ("edgecolor", "facecolor"),
    Collection: ("edgecolor", "facecolor"),
}
"""Artist -> its properties that are colours, in the order in which they are set."""
Partners = dict[str, str]  # colour on white -> its partner on a dark page


def save_both(
    figure: Figure, folder: Path, name: str, looks: Iterable[Identity]
) -> tuple[Path, ...]:
    """Write NAME.png and .svg as `style.save` does, then NAME-dark.png and .svg.

    The figure is dark afterwards.

    `looks` are the identities that the figure may show. LabError if it has any other colour that
    is not grey.
    """
    light = style.save(figure, folder, name)
    darken(figure, looks)
    return (*light, *style.save(figure, folder, f"{name}-dark"))


def darken(figure: Figure, looks: Iterable[Identity]) -> None:
    """Recolour a drawn figure in place for a dark page.

    Greys keep their order with ink and paper changed: `night`. A look's colour, its pale shade and
    its ink become their dark partners, as do the shades behind what is pointed out. LabError for
    any other colour, the figure half done.
    """
    marks, words = partners(looks)
    with style.rc():
        figure.draw_without_rendering()  # makes the ticks, which exist only then
    # By identity, since an artist that is found twice must not be turned twice.
    for artist in {id(found): found for found in figure.findobj()}.values():
        _recolour(artist, marks, words)


def partners(looks: Iterable[Identity]) -> tuple[Partners, Partners]:
    """Return the dark partners of what is drawn in the colours of `looks`, and of what is written
    in them.
    """
    marks: Partners = {to_hex(light): to_hex(dark) for light, dark in (SHADE, SHADE_EDGE)}
    words: Partners = {}
    for look in looks:
        color = to_hex(look.color)
        faint = pale(look.color)
        marks |= {faint: pale(look.dark, NIGHT), color: to_hex(look.dark)}
        words |= dict.fromkeys((color, look.ink), legible(look.dark, NIGHT))
    return marks, words


def night(grey: str) -> str:
    """Return the dark partner of a grey: paper becomes paper, ink and all that is darker ink, in
    between evenly.
    """
    paper = to_rgb(WHITE)[0]
    ink = to_rgb(style.INK)[0]
    share = min(1.0, (paper - to_rgb(grey)[0]) / (paper - ink))
    return to_hex(tuple((1 - share) * np.array(to_rgb(NIGHT)) + share * np.array(to_rgb(MOON))))


def _partner(color: Any, known: Partners) -> tuple[float, float, float, float]:
    """Return a colour's dark partner, as transparent as it is."""
    red, green, blue, alpha = to_rgba(color)
    name = to_hex((red, green, blue))
    if name not in known and not red == green == blue:
        raise LabError(
            f"The figure has the colour {name}, which has no partner for a dark page: draw in the "
            "colours of the servers' looks and in greys."
        )
    return to_rgba(known.get(name) or night(name), alpha)


def _recolour(artist: Artist, marks: Partners, words: Partners) -> None:
    names = next((names for kind, names in COLOURED.items() if isinstance(artist, kind)), ())
    known = words if isinstance(artist, Text) else marks
    dark: dict[str, object] = {}
    for name in names:
        found = getattr(artist, f"get_{name}")()
        several = isinstance(artist, Collection)
        dark[name] = (
            [_partner(color, known) for color in np.asarray(found)]
            if several
            else _partner(found, known)
        )
    artist.set(**dark)
    if isinstance(artist, Text) and (behind := artist.get_bbox_patch()) is not None:
        _recolour(behind, marks, words)
