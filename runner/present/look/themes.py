"""Recolour figures for dark pages.

Each colour is replaced by its dark partner, which is the colour with the same meaning on a dark
page.
"""

from collections.abc import Iterable
from dataclasses import dataclass
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

MOON = "#E6E8EC"  # the dark partner of `style.INK`, in which texts are drawn
COLOURED: dict[type[Artist], tuple[str, ...]] = {
    Text: ("color",),
    Line2D: ("color", "markeredgecolor", "markerfacecolor"),
    Patch: ("edgecolor", "facecolor"),
    Collection: ("edgecolor", "facecolor"),
}
"""Colour properties of each kind of artist, in the order in which they are set."""
Partners = dict[str, str]  # maps a colour on a light page to its partner on a dark page


@dataclass(frozen=True)
class DarkPartners:
    """The dark partners of the colours in which servers are drawn."""

    of_marks: Partners
    """Partners of the colours of lines and areas."""
    of_texts: Partners
    """Partners of the colours of texts."""


def save_both(
    figure: Figure, folder: Path, name: str, looks: Iterable[Identity], provenance: str = ""
) -> tuple[Path, ...]:
    """Write a figure twice: as NAME.png and NAME.svg, and as NAME-dark.png and NAME-dark.svg.

    Afterwards, the figure itself has the dark colours. `looks` are the looks of the servers that
    the figure may show. Raise LabError if the figure has a colour without a dark partner (see
    `darken`).
    """
    light = style.save(figure, folder, name, provenance)
    darken(figure, looks)
    return (*light, *style.save(figure, folder, f"{name}-dark", provenance))


def darken(figure: Figure, looks: Iterable[Identity]) -> None:
    """Recolour a drawn figure in place for a dark page.

    Greys are mapped by `night`, which makes the background dark and the texts light. Two kinds of
    colours are replaced by their dark partners: the colours of `looks` (colour, pale shade and
    ink), and the colours of highlighted stretches of time (`SHADE`, `SHADE_EDGE`). Raise LabError
    if the figure has any other colour. Some artists may have been recoloured before the error.
    """
    known = partners(looks)
    with style.rc():
        figure.draw_without_rendering()  # creates the ticks, so that they can be recoloured
    # `findobj` may find an artist twice. A dictionary by id contains each artist only once, so that
    # no artist is recoloured twice.
    for artist in {id(found): found for found in figure.findobj()}.values():
        _recolour(artist, known)


def partners(looks: Iterable[Identity]) -> DarkPartners:
    """Return the dark partners of the colours of `looks`, and of `SHADE` and `SHADE_EDGE`."""
    marks: Partners = {to_hex(light): to_hex(dark) for light, dark in (SHADE, SHADE_EDGE)}
    words: Partners = {}
    for look in looks:
        color = to_hex(look.color)
        faint = pale(look.color)
        marks |= {faint: pale(look.dark, NIGHT), color: to_hex(look.dark)}
        words |= dict.fromkeys((color, look.ink), legible(look.dark, NIGHT))
    return DarkPartners(marks, words)


def night(grey: str) -> str:
    """Return the dark partner of a grey.

    White becomes the dark background (`NIGHT`). `style.INK` and darker greys become the light
    `MOON`. Greys between white and `style.INK` are interpolated.
    """
    paper = to_rgb(WHITE)[0]
    ink = to_rgb(style.INK)[0]
    share = min(1.0, (paper - to_rgb(grey)[0]) / (paper - ink))
    return to_hex(tuple((1 - share) * np.array(to_rgb(NIGHT)) + share * np.array(to_rgb(MOON))))


def _partner(color: Any, known: Partners) -> tuple[float, float, float, float]:
    """Return a colour's dark partner with the same transparency."""
    red, green, blue, alpha = to_rgba(color)
    name = to_hex((red, green, blue))
    if name not in known and not red == green == blue:
        raise LabError(
            f"The figure has the colour {name}, which has no partner for a dark page: use the "
            "colours of the servers' looks, or greys."
        )
    return to_rgba(known.get(name) or night(name), alpha)


def _recolour(artist: Artist, partners: DarkPartners) -> None:
    names = next((names for kind, names in COLOURED.items() if isinstance(artist, kind)), ())
    known = partners.of_texts if isinstance(artist, Text) else partners.of_marks
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
        _recolour(behind, partners)
