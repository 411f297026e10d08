"""Define the look of each server, which is the same in all figures.

The hue shows the language. Shade, marker and dashes show the framework.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd

from runner.model import CALIBRATION

SOLID: Any = "-"
LONG: Any = (0, (5, 1.6))
DOTS: Any = (0, (1.4, 1.2))
DASH_DOT: Any = (0, (6, 1.5, 1.4, 1.5))
DASH_DOTS: Any = (0, (6, 1.5, 1.4, 1.5, 1.4, 1.5))
MARKERS = ("<", ">", "p", "h", "*", "d", "H", "8")  # markers of frameworks that are not in `KNOWN`
WHITE = "#FFFFFF"  # background of a light page
NIGHT = "#15171C"  # background of a dark page


@dataclass(frozen=True)
class Identity:
    """The look of one server in all figures of a run.

    `color` is used on a light page, and `dark` replaces it on a dark page.
    """

    color: str
    dark: str
    marker: str
    dash: Any

    @property
    def ink(self) -> str:
        """The colour of text on white: `color`, darkened until it is legible."""
        return legible(self.color)


KNOWN = {
    ("rust", "axum"): Identity("#B34700", "#DF6A26", "o", SOLID),
    ("rust", "actix"): Identity("#C88500", "#F8B03A", "D", LONG),
    ("rust", "hyper"): Identity("#662900", "#C17D57", "v", DASH_DOT),
    ("go", "gin"): Identity("#0072B2", "#4777BC", "s", SOLID),
    ("go", "echo"): Identity("#5090FF", "#759CFF", "^", LONG),
    ("go", "fiber"): Identity("#242A6B", "#6B5ED8", "P", DASH_DOT),
    ("go", "gnet"): Identity("#005163", "#98D4EC", "X", DOTS),
    ("go", "net/http"): Identity("#7995B6", "#7F97BC", "*", DASH_DOTS),
    ("c", "nginx"): Identity("#009E73", "#31C190", "h", SOLID),
}
"""The looks of known frameworks, by language and framework.

The colours were found by a random search. Each colour has a contrast of at least 3 : 1 with the
background of the page. On light and on dark pages, any two colours differ by at least 18 in CIELAB.
This is also true for people without red cones or without green cones. For people without blue
cones, any two colours differ by at least 16. The colours that these people see are computed with
the model of Machado, Oliveira and Fernandes (2009).
"""
REFERENCE = Identity("#4D4D4D", "#BDBFC4", "x", DOTS)
PROBE = Identity("#767676", "#97999D", "", (0, (3.2, 1.4)))
"""The look of the probe, and of everything else that does not belong to a server."""
FAMILIES = {
    "rust": (("#A34929", "#E0997D"), ("#CF7B58", "#FFC5B7"), ("#5C0A0A", "#D0605A")),
    "go": (("#6C7EC9", "#99A3E1"), ("#1C3A6B", "#E2E0FF"), ("#2A8B9F", "#5EB3C5")),
    "c": (("#00573F", "#A1ECCD"), ("#43A288", "#499A7A")),
}
"""Further shades of each language's hue, for frameworks that are not in `KNOWN`.

