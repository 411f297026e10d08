"""Tests of the SVG of a figure: it is smaller than matplotlib's SVG, and shows the same picture."""

import io
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from runner.present.look import style

NAMESPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def figure():
    """Return a figure with thousands of dots in two colours, and 50 dots of different colours."""
    made = Figure(figsize=(4, 3))
    ax = made.subplots()
    x = np.linspace(0, 1, 2000)
    ax.plot(x, np.sin(9 * x), ls="", marker=".", color="#112233")
    ax.plot(x, np.cos(9 * x), ls="-", marker="o", color="#445566")
    ax.scatter(x[:50], x[:50], c=x[:50], s=10)
    return made


def drawn(figure):
    figure.savefig(written := io.StringIO(), format="svg", metadata={"Date": None})
    return written.getvalue()


def looks(svg):
    """Return the drawn elements in their order, each with the style in which a viewer draws it.

    An element without a style has the style of the nearest group around it.
    """
    found = []

    def walk(element, inherited):
        own = element.get("style", inherited)
        rest = {name: value for name, value in element.attrib.items() if name != "style"}
        if element.tag != f"{NAMESPACE}g":
            found.append((element.tag, tuple(sorted(rest.items())), own))
        for child in element:
            walk(child, own)

    walk(ElementTree.fromstring(svg), "")
    return found


def test_markers_look_the_same_in_fewer_bytes(figure):
    whole = drawn(figure)
    shared = style.share_styles(whole)
    assert looks(shared) == looks(whole)
    assert sum("use" in tag for tag, _, _ in looks(whole)) > 4000
    assert len(shared) < 0.7 * len(whole)


def test_markers_of_several_looks_keep_theirs(figure):
    styles = {own for tag, _, own in looks(style.share_styles(drawn(figure))) if "use" in tag}
    assert len([own for own in styles if "fill" in own]) > 50
