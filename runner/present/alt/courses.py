"""Lines of one panel in words: where each begins, its highest or lowest point, where it ends, and what is hollow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from runner.present.alt.sentences import by_value, listing, said, unknown


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


@dataclass(frozen=True)
class Wording:
    """How the lines of a figure are told."""

    noun: str
    """Names the extreme, such as `highest rate`."""
    y: Callable[[float], str]
    """A value with its unit, such as `4,200/s`."""
    x: Callable[[float], str]
    """A place, such as `at 17.5 s`."""
    highest: bool = True
    """Whether the extreme that is told is the highest point of a line, else the lowest."""
    rising: bool = False
    """Whether the server with the smallest extreme is told first."""

    @property
    def order(self) -> str:
        """The order in which servers are told, in words."""
        return "lowest first" if self.rising else "highest first"


def clauses(courses: Sequence[Course], wording: Wording) -> tuple[str, str, str]:
    """Return the lines in three degrees of detail: start, extreme and end; the extremes; the outermost of these."""
    known = {course.name: course for course in courses if course.y}
    turns = {name: _turn(course, wording) for name, course in known.items()}
    ordered = by_value({name: known[name].y[at] for name, at in turns.items()}, rising=wording.rising)
    texts = {name: f"{wording.y(value)} {wording.x(known[name].x[turns[name]])}" for name, value in ordered.items()}
    lines = "; ".join(_line(known[name], turns[name], wording) for name in ordered)
    rest = unknown([course.name for course in courses], known)
    extremes = said(wording.noun, wording.order, texts)
    curves = any(len(course.y) > 1 for course in known.values())
    return (
        f"{f'the lines run, {wording.order}, {lines}' if curves else extremes}{rest}",
        f"{extremes}{rest}",
        f"{said(wording.noun, wording.order, texts, short=True)}{rest}",
    )


def _turn(course: Course, wording: Wording) -> int:
    """Return the place of a line's extreme, the first of several that are equal."""
    return course.y.index(max(course.y) if wording.highest else min(course.y))


def _line(course: Course, turn: int, wording: Wording) -> str:
    """Return `gin from 16,130 at 1 over 73,320 at 100 to 65,988 at 1,000`."""
    last = len(course.y) - 1
    if last == 0:
        return f"{course.name} {wording.y(course.y[0])} {wording.x(course.x[0])}"
    places = [0, turn, last] if 0 < turn < last else [0, last]
    words = [f"{wording.y(course.y[at])} {wording.x(course.x[at])}" for at in places]
    return f"{course.name} from {' over '.join(words[:-1])} to {words[-1]}"


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
