"""Make the flame graphs of pages.

Each flame graph is a static SVG, together with the data for the interactive viewer of the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runner.model import JsonObject
from runner.present.look.markup import Flame, templates
from runner.present.look.numbers import number
from runner.present.look.palette import Identity, tint
from runner.present.why.flames import (
    Change,
    Frame,
    changed,
    depth,
    of_difference,
    of_server,
    own_us,
    signed,
    widest,
)
from runner.present.why.profiles import Profiles

WIDTH_PX = 700
ROW_PX = 17
LETTER_PX = 6.4
"""Width of a letter in the font of the SVG, in pixels."""
MARGIN_PX = 4.0
FEWEST_LETTERS = 3
MOST_DRAWN = 400
"""The static SVG shows at most this many frames, because a reader cannot zoom into it."""
MOST_SEARCHED = 1500
"""The interactive viewer, which has zoom and search, shows at most this many frames."""
CHANGES = {Change.LESS: "less", Change.UNSURE: "same", Change.MORE: "more"}
PLAIN = "#C88500"
"""Colour of a server's functions if the server has no colour of its own.

A server has no colour in an exported file, or if the run has no trial of the server.
"""
NAMED = 4
"""A description names at most this many functions or kinds of work."""


@dataclass(frozen=True)
class Box:
    """The rectangle of a frame in the static SVG. Position and width are in pixels."""

    x: float
    y: float
    width: float
    kind: str
    """The rectangle's class in the style sheet: `kernel`, `program`, `less`, `same` or `more`."""
    label: str
    title: str


def boxes(root: Frame, of_two: bool) -> Iterator[Box]:
    """Yield the boxes of a tree, with callers above their callees.

    The width of a box is proportional to the µs of its frame. `of_two` is True if the tree is the
    difference of two servers.
    """
    scale = WIDTH_PX / root.us if root.us else 0.0
    level = [_Placed(0.0, root)]
    y = 0.0
    while level:
        for each in level:
            yield _box(each, y, scale * each.frame.us, of_two)
        level = [one for each in level for one in _below(each, scale)]
        y += ROW_PX


@dataclass(frozen=True)
class _Placed:
    """A frame, and the pixel at which its box begins."""

    x: float
    frame: Frame


def _below(caller: _Placed, scale: float) -> Iterator[_Placed]:
    """Yield the callees of a frame, side by side from the left end of the frame's box."""
    x = caller.x
    for callee in caller.frame.callees:
        yield _Placed(x, callee)
        x += scale * callee.us


def _box(placed: _Placed, y: float, width: float, of_two: bool) -> Box:
    frame = placed.frame
    letters = int((width - MARGIN_PX) / LETTER_PX)
    label = _label(frame, letters, of_two) if letters >= FEWEST_LETTERS else ""
    return Box(placed.x, y, width, _kind(frame, of_two), label, _title(frame, of_two))


def _label(frame: Frame, letters: int, of_two: bool) -> str:
    """Return the text of a box, with at most `letters` characters.

    In a graph of one server, the text is the frame's name. In a graph of a difference, the text
    consists of the difference and the frame's name. If the box is too narrow for both, a
    significant difference is shortened to its sign, and any other difference is left out. A name
    that is too long is cut off. A number is never cut off, because half of a number would mislead.
    """
    words = frame.name
    if of_two:
        whole = f"{signed(frame.more_us)} {frame.name}"
        if len(whole) <= letters:
            return whole
        words = f"{whole[0]} {frame.name}" if frame.change else frame.name
    return words if len(words) <= letters else f"{words[: letters - 1]}…"


def _kind(frame: Frame, of_two: bool) -> str:
    if of_two:
        return CHANGES[frame.change]
    return "kernel" if frame.in_kernel else "program"


def _title(frame: Frame, of_two: bool) -> str:
    if not of_two:
        return f"{frame.name}: {number(frame.us)} µs"
    unsure = "" if frame.change else ", not sure"
    return f"{frame.name}: {signed(frame.more_us)} µs{unsure}"


