"""The nine servers can be told apart, also by people without red or green cones."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from runner.present.palette import KNOWN, REFERENCE, identities

VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
"""Machado, Oliveira and Fernandes (2009), severity 1.0; for linear RGB."""
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def lab(color: str, vision: str) -> np.ndarray:
    """A colour in CIELAB as someone with this vision sees it."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(VISION[vision] @ linear, 0, 1) / WHITE
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
def test_the_nine_servers_differ_in_colour_and_marker(vision: str) -> None:
    assert len(KNOWN) == 9
    for (a, first), (b, second) in combinations(KNOWN.items(), 2):
        assert np.linalg.norm(lab(first.color, vision) - lab(second.color, vision)) >= 18, (a, b)
        assert first.marker != second.marker, (a, b)
    for name, look in KNOWN.items():
        assert np.linalg.norm(lab(look.color, vision) - lab(REFERENCE.color, vision)) >= 12, name
        assert look.marker != REFERENCE.marker


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
