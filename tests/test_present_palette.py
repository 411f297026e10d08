"""The nine servers can be told apart on either paper, also by people without one kind of cones, and be seen."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from runner.present.look.palette import (
    FAMILIES,
    KNOWN,
    NIGHT,
    PROBE,
    REFERENCE,
    WHITE,
    Identity,
    identities,
    legible,
    pale,
)

VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
"""Machado, Oliveira and Fernandes (2009), severity 1.0; for linear RGB."""
LEAST_APART = {"normal": 18, "protanopia": 18, "deuteranopia": 18, "tritanopia": 16}
"""In CIELAB."""
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE_POINT = np.array([0.95047, 1.0, 1.08883])


def lab(color: str, vision: str) -> np.ndarray:
    """A colour in CIELAB as someone with this vision sees it."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(VISION[vision] @ linear, 0, 1) / WHITE_POINT
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(a: str, b: str) -> float:
    """WCAG 2.2: relative luminance is Y of CIE XYZ for sRGB."""
    high, low = sorted(((lab(each, "normal")[0] + 16) / 116 for each in (a, b)), reverse=True)
    return float((max(high**3, 0.0) + 0.05) / (max(low**3, 0.0) + 0.05))


def hue(color: str) -> float:
    _, a, b = lab(color, "normal")
    return float(np.degrees(np.arctan2(b, a)) % 360)


def spare_looks() -> list[Identity]:
    """Every look that frameworks without one of their own can get."""
    rows = [(f"s{n}", language, f"f{n}", "realistic") for n, language in enumerate(["Rust", "Go", "C", "Zig", "D"] * 4)]
    return list(identities(frame(*rows)).values())


LOOKS = {**{"/".join(name): look for name, look in KNOWN.items()}, "reference": REFERENCE, "probe": PROBE}
PAPERS = {"light": (WHITE, "color"), "dark": (NIGHT, "dark")}


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("vision", VISION)
def test_the_nine_servers_differ_in_colour_and_marker(vision: str, paper: str) -> None:
    assert len(KNOWN) == 9
    _, side = PAPERS[paper]
    for (a, first), (b, second) in combinations(KNOWN.items(), 2):
        apart = np.linalg.norm(lab(getattr(first, side), vision) - lab(getattr(second, side), vision))
        assert apart >= LEAST_APART[vision], (a, b)
        assert first.marker != second.marker, (a, b)
    for name, look in KNOWN.items():
        apart = np.linalg.norm(lab(getattr(look, side), vision) - lab(getattr(REFERENCE, side), vision))
        assert apart >= LEAST_APART[vision] - 6, name
        assert look.marker != REFERENCE.marker


@pytest.mark.parametrize("paper", PAPERS)
def test_lines_and_text_have_the_contrast_of_wcag(paper: str) -> None:
    sheet, side = PAPERS[paper]
    for look in [*LOOKS.values(), *spare_looks()]:
        color = getattr(look, side)
        assert contrast(color, sheet) >= 3.0, color
        assert contrast(legible(color, sheet), sheet) >= 4.5, color
        assert 2 <= contrast(pale(color, sheet), sheet) < contrast(color, sheet) * 0.75, color
        if look not in (REFERENCE, PROBE):
            assert abs((hue(pale(color, sheet)) - hue(color) + 180) % 360 - 180) <= 25, color


def test_the_hue_says_the_language_on_either_paper() -> None:
    ranges = {"rust": (20, 90), "go": (205, 310), "c": (140, 185)}
    for (language, _), look in KNOWN.items():
        low, high = ranges[language]
        assert low <= hue(look.color) <= high and low <= hue(look.dark) <= high, look
    for language, shades in FAMILIES.items():
        low, high = ranges[language]
        assert all(low <= hue(color) <= high for pair in shades for color in pair), language


def test_servers_of_one_language_share_a_hue_and_differ_in_line() -> None:
    for language in ("rust", "go"):
        looks = [look for (of, _), look in KNOWN.items() if of == language]
        assert len({look.dash for look in looks}) == len(looks)


def frame(*rows: tuple[str, str, str, str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["server", "language", "framework", "tier"])


def test_a_known_framework_looks_the_same_in_every_run() -> None:
    alone = identities(frame(("gin", "Go", "gin", "realistic")))
    among = identities(frame(("a-gin", "Go", "gin", "realistic"), ("gin", "Go", "gin", "realistic")))
    assert alone["gin"] == among["gin"] == KNOWN["go", "gin"]
    assert among["a-gin"].color != among["gin"].color and among["a-gin"].marker != among["gin"].marker


def test_calibration_servers_come_last_and_look_like_no_other() -> None:
    looks = identities(frame(("a", "Rust", "hyper", "calibration"), ("hyper", "Rust", "hyper", "realistic")))
    assert list(looks) == ["hyper", "a"]
    assert looks["a"] == REFERENCE and looks["hyper"] == KNOWN["rust", "hyper"]
