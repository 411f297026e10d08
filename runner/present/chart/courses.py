"""Lines of one panel in words: where each begins, its highest or lowest point, where it ends, and what is hollow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from runner.present.chart.sentences import by_value, listing, said, unknown
from runner.present.chart.value import Axis, Extreme


@dataclass(frozen=True)
class Course:
    """A server's drawn line: `x` rising, `y`, and whether each point is `solid`: what is hollow does not rank."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    solid: tuple[bool, ...]


def course(name: str, points: Iterable[tuple[float, float, bool]]) -> Course:
    """Return a server's line from its points (x, y, solid), without those whose y is NaN."""
    known = [point for point in points if math.isfinite(point[1])]
    return Course(name, tuple(x for x, _, _ in known), tuple(y for _, y, _ in known), tuple(full for *_, full in known))


def clauses(courses: Sequence[Course], extreme: Extreme, across: Axis, up: Axis) -> tuple[str, str, str]:
    """Return the lines in three degrees of detail: start, extreme and end; the extremes; the outermost of these."""
    known = {course.name: course for course in courses if course.y}
    turns = {name: _turn(course, extreme) for name, course in known.items()}
    ordered = by_value({name: known[name].y[at] for name, at in turns.items()}, rising=extreme.rising)
    texts = {name: f"{up.say(value)} {across.place(known[name].x[turns[name]])}" for name, value in ordered.items()}
    lines = "; ".join(_line(known[name], turns[name], across, up) for name in ordered)
    rest = unknown([course.name for course in courses], known)
    order = "lowest first" if extreme.rising else "highest first"
    extremes = said(extreme.noun, order, texts)
    curves = any(len(course.y) > 1 for course in known.values())
    return (
        f"{f'the lines run, {order}, {lines}' if curves else extremes}{rest}",
        f"{extremes}{rest}",
        f"{said(extreme.noun, order, texts, short=True)}{rest}",
    )


def _turn(course: Course, extreme: Extreme) -> int:
    """Return the place of a line's extreme, the first of several that are equal."""
    return course.y.index(max(course.y) if extreme.highest else min(course.y))


def _line(course: Course, turn: int, across: Axis, up: Axis) -> str:
    """Return `gin from 16,130 at 1 over 73,320 at 100 to 65,988 at 1,000`."""
    words = [f"{up.say(y)} {across.place(x)}" for x, y in zip(course.x, course.y, strict=True)]
    last = len(words) - 1
    if last == 0:
        return f"{course.name} {words[0]}"
    places = [0, turn, last] if 0 < turn < last else [0, last]
    *first, end = [words[at] for at in places]
    return f"{course.name} from {' over '.join(first)} to {end}"


def hollow(courses: Sequence[Course], place: Callable[[float], str]) -> tuple[str, str]:
    """Say which points are hollow, exactly and as a count; `place` names the x of a point."""
    points = [(course.name, x, solid) for course in courses for x, solid in zip(course.x, course.solid, strict=True)]
    found = [(name, x) for name, x, solid in points if not solid]
    if not found or len(found) == len(points):
        words = "every point is hollow" if found else "no point is hollow"
        return words, words
    at: dict[tuple[float, ...], list[str]] = {}
    for course in courses:
        own = tuple(x for name, x in found if name == course.name)
        if own:
            at.setdefault(own if len(own) < len(course.x) else (), []).append(course.name)
    each = [f"{listing(names)} {_places(xs, place)}" for xs, names in at.items()]
    return f"hollow are {'; '.join(each)}", f"{len(found)} of {len(points)} points are hollow"


def _places(xs: tuple[float, ...], place: Callable[[float], str]) -> str:
    return f"at {listing([place(x) for x in xs])}" if xs else "everywhere"
