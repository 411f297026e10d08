"""How each server looks in every figure: hue by language; shade, marker and dash by framework."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex, to_rgb

CALIBRATION = "calibration"
"""Tier of servers with a known behaviour: in no figure, in no ranking."""

SOLID: Any = "-"
LONG: Any = (0, (5, 1.6))
DOTS: Any = (0, (1.4, 1.2))
DASH_DOT: Any = (0, (6, 1.5, 1.4, 1.5))
DASH_DOTS: Any = (0, (6, 1.5, 1.4, 1.5, 1.4, 1.5))
DASHES = (SOLID, LONG, DOTS, DASH_DOT, DASH_DOTS)
MARKERS = ("<", ">", "p", "h", "*", "d", "H", "8")
"""For frameworks that have none of their own."""


@dataclass(frozen=True)
class Identity:
    """How one server looks in every figure of a run: hue by language, shape by framework."""

    color: str
    marker: str
    dash: Any

    @property
    def ink(self) -> str:
        """The colour darkened until it reads as text on white (contrast 4.5 : 1, WCAG 2.2)."""
        rgb = np.array(to_rgb(self.color))
        while 1.05 / (_luminance(rgb) + 0.05) < 4.5:
            rgb = rgb * 0.94
        return str(to_hex((rgb[0], rgb[1], rgb[2])))


KNOWN = {
    ("rust", "axum"): Identity("#D55E00", "o", SOLID),
    ("rust", "actix"): Identity("#E69F00", "D", LONG),
    ("rust", "hyper"): Identity("#662900", "v", DASH_DOT),
    ("go", "gin"): Identity("#0072B2", "s", SOLID),
    ("go", "echo"): Identity("#527DFF", "^", LONG),
    ("go", "fiber"): Identity("#242A6B", "P", DASH_DOT),
    ("go", "gnet"): Identity("#00404C", "X", DOTS),
    ("go", "net/http"): Identity("#47ADC2", "*", DASH_DOTS),
    ("c", "nginx"): Identity("#009E73", "h", SOLID),
}
"""(language, framework) -> look. Between any two the colours differ by at least 18 in CIELAB, also as people without
red or green cones see them (Machado, Oliveira and Fernandes 2009)."""
REFERENCE = Identity("#4D4D4D", "x", DOTS)
FAMILIES = {
    "rust": ("#A34929", "#F4A582", "#5C0A0A"),
    "go": ("#7B8FD4", "#1B3A6B", "#3A9FB5"),
    "c": ("#00573F", "#7FCDB0"),
}
"""Further shades of a language's hue, for frameworks that are not KNOWN."""
OTHER_FAMILIES = (("#CC79A7", "#7A3E65", "#E3B5CF"), ("#7A6A00", "#C8B400", "#463D00"))


def pale(color: str) -> str:
    """Grey and lighten a colour: its hue stays recognisable, but it steps back."""
    mixed = [0.45 * channel + 0.55 * 0.78 for channel in to_rgb(color)]
    return str(to_hex((mixed[0], mixed[1], mixed[2])))


def _luminance(rgb: Any) -> float:
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))


def identities(trials: pd.DataFrame) -> dict[str, Identity]:
    """Return the look of each server of a run, in the order of all figures: by language, then by name.

    Give it all trials of the run, not those of one figure, so that a server looks the same everywhere. Calibration
    servers come last, all alike.
    """
    servers = trials.drop_duplicates("server")[["server", "language", "framework", "tier"]].sort_values("server")
    ranked = servers[servers["tier"] != CALIBRATION]
    languages = sorted(ranked["language"].str.lower().unique(), key=lambda name: (_place(name), name))
    others = [name for name in languages if name not in FAMILIES]
    markers = cycle(MARKERS)
    looks: dict[str, Identity] = {}
    for language in languages:
        own = ranked[ranked["language"].str.lower() == language]
        shades = FAMILIES.get(language) or OTHER_FAMILIES[others.index(language) % 2]
        looks |= _family(language, own, _spare(shades, markers))
    return looks | dict.fromkeys(servers.loc[servers["tier"] == CALIBRATION, "server"], REFERENCE)


def _place(language: str) -> int:
    return list(FAMILIES).index(language) if language in FAMILIES else len(FAMILIES)


def _spare(shades: tuple[str, ...], markers: Iterator[str]) -> Iterator[Identity]:
    """Yield looks for frameworks without one of their own, without end."""
    return (
        Identity(shade, marker, dash)
        for shade, marker, dash in zip(cycle(shades), markers, cycle(DASHES), strict=False)
    )


def _family(language: str, servers: pd.DataFrame, spare: Iterator[Identity]) -> dict[str, Identity]:
    """Return the looks of one language's servers; of several with one framework, the one named like it has its look."""
    pairs = [
        (str(server), str(framework)) for server, framework in zip(servers["server"], servers["framework"], strict=True)
    ]
    owners: dict[str, str] = {}
    for server, framework in pairs:
        if framework not in owners or server == framework:
            owners[framework] = server
    looks = {}
    for server, framework in pairs:
        known = KNOWN.get((language, framework.lower()))
        looks[server] = known if known and owners[framework] == server else next(spare)
    return looks