def svg(root: Frame, color: str = PLAIN, of_two: bool = False) -> str:
    """Return the static SVG of a tree of frames. The same tree always gives the same bytes.

    `color` is the colour of the server. `of_two` is True if the tree is the difference of two
    servers. In such a graph, red means more CPU time, and hatched blue means less.
    """
    drawn = list(boxes(root.kept(MOST_DRAWN), of_two))
    height = max(box.y for box in drawn) + ROW_PX
    return (
        templates()
        .get_template("flame.svg")
        .render(
            boxes=drawn,
            width=WIDTH_PX,
            height=height,
            row=ROW_PX,
            color=tint(color),
            of_two=of_two,
        )
    )


def blocks(
    profiles: Profiles, looks: Mapping[str, Identity], load: str, words: str, source: str
) -> Iterator[Flame]:
    """Yield the flame graph of the difference of two servers, then a flame graph for each server.

    The difference is the most expensive server minus the cheapest server. `words` name the load,
    and `source` is a line that names the run.
    """
    servers = [each.server for each in profiles.of(load)]
    if len(servers) > 1:
        less = servers[0]
        more = servers[-1]
        apart = of_difference(profiles, less, more, load)
        yield block_of_difference(apart, less, more, words, source)
    for server in servers:
        color = looks[server].color if server in looks else PLAIN
        yield block_of_server(of_server(profiles, server, load), color, words, source)


def block_of_server(root: Frame, color: str, load: str, source: str) -> Flame:
    """Return the flame graph of one server.

    `load` is the load in words, and `source` is a line that names the run.
    """
    hot = ", ".join(
        f"{each.name} {number(own_us(each))}" for each in widest(root, NAMED) if own_us(each) > 0
    )
    total = f"{number(root.us)} µs of CPU time per request"
    return Flame(
        svg=svg(root, color),
        data=_data(root, {"kind": "server", "color": tint(color)}),
        name=f"{root.name}, {load}",
        alt=f"Flame graph of {root.name}: {total}. Most µs in a function itself: {hot}.",
        caption=(
            f"{root.name} takes {total}, the mean of the recorded slices: callees are below their "
            f"callers, and the kernel is grey.\n{source}"
        ),
        width_px=WIDTH_PX,
        height_px=ROW_PX * depth([root.kept(MOST_DRAWN)]),
    )


def block_of_difference(root: Frame, less: str, more: str, load: str, source: str) -> Flame:
    """Return the flame graph of the CPU time per request of `more` minus that of `less`.

    `load` is the load in words, and `source` is a line that names the run. The width of a frame is
    the mean CPU time of both servers. The function `of_difference` makes the tree `root`.
    """
    sure = ", ".join(f"{each.name} {signed(each.more_us)}" for each in changed(root, NAMED))
    total = f"{signed(root.more_us)} µs of CPU time per request"
    return Flame(
        svg=svg(root, of_two=True),
        data=_data(root, {"kind": "difference", "less": less, "more": more}),
        name=f"{more} minus {less}, {load}",
        alt=(
            f"Flame graph of the difference of {more} and {less}: {total}. Kinds of work that "
            f"differ for sure: {sure or 'none'}."
        ),
        caption=(
            f"{more} minus {less} is {total}: {more} takes more in red (+), less in hatched blue "
            f"(−), and neither for sure in grey.\n{source}"
        ),
        width_px=WIDTH_PX,
        height_px=ROW_PX * depth([root.kept(MOST_DRAWN)]),
    )


def _data(root: Frame, about: JsonObject) -> JsonObject:
    return {**about, "root": _plain(root.kept(MOST_SEARCHED), of_two=about["kind"] != "server")}


def _plain(frame: Frame, of_two: bool) -> JsonObject:
    """Return a frame as plain data for the viewer: name, µs, kind, difference, and callees."""
    found: JsonObject = {
        "name": frame.name,
        "value": round(frame.us, 4),
        "kind": _kind(frame, of_two),
    }
    if of_two:
        found["more"] = round(frame.more_us, 4)
    if frame.callees:
        found["children"] = [_plain(each, of_two) for each in frame.callees]
    return found