Each shade consists of the colour on a light page and the colour on a dark page.
"""
OTHER_FAMILIES = (
    (("#B8608F", "#D78EB3"), ("#723663", "#F5B5E5"), ("#BE72A8", "#BC779E")),
    (("#7A6B0C", "#CBB97B"), ("#91801E", "#B2A364"), ("#4E4514", "#EEDC9C")),
)

SHADE = ("#FBE3B3", "#453615")
"""Two colours that highlight a stretch of time in a figure: on a light page, and on a dark page."""
SHADE_EDGE = ("#E9B44C", "#8F6E24")
"""Two colours for the outline of a highlighted stretch: on a light page, and on a dark page."""


def to_rgb(color: str) -> tuple[float, float, float]:
    """Return the shares of red, green and blue (0 to 1) in a colour `#RRGGBB`.

    matplotlib has such a function, too. This module does not call it, because then even commands
    that draw nothing would load matplotlib.
    """
    red, green, blue = bytes.fromhex(color.removeprefix("#"))
    return red / 255, green / 255, blue / 255


def to_hex(rgb: Iterable[float]) -> str:
    """Return the colour `#rrggbb` with these shares of red, green and blue (0 to 1)."""
    return "#" + "".join(f"{round(255 * float(share)):02x}" for share in rgb)


def contrast(color: str, paper: str) -> float:
    """Return the contrast of two colours, 1 to 21 (WCAG 2.2)."""
    rgb = np.array([to_rgb(each) for each in (color, paper)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    low, high = sorted(float(each) for each in linear @ np.array([0.2126, 0.7152, 0.0722]))
    return (high + 0.05) / (low + 0.05)


def legible(color: str, paper: str = WHITE) -> str:
    """Return a shade of a colour that is legible as text on a page with the background `paper`.

    The colour is darkened on a light page, and lightened on a dark page, until its contrast is at
    least 4.5 (WCAG 2.2, 1.4.3).
    """
    end = np.zeros(3) if paper == WHITE else np.ones(3)
    rgb = np.array(to_rgb(color))
    while contrast(to_hex(tuple(rgb)), paper) < 4.5:
        rgb = rgb + 0.06 * (end - rgb)
    return to_hex(tuple(rgb))


def pale(color: str, paper: str = WHITE) -> str:
    """Return a less prominent shade of a colour, in which the hue can still be recognised.

    Pale lines show values by which servers must not be ranked. The colour is mixed with a grey that
    is similar to the background. Against the background, pale lines have a contrast of 2 : 1. Lines
    in a server's full colour have 3 : 1 (WCAG 2.2, 1.4.11), grey lines of other servers behind them
    have 1.6 : 1 to 1.9 : 1, and the grid has 1.3 : 1.
    """
    grey = 0.78 if paper == WHITE else 0.28
    return to_hex(tuple(0.45 * np.array(to_rgb(color)) + 0.55 * grey))


def tint(color: str) -> str:
    """Return a colour mixed with white, so that dark text on it has a contrast of at least 4.5."""
    return to_hex(tuple(0.45 * np.array(to_rgb(color)) + 0.55))


def identities(trials: pd.DataFrame) -> dict[str, Identity]:
    """Return the look of each server of a run, sorted by language, then by name.

    `trials` must be all trials of the run, so that a server has the same look in all figures. If
    several servers use one framework, only one of them gets the framework's look: the server with
    the framework's name or, if there is no such server, the first server by name. Calibration
    servers come last, and all of them have the same look.
    """
    servers = trials.drop_duplicates("server")[
        ["server", "language", "framework", "tier"]
    ].sort_values("server")
    calibrating = servers["tier"] == CALIBRATION
    servers["language"] = servers["language"].str.lower()
    servers["other"] = servers["server"] != servers["framework"]
    ranked = servers[~calibrating]
    owners = set(
        ranked.sort_values(["other", "server"]).drop_duplicates(["language", "framework"])["server"]
    )
    others = sorted(set(ranked["language"]) - FAMILIES.keys())
    families = FAMILIES | {name: OTHER_FAMILIES[place % 2] for place, name in enumerate(others)}
    markers = cycle(MARKERS)
    looks: dict[str, Identity] = {}
    for language, shades in families.items():
        shapes = zip(cycle(shades), markers, cycle((SOLID, LONG, DOTS, DASH_DOT, DASH_DOTS)))
        spare = (Identity(color, dark, marker, dash) for (color, dark), marker, dash in shapes)
        for server, framework in ranked.loc[
            ranked["language"] == language, ["server", "framework"]
        ].to_numpy():
            known = KNOWN.get((language, framework.lower())) if server in owners else None
            looks[server] = known or next(spare)
    return looks | dict.fromkeys(servers.loc[calibrating, "server"], REFERENCE)
