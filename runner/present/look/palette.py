"""How each server looks in every figure: hue by language; shade, marker and dash by framework."""

from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex, to_rgb

from runner.model import CALIBRATION

SOLID: Any = "-"
LONG: Any = (0, (5, 1.6))
DOTS: Any = (0, (1.4, 1.2))
DASH_DOT: Any = (0, (6, 1.5, 1.4, 1.5))
DASH_DOTS: Any = (0, (6, 1.5, 1.4, 1.5, 1.4, 1.5))
MARKERS = ("<", ">", "p", "h", "*", "d", "H", "8")  # for frameworks without one in `KNOWN`
WHITE, NIGHT = "#FFFFFF", "#15171C"  # the papers: of a light page and of a dark one


@dataclass(frozen=True)
class Identity:
    """How one server looks in every figure of a run.

    `dark` is the colour's partner on a dark page.
    """

    color: str
    dark: str
    marker: str
    dash: Any

    @property
    def ink(self) -> str:
        """The colour as text on white."""
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
"""(language, framework) -> look.

Found by a random search for colours with a contrast of 3 : 1 that lie far apart, near those that
the lab had before. On either paper any two differ by at least 18 in CIELAB, also as people without
red or without green cones see them, and by at least 16 as people without blue ones do (Machado,
Oliveira and Fernandes 2009).
"""
REFERENCE = Identity("#4D4D4D", "#BDBFC4", "x", DOTS)
PROBE = Identity("#767676", "#97999D", "", (0, (3.2, 1.4)))
"""The second client, and what else in a figure is not a server's."""
FAMILIES = {
    "rust": (("#A34929", "#E0997D"), ("#CF7B58", "#FFC5B7"), ("#5C0A0A", "#D0605A")),
    "go": (("#6C7EC9", "#99A3E1"), ("#1C3A6B", "#E2E0FF"), ("#2A8B9F", "#5EB3C5")),
    "c": (("#00573F", "#A1ECCD"), ("#43A288", "#499A7A")),
}
"""Further shades of a language's hue, for frameworks that are not KNOWN: (on white, on a dark
page).
"""
OTHER_FAMILIES = (
    (("#B8608F", "#D78EB3"), ("#723663", "#F5B5E5"), ("#BE72A8", "#BC779E")),
    (("#7A6B0C", "#CBB97B"), ("#91801E", "#B2A364"), ("#4E4514", "#EEDC9C")),
)

SHADE, SHADE_EDGE = ("#FBE3B3", "#453615"), ("#E9B44C", "#8F6E24")
"""Behind a stretch of time that a figure points out, and its outline: (on white, on a dark page).
"""


def contrast(color: str, paper: str) -> float:
    """Return the contrast of two colours, 1 to 21 (WCAG 2.2)."""
    rgb = np.array([to_rgb(each) for each in (color, paper)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    low, high = sorted(float(each) for each in linear @ np.array([0.2126, 0.7152, 0.0722]))
    return (high + 0.05) / (low + 0.05)


def legible(color: str, paper: str = WHITE) -> str:
    """Darken a colour, or lighten it on a dark paper, until it reads as text there: 4.5 (WCAG 2.2,
    1.4.3).
    """
    end = np.zeros(3) if paper == WHITE else np.ones(3)
    rgb = np.array(to_rgb(color))
    while contrast(to_hex(tuple(rgb)), paper) < 4.5:
        rgb = rgb + 0.06 * (end - rgb)
    return to_hex(tuple(rgb))


def pale(color: str, paper: str = WHITE) -> str:
    """Mix a colour with grey that is near the paper: its hue stays recognisable, but it steps back.

    Lines have a contrast of 3 : 1 against the paper (WCAG 2.2, 1.4.11). Pale ones, which nobody may
    rank, have 2 : 1: more than the grid (1.3) and the lines of the other servers behind them (1.6
    to 1.9).
    """
    grey = 0.78 if paper == WHITE else 0.28
    return to_hex(tuple(0.45 * np.array(to_rgb(color)) + 0.55 * grey))


def identities(trials: pd.DataFrame) -> dict[str, Identity]:
    """Return the look of each server of a run, in the order of all figures: by language, then by
    name.

    Give it all trials of the run, so that a server looks the same in all figures. Of several
    servers with one framework the one that is named like it has its look, else the first.
    Calibration servers come last, all alike.
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
